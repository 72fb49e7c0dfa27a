"""Groups documents into calls of a reader: long ones alone, small ones together, since each call has its cost."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from memagent_batch.runs.planning.work import count_pending, num_readings_of

CALL_COLUMN = "call"
"""Number of the call in which a document goes to a reader: documents of one number go together."""
CALLS_PER_READING = 2
"""Calls that a group leaves for each reading in flight: of what is left to do it takes a fraction of this many."""
CALL_READINGS = 64
"""Most readings of a group of documents; beyond that, what a call costs is little beside what the readings cost."""


def group_documents(bundles: Sequence[pa.Table], *, readings_in_flight: int) -> Iterator[pa.Table]:
    """Adds to each bundle which of its documents go to a reader in one call (`CALL_COLUMN`).

    A call takes at most a small share of the readings and of the bytes that are left, so that calls shrink to one
    document each towards the end, and the replicas end together.

    Args:
        bundles: All of `Plan.pending`, in order.
        readings_in_flight: Of all replicas.
    """
    share = CALLS_PER_READING * readings_in_flight
    left = count_pending(bundles)
    num_readings, num_bytes = left.readings, left.num_bytes
    for bundle in bundles:
        counts = num_readings_of(bundle).to_pylist()
        room_readings = room_bytes = 0.0
        calls: list[int] = []
        for count, size in zip(counts, bundle["num_bytes"].to_pylist(), strict=True):
            room_readings, room_bytes = room_readings - count, room_bytes - count * size
            is_full = not calls or room_readings < 0 or room_bytes < 0
            if is_full:
                room_readings = min(num_readings / share, CALL_READINGS) - count
                room_bytes = num_bytes / share - count * size
            calls.append(calls[-1] + is_full if calls else 0)
            num_readings, num_bytes = num_readings - count, num_bytes - count * size
        yield bundle.append_column(CALL_COLUMN, pa.array(calls, pa.int32()))

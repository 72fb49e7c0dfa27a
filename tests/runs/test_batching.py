from collections.abc import Sequence

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.runs.plan import CALL_COLUMN, CALL_READINGS, CALLS_PER_READING, WORK_COLUMNS, group_documents

READING = {"question": 0, "sample": 0}
KIB = 1024


def bundle_of(sizes: Sequence[int], *, num_readings: int = 1) -> pa.Table:
    return pa.table(
        {
            "document_id": [str(number) for number in range(len(sizes))],
            "num_bytes": pa.array(sizes, pa.int64()),
            "readings": pa.array([[READING] * num_readings] * len(sizes), WORK_COLUMNS.field("readings").type),
            "closings": pa.array([[]] * len(sizes), WORK_COLUMNS.field("closings").type),
        }
    )


def calls_of(bundles: Sequence[pa.Table], *, readings_in_flight: int = 4) -> list[list[int]]:
    """Sizes in bytes of the documents of each call, in order."""
    calls: dict[tuple[int, int], list[int]] = {}
    for number, grouped in enumerate(group_documents(bundles, readings_in_flight=readings_in_flight)):
        for call, size in zip(grouped[CALL_COLUMN].to_pylist(), grouped["num_bytes"].to_pylist(), strict=True):
            calls.setdefault((number, call), []).append(size)
    return list(calls.values())


def test_calls_of_few_documents_hold_one_each() -> None:
    assert calls_of([bundle_of([100] * 8)]) == [[100]] * 8


def test_calls_of_many_small_documents_hold_several_and_shrink_to_one() -> None:
    bundles = [bundle_of([100] * 800), bundle_of([100] * 200)]
    lengths = [len(call) for call in calls_of(bundles, readings_in_flight=16)]
    share = 16 * CALLS_PER_READING
    assert sum(lengths) == 1000
    assert lengths[0] == 1000 // share
    assert lengths[-share:] == [1] * share
    assert len(lengths) < 200


def test_calls_of_a_great_many_readings_hold_no_more_than_the_most() -> None:
    assert max(len(call) for call in calls_of([bundle_of([100] * 100_000)])) == CALL_READINGS
    many_questions = calls_of([bundle_of([100] * 10_000, num_readings=20)])
    assert max(len(call) for call in many_questions) == CALL_READINGS // 20


def test_calls_beside_small_documents_hold_long_ones_alone() -> None:
    calls = calls_of([bundle_of([900 * KIB]), bundle_of([500 * KIB]), bundle_of([100] * 1000)])
    assert calls[:2] == [[900 * KIB], [500 * KIB]]
    assert len(calls[2]) > 1


@given(
    sizes=st.lists(st.integers(0, 10**6), min_size=1, max_size=200),
    readings_in_flight=st.integers(1, 20),
    cut=st.integers(0, 200),
)
def test_calls_of_any_bundles_hold_each_document_once_and_a_small_share_of_the_bytes(
    sizes: list[int], readings_in_flight: int, cut: int
) -> None:
    sizes = sorted(sizes, reverse=True)
    bundles = [bundle_of(part) for part in (sizes[:cut], sizes[cut:]) if part]
    calls = calls_of(bundles, readings_in_flight=readings_in_flight)
    assert [size for call in calls for size in call] == sizes
    share = sum(sizes) / (readings_in_flight * CALLS_PER_READING)
    assert all(len(call) == 1 or sum(call) <= share for call in calls)

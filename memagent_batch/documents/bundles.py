"""Which documents one tokenising task takes together: few tasks for many small files, one pass over a row group."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.documents.formats.byte_lines import COMPRESSIONS
from memagent_batch.documents.formats.formats import GROUPED
from memagent_batch.store.database import BATCH_ROWS, on_disk, open_database, query_to_disk

BUNDLE_BYTES = 1024 * 1024
"""Text that one tokenising task takes out of several files: small ones go together, large ones alone."""

BUNDLE_FILES = 256
"""Most files of a bundle: each costs a request to an object store."""

BUNDLE_DOCUMENTS = 16_384
"""Most documents of a bundle; the task holds their ids and places, some kilobytes each."""

GROUP_BYTES = 64 * 1024 * 1024
"""Most text of a bundle out of one row group. Rows can't be skipped unread, so each bundle decodes those before its own
again: at this size, that costs a tenth of the tokenising."""

GROUP_BUNDLES = 16
"""Bundles that a row group of longer documents is cut into, so that several tasks feed the readers from it."""

SMALL_POWER = 14
"""Documents under 2^15 bytes, a chunk or two, count as equally long: their order does not matter, and a row group is
decoded once for all of them."""

_COLUMNAR = pa.array(sorted(GROUPED))
_PACKED = "|".join(rf"\{ending}$" for ending in COMPRESSIONS)
"""Pattern of files that are unpacked from their beginning, so that several passes over one cost as many times that."""


_IN_ORDER = f"""
from documents order by floor(log2(greatest(num_bytes, {2**SMALL_POWER}))) desc, path, start, stop
"""


def bundles(documents: pa.Table | pa.RecordBatchReader) -> Iterator[pa.Table]:
    """The documents in bundles: longest first by powers of two, inside a power by place.

    Inside a bundle documents are read in the order of their files: one over several powers would not be longest first.

    Args:
        documents: Rows of `INDEX_SCHEMA`; the columns path, format, start, stop and num_bytes are used.
    """
    schema = documents.schema
    with open_database({"documents": documents}) as database:
        in_order = query_to_disk(database, _IN_ORDER, schema=schema)
    edges = pairwise(_bundle_edges(in_order))
    slices = (in_order.slice(start, stop - start).combine_chunks() for start, stop in edges)
    for batch in on_disk(slices, schema=schema).to_batches():
        yield pa.Table.from_batches([batch])


def _bundle_edges(documents: pa.Table) -> Iterator[int]:
    """The first row of each bundle, and the row after the last.

    A bundle inside one place holds up to the place's own limit, one over several up to `BUNDLE_BYTES`.
    """
    start = held = size = num_places = 0
    first_power = place = row = -1
    for row, (power, own_place, own_size, limit) in enumerate(_bundled_rows(documents)):
        held, num_places = held + size, num_places + (own_place != place)
        most = limit if num_places == 1 else BUNDLE_BYTES
        is_full = held + own_size > most or row - start == BUNDLE_DOCUMENTS or num_places > BUNDLE_FILES
        if is_full or power != first_power:
            yield row
            start, held, num_places, first_power = row, 0, 1, power
        place, size = own_place, own_size
    yield row + 1


def _bundled_rows(documents: pa.Table) -> Iterator[tuple[int, ...]]:
    """Power of two, place, size and limit of each document; some at a time, since Python's numbers are large."""
    if not documents.num_rows:
        return
    sizes, places = _numbers(documents["num_bytes"]), _pass_numbers(documents)
    powers = np.floor(np.log2(np.maximum(sizes, 2**SMALL_POWER))).astype(np.int64)
    columns = (powers, places, sizes, _limits(documents, places, sizes=sizes, small=powers == SMALL_POWER))
    for start in range(0, len(sizes), BATCH_ROWS):
        yield from zip(*(column[start : start + BATCH_ROWS].tolist() for column in columns), strict=True)


def _pass_numbers(documents: pa.Table) -> npt.NDArray[np.int64]:
    """A number for what is read in one pass: a row group or record batch, or a file of another format."""
    files = _numbers(documents["path"].dictionary_encode().combine_chunks().indices)
    groups = np.where(pc.is_in(documents["format"], value_set=_COLUMNAR), _numbers(documents["start"]), 0)
    places: npt.NDArray[np.int64] = files.astype(np.int64) * (int(groups.max()) + 1) + groups
    return places


def _limits(
    documents: pa.Table, places: npt.NDArray[np.int64], *, sizes: npt.NDArray[np.int64], small: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Most bytes of a bundle in place of each document."""
    _, place = np.unique(places, return_inverse=True)
    shares = np.bincount(place, weights=sizes)[place] // GROUP_BUNDLES
    in_group = np.where(small, GROUP_BYTES, np.clip(shares, BUNDLE_BYTES, GROUP_BYTES))
    return np.where(_is_read_in_passes(documents), in_group, BUNDLE_BYTES).astype(np.int64)


def _is_read_in_passes(documents: pa.Table) -> npt.NDArray[np.bool_]:
    """Whether a document costs all that stands before it in its row group, or in its compressed file."""
    files = documents["path"].dictionary_encode().combine_chunks()
    is_packed = pc.match_substring_regex(files.dictionary, _PACKED, ignore_case=True).take(files.indices)
    return np.asarray(pc.or_(pc.is_in(documents["format"], value_set=_COLUMNAR), is_packed), dtype=bool)


def _numbers(column: pa.ChunkedArray | pa.Array) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = np.asarray(column)
    return numbers

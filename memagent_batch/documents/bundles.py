"""Which documents one tokenising task takes together: few tasks for many small files, one pass over a row group."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.documents.formats.byte_lines import COMPRESSIONS
from memagent_batch.documents.formats.formats import GROUPED

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


def bundles(documents: pa.Table) -> Iterator[pa.Int64Array]:
    """Row numbers of each bundle: longest documents first by powers of two, inside a power by place.

    Inside a bundle documents are read in the order of their files: one over several powers would not be longest first.

    Args:
        documents: Rows of `INDEX_SCHEMA`; the columns path, format, start, stop and num_bytes are used.
    """
    if not documents.num_rows:
        return
    longest = pc.max_element_wise(documents["num_bytes"], 2**SMALL_POWER)
    power = pc.cast(pc.floor(pc.log2(longest)), pa.int8())
    order = pc.sort_indices(
        documents.select(["path", "start", "stop"]).append_column("power", power),
        sort_keys=[("power", "descending"), ("path", "ascending"), ("start", "ascending"), ("stop", "ascending")],
    )
    powers, sizes = _numbers(power.take(order)), _numbers(documents["num_bytes"].take(order))
    places = _pass_numbers(documents)[order.to_numpy()]
    limits = _limits(documents, sizes=_numbers(documents["num_bytes"]), small=_numbers(power) == SMALL_POWER)
    edges = _bundle_edges(powers.tolist(), places.tolist(), sizes.tolist(), limits[order.to_numpy()].tolist())
    start = 0
    for stop in edges:
        yield order.slice(start, stop - start)
        start = stop


def _bundle_edges(powers: list[int], places: list[int], sizes: list[int], limits: list[int]) -> Iterator[int]:
    """The row after the last one of each bundle.

    A bundle inside one place holds up to the place's own limit, one over several up to `BUNDLE_BYTES`.
    """
    start = held = 0
    num_places = 1
    for row in range(1, len(powers)):
        held += sizes[row - 1]
        num_places += places[row] != places[row - 1]
        most = limits[row] if num_places == 1 else BUNDLE_BYTES
        is_full = held + sizes[row] > most or row - start == BUNDLE_DOCUMENTS or num_places > BUNDLE_FILES
        if is_full or powers[row] != powers[start]:
            yield row
            start, held, num_places = row, 0, 1
    yield len(powers)


def _pass_numbers(documents: pa.Table) -> npt.NDArray[np.int64]:
    """A number for what is read in one pass: a row group or record batch, or a file of another format."""
    files = _numbers(documents["path"].combine_chunks().dictionary_encode().indices)
    groups = np.where(pc.is_in(documents["format"], value_set=_COLUMNAR), _numbers(documents["start"]), 0)
    places: npt.NDArray[np.int64] = files.astype(np.int64) * (int(groups.max()) + 1) + groups
    return places


def _limits(
    documents: pa.Table, *, sizes: npt.NDArray[np.int64], small: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Most bytes of a bundle in place of each document."""
    _, place = np.unique(_pass_numbers(documents), return_inverse=True)
    shares = np.bincount(place, weights=sizes)[place] // GROUP_BUNDLES
    in_group = np.where(small, GROUP_BYTES, np.clip(shares, BUNDLE_BYTES, GROUP_BYTES))
    return np.where(_is_read_in_passes(documents), in_group, BUNDLE_BYTES).astype(np.int64)


def _is_read_in_passes(documents: pa.Table) -> npt.NDArray[np.bool_]:
    """Whether a document costs all that stands before it in its row group, or in its compressed file."""
    files = documents["path"].combine_chunks().dictionary_encode()
    is_packed = pc.match_substring_regex(files.dictionary, _PACKED, ignore_case=True).take(files.indices)
    return np.asarray(pc.or_(pc.is_in(documents["format"], value_set=_COLUMNAR), is_packed), dtype=bool)


def _numbers(column: pa.ChunkedArray | pa.Array) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = np.asarray(column)
    return numbers

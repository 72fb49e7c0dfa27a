"""Which documents one tokenising task takes together: few tasks for many small files, one pass over a row group."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from memagent_batch.documents.formats.byte_lines import COMPRESSIONS
from memagent_batch.documents.formats.formats import GROUPED
from memagent_batch.store.database import on_disk, open_database, query_to_disk

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

_BUNDLE = "bundle"
_GROUPED = ", ".join(f"'{name}'" for name in sorted(GROUPED))
_PACKED = "|".join(rf"\{ending}$" for ending in COMPRESSIONS)
"""Pattern of files that are unpacked from their beginning, so that several passes over one cost as many times that."""
_IN_BUNDLES = f"""
with placed as (
    select *, floor(log2(greatest(num_bytes, {2**SMALL_POWER})))::bigint as power,
           if(format in ({_GROUPED}), start, 0) as place,
           format in ({_GROUPED}) or regexp_matches(path, '{_PACKED}', 'i') as is_one_pass
    from documents),
sized as (
    select *, is_one_pass and sum(num_bytes) over (partition by power, path, place) > {BUNDLE_BYTES} as is_apart,
           least(greatest((sum(num_bytes) over (partition by path, place))::bigint // {GROUP_BUNDLES}, {BUNDLE_BYTES}),
                 {GROUP_BYTES}) as share
    from placed),
lined_up as (
    select *, if(is_apart, path, null) as apart_path, if(is_apart, place, null) as apart_place,
           case when not is_apart then {BUNDLE_BYTES} when power = {SMALL_POWER} then {GROUP_BYTES} else share end
               - (2 << power) as room
    from sized),
counted as (
    select *, (sum(num_bytes) over line)::bigint as end_bytes, row_number() over line as number,
           dense_rank() over (partition by power, apart_path, apart_place order by path, place) as file
    from lined_up
    window line as (partition by power, apart_path, apart_place order by path, start, stop
                    rows unbounded preceding))
select * exclude (power, place, is_one_pass, is_apart, share, apart_path, apart_place, room, end_bytes, number, file),
       dense_rank() over (order by power desc, apart_path, apart_place, (number - 1) // {BUNDLE_DOCUMENTS},
                          (file - 1) // {BUNDLE_FILES},
                          if(room > 0, end_bytes // room, number)) as {_BUNDLE}
from counted order by {_BUNDLE}, path, start, stop
"""
"""Bundles in a line of documents of about one length: of one row group or compressed file that is large, or of all
others. Room for the longest document is left in each, so that the one in which a bundle ends is inside its limit."""


def bundles(documents: pa.Table | pa.RecordBatchReader) -> Iterator[pa.Table]:
    """The documents in bundles: longest first by powers of two, inside a power by place.

    Inside a bundle documents are read in the order of their files: one over several powers would not be longest first.

    Args:
        documents: Rows of `INDEX_SCHEMA`; the columns path, format, start, stop and num_bytes are used.
    """
    schema = documents.schema
    with open_database({"documents": documents}) as database:
        numbered = query_to_disk(database, _IN_BUNDLES, schema=schema.append(pa.field(_BUNDLE, pa.int64())))
    starts = np.flatnonzero(np.diff(numbered[_BUNDLE].to_numpy(), prepend=0)).tolist()
    rows = numbered.select(schema.names)
    edges = pairwise([*starts, numbered.num_rows])
    slices = (rows.slice(start, stop - start).combine_chunks() for start, stop in edges)
    for batch in on_disk(slices, schema=schema).to_batches():
        yield pa.Table.from_batches([batch])

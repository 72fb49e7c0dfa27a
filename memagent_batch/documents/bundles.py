"""Which documents one tokenising task takes together: few tasks for many small files, one pass over a row group."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from memagent_batch.documents.formats.byte_lines import COMPRESSIONS
from memagent_batch.documents.formats.formats import GROUPED
from memagent_batch.store.database import on_disk

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
IN_BUNDLES = f"""
with placed as (
    select document, num_bytes, floor(log2(greatest(num_bytes, {2**SMALL_POWER})))::int as power,
           (path, if(format in ({_GROUPED}), start, 0)) as place,
           format in ({_GROUPED}) or regexp_matches(path, '{_PACKED}', 'i') as is_one_pass
    from documents),
compared as (select * exclude (place), place is distinct from lag(place) over () as is_next from placed),
numbered as (
    select * exclude (is_next), (count(*) filter (is_next) over (rows unbounded preceding))::int as place
    from compared),
sized as (
    select *, is_one_pass and sum(num_bytes) over (partition by power, place) > {BUNDLE_BYTES} as is_apart,
           least(greatest((sum(num_bytes) over (partition by place))::bigint // {GROUP_BUNDLES}, {BUNDLE_BYTES}),
                 {GROUP_BYTES}) as share
    from numbered semi join todo using (document)),
lined_up as (
    select document, num_bytes, power, place, if(is_apart, place, null) as apart,
           case when not is_apart then {BUNDLE_BYTES} when power = {SMALL_POWER} then {GROUP_BYTES} else share end
               - (2 << power) as room
    from sized),
counted as (
    select *, (sum(num_bytes) over line)::bigint as end_bytes, row_number() over line as number,
           dense_rank() over (partition by power, apart order by place) as file
    from lined_up
    window line as (partition by power, apart order by document rows unbounded preceding))
select document, dense_rank() over (order by power desc, apart, (number - 1) // {BUNDLE_DOCUMENTS},
                                    (file - 1) // {BUNDLE_FILES}, if(room > 0, end_bytes // room, number)) as {_BUNDLE}
from counted order by {_BUNDLE}, document
"""
"""The query of the bundle of each document to do (`todo`): longest first by powers of two, inside a power and in a
bundle in the order of the index, which is that of the files. `document` is a row of it; `place` numbers its files and
row groups.

Bundles lie in a line of documents of about one length: of one row group or compressed file that is large, or of all
others. Room for the longest document is left in each, so that the one in which a bundle ends is inside its limit."""


def cut_bundles(documents: pa.Table, lined_up: pa.Table) -> Iterator[pa.Table]:
    """The documents in their bundles; `lined_up` is what the query has found of them."""
    starts = np.flatnonzero(np.diff(lined_up[_BUNDLE].to_numpy(), prepend=0)).tolist()
    edges = pairwise([*starts, documents.num_rows])
    slices = (documents.slice(start, stop - start).combine_chunks() for start, stop in edges)
    for batch in on_disk(slices, schema=documents.schema).to_batches():
        yield pa.Table.from_batches([batch])

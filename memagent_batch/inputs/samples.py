"""A fair sample of the documents, which stays the same from night to night and grows with the limit."""

from collections.abc import Collection
from dataclasses import dataclass
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.domain.addresses import permanent_number


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledDocuments:
    """An index of documents in two: both are tables of `index_schema`, in the order of the whole."""

    taken: pa.Table
    """What is read."""
    outside: pa.Table | None
    """What is left out; None where nothing can be."""


def documents_named(index: pa.Table, document_ids: Collection[str]) -> SampledDocuments:
    """The documents of these ids, for a second pass."""
    is_named = pc.is_in(index["document_id"], pa.array(document_ids, index.schema.field("document_id").type))
    taken, outside = index.filter(is_named), index.filter(pc.invert(is_named))
    return SampledDocuments(taken=taken.combine_chunks(), outside=outside.combine_chunks())


def sample_documents(index: pa.Table, *, limit: int | None, seed: int) -> SampledDocuments:
    """The documents with the smallest permanent random numbers, of seed and document hash.

    A text that can't be read has no hash; its document_id stands for it. Of equal texts the first ids are taken.
    """
    if limit is None:
        return SampledDocuments(taken=index, outside=None)
    hashes, names = index["document_hash"].to_pylist(), index["document_id"].to_pylist()
    numbered = [
        (permanent_number(str(seed), hash_ or name), name, row)
        for row, (hash_, name) in enumerate(zip(hashes, names, strict=True))
    ]
    rows = [row for *_, row in sorted(numbered, key=itemgetter(0, 1))]
    taken, outside = (pa.array(sorted(part), pa.int64()) for part in (rows[:limit], rows[limit:]))
    return SampledDocuments(taken=index.take(taken).combine_chunks(), outside=index.take(outside).combine_chunks())

"""Indexes the documents in parallel: shards of files in, rows of the document index out."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import ray
from ray.data import Dataset

from memagent_batch.config.sources import SourceConfig
from memagent_batch.inputs.documents import index_shard
from memagent_batch.inputs.rows import group_rows
from memagent_batch.inputs.shards import Shard
from memagent_batch.ray_data.session import CPU_SHARE
from memagent_batch.wiring import make_documents

_MOST_GROUPS = 256
"""Most parts that the rows of all documents are grouped in, each by one task: 40,000 rows of ten million."""


def indexed_shards(shards: Sequence[Shard], *, sources: SourceConfig) -> Iterator[pa.Table]:
    """The index of all shards, as tables of `index_schema`.

    Raises:
        InputError: a file, column or row can't be used; names it.
    """
    if not shards:
        return
    items = ray.data.from_items([{"shard": shard} for shard in shards], override_num_blocks=len(shards))
    rows = items.map_batches(index_shards, fn_kwargs={"sources": sources}, batch_size=1, num_cpus=CPU_SHARE)
    if sources.input.order_columns:
        rows = _grouped(rows, num_groups=min(len(shards), _MOST_GROUPS), sources=sources)
    yield from rows.iter_batches(batch_size=None, batch_format="pyarrow")


def index_shards(batch: Mapping[str, Iterable[Shard]], *, sources: SourceConfig) -> Iterator[pa.Table]:
    """Ray Data UDF: shards in, rows of the document index out; holds one batch of texts at a time."""
    for shard in batch["shard"]:
        yield from index_shard(shard, settings=sources.input, storage_options=sources.storage_options)


def group_documents(rows: pa.Table, *, sources: SourceConfig) -> Iterator[pa.Table]:
    """Ray Data UDF: all indexed rows of some documents in, the documents out."""
    yield from group_rows(rows, documents=make_documents(sources)[0], settings=sources.input)


def _grouped(rows: Dataset, *, num_groups: int, sources: SourceConfig) -> Dataset:
    """Brings the rows of each document together, by the hash of its id; no text is among them."""
    return rows.repartition(num_groups, keys=["document_id"]).map_batches(
        group_documents, fn_kwargs={"sources": sources}, batch_size=None, batch_format="pyarrow", num_cpus=CPU_SHARE
    )

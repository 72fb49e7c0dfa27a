"""One corpus in many forms: rows of files, pages, tables of a lake, partitions; and what is indexed and read of it."""

import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.config.sources import InputConfig
from memagent_batch.documents.document_index import index_schema
from memagent_batch.documents.indexing import index_shard
from memagent_batch.documents.lake.tables import documents_place, texts_place
from memagent_batch.documents.rows import group_rows
from memagent_batch.documents.shards import FoundShards, Shard, cut_shards, find_shards
from memagent_batch.documents.texts import FetchedText, fetch_texts
from memagent_batch.store.location import Location

if TYPE_CHECKING:
    from pyiceberg.table import Table

PAGES = {
    "a": ["The fox\nran.", "It rested.", "It slept."],
    "b": ["Ünïcode 𝄞 text"],
    "c": [f"page {number}" for number in range(12)],
    "d": ["", "after an empty page"],
}
TEXTS = {name: "\n\n".join(pages) for name, pages in PAGES.items()}
DAYS = {"a": "2026-01-01", "b": "2026-01-01", "c": "2026-01-02", "d": "x/y=z %41"}


def rows_table(texts: Mapping[str, str] = TEXTS) -> pa.Table:
    days = [DAYS.get(name, "2026-01-01") for name in texts]
    return pa.table({"document_id": list(texts), "text": list(texts.values()), "day": days})


def pages_table(pages: Mapping[str, list[str]] = PAGES) -> pa.Table:
    rows = [
        {"document_id": name, "text": text, "page": number + 1, "day": DAYS[name]}
        for name, texts in pages.items()
        for number, text in enumerate(texts)
    ]
    return pa.Table.from_pylist(rows)


def new_iceberg(schema: pa.Schema) -> "Table":
    """An empty table in a namespace of its own of the catalog `lake` (tests/conftest.py)."""
    from pyiceberg.catalog import load_catalog

    catalog, namespace = load_catalog("lake"), f"db{uuid.uuid4().hex}"
    catalog.create_namespace(namespace)
    return catalog.create_table(f"{namespace}.docs", schema=schema)


def iceberg_uri(table: "Table") -> str:
    return f"iceberg://lake/{'.'.join(table.name())}"


def write_parquet(folder: Path) -> str:
    (folder / "in").mkdir(parents=True)
    pq.write_table(rows_table(), folder / "in/docs.parquet", row_group_size=2)
    return f"{folder}/in"


def write_pages(folder: Path) -> str:
    """Pages in any order, spread over two files."""
    (folder / "in/deep").mkdir(parents=True)
    pages = pages_table()
    shuffled = pages.take(pa.array(sorted(range(pages.num_rows), key=lambda row: row * 7 % pages.num_rows)))
    pq.write_table(shuffled.slice(0, 8), folder / "in/one.parquet", row_group_size=3)
    pq.write_table(shuffled.slice(8), folder / "in/deep/two.parquet", row_group_size=3)
    return f"{folder}/in"


def write_delta(folder: Path) -> str:
    """Written in two steps, with a document that changed and one that was deleted."""
    from deltalake import DeltaTable, write_deltalake

    place = f"{folder}/in"
    write_deltalake(place, rows_table(TEXTS | {"b": "old", "gone": "gone"}), partition_by=["day"])
    DeltaTable(place).delete("document_id in ('b', 'gone')")
    write_deltalake(place, rows_table({"b": TEXTS["b"]}), mode="append")
    return f"delta://{place}"


def write_iceberg(_: Path) -> str:
    """The column of the texts had another name when the first files were written."""
    table = new_iceberg(rows_table().schema)
    table.append(rows_table(TEXTS | {"b": "old", "gone": "gone"}))
    table.delete("document_id in ('b', 'gone')")
    with table.update_schema() as update:
        update.rename_column("text", "body").rename_column("day", "text")
    with table.update_schema() as update:
        update.rename_column("text", "date").rename_column("body", "text")
    table.append(rows_table({"b": TEXTS["b"]}).rename_columns(["document_id", "text", "date"]))
    return iceberg_uri(table)


def write_hive(folder: Path) -> str:
    pq.write_to_dataset(rows_table(), f"{folder}/in", partition_cols=["day"])
    return f"{folder}/in"


Writer = Callable[[Path], str]
FORMS: Mapping[str, Writer] = {
    "parquet": write_parquet,
    "pages": write_pages,
    "delta": write_delta,
    "iceberg": write_iceberg,
    "hive": write_hive,
}
SETTINGS = {"pages": InputConfig(order_columns=("page",), locator="page {page}")}


def list_shards(*documents: Location, settings: InputConfig) -> list[Shard]:
    shards = find_shards(*documents, settings=settings).shards
    return cut_shards(shards, settings=settings, storage_options=documents[0].storage_options)


def indexed(place: Location, *, settings: InputConfig, found: FoundShards | None = None) -> pa.Table:
    rows: list[pa.Table] = []
    for shard in (found or find_shards(place, settings=settings)).shards:
        rows += index_shard(shard, settings=settings, storage_options=place.storage_options)
    if settings.order_columns:
        rows = list(group_rows(pa.concat_tables(rows), documents=place, settings=settings))
    return pa.concat_tables([index_schema(settings).empty_table(), *rows]).combine_chunks()


def fetched(index: pa.Table, place: Location, *, settings: InputConfig) -> dict[str, FetchedText]:
    ids = index["document_id"].to_pylist()
    return {ids[text.row]: text for text in fetch_texts(index, documents=place, settings=settings)}


def read(uri: str, settings: InputConfig | None = None, **options: object) -> dict[str, str | None]:
    settings = settings or InputConfig()
    place = documents_place(uri, options)
    found = find_shards(place, settings=settings)
    index = indexed(place, settings=settings, found=found)
    texts = fetched(index, texts_place(found.places, options), settings=settings)
    return {name: text.text for name, text in texts.items()}

"""One corpus in many forms: rows of files, pages, tables of a lake, partitions; and what is read of it."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memagent_batch.config.sources import InputConfig, SourceConfig
from memagent_batch.config.storage import StorageOptions
from memagent_batch.data.documents.source_listing import list_sources
from memagent_batch.data.documents.stored import StoredDocuments, StoredText
from memagent_batch.data.store.delta import RunNumber
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError
from memagent_batch.run.executors.local import LocalExecutor
from memagent_batch.run.ingest import ingest
from memagent_batch.run.sources import find_sources

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


def source_names(*documents: Location, settings: InputConfig) -> list[str]:
    names: list[str] = list_sources(documents, settings=settings).sources["source"].to_pylist()
    return names


@contextmanager
def ingested(*uris: str, settings: InputConfig, **options: Any) -> Iterator[StoredDocuments]:
    """The documents of an output into which these places were read just now."""
    with TemporaryDirectory() as folder:
        output = Location(uri=folder)
        config = SourceConfig(documents=uris, ask=("-",), input=settings, storage_options=StorageOptions(options))
        sources = find_sources(config, output)
        made = ingest(sources, executor=LocalExecutor(), run=RunNumber(number=1, run_id="run"))
        yield StoredDocuments(output=made.output, version=made.documents_version)


def indexed(place: Location, *, settings: InputConfig) -> pa.Table:
    """The index of the documents at a place, by document_id."""
    with ingested(place.uri, settings=settings, **place.storage_options) as stored:
        index = stored.read_index(settings).taken
    return index.sort_by("document_id").combine_chunks()


def read_stored(uri: str, settings: InputConfig | None = None, **options: Any) -> dict[str, StoredText]:
    """The documents at a place that have a text, by document_id."""
    settings = settings or InputConfig()
    with ingested(uri, settings=settings, **options) as stored:
        index = stored.read_index(settings).taken
        index = index.filter(pc.is_valid(index["document_hash"]))
        ids = index["document_id"].to_pylist()
        return {ids[text.row]: text for text in stored.read_texts(index)}


def read(uri: str, settings: InputConfig | None = None, **options: Any) -> dict[str, str | None]:
    """Texts by document_id; None for one that can't be read. Nothing for sources without a document."""
    try:
        return _read(uri, settings or InputConfig(), **options)
    except InputError as error:
        if "hold no document" in str(error):
            return {}
        raise


def _read(uri: str, settings: InputConfig, **options: Any) -> dict[str, str | None]:
    with ingested(uri, settings=settings, **options) as stored:
        index = stored.read_index(settings).taken
        texts: dict[str, str | None] = dict.fromkeys(index["document_id"].to_pylist())
        readable = index.filter(pc.is_valid(index["document_hash"]))
        ids = readable["document_id"].to_pylist()
        return texts | {ids[text.row]: text.text for text in stored.read_texts(readable)}

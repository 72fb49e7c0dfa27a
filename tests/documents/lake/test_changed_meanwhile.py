"""Tables that change between index and reading: each task opens the version that was planned."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
import pytest

from memagent_batch.config.sources import InputConfig
from memagent_batch.documents.lake.tables import documents_place, texts_place
from memagent_batch.documents.shards import find_shards
from tests.documents.lake.forms import fetched, iceberg_uri, indexed, new_iceberg

SHOWN = InputConfig(order_columns=("page",), header="{kind}", locator="page {page}")
TEXT = "\n\n".join(f"mail\ntext {page}" for page in range(3))


def _page(page: int) -> pa.Table:
    return pa.table({"document_id": ["a"], "page": [page], "text": [f"text {page}"], "kind": ["mail"]})


def _texts(index: pa.Table, places: Sequence[str]) -> list[str | None]:
    return [text.text for text in fetched(index, texts_place(places, {}), settings=SHOWN).values()]


def _texts_after(uri: str, change: Callable[[], object]) -> list[str | None]:
    """The texts as another process reads them, if the table changes after its index is made."""
    place = documents_place(uri, {})
    found = find_shards(place, settings=SHOWN)
    index = indexed(place, settings=SHOWN, found=found)
    change()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as other:
        return other.submit(_texts, index, found.places).result()


@pytest.mark.parametrize("prefix", ["delta://", ""])
def test_fetch_delta_table_that_was_compacted_since_its_index_has_the_planned_texts(
    prefix: str, tmp_path: Path
) -> None:
    from deltalake import DeltaTable, write_deltalake

    for page in range(3):
        write_deltalake(f"{tmp_path}/t", _page(page), partition_by=["kind"], mode="append")

    def compact() -> None:
        DeltaTable(f"{tmp_path}/t").optimize.compact()

    assert _texts_after(f"{prefix}{tmp_path}/t", compact) == [TEXT]


def test_fetch_iceberg_table_that_was_rewritten_and_renamed_since_its_index_has_the_planned_texts() -> None:
    from pyiceberg.transforms import IdentityTransform

    table = new_iceberg(_page(0).schema)
    with table.update_spec() as update:
        update.add_field("kind", IdentityTransform())
    for page in range(3):
        table.append(_page(page))

    def rewrite() -> None:
        table.overwrite(table.scan().to_arrow())
        with table.update_schema() as update:
            update.rename_column("kind", "sort").rename_column("text", "body")

    assert _texts_after(iceberg_uri(table), rewrite) == [TEXT]


def test_fetch_iceberg_columns_that_were_renamed_before_the_index_and_since_have_the_planned_names() -> None:
    table = new_iceberg(_page(0).rename_columns(["document_id", "page", "body", "sort"]).schema)
    for page in range(3):
        table.append(_page(page).rename_columns(["document_id", "page", "body", "sort"]))
    with table.update_schema() as update:
        update.rename_column("body", "text").rename_column("sort", "kind")

    def rename() -> None:
        with table.update_schema() as update:
            update.rename_column("text", "words")

    assert _texts_after(iceberg_uri(table), rename) == [TEXT]

"""What a run keeps of the index of a table."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from memagent_batch.config.sources import InputConfig
from memagent_batch.files.location import Location
from memagent_batch.inputs.document_index import IndexedTable, kept_index, known_files, known_rows, shards_without
from memagent_batch.inputs.lake.tables import documents_place
from memagent_batch.inputs.shards import FoundShards, find_shards
from tests.inputs.lake.forms import KNOBS, PAGES, indexed, pages_table, rows_table

FORMS: Mapping[str, tuple[pa.Table, InputConfig]] = {
    "rows": (rows_table(), InputConfig()),
    "pages": (pages_table(), KNOBS["pages"]),
}


def _found(place: Location, settings: InputConfig) -> tuple[FoundShards, IndexedTable]:
    found = find_shards(place, settings=settings)
    table = IndexedTable.found(found, settings=settings)
    assert table is not None
    return found, table


@pytest.mark.parametrize("form", FORMS)
def test_known_files_of_an_unchanged_table_are_all_and_of_a_grown_one_its_old_ones(form: str, tmp_path: Path) -> None:
    from deltalake import write_deltalake

    rows, settings = FORMS[form]
    write_deltalake(tmp_path / "t", rows)
    place = documents_place(f"delta://{tmp_path}/t", {})
    found, table = _found(place, settings)
    index = indexed(place, settings=settings, found=found)
    kept = kept_index(index, table)
    known = known_files(kept, table, settings=settings)
    assert known == set(table.files)
    assert shards_without(found.shards, known) == []
    assert known_rows(kept, known).equals(index)
    assert index["document_id"].to_pylist() == list(PAGES)
    more = {"document_id": ["e"], "text": ["new"], "day": ["x"]} | ({"page": [1]} if form == "pages" else {})
    write_deltalake(tmp_path / "t", pa.table(more), mode="append")
    grown, now = _found(place, settings)
    still = known_files(kept, now, settings=settings)
    assert still == (frozenset() if form == "pages" else known)
    assert len(shards_without(grown.shards, still)) == 1


def test_known_files_of_other_settings_or_with_bad_rows_are_none(tmp_path: Path) -> None:
    from deltalake import write_deltalake

    write_deltalake(tmp_path / "t", rows_table())
    place, settings = documents_place(f"delta://{tmp_path}/t", {}), InputConfig()
    _, table = _found(place, settings)
    index = indexed(place, settings=settings)
    other = InputConfig(carry_columns=("day",))
    assert known_files(kept_index(index, table), _found(place, other)[1], settings=other) == frozenset()
    bad = index.set_column(
        index.schema.get_field_index("error_type"),
        index.schema.field("error_type"),
        pa.array(["BadFileError", None, None, None], pa.large_string()),
    )
    assert known_files(kept_index(bad, table), table, settings=settings) == frozenset()

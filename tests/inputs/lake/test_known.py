"""What a run keeps of the index of a table."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from memagent_batch.config.sources import InputConfig
from memagent_batch.files.location import Location
from memagent_batch.inputs.document_index import IndexedTable, kept_index, reuse_index
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
def test_reused_index_of_an_unchanged_table_is_whole_and_of_a_grown_one_has_its_old_files(
    form: str, tmp_path: Path
) -> None:
    from deltalake import write_deltalake

    rows, settings = FORMS[form]
    write_deltalake(tmp_path / "t", rows)
    place = documents_place(f"delta://{tmp_path}/t", {})
    found, table = _found(place, settings)
    index = indexed(place, settings=settings, found=found)
    kept = kept_index(index, table)
    reused, left = reuse_index(kept, table, found.shards, settings=settings)
    assert reused.equals(index)
    assert left == []
    more = {"document_id": ["e"], "text": ["new"], "day": ["x"]} | ({"page": [1]} if form == "pages" else {})
    write_deltalake(tmp_path / "t", pa.table(more), mode="append")
    grown, now = _found(place, settings)
    reused, left = reuse_index(kept, now, grown.shards, settings=settings)
    assert reused["document_id"].to_pylist() == ([] if form == "pages" else list(PAGES))
    assert sum(len(shard.paths) for shard in left) == (2 if form == "pages" else 1)


def test_reused_index_of_other_settings_or_with_bad_rows_is_empty(tmp_path: Path) -> None:
    from deltalake import write_deltalake

    write_deltalake(tmp_path / "t", rows_table())
    place, settings = documents_place(f"delta://{tmp_path}/t", {}), InputConfig()
    found, table = _found(place, settings)
    index = indexed(place, settings=settings)
    other = InputConfig(carry_columns=("day",))
    bad = index.set_column(
        index.schema.get_field_index("error_type"),
        index.schema.field("error_type"),
        pa.array(["BadFileError", None, None, None], pa.large_string()),
    )
    for kept, now, asked in (
        (kept_index(index, table), _found(place, other)[1], other),
        (kept_index(bad, table), table, settings),
    ):
        reused, left = reuse_index(kept, now, found.shards, settings=asked)
        assert (reused.num_rows, left) == (0, found.shards)

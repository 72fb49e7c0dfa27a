"""Nights over tables that grow, change, lose documents and columns, and are compacted: what a run tells of each."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from memagent_batch.cli.settings import job_of
from memagent_batch.documents.document_index import IndexedFiles, index_schema, reuse_index
from memagent_batch.documents.lake.tables import texts_place
from memagent_batch.documents.questions import read_questions
from memagent_batch.documents.shards import FoundShards, find_shards
from memagent_batch.runs.history import read_kept_index
from memagent_batch.runs.plan import Plan
from memagent_batch.runs.state import read_state
from memagent_batch.store.location import Location
from memagent_batch.wiring import make_documents
from tests.documents.lake.forms import fetched, iceberg_uri, indexed, new_iceberg
from tests.runs.recorded_nights import Nights

SCHEMA = pa.schema([("document_id", pa.string()), ("text", pa.string()), ("note", pa.string())])
Row = tuple[str, str | None]
"""Text and note of a document."""


def as_table(rows: Mapping[str, Row]) -> pa.Table:
    values = [{"document_id": name, "text": text, "note": note} for name, (text, note) in rows.items()]
    return pa.Table.from_pylist(values, schema=SCHEMA)


class DeltaLake:
    def __init__(self, folder: Path) -> None:
        from deltalake import write_deltalake

        self.place, self.uri, self.added = f"{folder}/table", f"delta://{folder}/table", 0
        write_deltalake(self.place, as_table({}))

    def append(self, rows: Mapping[str, Row]) -> None:
        from deltalake import write_deltalake

        write_deltalake(self.place, as_table(rows), mode="append", schema_mode="merge")

    def replace(self, rows: Mapping[str, Row]) -> None:
        merge = self._table().merge(as_table(rows), "t.document_id = s.document_id", source_alias="s", target_alias="t")
        merge.when_matched_update({"text": "s.text", "note": "s.note"}).execute()

    def delete(self, names: list[str]) -> None:
        self._table().delete(f"document_id in ({', '.join(map(repr, names))})")

    def compact(self) -> None:
        self._table().optimize.compact()

    def change_schema(self, rows: Mapping[str, Row]) -> dict[str, Row]:
        """A column more, which files of before lack."""
        from deltalake import write_deltalake

        self.added += 1
        empty = SCHEMA.append(pa.field(f"more{self.added}", pa.int64())).empty_table()
        write_deltalake(self.place, empty, mode="append", schema_mode="merge")
        return dict(rows)

    def version(self) -> str:
        return str(self._table().version())

    def _table(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self.place)


class IcebergLake:
    def __init__(self, folder: Path) -> None:
        self.table = new_iceberg(SCHEMA)
        self.uri = iceberg_uri(self.table)

    def append(self, rows: Mapping[str, Row]) -> None:
        self.table.append(as_table(rows))

    def replace(self, rows: Mapping[str, Row]) -> None:
        from pyiceberg.expressions import In

        self.table.overwrite(as_table(rows), overwrite_filter=In("document_id", list(rows)))

    def delete(self, names: list[str]) -> None:
        from pyiceberg.expressions import In

        self.table.delete(In("document_id", names))

    def compact(self) -> None:
        self.table.overwrite(self.table.scan().to_arrow())

    def change_schema(self, rows: Mapping[str, Row]) -> dict[str, Row]:
        """A column is dropped, and a new one gets its name: old files have values under that name."""
        from pyiceberg.types import StringType

        with self.table.update_schema() as update:
            update.delete_column("note")
        with self.table.update_schema() as update:
            update.add_column("note", StringType())
        return {name: (text, None) for name, (text, _) in rows.items()}

    def version(self) -> str:
        self.table.refresh()
        snapshot, schema = self.table.current_snapshot(), self.table.schema().schema_id
        return f"{snapshot.snapshot_id}.{schema}" if snapshot.schema_id != schema else str(snapshot.snapshot_id)


class TableNights(RuleBasedStateMachine):
    """What happens to a table between nights; each night is compared with a model of what should have been found."""

    lake: DeltaLake | IcebergLake
    kind: type[DeltaLake] | type[IcebergLake]

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.rows: dict[str, Row] = {}
        self.before: dict[str, Row] = {}
        self.last_version: str | None = None
        self.has_new_schema = False
        self.counter = 0

    @initialize()
    def begin(self) -> None:
        self.lake = self.kind(Path(self.folder.name))
        self.nights = Nights(Location(uri=f"{self.folder.name}/out"))
        self.append(3)

    @rule(number=st.integers(1, 4))
    def append(self, number: int) -> None:
        self.counter += number
        new = {f"d{self.counter - each}": self._row() for each in range(number)}
        self.lake.append(new)
        self.rows |= new

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def edit(self, data: st.DataObject) -> None:
        names = data.draw(st.lists(st.sampled_from(sorted(self.rows)), min_size=1, max_size=3, unique=True))
        self.counter += 1
        new = {name: self._row() for name in names}
        self.lake.replace(new)
        self.rows |= new

    @precondition(lambda self: len(self.rows) > 1)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        names = data.draw(st.lists(st.sampled_from(sorted(self.rows)[1:]), min_size=1, max_size=3, unique=True))
        self.lake.delete(names)
        for name in names:
            del self.rows[name]

    @rule()
    def compact(self) -> None:
        self.lake.compact()

    @rule()
    def change_schema(self) -> None:
        self.rows = self.lake.change_schema(self.rows)
        self.has_new_schema = True

    @rule()
    def rest(self) -> None:
        """Nothing happens."""

    @invariant()
    def night(self) -> None:
        places = {"documents": self.lake.uri, "output": f"{self.folder.name}/out"}
        job = job_of(**places, ask="Who?", input={"carry_columns": "note"})
        (place,) = make_documents(job)
        found = find_shards(place, settings=job.input)
        assert found.table is not None
        files = IndexedFiles.found(found, settings=job.input)
        index = self._index(found, files, place=place, settings=job.input)
        texts = fetched(index, texts_place(found.places, {}), settings=job.input)
        notes = dict(zip(index["document_id"].to_pylist(), index["carry:note"].to_pylist(), strict=True))
        assert {name: (text.text, notes[name]) for name, text in texts.items()} == self.rows
        plan = Plan(index, read_questions(None, ask=[{"question": "Who?"}]), samples=1, indexed=files)
        hashes = dict(zip(index["document_id"].to_pylist(), index["document_hash"].to_pylist(), strict=True))
        manifest = self.nights.run_plan(plan, {hashes[name]: row[0] for name, row in self.rows.items()}, job=job)
        self._check(manifest["changes"])
        self.before, self.last_version, self.has_new_schema = dict(self.rows), self.lake.version(), False

    def _index(self, found: FoundShards, files: IndexedFiles, *, place: Location, settings: Any) -> pa.Table:
        """The index with what the last night kept; the same as one that is made from the beginning."""
        whole = indexed(place, settings=settings, found=found)
        kept = read_kept_index(self.nights.output)
        if kept is None:
            return whole
        reused = reuse_index(kept, files, found.shards, settings=settings)
        assert self.last_version != self.lake.version() or self.has_new_schema or reused.is_whole
        rest = indexed(place, settings=settings, found=FoundShards(shards=reused.shards))
        index = pa.concat_tables([reused.rows.cast(index_schema(settings)), rest])
        assert sorted(index.to_pylist(), key=str) == sorted(whole.to_pylist(), key=str)
        return index.combine_chunks()

    def _check(self, changes: Mapping[str, Any]) -> None:
        both = self.rows.keys() & self.before.keys()
        changed = sum(self.rows[name][0] != self.before[name][0] for name in both)
        assert changes["documents"] == {
            "added": len(self.rows) - len(both),
            "changed": changed,
            "removed": len(self.before) - len(both),
            "unchanged": len(both) - changed,
        }
        versions = {"before": self.last_version, "now": self.lake.version()}
        assert changes["tables"] == {self.lake.uri: versions}
        state = read_state(self.nights.output)
        assert (state["tables"], state["changes"]) == ({self.lake.uri: versions["now"]}, changes)
        assert {name for name, _ in self.nights.answers()} == set(self.rows)

    def _row(self) -> Row:
        return f"text {self.counter}", f"note {self.counter}"

    def teardown(self) -> None:
        self.folder.cleanup()


KINDS = pytest.mark.parametrize("kind", [DeltaLake, IcebergLake])


def _run(kind: Any, *, examples: int, steps: int) -> None:
    machine = type(f"{kind.__name__}Nights", (TableNights,), {"kind": kind})
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    bounds = settings(max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=checks)
    run_state_machine_as_test(machine, settings=bounds)


@KINDS
def test_changes_of_a_table_are_those_of_its_rows_each_night(kind: Any) -> None:
    _run(kind, examples=1, steps=6)


@pytest.mark.slow
@KINDS
def test_changes_of_a_table_over_fifty_nights(kind: Any) -> None:
    _run(kind, examples=3, steps=50)

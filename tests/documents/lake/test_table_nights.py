"""Nights over tables that grow, change, lose documents and columns, and are compacted: what is ingested each night."""

import tempfile
from collections.abc import Mapping
from itertools import count
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

from memagent_batch.config.sources import InputConfig, SourceConfig
from memagent_batch.data.documents.stored import StoredDocuments
from memagent_batch.data.store.delta import RunNumber
from memagent_batch.data.store.location import Location
from memagent_batch.run.executors.local import LocalExecutor
from memagent_batch.run.flows.answer import answer
from memagent_batch.run.ingest import Ingested, ingest
from memagent_batch.run.sources import find_sources
from tests.documents.lake.forms import iceberg_uri, new_iceberg
from tests.ingest.nights import rows
from tests.jobs import small_job

SETTINGS = InputConfig(carry_columns=("note",))
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


def ingest_night(lake: DeltaLake | IcebergLake, output: Location, *, number: int) -> Ingested:
    """Ingests the table; the documents must name the data files that hold them now."""
    config = SourceConfig(documents=(lake.uri,), ask=("Who?",), input=SETTINGS)
    sources = find_sources(config, output)
    run = RunNumber(number=number, run_id=f"run-{number}")
    made = ingest(sources, executor=LocalExecutor(), run=run)
    assert sources.listing
    listed = {None, *sources.listing.sources["source"].to_pylist()}
    for row in rows(output):
        assert {row["source"], *(part["source"] for part in row["parts"])} <= listed
    return made


def changes(made: Ingested) -> tuple[int, int, int]:
    return made.counts["documents_added"], made.counts["documents_changed"], made.counts["documents_removed"]


class TableNights(RuleBasedStateMachine):
    """What happens to a table between nights; each night is compared with a model of what should have been found."""

    lake: DeltaLake | IcebergLake
    kind: type[DeltaLake] | type[IcebergLake]

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.rows: dict[str, Row] = {}
        self.before: dict[str, Row] = {}
        self.counter = self.number = 0

    @initialize()
    def begin(self) -> None:
        self.lake = self.kind(Path(self.folder.name))
        self.output = Location(uri=f"{self.folder.name}/out")
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

    @rule()
    def rest(self) -> None:
        """Nothing happens."""

    @invariant()
    def night(self) -> None:
        self.number += 1
        made = ingest_night(self.lake, self.output, number=self.number)
        assert made.versions == {self.lake.uri: self.lake.version()}
        stored = StoredDocuments(output=made.output, version=made.documents_version)
        index = stored.read_index(SETTINGS).taken
        names, notes = index["document_id"].to_pylist(), index["carry:note"].to_pylist()
        texts = {names[text.row]: (text.text, notes[text.row]) for text in stored.read_texts(index)}
        assert texts == self.rows
        both = self.rows.keys() & self.before.keys()
        num_changed = sum(self.rows[name] != self.before[name] for name in both)
        assert changes(made) == (len(self.rows) - len(both), num_changed, len(self.before) - len(both))
        self.before = dict(self.rows)

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
def test_documents_that_only_moved_to_another_data_file_are_not_counted(kind: Any, tmp_path: Path) -> None:
    lake, output = kind(tmp_path), Location(uri=f"{tmp_path}/out")
    nights = count(1)

    def night() -> tuple[int, int, int]:
        return changes(ingest_night(lake, output, number=next(nights)))

    lake.append({"a": ("one", "x"), "b": ("two", "x"), "c": ("three", None)})
    lake.append({"d": ("four", "x")})
    assert night() == (4, 0, 0)
    lake.compact()
    assert night() == (0, 0, 0)
    lake.replace({"b": ("two", "y")})
    assert night() == (0, 1, 0)
    lake.replace({"c": ("three!", None), "d": ("four", None)})
    assert night() == (0, 2, 0)
    lake.delete(["a"])
    lake.append({"e": ("five", "x")})
    assert night() == (1, 0, 1)
    lake.delete(["b", "c", "d"])  # all rows of their data files, which are removed and not written again
    assert night() == (0, 0, 3)


@KINDS
def test_documents_that_only_moved_to_another_data_file_are_not_read_again(
    kind: Any, tmp_path: Path, text_model: str
) -> None:
    lake = kind(tmp_path)
    for name in "abc":
        lake.append({name: (f"Ann signed page {name}.", "x")})
    job = small_job(tmp_path, text_model, documents=lake.uri, ask="Who signed?", input=SETTINGS)
    first = answer(job)
    lake.compact()
    second = answer(job)
    assert second["changes"]["turns"]["asked"] == 0 < first["changes"]["turns"]["asked"]
    assert second["changes"]["documents"] == {"added": 0, "changed": 0, "removed": 0, "unchanged": 3}
    assert second["table_versions"]["answers"] == first["table_versions"]["answers"]


@KINDS
def test_changes_of_a_table_are_those_of_its_rows_each_night(kind: Any) -> None:
    _run(kind, examples=1, steps=6)


@pytest.mark.slow
@KINDS
def test_changes_of_a_table_over_fifty_nights(kind: Any) -> None:
    _run(kind, examples=3, steps=50)

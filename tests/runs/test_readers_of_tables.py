"""The tables of an output as other programs read them: rows and hashes are those of `ma.table`."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from hashlib import md5
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import memagent_batch as ma
from memagent_batch.data.store.location import Location
from memagent_batch.run import parts
from tests.runs.recorded_nights import FAILS, Killed, Nights

Q = {"q": "Who?", "r": "Where?"}
TEAMS = {"a": "red", "b": "x=/%20 'ü\n", "c": "", "d": None, "e": "null"}
NAMES = ("answers", "memories", "runs")


def hashes_of(rows: list[dict[str, Any]]) -> Counter[str]:
    """The hash of each row, whatever the order of rows and columns."""
    return Counter(md5(json.dumps(row, sort_keys=True, default=str).encode()).hexdigest() for row in rows)


def read_by_hand(folder: Path) -> list[dict[str, Any]]:
    """Replays the log of a Delta table as its protocol says, and reads the files that are left."""
    files: dict[str, Any] = {}
    columns: list[str] = []
    for commit in sorted((folder / "_delta_log").glob("*.json")):
        for action in map(json.loads, commit.read_text().splitlines()):
            if "metaData" in action:
                columns = [field["name"] for field in json.loads(action["metaData"]["schemaString"])["fields"]]
            if "add" in action:
                files[action["add"]["path"]] = action["add"]["partitionValues"]
            if "remove" in action:
                files.pop(action["remove"]["path"], None)
    rows = []
    for path, partition in files.items():
        values = {name: value or None for name, value in partition.items()}  # an empty text is null there
        rows += [{**row, **values} for row in pq.ParquetFile(folder / unquote(path)).read().to_pylist()]
    return [{name: row.get(name) for name in columns} for row in rows]


def read_by_duckdb(output: str, name: str) -> list[dict[str, Any]]:
    dataset = ma.dataset(output, name)
    with duckdb.connect() as database:
        rows: list[dict[str, Any]] = database.register("rows", dataset).sql("from rows").to_arrow_table().to_pylist()
        (count,) = database.sql("select count(*) from rows").fetchall()
        assert count == (len(rows),)
    return rows


def read_by_pandas(output: str, name: str) -> list[dict[str, Any]]:
    frame = DeltaTable(f"{output}/{name}").to_pandas(types_mapper=_arrow_type)
    schema = ma.dataset(output, name).schema
    rows: list[dict[str, Any]] = pa.Table.from_pandas(frame, schema=schema, preserve_index=False).to_pylist()
    return rows


def _arrow_type(kind: pa.DataType) -> Any:
    import pandas as pd

    return pd.ArrowDtype(kind)


READERS: dict[str, Callable[[str, str], list[dict[str, Any]]]] = {
    "deltalake": lambda output, name: DeltaTable(f"{output}/{name}").to_pyarrow_table().to_pylist(),
    "duckdb": read_by_duckdb,
    "pandas": read_by_pandas,
    "by hand": lambda output, name: read_by_hand(Path(output) / name),
}


@pytest.fixture
def scanned(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> str:
    """An output of four nights, one killed, of small files, with a partition column and one that came later."""
    monkeypatch.setattr(parts, "PART_READINGS", 2)
    texts: dict[str, str | None] = {"a": "fox", "b": "dog", "c": FAILS, "d": None, "e": "an emu"}
    settings: dict[str, Any] = {"record": {"partition_by": ("team",)}}
    nights.run(texts, Q, carried={"team": TEAMS}, **settings)
    with pytest.raises(Killed):
        nights.run({"z": "gone"}, Q, carried={"team": TEAMS}, killed_at="memories", **settings)
    both: dict[str, Any] = {"team": {**TEAMS, "a": "blue"}, "place": {"b": "there"}}
    nights.run(texts, Q, carried=both, **settings)
    del texts["e"]
    nights.run({**texts, "b": "lynx", "f": "dog"}, Q, carried=both, **settings)
    return nights.output.uri


@pytest.mark.parametrize("reader", READERS)
def test_other_readers_find_the_same_rows(scanned: str, reader: str) -> None:
    for name in NAMES:
        rows = ma.table(scanned, name).to_pylist()
        assert rows
        assert hashes_of(READERS[reader](scanned, name)) == hashes_of(rows), name
    teams = {row["document_id"]: (row["team"], row["place"]) for row in ma.table(scanned, "answers").to_pylist()}
    assert teams == {
        "a": ("blue", None),
        "b": (TEAMS["b"], "there"),
        "c": (None, None),
        "d": (None, None),
        "f": (None, None),
    }


def test_partitions_and_changes_are_those_of_a_delta_table(scanned: str) -> None:
    answers = DeltaTable(f"{scanned}/answers")
    assert answers.metadata().partition_columns == ["team"]
    blue = answers.to_pyarrow_table(filters=[("team", "=", "blue")])
    assert set(blue["document_id"].to_pylist()) == {"a"}
    before = ma.table(scanned, "answers", run_id="previous").to_pylist()
    versions = json.loads(ma.table(scanned, "runs").sort_by("number").to_pylist()[-2]["manifest"])["table_versions"]
    changes = pa.table(answers.load_cdf(starting_version=versions["answers"] + 1)).to_pylist()
    rows = hashes_of(before)
    for kind, sign in (("insert", 1), ("delete", -1)):
        changed = [{name: row[name] for name in before[0]} for row in changes if row["_change_type"] == kind]
        for key, count in hashes_of(changed).items():
            rows[key] += sign * count
    assert +rows == hashes_of(ma.table(scanned, "answers").to_pylist())


def test_increments_by_run_id_make_the_same_table(nights: Nights) -> None:
    """Each night's rows are loaded by their run_id into another table, and keys that are gone are removed there."""
    texts: dict[str, str | None] = {"a": "fox", "b": "dog", "c": FAILS, "d": None}
    changes: list[dict[str, Any]] = [
        {},
        {"carried": {"team": {**TEAMS, "b": "pink"}}},
        {"documents": {"z": "fox", "b": "dog", "c": FAILS, "d": None}},
        {"documents": {"z": "fox", "b": "dog", "e": "dog"}, "questions": {**Q, "s": "When?"}},
        {"documents": {"z": "ox", "b": "dog"}, "outside": {"e": "dog"}, "questions": {"q": "Who ever?"}},
        {"documents": {"z": "ox", "b": "dog", "e": "dog", "c": FAILS}, "retried": True},
    ]
    loaded: dict[tuple[Any, ...], dict[str, Any]] = {}
    settings: dict[str, Any] = {"documents": texts, "questions": Q, "carried": {"team": TEAMS}}
    for change in changes:
        settings |= change
        run_id = nights.run(**settings)["run_id"]
        table = ma.dataset(nights.output.uri, "answers")
        keys = ["document_id", "question_id", "sample"]
        increment = table.to_table(filter=pa.compute.field("run_id") == run_id).to_pylist()
        loaded |= {tuple(row[name] for name in keys): row for row in increment}
        shown = {tuple(row.values()) for row in table.to_table(columns=keys).to_pylist()}
        loaded = {key: row for key, row in loaded.items() if key in shown}
        assert hashes_of([*loaded.values()]) == hashes_of(table.to_table().to_pylist())


@pytest.mark.s3
def test_tables_in_a_bucket_are_read_with_the_same_options(s3_bucket: Location) -> None:
    nights = Nights(s3_bucket / "a run [1]")
    output, options = nights.output.uri, nights.output.storage_options
    nights.run({"a": "fox", "b": "dog"}, Q, storage_options={**options})
    run_id = nights.run({"a": "ox", "b": "dog"}, Q, storage_options={**options})["run_id"]
    rows = ma.table(output, "answers", storage_options=options).to_pylist()
    assert {(row["document_id"], row["answer"], row["run_id"] == run_id) for row in rows} == {
        ("a", "ox", True),
        ("b", "dog", False),
    }
    before = ma.table(output, "answers", run_id="previous", storage_options=options)
    assert set(before["answer"].to_pylist()) == {"fox", "dog"}
    require_normal_exit(nights.output)


def test_python_that_has_read_tables_exits_normally(nights: Nights) -> None:
    nights.run({"a": "fox", "b": "dog"}, Q)
    require_normal_exit(nights.output)


READ_OFTEN = """
import json, sys
import memagent_batch as ma

output, options = sys.argv[1], json.loads(sys.argv[2])
for _ in range(10):
    for name in ("answers", "memories", "runs"):
        table = ma.table(output, name, storage_options=options)
        assert ma.dataset(output, name, storage_options=options).count_rows() == table.num_rows > 0
"""


def require_normal_exit(output: Location) -> None:
    """Requires that Python does not abort when it has read tables many times, by its own threads and Arrow's."""
    for _ in range(2):
        arguments = [sys.executable, "-c", READ_OFTEN, output.uri, json.dumps({**output.storage_options})]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

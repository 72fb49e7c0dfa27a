"""The tables of an output: every reader of Delta finds the same rows, and they outlive the sources."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import memagent_batch as ma
from memagent_batch.cli.main import main
from tests.api.conftest import agent_of, run_local

TABLES = ("answers", "memories", "evidence", "results", "documents", "sources", "runs")
QUESTIONS = [
    ma.Question(question_id="price", question="How much?", type=ma.Number(unit="EUR")),
    ma.Question(question_id="is", question="Is it?", type=ma.Bool()),
    ma.Question(question_id="who", question="Who?"),
]
FOLLOW_UPS = ma.FollowUpConfig(evidence=True, support=True)


READERS: dict[str, Callable[[str], pa.Table]] = {
    "deltalake": lambda folder: DeltaTable(folder).to_pyarrow_table(),
    "pandas": lambda folder: pa.Table.from_pandas(DeltaTable(folder).to_pandas(), preserve_index=False),
    "duckdb over the Arrow dataset": lambda folder: duckdb_rows(DeltaTable(folder).to_pyarrow_dataset()),
    "duckdb over ma.dataset": lambda folder: duckdb_rows(ma.dataset(Path(folder).parent, Path(folder).name)),
    "polars": lambda folder: pl.read_delta(folder).to_arrow(),
}


def duckdb_rows(rows: Any) -> pa.Table:
    with duckdb.connect() as database:
        database.register("rows", rows)
        return database.sql("from rows").to_arrow_table()


def rows_hash(table: pa.Table, names: list[str]) -> tuple[int, str]:
    """How many rows there are, and a hash of their texts and whole numbers, in any order."""
    rows = sorted(json.dumps([row[name] for name in names]) for row in table.select(names).to_pylist())
    return len(rows), sha256("\n".join(rows).encode()).hexdigest()


@pytest.fixture(scope="module")
def scan(text_model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two nights, partitioned by a carried column: documents that changed, are gone, are new or null, or moved."""
    folder = tmp_path_factory.mktemp("scan")
    nights = (
        {"a": ("It is simulated. " * 40, "x"), "b": ("A dog.", "y"), "c": ("A cat.", None), "null": (None, "x")},
        {"a": ("It is simulated. " * 50, "x"), "c": ("A cat.", "x"), "d": ("Ann.\r\nIt is simulated 😀.", "é/1")},
    )
    for night in nights:
        rows = [{"document_id": name, "text": text, "kind": kind} for name, (text, kind) in night.items()]
        pq.write_table(pa.Table.from_pylist(rows), folder / "documents.parquet")
        run_local(
            documents=folder / "documents.parquet",
            questions=QUESTIONS,
            output=folder / "out",
            agent=agent_of(text_model),
            follow_ups=FOLLOW_UPS,
            input=ma.InputConfig(carry_columns=("kind",)),
            record={"partition_by": ["kind"]},
        )
    return folder / "out"


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", TABLES)
def test_table_has_the_same_rows_for_every_reader_of_delta(scan: Path, name: str, reader: str) -> None:
    table = ma.table(scan, name)
    kinds = {"string", "large_string", "int64", "int32", "bool"}
    nullable_numbers = {
        each.name for each in table.schema if table[each.name].null_count and str(each.type) != "string"
    }
    names = [each.name for each in table.schema if str(each.type) in kinds and each.name not in nullable_numbers]
    assert len(names) > 1
    assert table.num_rows
    assert rows_hash(READERS[reader](str(scan / name)), names) == rows_hash(table, names)


@pytest.mark.parametrize("name", TABLES)
def test_duckdb_gives_all_columns_as_python_objects(scan: Path, name: str) -> None:
    table = ma.table(scan, name)
    with duckdb.connect() as database:
        rows = database.register("rows", table).sql("from rows").fetchall()
    assert len(rows) == table.num_rows > 0
    times = [field.name for field in table.schema if str(field.type).startswith("timestamp")]
    for column in times:  # which DuckDB has another package for
        place = table.schema.names.index(column)
        assert [row[place] for row in rows] == table[column].to_pylist()


def test_earlier_run_is_the_version_that_it_left_for_every_reader(scan: Path) -> None:
    before = ma.table(scan, "answers", run_id="previous")
    assert set(before["document_id"].to_pylist()) == {"a", "b", "c", "null"}
    (first, _) = ma.table(scan, "runs").sort_by("number").to_pylist()
    version = DeltaTable(str(scan / "answers"), version=first["answers_version"]).to_pyarrow_table()
    names = ["document_id", "question_id", "answer", "kind", "run_id"]
    assert rows_hash(version, names) == rows_hash(before, names)


def test_everything_works_after_the_sources_are_deleted(
    text_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files, output = tmp_path / "in", tmp_path / "out"
    files.mkdir()
    (files / "letter.html").write_text("<p>It is simulated. Ann signed.</p>")
    (files / "note.txt").write_text("It is simulated 😀 here.\r\n" * 30)
    agent = agent_of(text_model)
    ma.scan(files, questions=QUESTIONS, output=output, agent=agent, follow_ups=FOLLOW_UPS, executor="local")
    for file in files.iterdir():
        file.unlink()
    files.rmdir()

    def said(*words: str) -> str:
        assert main([words[0], *(str(word) for word in words[1:])]) == 0
        return capsys.readouterr().out

    assert json.loads(said("page", str(output)))["documents"] == 2
    pages = [path.read_text() for path in output.glob("pages/documents/*/*.html")]
    assert len(pages) == 2
    assert all("<mark" in page for page in pages)
    assert "It is simulated" in said("show", str(output), "note.txt")
    assert json.loads(said("export", str(output), "--to", "csv"))["rows"] == 6
    assert said("verify", str(output))
    made = ma.make_review(output, question_id="is", labels=2)
    texts = [path.read_text() for path in Path(made["folder"]).glob("documents/*.html")]
    assert ["It is simulated" in text for text in texts] == [True] * made["left"]["first"]
    turns = pq.read_table(output / "log" / "turns").num_rows
    later = run_local(
        documents=output,
        questions=[*QUESTIONS, ma.Question(question_id="new", question="What is new?")],
        output=output,
        agent=agent,
        follow_ups=FOLLOW_UPS,
        adopt_output=True,
    )
    assert later.manifest["changes"]["readings"] == {"read": 2, "kept": 6, "unreadable": 0, "not_read": 0}
    assert pq.read_table(output / "log" / "turns").num_rows > turns
    assert set(later.answers()["question_id"].to_pylist()) == {"price", "is", "who", "new"}
    assert {row["text"] for row in later.evidence().to_pylist() if row["question_id"] == "new"}

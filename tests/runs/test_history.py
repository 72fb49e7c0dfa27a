"""Runs that finish, that are killed, and that are overtaken: what the table `runs` and the others show of them."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import memagent_batch as ma
from memagent_batch.cli.main import main
from memagent_batch.cli.settings import job_of
from memagent_batch.data.store.delta import OutputTable
from memagent_batch.data.store.location import Location
from memagent_batch.errors import OutputError, SupersededError
from memagent_batch.run import parts, projection
from memagent_batch.run.flows import answer as answer_flow
from memagent_batch.run.flows.verify import verify
from memagent_batch.run.history import find_run, finished_runs
from memagent_batch.run.run import begin_run, close_run
from memagent_batch.run.state import read_state
from memagent_batch.run.tables import MEMORIES, READING_TABLES
from memagent_batch.run.wiring import ReaderIdentity
from tests.runs.recorded_nights import AWAY, Killed, Nights, plan_of, tables_without_documents
from tests.tables import comparable

DOCUMENTS = {"a": "one", "b": "two", "broken": None}
QUESTIONS = {"q": "Why?", "r": "Who?"}
TEAMS = {"a": "red", "b": "blue"}


def begin(output: Location, **settings: Any) -> Any:
    """A run that begins and goes no further."""
    job = job_of(documents="docs", questions="list", output=output.uri, **settings)
    return begin_run(output, job, reader=ReaderIdentity(fingerprint="f", parts={}), plan=plan_of(DOCUMENTS, QUESTIONS))


def all_tables(nights: Nights) -> dict[str, Any]:
    """The rows of the last finished run's tables, and those of each table alone."""
    names = [name for name in READING_TABLES if OutputTable(output=nights.output, name=name).exists()]
    return {name: nights.table(name) for name in names if name in nights.last().manifest["table_versions"]}


def test_new_column_is_written_without_reading_and_another_description_of_one_changes_nothing(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = nights.run(DOCUMENTS, QUESTIONS)
    described = pa.schema([field.with_metadata({"description": "anew", "unit": ""}) for field in MEMORIES])
    monkeypatch.setattr(projection, "MEMORIES", described)
    assert nights.run(DOCUMENTS, QUESTIONS)["table_versions"] == first["table_versions"]
    monkeypatch.setattr(projection, "MEMORIES", described.append(pa.field("place", pa.string())))
    last = nights.run(DOCUMENTS, QUESTIONS)
    assert last["changes"]["readings"]["read"] == 0
    assert nights.table("memories")[0]["place"] is None
    assert {row["run_id"] for name in ("answers", "memories") for row in nights.table(name)} == {last["run_id"]}


@pytest.mark.parametrize(
    "kills",
    [
        [("reading", {})],
        [("tables", {}), ("answers", {})],
        [("answers", {"carried": {"team": TEAMS}}), ("memories", {"reader": "g"})],
        [("memories", {}), ("memories", {"carried": {"team": TEAMS}}), ("answers", {})],
    ],
)
@pytest.mark.parametrize("has_finished", [True, False])
def test_runs_that_were_killed_are_undone_or_ended_by_the_next(
    nights: Nights, kills: list[tuple[str, dict[str, Any]]], has_finished: bool
) -> None:
    """One that was killed before its tables changed has changed nothing; any other is ended when the next begins."""
    first = nights.run(DOCUMENTS, QUESTIONS)["run_id"] if has_finished else None
    before = all_tables(nights) if has_finished else {}
    for killed_at, change in kills:
        shown = finished_runs(nights.output)
        with pytest.raises(Killed):
            nights.run({"a": "changed", "c": "three"}, QUESTIONS, killed_at=killed_at, **change)
        ended = finished_runs(nights.output)
        assert len(ended) - len(shown) in (0, 1)
        if ended[-1:] == [first]:
            assert all_tables(nights) == before
        elif ended:
            assert set(nights.answers().values()) == {"changed", "three"}
            assert len(nights.table("memories")) == 4
    last: dict[str, Any] = {"documents": {"a": "changed", "b": "two", "d": "four"}, "questions": QUESTIONS}
    manifest = nights.run(**last)
    fresh = Nights(Location(uri=f"{nights.output.uri}-fresh"))
    fresh.run(**last)
    for name in ("answers", "memories"):
        assert comparable(nights.table(name)) == comparable(fresh.table(name))
        alone = OutputTable(output=nights.output, name=name).dataset().to_table()
        assert comparable(alone.to_pylist()) == comparable(fresh.table(name)), "without the versions of a run"
    ended = finished_runs(nights.output)
    assert ended[-1] == manifest["run_id"]
    assert manifest["changes"]["since"] == (ended[-2] if len(ended) > 1 else None)
    for run_id in ended[has_finished:-1]:
        rows = ma.table(nights.output.uri, "answers", run_id=run_id).to_pylist()
        assert {row["answer"] for row in rows} == {"changed", "three"}
    if has_finished:
        assert ma.table(nights.output.uri, "answers", run_id=str(first)).to_pylist() == before["answers"]


@pytest.mark.parametrize("killed_at", ["", "tables"])
def test_run_with_nothing_left_to_read_names_only_the_id_that_it_has_in_runs(
    nights: Nights, caplog: pytest.LogCaptureFixture, killed_at: str
) -> None:
    nights.run(DOCUMENTS, QUESTIONS)
    if killed_at:
        with pytest.raises(Killed):
            nights.run({"a": "changed", "b": "two"}, QUESTIONS, killed_at=killed_at)
    for documents in ({"a": "changed"}, {"a": "changed"}) if killed_at else ({"a": "one"}, {"a": "one"}):
        caplog.clear()
        with caplog.at_level("INFO"):
            run_id = nights.run(documents, QUESTIONS)["run_id"]
        messages = [record.getMessage() for record in caplog.records]
        assert [each for each in messages if "asked" in each] == [f"run {run_id}: 2 readings asked"]
        assert run_id in {row["run_id"] for row in nights.table("runs")}


@pytest.mark.parametrize("has_finished", [True, False])
@pytest.mark.parametrize("overtaken_at", ["write", "tables", "answers", "memories"])
def test_run_that_is_overtaken_commits_nothing_of_its_own_after_the_newer_one(
    nights: Nights, monkeypatch: pytest.MonkeyPatch, overtaken_at: str, has_finished: bool
) -> None:
    """A newer run begins and ends while the older one is about to commit, or has committed some of its tables."""
    if has_finished:
        nights.run(DOCUMENTS, QUESTIONS)
    newer: dict[str, Any] = {"documents": {"a": "newer", "c": "three"}, "questions": QUESTIONS}
    overtakes = [overtaken_at]

    def overtake(point: str) -> None:
        if overtakes == [point]:
            overtakes.clear()
            nights.run(**newer)

    commit = OutputTable.commit

    def commit_late(table: OutputTable, **arguments: Any) -> int:
        overtake("tables" if table.name == "answers" else "")
        version = commit(table, **arguments)
        overtake(table.name)
        return version

    def close_late(*arguments: Any, **named: Any) -> Any:
        overtake("write")
        return close_run(*arguments, **named)

    monkeypatch.setattr(OutputTable, "commit", commit_late)
    monkeypatch.setattr(answer_flow, "close_run", close_late)
    with (
        pytest.raises(SupersededError, match="taken over by a newer run") if overtaken_at == "write" else nullcontext()
    ):
        nights.run({"a": "older", "b": "two"}, QUESTIONS)
    assert overtakes == []
    assert {row["answer"] for row in nights.table("answers")} == {"newer", "three"}
    fresh = Nights(Location(uri=f"{nights.output.uri}-fresh"))
    fresh.run(**newer)
    for name in ("answers", "memories"):
        alone = OutputTable(output=nights.output, name=name).dataset().to_table().to_pylist()
        assert comparable(alone) == comparable(fresh.table(name))
    assert SupersededError.exit_code == 3


def test_slice_that_was_killed_between_its_commits_doubles_no_row_that_another_slice_has_copied(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "MANY_SMALL", 2)
    monkeypatch.setattr("memagent_batch.run.flows.verify.open_tables", tables_without_documents)
    slices: list[Any] = [{"input": {"slice": f"{number}/2"}} for number in (1, 2)]
    one, two = slices

    def require_fit() -> None:
        keys = [(row["document_id"], row["question_id"]) for row in nights.table("answers")]
        assert len(keys) == len(set(keys))
        memories = {(row["document_id"], row["question_id"]): row["memory"] for row in nights.table("memories")}
        assert memories == {key: f"noted: {answer}" for key, answer in nights.answers().items()}
        assert verify(nights.output).problems == []

    nights.run({"a": "one", "b": "two"}, QUESTIONS)
    nights.run({"b": "two", "c": "three"}, QUESTIONS, outside={"a": "one"}, **one)
    with pytest.raises(Killed):
        nights.run({"a": "killed"}, QUESTIONS, outside={"b": "two", "c": "three"}, killed_at="answers", **two)
    require_fit()
    nights.run({"b": "last", "c": "three"}, QUESTIONS, outside={"a": "one"}, **one)
    require_fit()
    assert set(nights.answers().values()) == {"killed", "last", "three"}
    nights.run({"a": "again"}, QUESTIONS, outside={"b": "last", "c": "three"}, **two)
    require_fit()
    assert set(nights.answers().values()) == {"again", "last", "three"}


def test_files_that_another_program_has_rewritten_under_a_killed_run_are_named_and_can_be_restored(
    nights: Nights,
) -> None:
    nights.run(DOCUMENTS, QUESTIONS)
    nights.run({**DOCUMENTS, "c": "three"}, QUESTIONS)
    with pytest.raises(Killed):
        nights.run({"a": "changed"}, QUESTIONS, killed_at="answers")
    memories = OutputTable(output=nights.output, name="memories")
    version, before = memories.version(), comparable(nights.table("memories"))
    assert memories.open().optimize.compact()["numFilesRemoved"] > 1
    for _ in range(2):
        with pytest.raises(
            OutputError, match=rf"memories, and another program .*\({version}\) with `DeltaTable.restore`"
        ):
            nights.run({"a": "changed"}, QUESTIONS)
        assert comparable(memories.dataset().to_table().to_pylist()) == before
    memories.open().restore(version)
    nights.run({"a": "changed"}, QUESTIONS)
    assert {row["memory"] for row in memories.dataset().to_table().to_pylist()} == {"noted: changed"}


def test_runs_that_begin_at_the_same_moment_get_different_numbers_and_the_last_one_stands(nights: Nights) -> None:
    nights.run(DOCUMENTS, QUESTIONS)
    with ThreadPoolExecutor(6) as threads:
        begun = list(threads.map(lambda _: begin(nights.output).number, range(6)))
    assert sorted(each.number for each in begun) == list(range(2, 8))
    by_number = sorted(begun, key=lambda each: each.number)
    assert [each.run_id for each in by_number] == sorted(each.run_id for each in begun)
    rows = {row["run_id"]: (row["number"], row["state"]) for row in nights.table("runs")}
    states = ["superseded"] * 5 + ["running"]
    expected = {run.run_id: (run.number, state) for run, state in zip(by_number, states, strict=True)}
    assert expected.items() < rows.items()
    assert read_state(nights.output)["run_id"] == by_number[-1].run_id


@pytest.mark.parametrize("folder", ["turns", "outcomes", "follow_ups"])
def test_run_has_a_later_id_than_all_rows_of_the_log_whatever_its_clock_says(nights: Nights, folder: str) -> None:
    ahead = "29990101T000000.000Z.ffff"
    (nights.output / f"log/{folder}/{ahead}-w-000001.parquet").write_bytes(b"")
    first = begin(nights.output)
    assert begin(nights.output).run_id > first.run_id > ahead


@pytest.mark.parametrize("name", ["runs", "rollouts", "sources"])
def test_table_that_no_run_names_a_version_of_is_not_read_as_of_a_run(nights: Nights, name: str) -> None:
    run_id = nights.run(DOCUMENTS, QUESTIONS)["run_id"]
    for read in (ma.table, ma.dataset):
        with pytest.raises(OutputError, match=f"runs don't record versions of {name}; leave run_id out"):
            read(nights.output.uri, name, run_id=run_id)
    assert ma.table(nights.output.uri, "runs").num_rows == 1


def test_run_is_found_by_id_or_by_place_in_time_and_its_tables_stay_as_it_left_them(nights: Nights) -> None:
    output = nights.output.uri
    with pytest.raises(OutputError, match="nothing is at"):
        ma.table(output, "answers")
    first = nights.run(DOCUMENTS, QUESTIONS)["run_id"]
    with pytest.raises(OutputError, match=rf"no finished run 'monday' at .*; there are {first}"):
        find_run(nights.output, "monday")
    with pytest.raises(OutputError, match=f"{first} is the only finished run"):
        ma.table(output, "answers", run_id="previous")
    second, third = (nights.run({"a": text}, QUESTIONS)["run_id"] for text in ("two", "three"))
    for name, run_id, answer in ((first, first, "one"), ("previous", second, "two"), ("latest", third, "three")):
        assert find_run(nights.output, name).run_id == run_id
        rows = ma.table(output, "answers", run_id=name).to_pylist()
        assert {row["answer"] for row in rows if row["document_id"] == "a"} == {answer}
        assert ma.dataset(output, "answers", run_id=name).to_table().to_pylist() == rows
    with pytest.raises(OutputError, match=r"no table 'results'; it has answers, memories; give .* answer_type"):
        ma.table(output, "results")
    OutputTable(output=nights.output, name="answers").vacuum(days=0)
    assert {row["answer"] for row in ma.table(output, "answers").to_pylist()} == {"three"}
    with pytest.raises(OutputError, match=r"answers can't be read: .*VACUUM.*record.keep_days"):
        ma.table(output, "answers", run_id=first)


def test_runs_of_many_nights_lie_in_few_files_with_a_row_for_each(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memagent_batch.run.history.COMPACT_FILES", 3)
    runs = [nights.run({"a": str(number // 2)}, QUESTIONS)["run_id"] for number in range(6)]
    assert [row["run_id"] for row in sorted(nights.table("runs"), key=lambda row: row["number"])] == runs
    assert len(nights.files("runs")) <= 3
    assert finished_runs(nights.output) == runs


@pytest.mark.parametrize("name", ["manifest.json", "run.json"])
def test_output_of_an_earlier_version_is_refused_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).write_text("{}")
    (tmp_path / "docs.txt").write_text("text")
    with pytest.raises(OutputError, match=f"written by an earlier version.*{name}.*choose an empty folder"):
        ma.table(tmp_path / "run", "answers")
    job = ["--documents", str(tmp_path / "docs.txt"), "--ask", "Who?", "--output", str(tmp_path / "run")]
    assert main(["answer", *job, "--model", "m", "--engine", "simulated"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if "written by an earlier version" in line] == said[-1:]
    assert [path.name for path in (tmp_path / "run").iterdir()] == [name]


def counts(added: int = 0, changed: int = 0, removed: int = 0, unchanged: int = 0) -> dict[str, int]:
    return {"added": added, "changed": changed, "removed": removed, "unchanged": unchanged}


def test_changes_count_documents_questions_readings_and_answers_since_the_run_before(nights: Nights) -> None:
    bound = {("a", "u"): "Whence?", ("b", "t"): "How?"}
    begun = {"a": "one", "b": "two", "c": "three", "d": "four", "f": AWAY}
    first = nights.run(begun, QUESTIONS, bound=bound, away=True)
    assert first["changes"]["readings"] == {"read": 10, "kept": 0, "unreadable": 0, "not_read": 2}
    now = {"a": "one", "b": "changed", "c": None, "e": "five", "f": AWAY}
    second = nights.run(now, {"q": "Why?", "r": "Whose?", "s": "When?"})
    changes = second["changes"]
    assert changes["since"] == first["run_id"]
    assert changes["documents"] == counts(added=1, changed=2, removed=1, unchanged=2)
    assert changes["questions"] == counts(added=1, changed=1, removed=2, unchanged=1)
    assert changes["readings"] == {"read": 11, "kept": 1, "unreadable": 3, "not_read": 0}
    (row,) = [row for row in nights.table("runs") if row["run_id"] == second["run_id"]]
    shown = {name: row[f"documents_{name}"] for name in ("added", "changed", "removed")}
    assert shown == {"added": 1, "changed": 2, "removed": 1}
    assert row["answers_changed"] == changes["answers"]
    assert (row["ok"], row["failed"], row["not_read"], row["readings"]) == (12, 3, 0, 15)

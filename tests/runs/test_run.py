"""The end of a run: its counts close, or it says which readings are missing."""

import pytest

from memagent_batch.errors import CountsError
from memagent_batch.run.executors.write import WriteTask
from memagent_batch.run.history import finished_runs
from memagent_batch.run.state import read_state
from tests.runs.recorded_nights import AWAY, FAILS, Nights

Q = {"q": "Why?"}


def test_run_with_missing_readings_names_them_and_changes_no_table(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = nights.run({"a": "one"}, Q)
    rows = nights.table("answers")
    with monkeypatch.context() as broken:

        async def log_nothing(*_: object, **__: object) -> None:
            """As if the log had lost what was read."""

        broken.setattr(Nights, "_log", log_nothing)
        with pytest.raises(CountsError, match=r"an outcome in the log: 2 .*document 'b'.*document 'c'.*same command"):
            nights.run({"a": "one", "b": "two", "c": "three", "d": None}, Q)
    assert finished_runs(nights.output) == [first["run_id"]]
    assert read_state(nights.output)["state"] == "stopped"
    assert nights.table("answers") == rows
    assert nights.run({"a": "one", "b": "two", "c": "three", "d": None}, Q)["counts"]["ok"] == 3


def test_run_whose_files_hold_other_rows_than_were_asked_for_is_refused(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = WriteTask.write
    monkeypatch.setattr(
        WriteTask,
        "write",
        lambda task, rows, *, stem: write(task, {name: table.slice(1) for name, table in rows.items()}, stem=stem),
    )
    with pytest.raises(CountsError, match="the counts do not close"):
        nights.run({"a": "one", "b": "two"}, Q)
    assert finished_runs(nights.output) == []


def test_run_counts_readings_by_how_they_ended_and_says_why_until_they_are_read(nights: Nights) -> None:
    documents = {"a": f"1 {AWAY}", "b": f"2 {AWAY}", "c": FAILS, "d": "fine", "e": None}
    manifest = nights.run(documents, Q, away=True)
    ends = {"ok": 1, "failed": 2, "not_read": 2}
    assert manifest["counts"] == {"asked": 5, **ends, "answers_rows": 5, "memories_rows": 2}
    reason = {"error_type": "EngineUnavailableError", "error_message": "'1 away' is away", "num_readings": 1}
    assert manifest["reasons"]["not_read"][0] == reason
    assert sorted(row["error_type"] for row in manifest["reasons"]["failed"]) == ["DocumentError", "E"]
    rows = {row["document_id"]: row for row in nights.table("answers")}
    shown = [rows["b"][name] for name in ("status", "answer", "error_type", "error_message")]
    assert shown == ["not_read", None, "EngineUnavailableError", "'2 away' is away"]
    assert read_state(nights.output)["state"] == "incomplete"
    assert nights.run(documents, Q)["counts"]["not_read"] == 0
    again = nights.run({"d": "fine"}, Q)
    assert again["reasons"] == {"failed": [], "not_read": [], "follow_up_failed": []}
    assert read_state(nights.output)["counts"] == again["counts"]


def test_failed_reading_that_could_not_be_read_again_is_not_read(nights: Nights) -> None:
    documents: dict[str, str | None] = {"a": f"{FAILS} {AWAY}"}
    nights.run(documents, Q)
    counts = nights.run(documents, Q, retried=True, away=True)["counts"]
    assert (counts["failed"], counts["not_read"]) == (0, 1)
    assert nights.run(documents, Q, retried=True)["counts"]["ok"] == 1

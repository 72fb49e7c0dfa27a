"""The record of finished runs, and what changed between them."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memagent_batch.errors import OutputError
from memagent_batch.flows.verify import verify
from memagent_batch.runs.history import find_run, finished_runs, recorded_plan
from memagent_batch.runs.tables import REMOVED_TABLE, RUN_PLAN
from memagent_batch.store.location import Location
from memagent_batch.store.turn_log.index import LogIndex
from tests.runs.recorded_nights import AWAY, Killed, Nights, plan_of

DOCUMENTS = {"a": "one", "b": "two", "broken": None}
QUESTIONS = {"q": "Why?", "r": "Who?"}


def record_of(nights: Nights, run_id: str, name: str = "plan.parquet") -> Path:
    return Path(nights.output.path) / "runs" / run_id / name


def test_finished_run_leaves_a_record_that_later_runs_do_not_touch(nights: Nights) -> None:
    first = nights.run(DOCUMENTS, QUESTIONS)["run_id"]
    kept = {path: path.read_bytes() for path in record_of(nights, first).parent.iterdir()}
    record = {"plan.parquet", "removed.parquet", "manifest.json"}
    assert {path.name for path in kept} == record
    nights.run({"a": "other"}, {"q": "Where?"})
    nights.run({"c": "three"}, QUESTIONS)
    assert {path: path.read_bytes() for path in record_of(nights, first).parent.iterdir()} == kept


def test_record_says_what_was_asked_and_which_run_had_read_it(nights: Nights) -> None:
    first = nights.run(DOCUMENTS, {"q": "Why?"}, sampling={"samples": 2, "temperature": 1.0})["run_id"]
    second = nights.run({"a": "changed", "b": "two"}, {"q": "Why?"}, sampling={"samples": 2, "temperature": 1.0})[
        "run_id"
    ]
    plans = {run_id: pq.read_table(record_of(nights, run_id)) for run_id in (first, second)}
    assert all(plan.schema.equals(RUN_PLAN) for plan in plans.values())
    read_by = {
        run_id: {
            row["document_id"]: [(entry["sample"], entry["run_id"]) for entry in row["readings"]]
            for row in plan.to_pylist()
        }
        for run_id, plan in plans.items()
    }
    unread = [(0, None), (1, None)]
    assert read_by[first] == {"a": [(0, first), (1, first)], "b": [(0, first), (1, first)], "broken": unread}
    assert read_by[second] == {"a": [(0, second), (1, second)], "b": [(0, first), (1, first)]}


def test_recorded_plan_keeps_carried_columns() -> None:
    plan = plan_of({"a": "one"}, QUESTIONS)
    plan.documents = plan.documents.append_column("carry:source", [["file"]])
    recorded = recorded_plan(plan, LogIndex())
    assert recorded["carry:source"].to_pylist() == ["file"]
    assert [reading["question"] for reading in recorded["readings"][0].as_py()] == [0, 1]


@pytest.mark.parametrize("killed_at", ["reading", "tables", "manifest"])
def test_killed_run_leaves_no_record_and_the_next_one_is_compared_with_the_last_finished(
    nights: Nights, killed_at: str
) -> None:
    first = nights.run(DOCUMENTS, QUESTIONS)["run_id"]
    with pytest.raises(Killed):
        nights.run({"a": "changed", "c": "three"}, QUESTIONS, killed_at=killed_at)
    assert finished_runs(nights.output) == [first]
    assert verify(nights.output).problems == []
    manifest = nights.run({"a": "changed", "c": "three"}, QUESTIONS)
    assert finished_runs(nights.output) == [first, manifest["run_id"]]
    assert manifest["changes"]["since"] == first
    assert manifest["changes"]["documents"] == {"added": 1, "changed": 1, "removed": 2, "unchanged": 0}
    removed_by = {row["document_id"]: row["removed_run_id"] for row in nights.table("removed")}
    assert removed_by == dict.fromkeys(("b", "broken"), manifest["run_id"])
    assert nights.answers()["a", "q"] == "changed"
    assert verify(nights.output).problems == []


def test_kill_between_manifest_and_record_is_closed_by_the_next_run(nights: Nights) -> None:
    first = nights.run(DOCUMENTS, QUESTIONS)["run_id"]
    record_of(nights, first, "manifest.json").unlink()
    assert finished_runs(nights.output) == [first]
    assert nights.run(DOCUMENTS, QUESTIONS)["changes"]["since"] == first
    assert record_of(nights, first, "manifest.json").exists()


def test_find_run_by_id_or_by_place_in_time_or_names_the_runs_there_are(nights: Nights) -> None:
    first = nights.run(DOCUMENTS, QUESTIONS)["run_id"]
    with pytest.raises(OutputError, match=rf"no finished run 'monday' at .*; there are {first}"):
        find_run(nights.output, "monday")
    with pytest.raises(OutputError, match=f"{first} is the only finished run"):
        find_run(nights.output, "previous")
    second, third = (nights.run({"a": text}, QUESTIONS)["run_id"] for text in ("two", "three"))
    found = [find_run(nights.output, name).run_id for name in (first, "previous", "latest")]
    assert found == [first, second, third]


def test_record_that_can_not_be_read_is_named(nights: Nights) -> None:
    first = nights.run(DOCUMENTS, QUESTIONS)["run_id"]
    record_of(nights, first).write_bytes(b"PAR1")
    with pytest.raises(OutputError, match=r"plan\.parquet can't be read.*restore it"):
        nights.run(DOCUMENTS, QUESTIONS)
    assert nights.answers()["a", "q"] == "one"


def counts(added: int = 0, changed: int = 0, removed: int = 0, unchanged: int = 0) -> dict[str, int]:
    return {"added": added, "changed": changed, "removed": removed, "unchanged": unchanged}


def test_changes_count_documents_questions_and_readings_since_the_run_before(nights: Nights) -> None:
    bound = {("a", "q"): "Whence?", ("b", "t"): "How?"}
    begun = {"a": "one", "b": "two", "c": "three", "d": "four"}
    first = nights.run(begun, QUESTIONS, bound=bound)["run_id"]
    now = {"a": "one", "b": "changed", "c": None, "e": "five"}
    assert nights.run(now, {"q": "Why?", "r": "Whose?", "s": "When?"})["changes"] == {
        "since": first,
        "documents": counts(added=1, changed=2, removed=1, unchanged=1),
        "questions": counts(added=1, changed=1, removed=2, unchanged=1),
        "readings": {"read": 8, "kept": 1, "unreadable": 3, "not_read": 0},
        "tables": {},
        "turns": {"asked": 0, "reused": 0},
    }


def test_removed_says_which_run_had_a_document_last_and_which_missed_it(nights: Nights) -> None:
    texts: list[dict[str, str | None]] = [{"a": "1", "b": "2", "c": None}, {"a": "1", "b": "3"}, {"a": "1"}]
    runs = [nights.run(documents, QUESTIONS)["run_id"] for documents in texts]
    removed = {row["document_id"]: row for row in nights.table("removed")}
    by_run = {name: (row["last_run_id"], row["removed_run_id"]) for name, row in removed.items()}
    assert by_run == {"c": (runs[0], runs[1]), "b": (runs[1], runs[2])}
    assert removed["c"]["document_hash"] is None
    assert set(removed["b"]) == set(REMOVED_TABLE.names)
    assert set(nights.answers()) == {("a", "q"), ("a", "r")}


SCAN = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["1", "2"]), min_size=1)


@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@given(scans=st.lists(SCAN, min_size=1, max_size=4))
def test_changes_close_and_no_document_is_ever_forgotten(scans: list[Mapping[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        nights = Nights(Location(uri=f"{folder}/run"))
        before: Mapping[str, str] = {}
        for documents in scans:
            found = nights.run(documents, {"q": "Why?"})["changes"]["documents"]
            assert found["added"] + found["changed"] + found["unchanged"] == len(documents)
            assert found["removed"] + found["changed"] + found["unchanged"] == len(before)
            before = documents
        removed = {row["document_id"] for row in nights.table("removed")}
        assert removed == {name for documents in scans for name in documents} - set(scans[-1])
        assert nights.answers() == {(name, "q"): text for name, text in scans[-1].items()}


def test_changes_count_a_reading_that_was_not_read_until_a_later_run_reads_it(nights: Nights) -> None:
    documents = {"a": "one", "b": AWAY, "c": None}
    first = nights.run(documents, {"q": "Why?"}, away=True)
    assert first["changes"]["readings"] == {"read": 1, "kept": 0, "unreadable": 1, "not_read": 1}
    second = nights.run(documents, {"q": "Why?"})
    assert second["changes"]["readings"] == {"read": 1, "kept": 1, "unreadable": 1, "not_read": 0}
    assert nights.answers() == {("a", "q"): "one", ("b", "q"): AWAY, ("c", "q"): None}

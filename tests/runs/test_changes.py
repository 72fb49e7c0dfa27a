import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memagent_batch.files.location import Location
from memagent_batch.runs.tables import REMOVED
from tests.runs.recorded_nights import AWAY, FAILS, Killed, Nights

QUESTIONS = {"q": "Why?", "r": "Who?"}


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(Location(uri=str(tmp_path / "run")))


def counts(added: int = 0, changed: int = 0, removed: int = 0, unchanged: int = 0) -> dict[str, int]:
    return {"added": added, "changed": changed, "removed": removed, "unchanged": unchanged}


def test_changes_of_the_first_run_are_all_added(nights: Nights) -> None:
    changes = nights.run({"a": "one", "broken": None}, QUESTIONS)["changes"]
    assert changes == {
        "since": None,
        "documents": counts(added=2),
        "questions": counts(added=2),
        "readings": {"read": 2, "kept": 0, "unreadable": 2, "not_read": 0},
        "tables": {},
        "turns": {"asked": 0, "held": 0},
    }
    assert nights.table("removed") == []


def test_changes_count_documents_questions_and_readings_since_the_run_before(nights: Nights) -> None:
    first = nights.run({"a": "one", "b": "two", "c": "three", "d": "four"}, QUESTIONS)["run_id"]
    now = {"a": "one", "b": "changed", "c": None, "e": "five"}
    assert nights.run(now, {"q": "Why?", "r": "Whose?", "s": "When?"})["changes"] == {
        "since": first,
        "documents": counts(added=1, changed=2, removed=1, unchanged=1),
        "questions": counts(added=1, changed=1, unchanged=1),
        "readings": {"read": 8, "kept": 1, "unreadable": 3, "not_read": 0},
        "tables": {},
        "turns": {"asked": 0, "held": 0},
    }


def test_changes_of_questions_bound_to_one_document_go_with_it(nights: Nights) -> None:
    nights.run({"a": "one", "b": "two"}, {}, bound={("a", "q"): "Why?", ("b", "q"): "Who?"})
    changes = nights.run({"a": "one", "c": "two"}, {}, bound={("a", "q"): "Whose?", ("c", "q"): "Who?"})["changes"]
    assert changes["questions"] == counts(added=1, changed=1, removed=1)
    assert changes["readings"] == {"read": 1, "kept": 1, "unreadable": 0, "not_read": 0}


def test_changes_of_a_run_without_any_keep_every_reading(nights: Nights) -> None:
    nights.run({"a": "one", "b": FAILS}, QUESTIONS)
    changes = nights.run({"a": "one", "b": FAILS}, QUESTIONS)["changes"]
    assert (changes["documents"], changes["questions"]) == (counts(unchanged=2), counts(unchanged=2))
    assert changes["readings"] == {"read": 0, "kept": 4, "unreadable": 0, "not_read": 0}


def test_changes_count_what_a_stopped_run_read_as_read(nights: Nights) -> None:
    nights.run({"a": "one"}, QUESTIONS)
    with pytest.raises(Killed):
        nights.run({"a": "one", "b": "two"}, QUESTIONS, killed_at="tables")
    assert nights.run({"a": "one", "b": "two"}, QUESTIONS)["changes"]["readings"] == {
        "read": 2,
        "kept": 2,
        "unreadable": 0,
        "not_read": 0,
    }


def test_changes_of_another_reader_are_readings_alone(nights: Nights) -> None:
    nights.run({"a": "one"}, QUESTIONS)
    changes = nights.run({"a": "one"}, QUESTIONS, reader="g")["changes"]
    assert changes["documents"] == counts(unchanged=1)
    assert changes["readings"] == {"read": 2, "kept": 0, "unreadable": 0, "not_read": 0}


def test_removed_says_which_run_had_a_document_last_and_which_missed_it(nights: Nights) -> None:
    texts: list[dict[str, str | None]] = [{"a": "1", "b": "2", "c": None}, {"a": "1", "b": "3"}, {"a": "1"}]
    runs = [nights.run(documents, QUESTIONS)["run_id"] for documents in texts]
    removed = {row["document_id"]: row for row in nights.table("removed")}
    assert {name: (row["last_run_id"], row["removed_run_id"]) for name, row in removed.items()} == {
        "c": (runs[0], runs[1]),
        "b": (runs[1], runs[2]),
    }
    assert removed["c"]["document_hash"] is None
    assert set(removed["b"]) == set(REMOVED.names)
    assert set(nights.answers()) == {("a", "q"), ("a", "r")}


def test_removed_document_that_comes_back_is_not_removed_and_not_read_again(nights: Nights) -> None:
    for documents in ({"a": "1", "b": "2"}, {"a": "1"}):
        nights.run(documents, QUESTIONS)
    changes = nights.run({"a": "1", "b": "2"}, QUESTIONS)["changes"]
    assert (changes["documents"], changes["readings"]["read"]) == (counts(added=1, unchanged=1), 0)
    assert nights.table("removed") == []


@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@given(
    scans=st.lists(
        st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["1", "2"]), min_size=1), min_size=1, max_size=4
    )
)
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

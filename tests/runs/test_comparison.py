"""What differs between two runs, in answers and in typed values."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memagent_batch.data.store.location import Location
from memagent_batch.errors import OutputError
from memagent_batch.run.comparison import DIFFERENCES, compare_runs
from memagent_batch.run.history import find_run, finished_runs
from tests.runs.recorded_nights import AWAY, FAILS, Nights
from tests.runs.typed_nights import CUT, FAILED, FIVE, night

Q = {"q": "Why?"}


def differences(before: Nights, after: Nights | None = None, *runs: str) -> list[dict[str, Any]]:
    """Rows that differ between two runs of one output (the last two by default), or the latest runs of two."""
    names = runs or (("latest", "latest") if after else ("previous", "latest"))
    tables = list(compare_runs(find_run(before.output, names[0]), find_run((after or before).output, names[1])))
    assert all(table.schema.equals(DIFFERENCES, check_metadata=True) for table in tables)
    return [row for table in tables for row in table.to_pylist()]


def brief(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    names = ("document_id", "question_id", "change", "why", "answer_before", "answer_after")
    return [tuple(row[name] for name in names) for row in rows]


def test_differences_show_both_answers_memories_and_why(nights: Nights) -> None:
    first = nights.run({"a": "one", "b": "two", "c": "three"}, Q)["run_id"]
    second = nights.run({"a": "one", "b": "other", "d": "four"}, Q)["run_id"]
    rows = differences(nights)
    assert brief(rows) == [
        ("b", "q", "changed", ["document"], "two", "other"),
        ("c", "q", "removed", ["document"], "three", None),
        ("d", "q", "added", ["document"], None, "four"),
    ]
    memories = [(row["memory_before"], row["memory_after"]) for row in rows]
    assert memories == [("noted: two", "noted: other"), ("noted: three", None), (None, "noted: four")]
    runs = [(row["run_id_before"], row["run_id_after"]) for row in rows]
    assert runs == [(first, second), (first, None), (None, second)]


def test_differences_leave_out_what_was_read_anew_with_the_same_answer(nights: Nights) -> None:
    nights.run({"a": "one", "b": "two"}, {"q": "Why?", "r": "Who?"})
    nights.run({"a": "one", "b": "two"}, {"q": "Why ever?", "r": "Who?"}, reader="g")
    assert differences(nights) == []


def test_differences_of_a_changed_question_tell_both_texts(nights: Nights, tmp_path: Path) -> None:
    nights.run({"a": "one"}, Q)
    other = Nights(Location(uri=str(tmp_path / "other")))
    other.run({"a": "uno"}, {"q": "Perche?"}, reader="g")
    (row,) = differences(nights, other)
    assert row["why"] == ["document", "question", "reader"]
    assert (row["question_before"], row["question_after"]) == ("Why?", "Perche?")


def test_differences_of_a_question_under_another_id_are_found_without_a_reading(nights: Nights) -> None:
    nights.run({"a": "one"}, {"q": "Why?"})
    nights.run({"a": "one"}, {"r": "Why?"})
    assert brief(differences(nights)) == [
        ("a", "q", "removed", ["question"], "one", None),
        ("a", "r", "added", ["question"], None, "one"),
    ]


def test_differences_of_questions_and_samples_that_come_and_go(nights: Nights) -> None:
    nights.run({"a": "one"}, {"q": "Why?", "r": "Who?"})
    nights.run({"a": "one", "b": "two"}, {"q": "Why?", "s": "When?"}, sampling={"samples": 2, "temperature": 0.5})
    rows = differences(nights)
    assert {(row["document_id"], row["question_id"], row["sample"], row["change"], *row["why"]) for row in rows} == {
        ("a", "q", 1, "added", "sample"),
        ("a", "s", 0, "added", "question"),
        ("a", "s", 1, "added", "question"),
        ("b", "q", 0, "added", "document"),
        ("b", "q", 1, "added", "document"),
        ("b", "s", 0, "added", "document", "question"),
        ("b", "s", 1, "added", "document", "question"),
        ("a", "r", 0, "removed", "question"),
    }


def test_differences_of_another_extraction_name_it(nights: Nights) -> None:
    nights.run({"a": "one"}, Q)
    nights.run({"a": "one"}, Q, extraction="raw")
    assert brief(differences(nights)) == [("a", "q", "changed", ["extraction"], "one", "\\boxed{one}")]


def test_differences_after_a_failed_reading_was_retried_still_show_the_failure(nights: Nights) -> None:
    first = nights.run({"a": FAILS}, Q)["run_id"]
    second = nights.run({"a": FAILS}, Q, retried=True)["run_id"]
    third = nights.run({"a": FAILS}, Q)["run_id"]
    for later in (second, third):
        (row,) = differences(nights, None, first, later)
        assert (row["why"], row["status_before"], row["status_after"]) == (["same inputs"], "failed", "ok")
        assert (row["error_message_before"], row["answer_after"]) == ("the engine refused it", FAILS)
    assert differences(nights, None, second, third) == []


def test_differences_of_a_document_that_can_not_be_read_any_more_say_why(nights: Nights) -> None:
    nights.run({"a": "one"}, Q)
    nights.run({"a": None}, Q)
    (row,) = differences(nights)
    assert (row["change"], row["why"], row["status_after"]) == ("changed", ["document"], "failed")
    assert row["error_message_after"] == "p: the text is null"


def test_differences_are_found_between_runs_whose_files_are_there_without_the_log(nights: Nights) -> None:
    runs = [nights.run({"a": text, "b": "same"}, Q)["run_id"] for text in ("1", "2", "3", "4")]
    (nights.output / "log/outcomes").delete()
    assert brief(differences(nights, None, runs[1], runs[3])) == [("a", "q", "changed", ["document"], "2", "4")]
    assert brief(differences(nights, None, runs[3], runs[0])) == [("a", "q", "changed", ["document"], "4", "1")]
    nights.last().table("answers").vacuum(days=0)
    with pytest.raises(OutputError, match=r"answers can't be read|VACUUM"):
        differences(nights, None, runs[0], runs[3])
    assert brief(differences(nights, None, runs[3], runs[3])) == []


SCAN = st.tuples(
    st.dictionaries(st.sampled_from("abc"), st.sampled_from(["1", "2", FAILS, None]), min_size=1),
    st.dictionaries(st.sampled_from("qrs"), st.sampled_from(["Why?", "Who?"]), min_size=1),
    st.sampled_from("fg"),
)


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(earlier=SCAN, later=SCAN)
def test_differences_turn_the_answers_before_into_those_after(
    earlier: tuple[Mapping[str, str | None], Mapping[str, str], str],
    later: tuple[Mapping[str, str | None], Mapping[str, str], str],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        nights = Nights(Location(uri=f"{folder}/run"))
        stands: list[dict[tuple[str, str], tuple[str, str | None]]] = []
        for documents, questions, reader in (earlier, later):
            nights.run(documents, questions, reader=reader)
            rows = nights.table("answers")
            stands.append({(row["document_id"], row["question_id"]): (row["status"], row["answer"]) for row in rows})
        told = stands[0]
        for row in differences(nights):
            key = (row["document_id"], row["question_id"])
            assert told.pop(key, (None, None)) == (row["status_before"], row["answer_before"])
            if row["status_after"] is not None:
                told[key] = (row["status_after"], row["answer_after"])
        assert told == stands[1]


def test_differences_of_a_reading_that_was_not_read_show_it_as_such_and_once(nights: Nights) -> None:
    for away in (True, True, False):
        nights.run({"a": AWAY, "b": "one"}, Q, away=away)
    first, second, third = finished_runs(nights.output)
    assert differences(nights, None, first, second) == []
    (row,) = differences(nights, None, second, third)
    assert (row["status_before"], row["run_id_before"], row["answer_before"]) == ("not_read", None, None)
    assert (row["status_after"], row["run_id_after"], row["answer_after"]) == ("ok", third, AWAY)
    assert row["why"] == ["same inputs"]


def value_differences(nights: Nights, before: str, after: str) -> list[tuple[Any, ...]]:
    names = ("document_id", "change", "why", "value_status_before", "value_before", "value_status_after", "value_after")
    runs = (find_run(nights.output, name) for name in (before, after))
    rows = [row for table in compare_runs(*runs) for row in table.to_pylist()]
    assert all(row["answer_before"] == row["answer_after"] for row in rows)
    return [tuple(row[name] for name in names) for row in rows]


def test_value_that_was_cut_and_is_whole_with_a_larger_budget_has_changed(nights: Nights, text_model: str) -> None:
    first = night(nights, CUT, FIVE, json_tokens=64, model=text_model)
    second = night(nights, FIVE, FIVE, json_tokens=128, model=text_model)
    changed = ("0", "changed", ["follow_ups"])
    assert value_differences(nights, first, second) == [(*changed, "invalid", None, "ok", '{"price":5}')]
    assert value_differences(nights, second, first) == [(*changed, "ok", '{"price":5}', "invalid", None)]


def test_value_whose_turn_failed_and_is_asked_again_has_changed(nights: Nights, text_model: str) -> None:
    first = night(nights, FAILED, FIVE, model=text_model)
    second = night(nights, FIVE, FIVE, retried=True, model=text_model)
    third = night(nights, FIVE, FIVE, model=text_model)
    changed = [("0", "changed", ["same inputs"], None, None, "ok", '{"price":5}')]
    assert value_differences(nights, first, second) == value_differences(nights, first, third) == changed
    assert value_differences(nights, second, third) == []

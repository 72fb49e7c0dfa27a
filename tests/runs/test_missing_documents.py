"""Questions bound to documents that are not there: rows that say so, over several nights."""

from typing import Any

from memagent_batch.runs.comparison import compare_runs
from memagent_batch.runs.history import find_run
from tests.runs.recorded_nights import Nights

ALL = {"q": "Why?"}
BOUND = {("a", "r"): "Who?", ("b", "r"): "When?"}


def rows_of(nights: Nights, document_id: str) -> list[tuple[Any, ...]]:
    names = ("question_id", "status", "answer", "error_type", "document_hash")
    return [tuple(row[name] for name in names) for row in nights.table("answers") if row["document_id"] == document_id]


def last_differences(nights: Nights) -> list[tuple[Any, ...]]:
    tables = compare_runs(find_run(nights.output, "previous"), find_run(nights.output, "latest"))
    rows = [row for table in tables for row in table.to_pylist()]
    return [(row["document_id"], row["question_id"], row["change"], row["why"]) for row in rows]


def test_missing_document_is_a_failed_row_and_a_removed_document_until_it_comes_back_and_is_not_read_again(
    nights: Nights,
) -> None:
    first = nights.run({"a": "one", "b": "two"}, ALL, bound=BOUND)
    away = nights.run({"a": "one"}, ALL, bound=BOUND)
    assert rows_of(nights, "b") == [("r", "failed", None, "DocumentMissingError", None)]
    assert away["counts"]["asked"] == away["counts"]["answers_rows"] == 3
    assert (away["counts"]["ok"], away["counts"]["failed"]) == (2, 1)
    assert away["changes"]["documents"] == {"added": 0, "changed": 0, "removed": 1, "unchanged": 1}
    assert away["changes"]["questions"]["unchanged"] == 3
    assert away["changes"]["readings"] == {"read": 0, "kept": 2, "unreadable": 1, "not_read": 0}
    assert [(row["document_id"], row["last_run_id"]) for row in nights.table("removed")] == [("b", first["run_id"])]
    assert last_differences(nights) == [("b", "r", "changed", ["document"]), ("b", "q", "removed", ["document"])]
    still = nights.run({"a": "one"}, ALL, bound=BOUND)
    assert all(still["files"][name] == away["files"][name] for name in ("answers", "memories"))
    assert still["changes"]["documents"] == {"added": 0, "changed": 0, "removed": 0, "unchanged": 1}
    assert last_differences(nights) == []
    back = nights.run({"a": "one", "b": "two"}, ALL, bound=BOUND)
    assert back["changes"]["documents"] == {"added": 1, "changed": 0, "removed": 0, "unchanged": 1}
    assert back["changes"]["readings"] == {"read": 0, "kept": 4, "unreadable": 0, "not_read": 0}
    assert rows_of(nights, "b")[0][1:3] == ("ok", "two")
    assert nights.table("removed") == []

"""What a night says has changed since the last one: documents and questions that are new, other, or gone."""

import pyarrow as pa
import pytest

from memagent_batch.runs.history import PastRun, find_changes
from memagent_batch.store.location import Location

PLAN = pa.schema(
    [
        ("document_id", pa.string()),
        ("document_hash", pa.string()),
        ("error", pa.string()),
        ("error_type", pa.string()),
        ("readings", pa.list_(pa.struct([("question", pa.int32()), ("sample", pa.int32()), ("run_id", pa.string())]))),
    ]
)
QUESTIONS = pa.schema([(name, pa.string()) for name in ("question_id", "document_id", "question_hash")])


def _plan(**hashes: str | None) -> pa.Table:
    rows: list[dict[str, object]] = [
        {"document_id": name, "document_hash": hash_, "readings": []} for name, hash_ in hashes.items()
    ]
    return pa.Table.from_pylist(rows, schema=PLAN)


def _questions(*rows: tuple[str, str | None, str]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(QUESTIONS.names, row, strict=True)) for row in rows], schema=QUESTIONS)


def test_changes_compare_documents_by_id_and_questions_by_id_and_document() -> None:
    before = PastRun(
        output=Location(uri="/nowhere"),
        run_id="1",
        manifest={"tables": {}},  # type: ignore[typeddict-item]
        plan=_plan(same="1", unreadable=None, edited="2", mended=None, gone="3"),
        questions=_questions(("who", None, "w"), ("who", "edited", "x"), ("when", None, "y")),
        removed=pa.table({}),
    )
    plan = _plan(new="9", mended="4", edited="5", unreadable=None, same="1")
    questions = _questions(("who", "edited", "z"), ("who", None, "w"), ("who", "same", "w"))
    changes = find_changes(plan, questions, before=before)
    assert changes["documents"] == {"added": 1, "changed": 2, "removed": 1, "unchanged": 2}
    assert changes["questions"] == {"added": 1, "changed": 1, "removed": 1, "unchanged": 1}


@pytest.mark.parametrize("hash_", ["1", None])
def test_changes_of_a_first_run_add_all(hash_: str | None) -> None:
    changes = find_changes(_plan(a=hash_), _questions(("who", None, "w")), before=None)
    none = {"added": 1, "changed": 0, "removed": 0, "unchanged": 0}
    assert (changes["documents"], changes["questions"]) == (none, none)

"""The question list as readings name it: texts and addresses."""

import pyarrow as pa

from memagent_batch.documents.document_index import INDEX_SCHEMA
from memagent_batch.documents.questions import QUESTION_SCHEMA
from memagent_batch.domain.addresses import text_hash
from memagent_batch.reading.agent import Questions
from memagent_batch.runs.plan import Plan

ASKED = [("q0", None, "Who?"), ("q1", "e", "Why?"), ("q2", None, "Where?")]


def questions_of() -> Questions:
    rows = [
        {"question_id": id_, "document_id": document, "question": text, "references": None}
        for id_, document, text in ASKED
    ]
    plan = Plan(INDEX_SCHEMA.empty_table(), pa.Table.from_pylist(rows, QUESTION_SCHEMA), samples=1)
    return Questions(plan.asked.hashed, fingerprint="f")


def test_question_is_named_by_its_row_and_addressed_by_its_text() -> None:
    questions = questions_of()
    address = questions.address(2, document_hash="d", sample=1)
    assert (address.document_hash, address.question_hash) == ("d", text_hash("Where?"))
    assert (address.sample, address.fingerprint) == (1, "f")
    assert (questions[2].question_id, questions[2].text) == ("q2", "Where?")

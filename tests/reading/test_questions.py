"""The question list as readings name it: texts, addresses, and who counts the turns of a list."""

import pyarrow as pa

from memagent_batch.domain.addresses import text_hash
from memagent_batch.inputs.document_index import INDEX_SCHEMA
from memagent_batch.inputs.questions import QUESTION_SCHEMA
from memagent_batch.reading.questions import Questions
from memagent_batch.runs.planning.plan import Plan

ASKED = [("q0", None, "Who?"), ("q1", "e", "Why?"), ("q2", None, "Where?")]


def questions_of(*, as_lists: bool) -> Questions:
    rows = [
        {"question_id": id_, "document_id": document, "question": text, "references": None}
        for id_, document, text in ASKED
    ]
    plan = Plan(INDEX_SCHEMA.empty_table(), pa.Table.from_pylist(rows, QUESTION_SCHEMA), samples=1, as_lists=as_lists)
    return Questions(plan.asked.hashed, reader_fingerprint="f")


def test_questions_that_are_read_alone_have_one_address_and_no_list() -> None:
    questions = questions_of(as_lists=False)
    address = questions.address(2, document_hash="d", sample=1)
    assert (address.document_hash, address.question_hash) == ("d", text_hash("Where?"))
    assert (address.sample, address.reader_fingerprint) == (1, "f")
    assert questions.list_address(2, document_hash="d", sample=1) is None
    assert (questions[2].question_id, questions[2].text, questions[2].list_text) == ("q2", "Where?", "")


def test_questions_of_one_list_have_one_list_address_and_the_first_counts_its_turns() -> None:
    questions = questions_of(as_lists=True)
    lists = [questions.list_address(row, document_hash="d", sample=0) for row in range(3)]
    assert lists[0] == lists[2] != lists[1]
    assert len({questions.address(row, document_hash="d", sample=0) for row in range(3)} | {*lists}) == 5
    assert [questions.counts_list(row) for row in range(3)] == [True, True, False]
    assert [questions[row].list_text for row in range(3)] == ["1. Who?\n2. Where?", "Why?", "1. Who?\n2. Where?"]

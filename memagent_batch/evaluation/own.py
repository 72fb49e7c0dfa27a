"""A suite of a user's own questions: a question list with references, over the user's own documents."""

import hashlib
import logging
import posixpath
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from memagent_batch.config.sources import InputConfig
from memagent_batch.documents.document_index import index_schema, require_unique_ids
from memagent_batch.documents.indexing import index_shard
from memagent_batch.documents.questions import missing_documents, read_questions, type_fields, value_type_of
from memagent_batch.documents.shards import list_shards
from memagent_batch.documents.texts import fetch_texts
from memagent_batch.domain.follow_ups.values import says_not_stated
from memagent_batch.domain.scores import CONTAINMENT_METRICS, Metric
from memagent_batch.domain.texts.shares import quantity
from memagent_batch.errors import InputError
from memagent_batch.evaluation.suite import (
    ASKED_ENTRY,
    DOCUMENTS_FOLDER,
    QUESTIONS_FILE,
    SUITE_DOCUMENTS,
    SUITE_QUESTIONS,
    Say,
    SuiteQuestion,
    claim_suite,
    require_scorable,
    unfinished_deleted,
    write_suite_record,
)
from memagent_batch.masking import mask_url
from memagent_batch.runs.manifest import package_versions
from memagent_batch.store.location import Location
from memagent_batch.store.parquet import open_row_groups, parquet_bytes

log = logging.getLogger(__name__)
DOCUMENTS_FILE = "documents.parquet"
SHORT_CHARACTERS = 4
"""References with fewer characters may stand in a wrong answer by chance, such as `no` in `There is no limit`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSuite:
    """What a suite is made of."""

    documents: tuple[Location, ...]
    """Files, folders or globs, as the main job takes them."""
    questions: Location
    """The question list; each question has references. Rows without a document_id are asked of every document."""
    settings: InputConfig
    """Where texts stand in the files."""
    metric: Metric
    """Metric of questions without a type; typed ones have `value`."""


def make_own_suite(own: OwnSuite, output: Location, *, say: Say) -> bool:
    """Writes the suite; returns False where it is there already, made from the same.

    Holds the index of the documents and the questions in memory, and one text.

    Raises:
        InputError: a file can't be read, a question has no reference or asks for a document that is not there.
        OutputError: the folder holds something else.
    """
    index = _document_index(own)
    listed = read_questions(own.questions, ask=())
    if missing := missing_documents(listed, index):
        raise InputError(f"{own.questions.uri}: no document has the id {missing[0]!r}; correct it, or add the document")
    questions = _suite_questions(listed, index, own=own)
    require_scorable(questions, where=own.questions.uri)
    _warn_of_short_references(questions)
    asked = _claimed(own, index, questions)
    if claim_suite(output, asked):
        return False
    with unfinished_deleted(output):
        num_documents = _write_documents(own, index, questions, output)
        table = pa.Table.from_pylist(questions, schema=SUITE_QUESTIONS)
        (output / QUESTIONS_FILE).write_bytes(parquet_bytes(table))
    write_suite_record(output, {ASKED_ENTRY: asked, "questions": len(questions), "versions": package_versions()})
    say(f"{quantity(len(questions), 'question')} on {quantity(num_documents, 'document')}")
    return True


def _document_index(own: OwnSuite) -> pa.Table:
    tables = [
        table
        for shard in list_shards(*own.documents, settings=own.settings)
        for table in index_shard(shard, settings=own.settings, storage_options=dict(own.documents[0].storage_options))
    ]
    index = pa.concat_tables([index_schema(own.settings).empty_table(), *tables])
    require_unique_ids(index, documents=own.documents[0])
    return index


def _suite_questions(listed: pa.Table, index: pa.Table, *, own: OwnSuite) -> list[SuiteQuestion]:
    """Each question with each document that it is asked of. A question of several documents is a separate task."""
    rows = listed.to_pylist()
    bound: dict[str | None, list[Mapping[str, Any]]] = {}
    for row in rows:
        bound.setdefault(row["document_id"], []).append(row)
    pairs = [
        (document_id, row)
        for document_id in index["document_id"].to_pylist()
        for row in [*bound.get(None, ()), *bound.get(document_id, ())]
    ]
    times = Counter(row["question_id"] for _, row in pairs)
    stem = posixpath.splitext(posixpath.basename(own.questions.path))[0]
    return [
        _suite_question(
            row, document_id=document_id, task=row["question_id"] if times[row["question_id"]] > 1 else stem, own=own
        )
        for document_id, row in pairs
    ]


def _suite_question(row: Mapping[str, Any], *, document_id: str, task: str, own: OwnSuite) -> SuiteQuestion:
    references = row["references"] or []
    is_absent = bool(references) and all(says_not_stated(reference) for reference in references)
    return SuiteQuestion(
        question_id=row["question_id"],
        document_id=document_id,
        question=row["question"],
        references=references,
        task=task,
        length_tokens=None,
        depth=None,
        metric=Metric.VALUE.value if row["answer_type"] else own.metric.value,
        **type_fields(value_type_of(row)),
        is_absent=is_absent,
        gold_spans=[] if is_absent else None,
    )


def _warn_of_short_references(questions: list[SuiteQuestion]) -> None:
    short = [
        (question, reference)
        for question in questions
        if question["metric"] in CONTAINMENT_METRICS
        for reference in question["references"]
        if 0 < len(reference.strip()) < SHORT_CHARACTERS
    ]
    if short:
        question, reference = short[0]
        log.warning(
            f"question_id {question['question_id']!r}: a wrong answer may contain the reference {reference!r}, too "
            f"({len(short)} references have fewer than {SHORT_CHARACTERS} characters); give such questions an "
            "answer_type, or use --metric em"
        )


def _claimed(own: OwnSuite, index: pa.Table, questions: list[SuiteQuestion]) -> dict[str, object]:
    """All that decides what is in the suite."""
    hashes = zip(index["document_id"].to_pylist(), index["document_hash"].to_pylist(), strict=True)
    return {
        "documents": [mask_url(place.uri) for place in own.documents],
        "documents_sha256": _sha256(f"{document_id}\0{of_text}" for document_id, of_text in sorted(hashes)),
        "questions": mask_url(own.questions.uri),
        "questions_sha256": _sha256(repr(sorted(question.items())) for question in questions),
        "metric": own.metric.value,
    }


def _sha256(parts: Iterator[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _write_documents(own: OwnSuite, index: pa.Table, questions: list[SuiteQuestion], output: Location) -> int:
    """Copies the texts of the documents that are asked about; returns their number."""
    wanted = {question["document_id"] for question in questions}
    rows = index.filter(pa.array([document_id in wanted for document_id in index["document_id"].to_pylist()]))
    names = rows["document_id"].to_pylist()
    with open_row_groups(output / DOCUMENTS_FOLDER / DOCUMENTS_FILE, schema=SUITE_DOCUMENTS) as documents:
        for fetched in fetch_texts(rows, documents=own.documents[0], settings=own.settings):
            if fetched.text is None:
                raise InputError(f"document {names[fetched.row]!r}: {fetched.error}; fix it, or leave it out")
            documents.write([{"document_id": names[fetched.row], "text": fetched.text}])
    return len(names)

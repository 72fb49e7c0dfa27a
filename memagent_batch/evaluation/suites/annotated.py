"""Suites whose file is one JSON object of annotated documents: SQuAD and CUAD, ContractNLI.

A file is held in memory while it is read, as the published ones of some ten MB are.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from memagent_batch.domain.closing.answer_types import NOT_STATED_ENTRY, AnswerType, Label, ValueType
from memagent_batch.domain.scoring.scores import Metric
from memagent_batch.errors import InputError
from memagent_batch.evaluation.suites.foreign_question import ForeignQuestion
from memagent_batch.evaluation.suites.ruler import Separation
from memagent_batch.evaluation.tasks.corpora import answer_span
from memagent_batch.files.errors import input_errors
from memagent_batch.files.location import Location

ENTAILMENT, CONTRADICTION, NOT_MENTIONED = "Entailment", "Contradiction", "NotMentioned"
"""Choices of ContractNLI; of the last one nothing stands in the document."""

HYPOTHESIS_ASKED = "Does the contract entail this statement, or contradict it? {hypothesis}"
"""A hypothesis of ContractNLI as a question."""

FIRST_KEY = re.compile(rb'\s*\{\s*"(?P<key>[a-z]+)"\s*:\s*(?P<opening>[\[{"])')
"""Beginning of a file that is one object."""

_HEAD_BYTES = 4096


def first_key(location: Location) -> str | None:
    """The first key of a file that is one object over all its lines; None where it begins otherwise."""
    with input_errors(location.uri), location.fs.open(location.path, "rb") as stream:
        found = FIRST_KEY.match(stream.read(_HEAD_BYTES).removeprefix(b"\xef\xbb\xbf"))
    return found["key"].decode() if found else None


def read_squad_suite(location: Location, *, name: str, task: str) -> Iterator[ForeignQuestion]:
    """SQuAD, version 1 or 2, or CUAD: each paragraph is a document, with all questions on it.

    A file that marks questions without an answer (`is_impossible`) has typed questions, which may be `not stated`.

    Raises:
        InputError: names the file, and the paragraph by its number.
    """
    articles = _required_list(_published_object(location), "data", where=location.uri)
    paragraphs = [
        paragraph for article in articles for paragraph in _required_list(article, "paragraphs", where=location.uri)
    ]
    yield from _questions(location, paragraphs, name=name, questions_of=_squad_questions, task=task)


def read_contract_nli(location: Location, *, name: str, task: str) -> Iterator[ForeignQuestion]:
    """ContractNLI: each contract is a document, each hypothesis a typed question: a label, or `not stated`.

    Raises:
        InputError: names the file, and the document by its number.
    """
    value = _published_object(location)
    hypotheses = value.get("labels")
    if not isinstance(hypotheses, dict):
        raise InputError(f"{location.uri} has no object 'labels' of hypotheses; give the file as it was published")

    def questions_of(document: Any, record_id: str, task: str) -> Iterator[ForeignQuestion]:
        return _nli_questions(document, record_id, task, hypotheses=hypotheses)

    documents = _required_list(value, "documents", where=location.uri)
    yield from _questions(location, documents, name=name, questions_of=questions_of, task=task)


_QuestionsOf = Callable[[Any, str, str], Iterator[ForeignQuestion]]


def _questions(
    location: Location, documents: list[Any], *, name: str, questions_of: _QuestionsOf, task: str
) -> Iterator[ForeignQuestion]:
    for number, document in enumerate(documents):
        try:
            yield from questions_of(document, f"{name}:{number}", task)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            reason = f"there is no {error}" if isinstance(error, KeyError) else str(error)
            raise InputError(
                f"{location.uri}, document {number + 1}: {reason}; give the file as it was published"
            ) from error


def _squad_questions(paragraph: Any, record_id: str, task: str) -> Iterator[ForeignQuestion]:
    text = _document_text(paragraph["context"])
    for number, asked in enumerate(paragraph["qas"]):
        spans = sorted({answer_span(answer, context=text) for answer in asked["answers"]})
        references = list(dict.fromkeys(text[start:end] for start, end in spans))
        is_marked = "is_impossible" in asked
        if not references and not is_marked:
            raise ValueError(f"question {number + 1} has no answer and no 'is_impossible'")
        yield ForeignQuestion(
            document_id=record_id,
            question_id=f"{record_id}:{number}",
            document=text,
            question=_document_text(asked["question"]),
            references=references or [NOT_STATED_ENTRY],
            task=task,
            length_tokens=None,
            metric=Metric.SQUAD_F1,
            split=Separation.GIVEN,
            value_type=ValueType(type=AnswerType.TEXT) if is_marked else None,
            gold=tuple(spans),
        )


def _nli_questions(
    document: Any, record_id: str, task: str, *, hypotheses: Mapping[str, Any]
) -> Iterator[ForeignQuestion]:
    text, spans = _document_text(document["text"]), document["spans"]
    for hypothesis_id, annotation in document["annotation_sets"][0]["annotations"].items():
        choice = annotation["choice"]
        if choice not in {ENTAILMENT, CONTRADICTION, NOT_MENTIONED}:
            raise ValueError(f"{hypothesis_id} has the choice {choice!r}")
        is_mentioned = choice != NOT_MENTIONED
        gold = sorted((int(spans[place][0]), int(spans[place][1])) for place in annotation["spans"])
        if any(not 0 <= start < end <= len(text) for start, end in gold):
            raise ValueError(f"{hypothesis_id} names a span outside the text")
        yield ForeignQuestion(
            document_id=record_id,
            question_id=f"{record_id}:{hypothesis_id}",
            document=text,
            question=HYPOTHESIS_ASKED.format(hypothesis=_document_text(hypotheses[hypothesis_id]["hypothesis"])),
            references=[choice if is_mentioned else NOT_STATED_ENTRY],
            task=task,
            length_tokens=None,
            metric=Metric.VALUE,
            split=Separation.GIVEN,
            value_type=Label(ENTAILMENT, CONTRADICTION),
            gold=(tuple(gold) or None) if is_mentioned else (),
        )


def _published_object(location: Location) -> dict[str, Any]:
    with input_errors(location.uri):
        data = location.read_bytes()
    try:
        value = json.loads(data)
    except ValueError as error:
        raise InputError(f"{location.uri} is not JSON: {error}; give the file as it was published") from error
    if not isinstance(value, dict):
        raise InputError(f"{location.uri} is no JSON object; give the file as it was published")
    return value


def _required_list(value: Any, key: str, *, where: str) -> list[Any]:
    listed = value.get(key) if isinstance(value, dict) else None
    if not isinstance(listed, list):
        raise InputError(f"{where} has no list {key!r}; give the file as it was published")
    return listed


def _document_text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"expected a text, found {value!r}")
    value.encode()
    return value

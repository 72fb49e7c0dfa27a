"""Questions and paragraphs of a HotpotQA or SQuAD file that the user has, as published or one JSON record a line."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from memagent_batch.errors import InputError
from memagent_batch.store.errors import input_errors
from memagent_batch.store.location import Location


class QuestionSource(StrEnum):
    """A file that a task takes its questions from."""

    HOTPOTQA = "hotpotqa"
    SQUAD = "squad"


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusQuestion:
    """A question over a corpus."""

    question: str
    answers: tuple[str, ...]
    gold: tuple[int, ...]
    """Paragraphs that answer it together, as indices into the corpus."""
    gold_spans: tuple[tuple[tuple[int, int], ...], ...]
    """Of each of these paragraphs, the places that support the answer, as spans of code points."""
    related: tuple[int, ...]
    """Paragraphs that the file gives beside them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """All questions of a file, and all its paragraphs, each once."""

    name: str
    """Where it was read, for messages."""
    questions: tuple[CorpusQuestion, ...]
    paragraphs: tuple[str, ...]
    """Paragraphs in the order in which they first stand in the file."""
    sha256: str
    """Hash of the file, 64 hex digits."""


def read_hotpotqa(location: Location) -> Corpus:
    """A HotpotQA file: a JSON list of records, or one a line; context as pairs or as columns.

    Raises:
        InputError: names the file, and the record by its number.
    """
    return _read(location, records_of=_hotpot_records, question_of=_hotpot_questions)


def read_squad(location: Location) -> Corpus:
    """A SQuAD file, version 1 or 2, as published; questions without an answer are left out.

    Raises:
        InputError: names the file, and the article by its number.
    """
    return _read(location, records_of=_squad_records, question_of=_article_questions)


class _Paragraphs:
    """Numbers each different paragraph."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        if not text.strip():
            raise ValueError("a paragraph is empty")
        text.encode()
        return self.numbers.setdefault(text, len(self.numbers))


_Records = Callable[[bytes, str], list[Any]]
_Questions = Callable[[Any, _Paragraphs], Iterator[CorpusQuestion]]


def _read(location: Location, *, records_of: _Records, question_of: _Questions) -> Corpus:
    with input_errors(location.uri):
        data = location.read_bytes()
    paragraphs = _Paragraphs()
    questions: list[CorpusQuestion] = []
    for number, record in enumerate(records_of(data, location.uri), start=1):
        with published_errors(f"{location.uri}, record {number}"):
            questions += question_of(record, paragraphs)
    if not questions:
        raise InputError(f"{location.uri} holds no question that has an answer; give the file as it was published")
    return Corpus(
        name=location.uri,
        questions=tuple(questions),
        paragraphs=tuple(paragraphs.numbers),
        sha256=hashlib.sha256(data).hexdigest(),
    )


def _hotpot_records(data: bytes, uri: str) -> list[Any]:
    if data.lstrip().startswith(b"["):
        records: list[Any] = published_json(data, uri)
        return records
    return [
        published_json(line, f"{uri}, line {number}")
        for number, line in enumerate(data.splitlines(), start=1)
        if line.strip()
    ]


def _squad_records(data: bytes, uri: str) -> list[Any]:
    return required_list(published_json(data, uri), "data", where=uri)


def _hotpot_questions(record: Any, paragraphs: _Paragraphs) -> Iterator[CorpusQuestion]:
    context = _question_pairs(record["context"], ("title", "sentences"))
    if not context:
        raise ValueError("'context' has no paragraph")
    numbers = {str(title): paragraphs.number(f"{title}\n{''.join(sentences)}") for title, sentences in context}
    facts = _question_pairs(record["supporting_facts"], ("title", "sent_id"))
    titles = dict.fromkeys(title for title, _ in facts)
    unknown = [title for title in titles if title not in numbers]
    if unknown or not titles:
        raise ValueError(f"'supporting_facts' name {unknown or 'nothing'}, which is not in 'context'")
    yield CorpusQuestion(
        question=required_text(record["question"]),
        answers=(required_text(record["answer"]),),
        gold=tuple(numbers[title] for title in titles),
        gold_spans=tuple(
            tuple(
                _sentence_span(title, dict(context)[title], number)
                for number in sorted({number for named, number in facts if named == title})
            )
            for title in titles
        ),
        related=tuple(number for title, number in numbers.items() if title not in titles),
    )


def _sentence_span(title: str, sentences: list[str], number: int) -> tuple[int, int]:
    """Where a sentence of a HotpotQA paragraph stands, without white space at its ends.

    A few published facts name a sentence that the paragraph does not have; the whole paragraph stands for it.
    """
    start = len(title) + 1
    if not 0 <= number < len(sentences):
        return start, start + sum(map(len, sentences))
    sentence = sentences[number]
    start += sum(map(len, sentences[:number])) + len(sentence) - len(sentence.lstrip())
    return start, start + len(sentence.strip())


def _question_pairs(value: Any, names: tuple[str, str]) -> list[tuple[Any, Any]]:
    """Pairs, also where they are written as two columns."""
    if isinstance(value, Mapping):
        value = list(zip(value[names[0]], value[names[1]], strict=True))
    return [(first, second) for first, second in value]


def _article_questions(article: Any, paragraphs: _Paragraphs) -> Iterator[CorpusQuestion]:
    numbers = [paragraphs.number(required_text(paragraph["context"])) for paragraph in article["paragraphs"]]
    for number, paragraph in zip(numbers, article["paragraphs"], strict=True):
        for asked in paragraph["qas"]:
            answers = tuple(dict.fromkeys(required_text(answer["text"]) for answer in asked["answers"]))
            spans = dict.fromkeys(answer_span(answer, context=paragraph["context"]) for answer in asked["answers"])
            if answers and not asked.get("is_impossible", False):
                yield CorpusQuestion(
                    question=required_text(asked["question"]),
                    answers=answers,
                    gold=(number,),
                    gold_spans=(tuple(sorted(spans)),),
                    related=tuple(other for other in dict.fromkeys(numbers) if other != number),
                )


def answer_span(answer: Mapping[str, Any], *, context: str) -> tuple[int, int]:
    """Where an answer of a SQuAD file stands in its context.

    Raises:
        ValueError: it does not stand where the file says.
    """
    text, start = answer["text"], answer["answer_start"]
    if context[start : start + len(text)] != text:
        raise ValueError(f"the answer {text!r} does not stand at its answer_start {start}")
    return start, start + len(text)


@contextmanager
def published_errors(where: str) -> Iterator[None]:
    """Turns what a record of another form raises into an InputError that names its place."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        reason = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(f"{where}: {reason}; give the file as it was published") from error


def published_json(data: bytes, where: str) -> Any:
    """The JSON value of a published file, or of a line of it.

    Raises:
        InputError: it is not JSON.
    """
    try:
        return json.loads(data)
    except ValueError as error:
        raise InputError(f"{where} is not JSON: {error}; give the file as it was published") from error


def required_list(value: Any, key: str, *, where: str) -> list[Any]:
    """The list below a key of a published file.

    Raises:
        InputError: there is none.
    """
    listed = value.get(key) if isinstance(value, dict) else None
    if not isinstance(listed, list):
        raise InputError(f"{where} has no list {key!r}; give the file as it was published")
    return listed


def required_text(value: Any) -> str:
    """A text of a published record.

    Raises:
        ValueError: it is blank, or not a text.
    """
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"expected a text, found {value!r}")
    value.encode()
    return value

"""Questions and paragraphs of a HotpotQA file that the user has, as published or one JSON record a line."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from memagent_batch.errors import InputError
from memagent_batch.store.errors import input_errors
from memagent_batch.store.location import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class HotpotQuestion:
    """A question over the paragraphs of a file."""

    question: str
    answer: str
    gold: Mapping[int, tuple[tuple[int, int], ...]]
    """Paragraphs that answer it together, as indices, each with the places that support the answer, as spans of code
    points."""
    related: tuple[int, ...]
    """Paragraphs that the file gives beside them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HotpotQA:
    """All questions of a file, and all its paragraphs, each once."""

    name: str
    """Where it was read, for messages."""
    questions: tuple[HotpotQuestion, ...]
    paragraphs: tuple[str, ...]
    """Paragraphs in the order in which they first stand in the file."""
    sha256: str
    """Hash of the file, 64 hex digits."""


def read_hotpotqa(location: Location) -> HotpotQA:
    """A HotpotQA file: a JSON list of records, or one a line; context as pairs or as columns.

    Raises:
        InputError: names the file, and the record by its number.
    """
    with input_errors(location.uri):
        data = location.read_bytes()
    numbers: dict[str, int] = {}
    questions = []
    for number, record in enumerate(_hotpot_records(data, location.uri), start=1):
        with _published_errors(f"{location.uri}, record {number}"):
            questions.append(_hotpot_question(record, numbers))
    if not questions:
        raise InputError(f"{location.uri} holds no question; give the file as it was published")
    return HotpotQA(
        name=location.uri,
        questions=tuple(questions),
        paragraphs=tuple(numbers),
        sha256=hashlib.sha256(data).hexdigest(),
    )


def _hotpot_records(data: bytes, uri: str) -> list[Any]:
    if data.lstrip().startswith(b"["):
        records: list[Any] = _published_json(data, uri)
        return records
    return [
        _published_json(line, f"{uri}, line {number}")
        for number, line in enumerate(data.splitlines(), start=1)
        if line.strip()
    ]


def _published_json(data: bytes, where: str) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise InputError(f"{where} is not JSON: {error}; give the file as it was published") from error


@contextmanager
def _published_errors(where: str) -> Iterator[None]:
    """Turns what a record of another form raises into an InputError that names its place."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        reason = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(f"{where}: {reason}; give the file as it was published") from error


def _hotpot_question(record: Any, numbers: dict[str, int]) -> HotpotQuestion:
    """The question of a record.

    Args:
        record: As published.
        numbers: Paragraphs with their numbers; those of the record are added.
    """
    context = dict(_title_pairs(record["context"], ("title", "sentences")))
    if not context:
        raise ValueError("'context' has no paragraph")
    places = {
        title: numbers.setdefault(_text(f"{title}\n{''.join(sentences)}"), len(numbers))
        for title, sentences in context.items()
    }
    facts = _title_pairs(record["supporting_facts"], ("title", "sent_id"))
    titles = dict.fromkeys(title for title, _ in facts)
    unknown = [title for title in titles if title not in places]
    if unknown or not titles:
        raise ValueError(f"'supporting_facts' name {unknown or 'nothing'}, which is not in 'context'")
    return HotpotQuestion(
        question=_text(record["question"]),
        answer=_text(record["answer"]),
        gold={
            places[title]: tuple(
                _sentence_span(title, context[title], number)
                for number in sorted({number for named, number in facts if named == title})
            )
            for title in titles
        },
        related=tuple(place for title, place in places.items() if title not in titles),
    )


def _sentence_span(title: str, sentences: list[str], number: int) -> tuple[int, int]:
    """Where a sentence of a paragraph stands, without white space at its ends.

    A few published facts name a sentence that the paragraph does not have; the whole paragraph stands for it.
    """
    start = len(title) + 1
    if not 0 <= number < len(sentences):
        return start, start + sum(map(len, sentences))
    sentence = sentences[number]
    start += sum(map(len, sentences[:number])) + len(sentence) - len(sentence.lstrip())
    return start, start + len(sentence.strip())


def _title_pairs(value: Any, names: tuple[str, str]) -> list[tuple[Any, Any]]:
    """Pairs, also where they are written as two columns."""
    if isinstance(value, Mapping):
        value = list(zip(value[names[0]], value[names[1]], strict=True))
    return [(first, second) for first, second in value]


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"expected a text, found {value!r}")
    value.encode()
    return value

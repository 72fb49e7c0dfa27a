"""Questions and paragraphs of a HotpotQA or SQuAD file that the user has, and the tasks that are made of them.

RULER's QA tasks have a length in tokens, RULER-HQA one in paragraphs.
"""

import hashlib
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import Any

from memagent_batch.errors import InputError, SettingsError
from memagent_batch.evaluation.haystacks import (
    MOST_HIDDEN,
    TOLERANCE,
    Draft,
    Fitted,
    Materials,
    SampleRequest,
    Stock,
    SuiteSample,
    TokenMeter,
    fit,
)
from memagent_batch.files.errors import input_errors
from memagent_batch.files.location import Location

_HEADER = "Document {number}:\n"
_GAP = "\n\n"


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
    """Of each of these paragraphs, the places that bear the answer, as spans of code points."""
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
        try:
            questions += question_of(record, paragraphs)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = f"there is no {error}" if isinstance(error, KeyError) else str(error)
            raise InputError(f"{location.uri}, record {number}: {reason}; give the file as it was published") from error
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
        records: list[Any] = _parsed_json(data, uri)
        return records
    return [
        _parsed_json(line, f"{uri}, line {number}")
        for number, line in enumerate(data.splitlines(), start=1)
        if line.strip()
    ]


def _squad_records(data: bytes, uri: str) -> list[Any]:
    document = _parsed_json(data, uri)
    articles = document.get("data") if isinstance(document, dict) else None
    if not isinstance(articles, list):
        raise InputError(f"{uri} has no list 'data' of articles; give a SQuAD file as it was published")
    return articles


def _parsed_json(data: bytes, where: str) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise InputError(f"{where} is not JSON: {error}; give the file as it was published") from error


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
        question=_field_text(record["question"]),
        answers=(_field_text(record["answer"]),),
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
    numbers = [paragraphs.number(_field_text(paragraph["context"])) for paragraph in article["paragraphs"]]
    for number, paragraph in zip(numbers, article["paragraphs"], strict=True):
        for asked in paragraph["qas"]:
            answers = tuple(dict.fromkeys(_field_text(answer["text"]) for answer in asked["answers"]))
            spans = dict.fromkeys(answer_span(answer, context=paragraph["context"]) for answer in asked["answers"])
            if answers and not asked.get("is_impossible", False):
                yield CorpusQuestion(
                    question=_field_text(asked["question"]),
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


def _field_text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"expected a text, found {value!r}")
    value.encode()
    return value


def make_qa(request: SampleRequest, materials: Materials, *, source: QuestionSource) -> SuiteSample:
    """The paragraphs that answer, then the question's own others, then any, to the length; shuffled.

    One paragraph that does not answer is cut to meet the length. Questions whose answering paragraphs take more than
    four fifths of the length are passed over.
    """
    meter, corpus = materials.meter, _require_corpus(materials, source)
    asked = _drawn_question(request, corpus, meter=meter)
    gold = [corpus.paragraphs[number] for number in asked.gold]
    others = Stock(_others(request.rng, asked, corpus), count=partial(_paragraph_tokens, meter))
    build = partial(_paragraphs, gold, others, meter=meter, request=request, corpus=corpus, seed=request.rng.random())
    return _suite_sample(asked, fit(build, request, meter=meter))


def make_hqa(request: SampleRequest, materials: Materials) -> SuiteSample:
    """So many whole paragraphs: those that answer at random places among others."""
    corpus = _require_corpus(materials, QuestionSource.HOTPOTQA)
    asked = _shuffled(corpus.questions, request.questions_seed)[request.number % len(corpus.questions)]
    gold = [corpus.paragraphs[number] for number in asked.gold]
    if not len(gold) < request.length <= len(corpus.paragraphs):
        raise SettingsError(
            f"--num-documents: {request.length} can't be had for {request.task}: {corpus.name} holds "
            f"{len(corpus.paragraphs)} paragraphs, of which {len(gold)} answer; ask for a number between them"
        )
    others = islice(_others(request.rng, asked, corpus), request.length - len(gold))
    draft = _shuffled_document([*gold, *others], seed=request.rng.random())
    return _suite_sample(asked, Fitted(draft=draft, num_tokens=materials.meter.count(draft.text)))


def _require_corpus(materials: Materials, source: QuestionSource) -> Corpus:
    corpus = materials.hotpotqa if source is QuestionSource.HOTPOTQA else materials.squad
    if corpus is None:
        raise SettingsError(f"--{source}: missing; give the file, or leave out the tasks that need it")
    return corpus


def _suite_sample(asked: CorpusQuestion, fitted: Fitted) -> SuiteSample:
    """The sample of a document whose first paragraphs, before they were shuffled, answer the question."""
    gold = [
        (start + first, start + end)
        for start, spans in zip(fitted.draft.starts, asked.gold_spans, strict=False)
        for first, end in spans
    ]
    return SuiteSample(
        document=fitted.draft.text,
        question=asked.question,
        references=asked.answers,
        num_tokens=fitted.num_tokens,
        gold=tuple(sorted(gold)),
    )


def _drawn_question(request: SampleRequest, corpus: Corpus, *, meter: TokenMeter) -> CorpusQuestion:
    fitting = (
        asked
        for asked in _shuffled(corpus.questions, request.questions_seed)
        if sum(_paragraph_tokens(meter, corpus.paragraphs[number]) for number in asked.gold)
        <= MOST_HIDDEN * request.length
    )
    asked = next(islice(fitting, request.number, None), None)
    if asked is None:
        raise SettingsError(
            f"--samples: {corpus.name} has no more than {request.number} questions whose paragraphs fit in "
            f"{request.length} tokens, {request.task} needs more; ask for fewer samples or a greater length"
        )
    return asked


def _shuffled(questions: Sequence[CorpusQuestion], seed: str) -> list[CorpusQuestion]:
    return random.Random(seed).sample(questions, len(questions))


def _others(rng: random.Random, asked: CorpusQuestion, corpus: Corpus) -> Iterator[str]:
    """All paragraphs that do not answer, the question's own first, each once."""
    yield from (corpus.paragraphs[number] for number in rng.sample(asked.related, len(asked.related)))
    own = {*asked.gold, *asked.related}
    for number in rng.sample(range(len(corpus.paragraphs)), len(corpus.paragraphs)):
        if number not in own:
            yield corpus.paragraphs[number]


def _paragraph_tokens(meter: TokenMeter, paragraph: str) -> int:
    return meter.count_once(_HEADER.format(number=1000) + _GAP) + meter.count_once(paragraph)


def _paragraphs(
    gold: Sequence[str],
    others: Stock,
    budget: int,
    *,
    meter: TokenMeter,
    request: SampleRequest,
    corpus: Corpus,
    seed: float,
) -> Draft:
    taken = sum(_paragraph_tokens(meter, paragraph) for paragraph in gold)
    room = max(budget - taken, 1)
    taken_others, tokens = others.take(room)
    excess = tokens - room
    if -excess > TOLERANCE * budget:
        raise SettingsError(
            f"--lengths: {corpus.name} holds {taken + tokens} tokens in all, {request.task} asks for {budget}; "
            "ask for less, or give a larger file"
        )
    if excess > 0:
        *taken_others, last = taken_others
        taken_others.append(meter.cut(last, max(meter.count(last) - excess, 1)).rstrip())
    return _shuffled_document([*gold, *taken_others], seed=seed)


def _shuffled_document(paragraphs: list[str], *, seed: float) -> Draft:
    """The paragraphs, numbered, in random order; its `starts` are in the order in which they were given."""
    order = random.Random(seed).sample(range(len(paragraphs)), len(paragraphs))
    starts, length = [0] * len(paragraphs), 0
    parts: list[str] = []
    for number, index in enumerate(order, start=1):
        header = (_GAP if parts else "") + _HEADER.format(number=number)
        starts[index] = length + len(header)
        parts.append(header + paragraphs[index])
        length += len(parts[-1])
    return Draft(text="".join(parts), starts=tuple(starts))

"""Questions over documents of many paragraphs: RULER's QA tasks by tokens, RULER-HQA by the number of paragraphs."""

import random
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice

from memagent_batch.errors import SettingsError
from memagent_batch.evaluation.corpora import Corpus, CorpusQuestion, QuestionSource
from memagent_batch.evaluation.haystacks import (
    MAX_HIDDEN,
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

_HEADER = "Document {number}:\n"
_GAP = "\n\n"


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
        <= MAX_HIDDEN * request.length
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

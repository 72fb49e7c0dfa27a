"""The closing turns of one reading: the answer as a value, the sentences that it rests on, and whether they bear it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from memagent_batch.bm25 import word_scores
from memagent_batch.domain.closing.answer_types import ValueType
from memagent_batch.domain.closing.evidence import (
    Candidate,
    Evidence,
    MemoryTrace,
    candidates_of,
    choose_candidates,
    evidence_guide,
    evidence_of,
)
from memagent_batch.domain.closing.plan import (
    EVIDENCE,
    EVIDENCE_COMPLETION_TOKENS,
    SUPPORT,
    SUPPORT_COMPLETION_TOKENS,
    SUPPORT_GUIDE,
    SUPPORT_MENU,
    VALUE,
    ClosingPlan,
    ClosingSet,
    ClosingTokens,
    Support,
)
from memagent_batch.domain.closing.values import (
    TypedValue,
    ValueStatus,
    budget_of,
    confidence,
    form_of,
    guide_of,
    text_value,
    value_of,
)
from memagent_batch.domain.document import Document
from memagent_batch.domain.guides import Guide
from memagent_batch.domain.prompts import PromptTokens, Slot, new_memory
from memagent_batch.domain.texts.sentences import Sentences
from memagent_batch.domain.texts.words import folded_words
from memagent_batch.domain.turns import Completion, FinishReason, Prompt, Turns
from memagent_batch.errors import ClosingError, ReadingError


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosingTurns:
    """What closes the readings of an agent. One for each actor."""

    plan: ClosingPlan
    """Which turns are asked."""
    closings: ClosingSet
    """Their texts."""
    tokens: ClosingTokens
    """The same, as the model's tokeniser writes them."""
    reader_fingerprint: str
    """The reader that answers."""

    def fingerprints(self, types: Sequence[ValueType]) -> Mapping[str, str]:
        """The kinds of turns by the fingerprints under which the log keeps them, for these types."""
        values = {
            self.fingerprint(VALUE, value_type): VALUE for value_type in types if guide_of(value_type) is not None
        }
        return values | {self.fingerprint(kind): kind for kind in self.plan.kinds()}

    def fingerprint(self, kind: str, value_type: ValueType | None = None) -> str:
        """The fingerprint of one kind."""
        return self.plan.fingerprint(
            kind, closings=self.closings, reader=self.reader_fingerprint, value_type=value_type
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedReading:
    """A reading that was answered: what its closing turns are about."""

    document: Document
    """The document."""
    sentences: Sentences
    """Its sentences."""
    question: str
    """The question."""
    value_type: ValueType | None = None
    """The type that it asks for; None where it asks for none."""
    response: str
    """Text of the answer turn, without thoughts."""
    answer: str | None
    """The answer that was taken out of it; None where it holds none."""
    memory: str
    """Memory that the answer was given from."""
    trace: MemoryTrace
    """Where that memory came from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosingResult:
    """What the closing turns of a reading brought."""

    coverage: float
    """Share of the document that was shown, 0 to 1."""
    value: TypedValue | None = None
    """The answer as a value; None where the question asks for no type, or the turn failed."""
    confidence: float | None = None
    """Probability of a value that was chosen from a menu."""
    evidence: tuple[Evidence, ...] | None = None
    """Sentences that the answer rests on, the best first; None where they were not asked for, or the turn failed."""
    support: Support | None = None
    """Whether they bear it; None where that was not asked, or there are none."""
    support_probability: float | None = None
    """Its probability, over the menu."""
    error: ReadingError | None = None
    """What kept the rest from being asked; the answer stands all the same."""


class Tracer:
    """Keeps the trace of a reading: an observer of its turns, replayed ones included."""

    def __init__(self, prompts: PromptTokens) -> None:
        """Begins with the first memory, whose words come from no chunk."""
        self._prompts = prompts
        self.trace = MemoryTrace(seen=dict.fromkeys(folded_words(prompts.first_memory.text)))
        """Where the memory comes from, so far."""

    def __call__(self, prompt: Prompt, completion: Completion) -> None:
        """Takes a turn; closing turns say nothing of the memory."""
        if prompt.fingerprint is not None:
            return
        written = None
        if prompt.memory_after is not None:
            written = prompt.memory_after(completion)
        elif prompt.writes is not None:
            prompts = self._prompts
            written = new_memory(completion.text, keep_word=prompts.keep_word, opens_thought=prompts.opens_thought)
        self.trace.take(prompt, written=written)


async def ask_closing_turns(reading: FinishedReading, *, closing: ClosingTurns, turns: Turns) -> ClosingResult:
    """Asks the closing turns of a reading, one after another.

    A turn that fails for a cause of its own ends them, and what was asked before it stays.

    Raises:
        MemagentError: what concerns more than this reading, as in `read`.
    """
    result = ClosingResult(coverage=reading.trace.coverage(reading.document.num_tokens))
    try:
        result = await _with_value(result, reading, closing=closing, turns=turns)
        if not closing.plan.evidence:
            return result
        shown = await asyncio.to_thread(_shown, reading, closing=closing) if _may_rest(result) else []
        result = await _with_evidence(result, reading, shown=shown, closing=closing, turns=turns)
        if closing.plan.support and result.evidence:
            result = await _with_support(result, reading, closing=closing, turns=turns)
    except ReadingError as error:
        return replace(result, error=error)
    return result


async def _with_value(
    result: ClosingResult, reading: FinishedReading, *, closing: ClosingTurns, turns: Turns
) -> ClosingResult:
    value_type = reading.value_type
    if value_type is None:
        return result
    guide = guide_of(value_type)
    if guide is None:
        return replace(result, value=text_value(reading.answer))
    encode = closing.tokens.encode
    slots = {Slot.MEMORY: encode(reading.memory), Slot.FORM: encode(form_of(value_type))}
    budget = budget_of(value_type, json_tokens=closing.plan.json_tokens)
    prompt = _prompt(VALUE, reading.response, reading, slots=slots, closing=closing, max_tokens=budget, guide=guide)
    completion = await turns(prompt)
    return replace(
        result,
        value=value_of(completion, value_type, answer=reading.answer),
        confidence=confidence(completion, guide),
    )


async def _with_evidence(
    result: ClosingResult, reading: FinishedReading, *, shown: Sequence[Candidate], closing: ClosingTurns, turns: Turns
) -> ClosingResult:
    """Without a sentence to show, none bears the answer, and nothing is asked."""
    if not shown:
        return replace(result, evidence=())
    prompt = _prompt(
        EVIDENCE,
        _one_line(reading),
        reading,
        slots={Slot.SENTENCES: _numbered(shown, reading.document, closing.tokens)},
        closing=closing,
        max_tokens=EVIDENCE_COMPLETION_TOKENS,
        guide=evidence_guide(len(shown)),
    )
    completion = await turns(prompt)
    try:
        return replace(result, evidence=evidence_of(_whole_text(completion, prompt), shown))
    except ValueError as error:
        raise ClosingError(f"turn {prompt.path}: {error}") from error


async def _with_support(
    result: ClosingResult, reading: FinishedReading, *, closing: ClosingTurns, turns: Turns
) -> ClosingResult:
    shown = sorted((each.sentence for each in result.evidence or ()), key=lambda sentence: sentence.char_start)
    prompt = _prompt(
        SUPPORT,
        _one_line(reading),
        reading,
        slots={Slot.SENTENCES: _numbered(shown, reading.document, closing.tokens)},
        closing=closing,
        max_tokens=SUPPORT_COMPLETION_TOKENS,
        guide=SUPPORT_GUIDE,
    )
    completion = await turns(prompt)
    written = _whole_text(completion, prompt)
    if written not in SUPPORT_MENU:
        raise ClosingError(f"turn {prompt.path}: {written!r} is no number of the menu")
    probability = confidence(completion, SUPPORT_GUIDE)
    return replace(result, support=SUPPORT_MENU[written], support_probability=probability)


def _may_rest(result: ClosingResult) -> bool:
    """Whether the answer may rest on a sentence: one that says "not stated" rests on none."""
    return result.value is None or result.value.status is not ValueStatus.NOT_STATED


def _shown(reading: FinishedReading, *, closing: ClosingTurns) -> list[Candidate]:
    """The sentences that are shown; decodes and ranks, beside the event loop."""
    brief, document = _one_line(reading), reading.document
    sources = reading.trace.sources(question=reading.question, answer=brief)
    candidates = candidates_of(document, reading.sentences, sources)
    decode = closing.tokens.decode
    return choose_candidates(
        candidates,
        words=[folded_words(decode(document.tokens(each.token_start, each.token_end))) for each in candidates],
        sought=folded_words("\n".join([reading.question, brief, reading.memory])),
        scores=word_scores,
        max_tokens=closing.plan.evidence_tokens,
    )


def _one_line(reading: FinishedReading) -> str:
    """The answer in few words: as it was taken out of the response, else the response."""
    return reading.response if reading.answer is None else reading.answer


def _prompt(
    kind: str,
    answer: str,
    reading: FinishedReading,
    *,
    slots: Mapping[Slot, Sequence[int]],
    closing: ClosingTurns,
    max_tokens: int,
    guide: Guide,
) -> Prompt:
    """A closing turn: nothing of its texts becomes a control token."""
    encode = closing.tokens.encode
    filled = {Slot.QUESTION: encode(reading.question), Slot.ANSWER: encode(answer), **slots}
    return Prompt(
        path=kind,
        kind=kind,
        token_ids=closing.tokens.templates[kind].fill(filled),
        max_tokens=max_tokens,
        guide=guide,
        fingerprint=closing.fingerprint(kind, reading.value_type if kind == VALUE else None),
    )


def _numbered(shown: Sequence[Candidate], document: Document, tokens: ClosingTokens) -> list[int]:
    """The sentences by their own tokens, each behind its number and on a line of its own."""
    line_end = tokens.encode("\n")
    token_ids: list[int] = []
    for number, sentence in enumerate(shown, start=1):
        begins_before = document.token_chars[sentence.token_start] < sentence.char_start
        token_ids += tokens.encode(f"[{number}]" if begins_before else f"[{number}] ")
        token_ids += [*document.tokens(sentence.token_start, sentence.token_end), *line_end]
    return token_ids


def _whole_text(completion: Completion, prompt: Prompt) -> str:
    """What a turn wrote, if it was not cut.

    Raises:
        ClosingError: it was.
    """
    if completion.finish_reason is FinishReason.LENGTH:
        raise ClosingError(f"turn {prompt.path}: it was cut at its budget of {prompt.max_tokens} tokens")
    return completion.text

"""The closing turns of one reading: the answer as a value, the sentences that it rests on, and whether they bear it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from memagent_batch.bm25 import word_scores
from memagent_batch.domain.closing.answer_types import ValueType
from memagent_batch.domain.closing.evidence import (
    Candidate,
    Evidence,
    Trace,
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
    Value,
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
from memagent_batch.domain.sentences import Sentences
from memagent_batch.domain.turns import Completion, FinishReason, Prompt, Turns
from memagent_batch.domain.words import words_of
from memagent_batch.errors import ClosingError, ReadingError


@dataclass(frozen=True, slots=True, kw_only=True)
class Closer:
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
        values = {self.fingerprint(VALUE, asked): VALUE for asked in types if guide_of(asked) is not None}
        return values | {self.fingerprint(kind): kind for kind in self.plan.kinds()}

    def fingerprint(self, kind: str, asked: ValueType | None = None) -> str:
        """The fingerprint of one kind."""
        return self.plan.fingerprint(kind, closings=self.closings, reader=self.reader_fingerprint, asked=asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A reading that was answered: what its closing turns are about."""

    document: Document
    """The document."""
    sentences: Sentences
    """Its sentences."""
    question: str
    """The question."""
    asked: ValueType | None = None
    """The type that it asks for; None where it asks for none."""
    response: str
    """Text of the answer turn, without thoughts."""
    answer: str | None
    """The answer that was taken out of it; None where it holds none."""
    memory: str
    """Memory that the answer was given from."""
    trace: Trace
    """Where that memory came from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """What the closing turns of a reading brought."""

    coverage: float
    """Share of the document that was shown, 0 to 1."""
    value: Value | None = None
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
        self.trace = Trace(seen=dict.fromkeys(words_of(prompts.first_memory.text)))
        """Where the memory comes from, so far."""

    def __call__(self, prompt: Prompt, completion: Completion) -> None:
        """Takes a turn; closing turns say nothing of the memory."""
        if prompt.fingerprint is not None:
            return
        memory = None
        if prompt.writes_memory:
            prompts = self._prompts
            memory = new_memory(completion.text, keep_word=prompts.keep_word, opens_thought=prompts.opens_thought)
        self.trace = self.trace.after(prompt, memory=memory)


async def close(answered: Answered, *, closer: Closer, turns: Turns) -> Closed:
    """Asks the closing turns of a reading, one after another.

    A turn that fails for a cause of its own ends them, and what was asked before it stays.

    Raises:
        MemagentError: what concerns more than this reading, as in `read`.
    """
    closed = Closed(coverage=answered.trace.coverage(answered.document.num_tokens))
    try:
        closed = await _with_value(closed, answered, closer=closer, turns=turns)
        if not closer.plan.evidence:
            return closed
        shown = await asyncio.to_thread(_shown, answered, closer=closer) if _may_rest(closed) else []
        closed = await _with_evidence(closed, answered, shown=shown, closer=closer, turns=turns)
        if closer.plan.support and closed.evidence:
            closed = await _with_support(closed, answered, closer=closer, turns=turns)
    except ReadingError as error:
        return replace(closed, error=error)
    return closed


async def _with_value(closed: Closed, answered: Answered, *, closer: Closer, turns: Turns) -> Closed:
    asked = answered.asked
    if asked is None:
        return closed
    guide = guide_of(asked)
    if guide is None:
        return replace(closed, value=text_value(answered.answer))
    encode = closer.tokens.encode
    slots = {Slot.MEMORY: encode(answered.memory), Slot.FORM: encode(form_of(asked))}
    budget = budget_of(asked, json_tokens=closer.plan.json_tokens)
    prompt = _prompt(VALUE, answered.response, answered, slots=slots, closer=closer, max_tokens=budget, guide=guide)
    completion = await turns(prompt)
    return replace(
        closed,
        value=value_of(completion, asked, answer=answered.answer),
        confidence=confidence(completion, guide),
    )


async def _with_evidence(
    closed: Closed, answered: Answered, *, shown: Sequence[Candidate], closer: Closer, turns: Turns
) -> Closed:
    """Without a sentence to show, none bears the answer, and nothing is asked."""
    if not shown:
        return replace(closed, evidence=())
    prompt = _prompt(
        EVIDENCE,
        _brief(answered),
        answered,
        slots={Slot.SENTENCES: _numbered(shown, answered.document, closer.tokens)},
        closer=closer,
        max_tokens=EVIDENCE_COMPLETION_TOKENS,
        guide=evidence_guide(len(shown)),
    )
    completion = await turns(prompt)
    try:
        return replace(closed, evidence=evidence_of(_whole(completion, prompt), shown))
    except ValueError as error:
        raise ClosingError(f"turn {prompt.path}: {error}") from error


async def _with_support(closed: Closed, answered: Answered, *, closer: Closer, turns: Turns) -> Closed:
    shown = sorted((each.sentence for each in closed.evidence or ()), key=lambda sentence: sentence.char_start)
    prompt = _prompt(
        SUPPORT,
        _brief(answered),
        answered,
        slots={Slot.SENTENCES: _numbered(shown, answered.document, closer.tokens)},
        closer=closer,
        max_tokens=SUPPORT_COMPLETION_TOKENS,
        guide=SUPPORT_GUIDE,
    )
    completion = await turns(prompt)
    written = _whole(completion, prompt)
    if written not in SUPPORT_MENU:
        raise ClosingError(f"turn {prompt.path}: {written!r} is no number of the menu")
    probability = confidence(completion, SUPPORT_GUIDE)
    return replace(closed, support=SUPPORT_MENU[written], support_probability=probability)


def _may_rest(closed: Closed) -> bool:
    """Whether the answer may rest on a sentence: one that says "not stated" rests on none."""
    return closed.value is None or closed.value.status is not ValueStatus.NOT_STATED


def _shown(answered: Answered, *, closer: Closer) -> list[Candidate]:
    """The sentences that are shown; decodes and ranks, beside the event loop."""
    brief, document = _brief(answered), answered.document
    sources = answered.trace.sources(question=answered.question, answer=brief)
    candidates = candidates_of(document, answered.sentences, sources)
    decode = closer.tokens.decode
    return choose_candidates(
        candidates,
        words=[words_of(decode(document.tokens(each.token_start, each.token_end))) for each in candidates],
        sought=words_of("\n".join([answered.question, brief, answered.memory])),
        scores=word_scores,
        max_tokens=closer.plan.evidence_tokens,
    )


def _brief(answered: Answered) -> str:
    """The answer in few words: as it was taken out of the response, else the response."""
    return answered.response if answered.answer is None else answered.answer


def _prompt(
    kind: str,
    answer: str,
    answered: Answered,
    *,
    slots: Mapping[Slot, Sequence[int]],
    closer: Closer,
    max_tokens: int,
    guide: Guide,
) -> Prompt:
    """A closing turn: nothing of its texts becomes a control token."""
    encode = closer.tokens.encode
    filled = {Slot.QUESTION: encode(answered.question), Slot.ANSWER: encode(answer), **slots}
    return Prompt(
        path=kind,
        kind=kind,
        token_ids=closer.tokens.templates[kind].fill(filled),
        max_tokens=max_tokens,
        guide=guide,
        fingerprint=closer.fingerprint(kind, answered.asked if kind == VALUE else None),
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


def _whole(completion: Completion, prompt: Prompt) -> str:
    """What a turn wrote, if it was not cut.

    Raises:
        ClosingError: it was.
    """
    if completion.finish_reason is FinishReason.LENGTH:
        raise ClosingError(f"turn {prompt.path}: it was cut at its budget of {prompt.max_tokens} tokens")
    return completion.text

"""What is asked after the answer of a reading: the answer as a value, the sentences it rests on, whether they support
it.

`checked_follow_ups` refuses before an engine starts what can't be asked; `close_reading` asks, and returns a row of the
log.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from memagent_batch.config.agent import AgentConfig, Extraction
from memagent_batch.config.follow_ups import FollowUpConfig
from memagent_batch.data.store.turn_log.rows import ClosedRow
from memagent_batch.errors import FollowUpError, MemagentError, ReadingError, ValueTypeError
from memagent_batch.loop.addresses import fingerprint
from memagent_batch.loop.completions import extract_answer
from memagent_batch.loop.follow_ups.answer_types import AnswerType, ValueType
from memagent_batch.loop.follow_ups.evidence import (
    MAX_CHOSEN,
    MAX_SOURCES,
    Candidate,
    MemoryTrace,
    candidates_of,
    choose_candidates,
    evidence_guide,
    evidence_of,
)
from memagent_batch.loop.follow_ups.json_schemas import JsonValue
from memagent_batch.loop.follow_ups.prompts import (
    COMPLETION_TOKENS,
    EVIDENCE,
    FOLLOW_UP_TEXTS,
    SUPPORT,
    SUPPORT_GUIDE,
    SUPPORT_MENU,
    VALUE,
    FollowUpTokens,
    asked_kinds,
    guide_kinds,
)
from memagent_batch.loop.follow_ups.values import (
    ValueStatus,
    answered_value,
    completion_budget,
    confidence,
    format_instructions,
    guide_for,
    menu_number,
    parse_value,
    text_value,
)
from memagent_batch.loop.guides import Guide
from memagent_batch.loop.prompts import PromptTokens, Slot, new_memory
from memagent_batch.loop.texts.sentences import SPLIT, Sentences
from memagent_batch.loop.texts.words import folded_words
from memagent_batch.plugins import engine_settings
from memagent_batch.run.budgets import fitted_follow_ups, require_follow_up_window
from memagent_batch.run.reading.read import Reading, ReadingTurns, TurnCounts, place_of, writable
from memagent_batch.run.wiring import files_of, make_engine, make_follow_up_tokens
from memagent_batch.types import Completion, Document, FinishReason, Prompt, Turns

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowUps:
    """What closes the readings of an agent. One for each actor."""

    config: FollowUpConfig
    tokens: FollowUpTokens
    fingerprint: str
    extraction: Extraction = Extraction.AUTO

    def of_kind(self, kind: str, value_type: ValueType | None = None) -> str:
        """What decides the result of a turn of this kind beside document and question, as 64 hex digits."""
        parts: dict[str, JsonValue] = {"reader": self.fingerprint, "kind": kind, "text": FOLLOW_UP_TEXTS[kind]}
        if kind == VALUE and value_type is not None:
            guide = guide_for(value_type)
            parts |= {
                "type": value_type.identity(),
                "form": format_instructions(value_type),
                "guide": None if guide is None else guide.identity(),
                "max_tokens": completion_budget(value_type, json_tokens=self.config.json_tokens),
            }
        else:
            parts |= {"evidence_tokens": self.config.shown_tokens, "caps": [MAX_SOURCES, MAX_CHOSEN]}
        return fingerprint(parts)

    def of_type(self, value_type: ValueType | None) -> str | None:
        """The fingerprint under which the log keeps what they bring to a question of this type; None if nothing."""
        asked = [VALUE] * (value_type is not None) + asked_kinds(self.config)
        if not asked:
            return None
        kinds: list[JsonValue] = [self.of_kind(kind, value_type if kind == VALUE else None) for kind in asked]
        parts: dict[str, JsonValue] = {"closing": kinds, "extraction": self.extraction.value}
        if value_type is not None:
            parts["answered"] = True
        if self.config.evidence:
            parts["sentences"] = SPLIT
        return fingerprint(parts)

    def of_turns(self, types: Iterable[ValueType | None]) -> list[str]:
        """The fingerprints under which the log keeps the turns, for questions of these types."""
        values = [self.of_kind(VALUE, each) for each in set(types) if each is not None and guide_for(each) is not None]
        return sorted([*values, *map(self.of_kind, asked_kinds(self.config))])


def make_follow_ups(config: FollowUpConfig, agent: AgentConfig, *, fingerprint: str) -> FollowUps:
    """What closes the readings of an agent, whose budgets fit its window."""
    return FollowUps(
        config=fitted_follow_ups(config, agent),
        tokens=make_follow_up_tokens(agent, files_of(agent, fingerprint=fingerprint)),
        fingerprint=fingerprint,
        extraction=agent.extraction,
    )


def checked_follow_ups(
    config: FollowUpConfig, agent: AgentConfig, *, types: Iterable[ValueType | None], fingerprint: str
) -> FollowUps | None:
    """What closes the readings of a run; None where nothing is asked after its answers.

    Raises:
        SettingsError: a follow-up question can't fit the window.
        EngineStartError: the engine takes no guides.
    """
    asked = {each for each in types if each is not None}
    follow_ups = make_follow_ups(config, agent, fingerprint=fingerprint)
    if not asked and not asked_kinds(follow_ups.config):
        return None
    require_follow_up_window(follow_ups.config, agent, types=asked)
    make_engine(agent).check_guides(guide_kinds(follow_ups.config, asked))
    return follow_ups


def require_compiled(types: Mapping[ValueType, str], agent: AgentConfig) -> None:
    """Compiles the schemas as vLLM does: one that it can't compile would kill its engine in the first turn.

    An endpoint compiles by itself, with a compiler that is not known here: what it refuses is the `follow_up_error` of
    a reading. Choices and expressions are made by the project and hold nothing of a question list.

    `types`: each with the place of a question that asks for it.

    Raises:
        ValueTypeError: one can't be compiled; names the place and says what xgrammar says.
    """
    asked = [(place, guide_for(each)) for each, place in types.items() if each.type is AnswerType.JSON]
    if not asked or not engine_settings(agent).has_weights:
        return
    try:
        import xgrammar  # here, since it loads torch
    except ImportError:
        return  # no vLLM here; the actors' own start says what is missing
    for place, guide in asked:
        if guide is None:
            continue
        try:
            xgrammar.Grammar.from_json_schema(json.dumps(guide.sent_json_schema()), any_whitespace=False)
        except RuntimeError as error:
            raise ValueTypeError(
                f"{place}: schema: xgrammar can't compile it ({' '.join(str(error).split())}): {guide.json_schema}"
            ) from error


class Tracer:
    """Keeps the trace of a reading: an observer of its turns, replayed ones included.

    `others`: what observes them too.
    """

    def __init__(self, prompts: PromptTokens, *others: Callable[[Prompt, Completion], None]) -> None:
        self._prompts, self._others = prompts, others
        self.trace = MemoryTrace(seen=dict.fromkeys(folded_words(prompts.first_memory.text)))
        """Where the memory comes from, so far."""

    def __call__(self, prompt: Prompt, completion: Completion) -> None:
        """Takes a turn; follow-up questions say nothing of the memory."""
        for other in self._others:
            other(prompt, completion)
        if prompt.fingerprint is not None:
            return
        written = None
        if prompt.memory_after is not None:
            written = prompt.memory_after(completion)
        elif prompt.writes is not None:
            prompts = self._prompts
            written = new_memory(completion.text, keep_word=prompts.keep_word, opens_thought=prompts.opens_thought)
        self.trace.take(prompt, written=written)


async def close_reading(
    reading: Reading,
    value_type: ValueType | None,
    *,
    question: str,
    document: Document,
    sentences: Sentences,
    trace: MemoryTrace,
    follow_ups: FollowUps,
    turns: ReadingTurns,
) -> ClosedRow:
    """Asks the follow-up questions of a reading whose status is `ok`, one after another.

    A turn that fails for a cause of its own ends them, as does a fault of this code; what was asked before it stays.
    `sentences` are needed only if evidence is asked for.

    Raises:
        MemagentError: what concerns more than this reading.
    """
    response = reading.response or ""
    answered = _Answered(
        document=document,
        sentences=sentences,
        question=question,
        value_type=value_type,
        response=response,
        is_cut=reading.finish_reason is FinishReason.LENGTH,
        answer=extract_answer(response, extraction=follow_ups.extraction),
        memory=reading.memory or "",
        trace=trace,
        follow_ups=follow_ups,
        turns=turns,
    )
    row, before = _nothing_asked(), turns.counts
    row["coverage"] = trace.coverage(document.num_tokens)
    try:
        await _ask_value(row, answered)
        if follow_ups.config.evidence:
            chosen = await _ask_evidence(row, answered)
            if follow_ups.config.support and chosen:
                await _ask_support(row, answered, chosen)
    except ReadingError as error:
        row["follow_up_error"], row["is_failed"] = writable(f"{type(error).__name__}: {error}"), True
    except MemagentError:
        raise
    except Exception as error:  # a fault met by what one model wrote must not end every night; its row shows it
        log.exception("the follow-up questions of a reading failed")
        message = f"{type(error).__name__}: {error}{place_of(error)}"
        row["follow_up_error"], row["is_failed"] = writable(message), True
    _count_turns(row, turns.counts, before=before)
    return row


def unclosed(replayed: Reading) -> ClosedRow:
    """Of a reading that was answered and can't be closed, since the log no longer has how it was read."""
    row = _nothing_asked()
    row["follow_up_error"], row["is_failed"] = f"{replayed.error_type}: {replayed.error_message}", True
    return row


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answered:
    """What the follow-up questions of a reading are about, and what they are asked with."""

    document: Document
    sentences: Sentences
    question: str
    value_type: ValueType | None
    response: str
    is_cut: bool
    """Whether the response ends at its budget."""
    answer: str | None
    memory: str
    trace: MemoryTrace
    follow_ups: FollowUps
    turns: Turns

    @property
    def brief(self) -> str:
        """The answer in few words: as it was taken out of the response, else the response."""
        return self.response if self.answer is None else self.answer


def _count_turns(row: ClosedRow, counts: TurnCounts, *, before: TurnCounts) -> None:
    """Adds to the row what the follow-up questions took, which have ended now."""
    row["num_turns"] = counts.num_turns - before.num_turns
    row["num_prompt_tokens"] = counts.num_prompt_tokens - before.num_prompt_tokens
    row["num_completion_tokens"] = counts.num_completion_tokens - before.num_completion_tokens
    row["finished_at"] = datetime.now(UTC)


def _nothing_asked() -> ClosedRow:
    row: Any = dict.fromkeys(ClosedRow.__annotations__)
    counts = {"num_turns": 0, "num_prompt_tokens": 0, "num_completion_tokens": 0}
    return cast(ClosedRow, {**row, **counts, "is_failed": False, "finished_at": datetime.now(UTC)})


async def _ask_value(row: ClosedRow, reading: _Answered) -> None:
    """Adds the answer as a value to the row, if the question asks for a type."""
    value_type = reading.value_type
    if value_type is None:
        return
    guide, value = guide_for(value_type), answered_value(reading.answer, value_type)
    if guide is None:
        value = text_value(reading.answer)
    elif value is None or guide.choices:  # a choice that is known still has its probability
        encode = reading.follow_ups.tokens.encode
        slots = {Slot.MEMORY: encode(reading.memory), Slot.FORM: encode(format_instructions(value_type))}
        budget = completion_budget(value_type, json_tokens=reading.follow_ups.config.json_tokens)
        prompt = _prompt(VALUE, reading.response, reading, slots=slots, max_tokens=budget, guide=guide)
        completion = await reading.turns(prompt)
        value = value or parse_value(completion, value_type, answer=reading.answer)
        if value.status is ValueStatus.NOT_STATED and reading.answer is None and reading.is_cut:
            raise FollowUpError(f"turn {VALUE}: nothing is stated in a response that was cut before its answer")
        row["confidence"] = confidence(completion, guide, chosen=menu_number(value, value_type))
    row["value"], row["value_status"], row["follow_up_error"] = value.value, value.status.value, value.problem
    row["value_bool"], row["value_number"], row["value_label"] = value.boolean, value.number, value.label


async def _ask_evidence(row: ClosedRow, reading: _Answered) -> Sequence[Candidate]:
    """Adds the sentences that the answer rests on to the row, and returns them, the best first.

    An answer that says "not stated" rests on none. Without a sentence to show, none supports the answer, and nothing is
    asked.
    """
    is_stated = row["value_status"] != ValueStatus.NOT_STATED
    shown = await asyncio.to_thread(_shown_sentences, reading) if is_stated else []
    chosen: list[Candidate] = []
    if shown:
        completion = await _ask_of_sentences(EVIDENCE, reading, shown, guide=evidence_guide(len(shown)))
        try:
            chosen = evidence_of(completion.text, shown)
        except ValueError as error:
            raise FollowUpError(f"turn {EVIDENCE}: {error}") from error
    row["evidence"] = [
        {"char_start": each.char_start, "char_end": each.char_end, "chunk_index": each.chunk_index} for each in chosen
    ]
    return chosen


async def _ask_support(row: ClosedRow, reading: _Answered, chosen: Sequence[Candidate]) -> None:
    shown = sorted(chosen, key=lambda sentence: sentence.char_start)
    completion = await _ask_of_sentences(SUPPORT, reading, shown, guide=SUPPORT_GUIDE)
    if completion.text not in SUPPORT_MENU:
        raise FollowUpError(f"turn {SUPPORT}: {completion.text!r} is not a number of the menu")
    row["support"] = SUPPORT_MENU[completion.text].value
    row["support_probability"] = confidence(completion, SUPPORT_GUIDE)


async def _ask_of_sentences(kind: str, reading: _Answered, shown: Sequence[Candidate], *, guide: Guide) -> Completion:
    slots = {Slot.SENTENCES: _numbered(shown, reading.document, reading.follow_ups.tokens)}
    budget = COMPLETION_TOKENS[kind]
    prompt = _prompt(kind, reading.brief, reading, slots=slots, max_tokens=budget, guide=guide)
    completion = await reading.turns(prompt)
    if completion.finish_reason is FinishReason.LENGTH:
        raise FollowUpError(f"turn {kind}: it was cut at its budget of {budget} tokens")
    return completion


def _shown_sentences(reading: _Answered) -> list[Candidate]:
    """The sentences that are shown; decodes and ranks, beside the event loop."""
    brief, document = reading.brief, reading.document
    sources = reading.trace.sources(question=reading.question, answer=brief)
    candidates = candidates_of(document, reading.sentences, sources)
    decode = reading.follow_ups.tokens.decode
    return choose_candidates(
        candidates,
        words=[folded_words(decode(document.tokens(each.token_start, each.token_end))) for each in candidates],
        sought=folded_words("\n".join([reading.question, brief, reading.memory])),
        max_tokens=reading.follow_ups.config.shown_tokens,
    )


def _prompt(
    kind: str,
    answer: str,
    reading: _Answered,
    *,
    slots: Mapping[Slot, Sequence[int]],
    max_tokens: int,
    guide: Guide,
) -> Prompt:
    """A follow-up question: nothing of its texts becomes a control token."""
    follow_ups, encode = reading.follow_ups, reading.follow_ups.tokens.encode
    filled = {Slot.QUESTION: encode(reading.question), Slot.ANSWER: encode(answer), **slots}
    return Prompt(
        path=kind,
        kind=kind,
        token_ids=follow_ups.tokens.templates[kind].fill(filled),
        max_tokens=max_tokens,
        guide=guide,
        fingerprint=follow_ups.of_kind(kind, reading.value_type if kind == VALUE else None),
    )


def _numbered(shown: Sequence[Candidate], document: Document, tokens: FollowUpTokens) -> list[int]:
    """The sentences by their own tokens, each behind its number and on its own line."""
    line_end = tokens.encode("\n")
    token_ids: list[int] = []
    for number, sentence in enumerate(shown, start=1):
        begins_before = document.token_chars[sentence.token_start] < sentence.char_start
        token_ids += tokens.encode(f"[{number}]" if begins_before else f"[{number}] ")
        token_ids += [*document.tokens(sentence.token_start, sentence.token_end), *line_end]
    return token_ids

"""Reads held-out documents with the product's own policies, closing turns and engine, and counts what is right."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.engines import OpenAIConfig, VllmConfig
from memagent_batch.config.policy import PolicyConfig
from memagent_batch.domain.addresses import ReadingAddress, text_hash
from memagent_batch.domain.answers import Extraction, extract_answer
from memagent_batch.domain.closing.answer_types import AnswerType, ValueType
from memagent_batch.domain.closing.plan import ClosingPlan
from memagent_batch.domain.closing.values import ValueStatus
from memagent_batch.domain.readings import Question
from memagent_batch.domain.texts.sentences import split_sentences
from memagent_batch.domain.turns import Completion, Prompt
from memagent_batch.engines.engine import Engine
from memagent_batch.evaluation.needles.stories import NOT_STATED, STATUSES, StoryKind
from memagent_batch.prompts.closing import CLOSING_PROMPTS
from memagent_batch.reading.agent import LoadedAgent, make_agent
from memagent_batch.reading.closing import ClosingResult, ClosingTurns, FinishedReading, Tracer, ask_closing_turns
from memagent_batch.reading.read import read
from memagent_batch.reading.turns import ReadingTurns
from memagent_batch.wiring import make_closing_tokens, make_engine, make_tokenizer
from pipelines.recipes.tiny_policy.documents import HeldOutDocument, Text, make_document
from pipelines.recipes.tiny_policy.lessons.closings import EVIDENCE_TOKENS

CHUNK_TOKENS, OVERLAP_TOKENS = 1024, 64
"""Chunks as in `jobs/tiny.yaml`: no statement is cut."""

READINGS_IN_FLIGHT = 48
"""Readings that an engine has under way at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One kind of document, and how it is read."""

    policy: str
    """Kind of the policy."""
    text: Text
    """What the documents are made of."""
    kind: StoryKind
    """What they tell."""
    num_chunks: int
    """Their length, in chunks."""
    num_rivals: int
    """Sentences that are easily mixed up with the statements."""
    is_told: bool = True
    """Whether the answer is stated."""
    has_type: bool = False
    """Whether the questions ask for a type."""
    num_documents: int
    """Documents that are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Results over the documents of a setting; shares from 0 to 1, None where there is nothing to count."""

    right: float
    """Share of readings with the right answer."""
    valid: float | None
    """Share of values that fit their type."""
    value_right: float | None
    """Share of values that are right, "not stated" included."""
    evidence_hit: float | None
    """Of the readings that are right and have an answer: share with a sentence that states it among the evidence."""
    evidence_none: float | None
    """Of the readings whose answer is not stated: share without evidence."""
    supported: float | None
    """Of the right readings with evidence: share whose support is `supported`."""
    lost: float | None
    """Of the values of readings whose answer is stated: share that is "not stated"."""
    closing_share: float
    """Tokens of prompts and completions of the closing turns, as a share of those of all other turns."""
    seconds: float
    """Wall clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedReading:
    """How a reading ended."""

    document: HeldOutDocument
    """The document."""
    answer: str | None
    """The answer that was given."""
    memory: str | None
    """The memory that it was given from."""
    closed: ClosingResult
    """What the closing turns brought."""
    num_tokens: int
    """Tokens of prompts and completions of all turns but those."""
    num_closing_tokens: int
    """Tokens of prompts and completions of the closing turns."""

    @property
    def wanted(self) -> str:
        """The right answer."""
        return self.document.story.answer(self.document.met)

    @property
    def is_right(self) -> bool:
        """Whether it is the right one; lists in any order."""
        return self.answer is not None and set(self.answer.split(", ")) == set(self.wanted.split(", "))


class Evaluator:
    """An engine with a tiny policy, and every policy over it."""

    def __init__(self, model: str, *, engine: Engine | None = None, endpoint: OpenAIConfig | None = None) -> None:
        """Takes a model folder, and what serves it where vLLM does not here: an endpoint, or for tests an engine."""
        self._model, self._endpoint = model, endpoint
        self._engine = engine or make_engine(self._config("overwrite"))
        self._tokenizer = make_tokenizer(self._config("overwrite"))
        self._closing = ClosingTurns(
            plan=ClosingPlan(evidence=True, support=True, evidence_tokens=EVIDENCE_TOKENS),
            closings=CLOSING_PROMPTS,
            tokens=make_closing_tokens(self._config("overwrite")),
            reader_fingerprint="0" * 64,
        )

    async def start(self) -> None:
        """Starts the engine."""
        await self._engine.start()

    async def stop(self) -> None:
        """Stops it."""
        await self._engine.stop()

    async def ended(self, setting: Setting, *, seed: int) -> list[EndedReading]:
        """Reads the documents of a setting to their ends."""
        agent = make_agent(self._config(setting.policy))
        places = asyncio.Semaphore(READINGS_IN_FLIGHT)
        return list(
            await asyncio.gather(
                *(self._read(agent, setting, f"{seed} {number}", places) for number in range(setting.num_documents))
            )
        )

    def _config(self, policy: str) -> AgentConfig:
        knobs: dict[str, Any] = {} if policy == "truncate" else {"overlap_tokens": OVERLAP_TOKENS}
        if policy == "retrieve":
            knobs = {"overlap_tokens": OVERLAP_TOKENS, "passage_tokens": 256}
        served: dict[str, Any] = {"engine": "openai", "openai": self._endpoint} if self._endpoint else {}
        return AgentConfig(
            model=self._model,
            tokenizer=self._model,
            window_tokens=2048,
            policy=PolicyConfig(
                kind=policy,
                chunk_tokens=CHUNK_TOKENS,
                question_tokens=128,
                memory_tokens=128,
                answer_tokens=160,
                **knobs,
            ),
            vllm=VllmConfig(cpu_kv_cache_gib=1),
            **served,
        )

    async def _read(self, agent: LoadedAgent, setting: Setting, seed: str, places: asyncio.Semaphore) -> EndedReading:
        async with places:
            document = make_document(
                random.Random(seed),
                text=setting.text,
                kind=setting.kind,
                num_tokens=setting.num_chunks * (CHUNK_TOKENS - OVERLAP_TOKENS) - OVERLAP_TOKENS,
                length_of=lambda text: len(self._tokenizer.encode(text)),
                num_rivals=setting.num_rivals,
                is_told=setting.is_told,
            )
            tracer = Tracer(agent.prompts)
            spent: Counter[bool] = Counter()

            def observe(prompt: Prompt, completion: Completion) -> None:
                tracer(prompt, completion)
                spent[prompt.fingerprint is not None] += len(prompt.token_ids) + len(completion.token_ids)

            turns = ReadingTurns(engine=self._engine, address=_address(document), seed=0, observe=observe)
            tokens = self._tokenizer.document(document.text)
            question = Question(question_id="", text=document.story.question, list_text="")
            reading = await read(tokens, question, agent=agent, turns=turns)
            answer = extract_answer(reading.response or "", extraction=Extraction.BOXED)
            finished = FinishedReading(
                document=tokens,
                sentences=split_sentences(document.text),
                question=document.story.question,
                value_type=_value_type(document) if setting.has_type else None,
                response=reading.response or "",
                answer=answer,
                memory=reading.memory or "",
                trace=tracer.trace,
            )
            closed = await ask_closing_turns(finished, closing=self._closing, turns=turns)
            return EndedReading(
                document=document,
                answer=answer,
                memory=reading.memory,
                closed=closed,
                num_tokens=spent[False],
                num_closing_tokens=spent[True],
            )


def figures(ended: Sequence[EndedReading], *, seconds: float) -> Figures:
    """The shares over some readings."""
    right = [each for each in ended if each.is_right and each.wanted != NOT_STATED]
    values = [each for each in ended if each.closed.value is not None]
    asked = [each for each in right if each.closed.evidence is not None]
    absent = [each for each in ended if each.wanted == NOT_STATED and each.closed.evidence is not None]
    stated = [each.closed.value for each in values if each.closed.value and each.wanted != NOT_STATED]
    return Figures(
        right=sum(each.is_right for each in ended) / len(ended),
        valid=_share([each.closed.value.status is not ValueStatus.INVALID for each in values if each.closed.value]),
        value_right=_share([_has_right_value(each) for each in values]),
        evidence_hit=_share([_is_hit(each) for each in asked]),
        evidence_none=_share([not each.closed.evidence for each in absent]),
        supported=_share([each.closed.support == "supported" for each in asked if each.closed.evidence]),
        lost=_share([value.status is ValueStatus.NOT_STATED for value in stated]),
        closing_share=sum(each.num_closing_tokens for each in ended) / sum(each.num_tokens for each in ended),
        seconds=seconds,
    )


def _address(document: HeldOutDocument) -> ReadingAddress:
    return ReadingAddress(
        document_hash=text_hash(document.text),
        question_hash=text_hash(document.story.question),
        sample=0,
        reader_fingerprint="0" * 64,
    )


def _value_type(document: HeldOutDocument) -> ValueType:
    """The type that fits the story's answer."""
    story = document.story
    if story.kind is StoryKind.TRUE:
        return ValueType(type=AnswerType.BOOL)
    last = next(value for value in reversed(story.values) if value)
    if story.kind in (StoryKind.MANY, StoryKind.CHAIN) or not (last.isdigit() or last in STATUSES):
        return ValueType(type=AnswerType.TEXT)
    return ValueType(type=AnswerType.NUMBER) if last.isdigit() else ValueType(type=AnswerType.LABEL, labels=STATUSES)


def _has_right_value(ended: EndedReading) -> bool:
    value = ended.closed.value
    if value is None or ended.wanted == NOT_STATED:
        return value is not None and value.status is ValueStatus.NOT_STATED
    if value.status is not ValueStatus.OK:
        return False
    if value.boolean is not None:
        return value.boolean == (ended.wanted == "yes")
    return value.value is not None and set(value.value.strip('"').split(", ")) == set(ended.wanted.split(", "))


def _is_hit(ended: EndedReading) -> bool:
    """Whether a sentence of the evidence holds one that states the answer."""
    document = ended.document
    starts = [document.spans[document.met.index(place)][0] for place in document.story.kept(document.met)]
    found = [each.sentence for each in ended.closed.evidence or ()]
    return any(sentence.char_start <= start < sentence.char_end for sentence in found for start in starts)


def _share(flags: Sequence[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None

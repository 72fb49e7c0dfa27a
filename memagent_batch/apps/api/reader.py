"""Reading from Python: an agent, opened once, reads texts one call at a time. No Ray, no files."""

import asyncio
import builtins
import json
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from pydantic import model_validator

from memagent_batch.apps.pages.readings import doubt_of
from memagent_batch.config import agent as agent_config
from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.follow_ups import FollowUpConfig
from memagent_batch.config.problems import CheckedCall
from memagent_batch.data.documents.data_files import why_unreadable
from memagent_batch.data.documents.stored import StoredText
from memagent_batch.data.store.turn_log.rows import ClosedRow
from memagent_batch.errors import DocumentError, InputError, MemagentError, NotReadError, SettingsError
from memagent_batch.logs import quiet_libraries
from memagent_batch.loop.addresses import ReadingAddress, text_hash
from memagent_batch.loop.completions import extract_answer
from memagent_batch.loop.engines.engine import Engine
from memagent_batch.loop.follow_ups.answer_types import ValueType
from memagent_batch.loop.follow_ups.doubts import Doubt, find_doubt
from memagent_batch.loop.follow_ups.prompts import Support, guide_kinds
from memagent_batch.loop.follow_ups.values import TypedValue, ValueStatus, stated
from memagent_batch.loop.texts.sentences import Sentences, split_sentences
from memagent_batch.plugins import built_policy, engine_settings, make_policy
from memagent_batch.run.budgets import fit_budgets_to_window
from memagent_batch.run.evidence import AnsweredReading, evidence_rows
from memagent_batch.run.reading.agent import make_agent
from memagent_batch.run.reading.documents import unreadable, with_breaks
from memagent_batch.run.reading.follow_ups import FollowUps, Tracer, checked_follow_ups, close_reading, require_compiled
from memagent_batch.run.reading.read import Reading, ReadingTurns, TurnCounts, read
from memagent_batch.run.tables import ANSWERS, AnswerRow
from memagent_batch.run.wiring import files_of, identify_reader, make_engine
from memagent_batch.types import Completion, Document, Prompt, Question, Status

Result = TypeVar("Result")


class PolicyConfig(CheckedCall, agent_config.PolicyConfig):
    """How a document is read: a policy and its settings, which are checked at once."""

    @model_validator(mode="after")
    def _check_policy(self) -> Self:
        built_policy(self)
        return self


Overwrite = partial(PolicyConfig, kind="overwrite")
"""The settings of policy `overwrite`: after each chunk the memory is written new."""
Gated = partial(PolicyConfig, kind="gated")
"""The settings of policy `gated`: as `overwrite`, and a word keeps the memory."""
Parallel = partial(PolicyConfig, kind="parallel")
"""The settings of policy `parallel`: chunks are read side by side, and their notes merged."""
Truncate = partial(PolicyConfig, kind="truncate")
"""The settings of policy `truncate`: head and tail of the document in one prompt."""
Retrieve = partial(PolicyConfig, kind="retrieve")
"""The settings of policy `retrieve`: the passages that BM25 ranks first, in one prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A model call of a reading."""

    path: str
    """Address of the turn in its reading, such as `update/12`."""
    kind: str
    """What it was for, as the policy names it."""
    char_start: int | None
    """First character of the chunk that it showed; None where it showed none."""
    char_end: int | None
    """Character after the chunk's last one."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A sentence of the text that an answer rests on."""

    text: str
    """The sentence, character for character."""
    char_start: int
    char_end: int
    """The character after its last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """How one reading ended."""

    answer: str | None
    """The answer taken out of the response; None where it holds none, or the reading failed."""
    response: str | None
    """Text of the answer turn, without thoughts."""
    memory: str | None
    """Memory that the answer was given from."""
    status: Status
    """`ok`, `failed` or `not_read`."""
    error: Exception | None
    """What went wrong, if it was not `ok`; its traceback leads to the place in a policy of your own."""
    turns: Sequence[Turn] = field(repr=False)
    """All turns, in the order in which they ended."""
    costs: TurnCounts
    """Turns, tokens and seconds, without those of follow-up questions."""
    value: Any = None
    """The answer as a value of the type that was asked for; None where nothing is stated, or it is invalid."""
    value_status: ValueStatus | None = None
    """`ok`, `not_stated`, `not_read` (not stated in the part that was shown) or `invalid`; None without a type."""
    confidence: float | None = None
    """Probability of a value that was chosen from a menu, given the memory and not the text, 0 to 1."""
    evidence: Sequence[Sentence] | None = None
    """Sentences that the answer rests on, the best first; None where they were not asked for."""
    support: Support | None = None
    support_probability: float | None = None
    """Its probability, 0 to 1."""
    coverage: float | None = None
    """Share of the text that was shown, 0 to 1; None where nothing was asked after the answer."""
    follow_up_error: str | None = None
    """Why the value is invalid, or a follow-up question brought nothing."""
    value_doubt: Doubt | None = None
    """Why the value needs a look; None where nothing speaks against it."""
    doubt: str | None = None
    """Why a person should look at the reading, as pages say it; None where nothing speaks against it."""


class Agent(CheckedCall, AgentConfig):
    """All that decides a result: model, prompts, policy, sampling, engine. A plain value; `open` starts its engine.

    Raises:
        SettingsError: a setting, a policy or an engine is unknown, or a value can't work; names it.
    """

    @model_validator(mode="before")
    @classmethod
    def _check_objects(cls, settings: Any) -> Any:
        for name, remedy in (("policy", "ma.PolicyConfig(kind={!r}, settings={{...}})"), ("engine", "{!r}")):
            value = settings.get(name) if isinstance(settings, dict) else None
            if hasattr(value, "identity"):
                kind = f"{type(value).__module__}:{type(value).__qualname__}"
                raise ValueError(
                    f"{name} takes no object, since each process makes its own; give {remedy.format(kind)}"
                )
        return settings

    @model_validator(mode="after")
    def _check_plugins(self) -> Self:
        make_policy(self)
        engine_settings(self)
        return self

    def open(self, *, follow_ups: FollowUpConfig = FollowUpConfig()) -> "AgentReader":  # noqa: B008 - a frozen value
        """A context manager that starts the engine and reads with it.

        Args:
            follow_ups: What is asked after each answer.

        Raises:
            SettingsError: the settings don't fit each other or the model.
        """
        return AgentReader(self, follow_ups=follow_ups)


class AgentReader:
    """One engine in this process, on its own event loop: works in scripts, and in notebooks, whose loop runs."""

    def __init__(self, agent: AgentConfig, *, follow_ups: FollowUpConfig = FollowUpConfig()) -> None:  # noqa: B008
        """Checks the agent; nothing is started."""
        if not isinstance(follow_ups, FollowUpConfig):
            raise SettingsError(f"follow_ups: {follow_ups!r} is none; write ma.FollowUpConfig(evidence=True)")
        self._config = fit_budgets_to_window(agent)
        self._fingerprint = identify_reader(self._config).fingerprint
        files = files_of(self._config, fingerprint=self._fingerprint)
        self._agent = make_agent(self._config, files)
        self._tokenizer = files.tokenizer
        self._engine: Engine = make_engine(self._config, files=files)
        self._follow_ups = follow_ups
        self._follow_ups_by_type: dict[ValueType | None, FollowUps | None] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="memagent", daemon=True)

    def __enter__(self) -> Self:
        """Starts the engine.

        Raises:
            EngineStartError: model or arguments can't work.
        """
        self._thread.start()
        try:
            with quiet_libraries():
                self._run(self._engine.start())
        except BaseException:  # an interrupt too, while the engine goes on to load its model
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops the engine; no process of it is left."""
        try:
            self._run(self._engine.stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def read(
        self,
        text: str | None,
        question: str,
        *,
        type: ValueType | None = None,  # noqa: A002 - the word of Question
        sample: int = 0,
    ) -> Answered:
        """Reads a text of any length for a question.

        Args:
            text: The document; one that is null or empty gives a failed reading, as in `ma.read` and `ma.answer`.
            question: The question.
            type: The type that its answer is asked for as, such as `Number(unit="EUR")`.
            sample: Which of several draws, from 0; a greedy agent gives the same for all.

        Returns:
            How it ended; a failed reading is not an exception.

        Raises:
            EngineDeadError: the engine is gone; open another one.
            EngineRefusedError: an endpoint refuses every request.
            EngineStartError: the engine takes no guides, which types and follow-up questions need.
            SettingsError: a follow-up question can't fit the window.
            InputError: the question is empty.
            TypeError: the text is not a string.
            UnicodeEncodeError: the text or the question holds a lone surrogate.
        """
        if not isinstance(text, str | None):
            raise TypeError(f"text must be a string, not {builtins.type(text).__name__}; ma.answer reads many texts")
        if not question.strip():
            raise InputError("question: it is empty; ask one")
        return self._run(self._read(text, question, value_type=type, sample=sample))

    async def _read(self, text: str | None, question: str, *, value_type: ValueType | None, sample: int) -> Answered:
        follow_ups = await self._follow_up_of(value_type)
        turns: list[Turn] = []
        tracer = Tracer(self._agent.prompts, lambda prompt, completion: turns.append(_shown_turn(prompt, completion)))
        address = ReadingAddress(
            document_hash="" if text is None else text_hash(text),
            question_hash=text_hash(question),
            sample=sample,
            fingerprint=self._fingerprint,
        )
        document = self._document(text)
        asked = ReadingTurns(engine=self._engine, address=address, seed=self._config.sampling.seed, observe=tracer)
        reading = await read(
            document,
            Question(question_id="", text=question),
            agent=self._agent,
            turns=asked,
        )
        if text is None or follow_ups is None or reading.status is not Status.OK:
            return _with_doubt(self._answered(reading, turns))
        try:
            closed = await close_reading(
                reading,
                value_type,
                question=question,
                document=document,
                sentences=split_sentences(text) if self._follow_ups.evidence else Sentences(),
                trace=tracer.trace,
                follow_ups=follow_ups,
                turns=asked,
            )
        except NotReadError as error:
            why = f"{type(error).__name__}: {error}"
            return _with_doubt(replace(self._answered(reading, turns), follow_up_error=why), value_type=value_type)
        answered = _with_follow_ups(self._answered(reading, turns), closed, text=text, value_type=value_type)
        searched = text if self._follow_ups.evidence else None
        return _with_doubt(answered, closed, value_type=value_type, text=searched)

    async def _follow_up_of(self, value_type: ValueType | None) -> FollowUps | None:
        """What is asked after the answer; it is checked at the first question of a type."""
        if value_type not in self._follow_ups_by_type:
            follow_ups = checked_follow_ups(
                self._follow_ups, self._config, types=[value_type], fingerprint=self._fingerprint
            )
            require_compiled({value_type: "type"} if value_type else {}, self._config)
            if follow_ups is not None:
                kinds = guide_kinds(follow_ups.config, [value_type] if value_type else [])
                await self._engine.require_guides(kinds)
            self._follow_ups_by_type[value_type] = follow_ups
        return self._follow_ups_by_type[value_type]

    def _document(self, text: str | None) -> Document:
        reason = why_unreadable(text)
        try:
            if text is None or reason:
                raise DocumentError(reason)
            return with_breaks(self._tokenizer.document(text), text, agent=self._config)
        except DocumentError as error:
            return unreadable(error)

    def _answered(self, reading: Reading, turns: Sequence[Turn]) -> Answered:
        response = reading.response
        return Answered(
            answer=None if response is None else extract_answer(response, extraction=self._config.extraction),
            response=response,
            memory=reading.memory,
            status=reading.status,
            error=reading.error,
            turns=tuple(turns),
            costs=reading.counts,
        )

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs work on the engine's loop; an interrupt of this thread ends it there too."""
        if not self._thread.is_alive():
            work.close()
            raise MemagentError("this reader is closed; open the agent with `with agent.open() as reader:`")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except (KeyboardInterrupt, CancelledError):
            future.cancel()
            raise


def _with_follow_ups(answered: Answered, closed: ClosedRow, *, text: str, value_type: ValueType | None) -> Answered:
    sentences = None
    if closed["evidence"] is not None:
        sentences = tuple(
            Sentence(
                text=text[span["char_start"] : span["char_end"]],
                char_start=span["char_start"],
                char_end=span["char_end"],
            )
            for span in closed["evidence"]
        )
    status = stated(closed["value_status"], coverage=closed["coverage"])
    doubt = None if value_type is None else _doubt_of(answered, closed, value_type, sentences=sentences)
    if status is not None and doubt is Doubt.REFUSED:
        status = ValueStatus.INVALID
    has_value = status == ValueStatus.OK and closed["value"] is not None
    return replace(
        answered,
        value=json.loads(closed["value"] or "") if has_value else None,
        value_status=None if status is None else ValueStatus(status),
        value_doubt=doubt,
        confidence=closed["confidence"],
        evidence=sentences,
        support=None if closed["support"] is None else Support(closed["support"]),
        support_probability=closed["support_probability"],
        coverage=closed["coverage"],
        follow_up_error=closed["follow_up_error"],
    )


def _with_doubt(
    answered: Answered,
    closed: ClosedRow | None = None,
    *,
    value_type: ValueType | None = None,
    text: str | None = None,
) -> Answered:
    """The reading with its `doubt`; the words of its answer are looked for in the text, if that is given."""
    shared = ("status", "answer", "value_status", "value_doubt", "support", "coverage", "follow_up_error")
    row = dict.fromkeys(ANSWERS.names) | {name: getattr(answered, name) for name in shared}
    row |= {"answer_type": value_type and value_type.type, "value": closed and closed["value"]}
    rows: list[dict[str, Any]] = []
    if closed is not None and text is not None:
        reading = AnsweredReading(row=0, answer=cast("AnswerRow", row), sentences=closed["evidence"] or ())
        rows = [dict(each) for each in evidence_rows(reading, StoredText(row=0, text=text, parts=()))]
    return replace(answered, doubt=doubt_of(row, rows))


def _doubt_of(
    answered: Answered, closed: ClosedRow, value_type: ValueType, *, sentences: Sequence[Sentence] | None
) -> Doubt | None:
    """Why the value needs a look."""
    if closed["value_status"] is None:
        return None
    value = TypedValue(
        status=ValueStatus(closed["value_status"]),
        value=closed["value"],
        boolean=closed["value_bool"],
        number=closed["value_number"],
        label=closed["value_label"],
    )
    response = answered.response or ""
    return find_doubt(
        value,
        value_type,
        answer=answered.answer or response,
        has_answer=answered.answer is not None,
        notes=f"{response}\n{answered.memory or ''}",
        sentences=None if sentences is None else [sentence.text for sentence in sentences],
    )


def _shown_turn(prompt: Prompt, completion: Completion) -> Turn:
    span = prompt.span
    return Turn(
        path=prompt.path,
        kind=prompt.kind,
        char_start=None if span is None else span.char_start,
        char_end=None if span is None else span.char_end,
        text=completion.text,
    )

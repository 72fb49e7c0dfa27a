"""Reading from Python: an agent, opened once, reads texts one call at a time. No Ray, no files."""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from memagent_batch.budgets import fitted
from memagent_batch.config import AgentConfig, PolicyConfig
from memagent_batch.domain.addresses import ReadingAddress, text_hash
from memagent_batch.domain.answers import extract_answer
from memagent_batch.domain.document import Document
from memagent_batch.domain.readings import Question, Status
from memagent_batch.domain.turns import Completion, Prompt
from memagent_batch.engines.engine import Engine
from memagent_batch.errors import DocumentError, MemagentError
from memagent_batch.reading.agent import make_agent
from memagent_batch.reading.documents import unreadable
from memagent_batch.reading.read import Reading, read
from memagent_batch.reading.turns import ReadingTurns, TurnCounts
from memagent_batch.wiring import identify_reader, make_engine, make_tokenizer

Result = TypeVar("Result")

Overwrite = partial(PolicyConfig, kind="overwrite")
"""The knobs of policy `overwrite`: after each chunk the memory is written new."""
Gated = partial(PolicyConfig, kind="gated")
"""The knobs of policy `gated`: as `overwrite`, and a word keeps the memory."""
Parallel = partial(PolicyConfig, kind="parallel")
"""The knobs of policy `parallel`: chunks are read side by side, and their notes merged."""
Truncate = partial(PolicyConfig, kind="truncate")
"""The knobs of policy `truncate`: head and tail of the document in one prompt."""
Retrieve = partial(PolicyConfig, kind="retrieve")
"""The knobs of policy `retrieve`: the passages that BM25 ranks first, in one prompt."""


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
    """What the model wrote."""


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
    error: str | None
    """What went wrong, where it was not `ok`."""
    turns: Sequence[Turn] = field(repr=False)
    """All turns, in the order in which they ended."""
    costs: TurnCounts
    """Turns, tokens and seconds."""


class Agent(AgentConfig):
    """All that decides a result: model, prompts, policy, sampling, engine. A plain value; `open` starts its engine."""

    def open(self) -> "AgentReader":
        """A context manager that starts the engine and reads with it.

        Raises:
            SettingsError: the knobs don't fit each other or the model.
        """
        return AgentReader(self)


class AgentReader:
    """One engine in this process, on an event loop of its own: works in scripts, and in notebooks, whose loop runs."""

    def __init__(self, agent: AgentConfig) -> None:
        """Checks the agent; nothing is started."""
        self._config = fitted(agent)
        self._fingerprint = identify_reader(self._config).fingerprint
        self._agent = make_agent(self._config)
        self._tokenizer = make_tokenizer(self._config)
        self._engine: Engine = make_engine(self._config)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="memagent", daemon=True)

    def __enter__(self) -> Self:
        """Starts the engine.

        Raises:
            EngineStartError: model or arguments can't work.
        """
        self._thread.start()
        try:
            self._run(self._engine.start())
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops the engine; no process of it is left."""
        try:
            self._run(self._engine.stop())
        finally:
            self._close()

    def read(self, text: str, question: str, *, sample: int = 0) -> Answered:
        """Reads a text of any length for a question.

        Args:
            text: The document.
            question: The question.
            sample: Which of several draws, from 0; a greedy agent gives the same for all.

        Returns:
            How it ended; a failed reading is no exception.

        Raises:
            EngineDeadError: the engine is gone; open another one.
            EngineRefusedError: an endpoint refuses every request.
            UnicodeEncodeError: the text or the question holds a lone surrogate.
        """
        return self._run(self._read(text, question, sample=sample))

    async def _read(self, text: str, question: str, *, sample: int) -> Answered:
        turns: list[Turn] = []
        address = ReadingAddress(
            document_hash=text_hash(text),
            question_hash=text_hash(question),
            sample=sample,
            reader_fingerprint=self._fingerprint,
        )
        reading = await read(
            self._document(text),
            Question(question_id="", text=question, list_text=question if self._agent.policy.reads_lists else ""),
            agent=self._agent,
            turns=ReadingTurns(
                engine=self._engine,
                address=address,
                seed=self._config.sampling.seed,
                observe=lambda prompt, completion: turns.append(_turn(prompt, completion)),
            ),
        )
        return self._answered(reading, turns)

    def _document(self, text: str) -> Document:
        try:
            return self._tokenizer.document(text)
        except DocumentError as error:
            return unreadable(error)

    def _answered(self, reading: Reading, turns: Sequence[Turn]) -> Answered:
        response = reading.response
        return Answered(
            answer=None if response is None else extract_answer(response, extraction=self._config.extraction),
            response=response,
            memory=reading.memory,
            status=reading.status,
            error=reading.error_message and f"{reading.error_type}: {reading.error_message}",
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

    def _close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _turn(prompt: Prompt, completion: Completion) -> Turn:
    span = prompt.span
    return Turn(
        path=prompt.path,
        kind=prompt.kind,
        char_start=None if span is None else span.char_start,
        char_end=None if span is None else span.char_end,
        text=completion.text,
    )

"""One reading: a document, a question and an agent in, how it ended out; and its turns, which stand between its policy
and the engine.
"""

import asyncio
import logging
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import partial
from operator import index
from pathlib import Path
from typing import cast

from memagent_batch.data.store.turn_log.rows import EndedRow, TurnRow, completion_of, hash_turn, require_outcome
from memagent_batch.data.store.turn_log.turns import LoggedTurns
from memagent_batch.data.store.turn_log.writer import TurnLogWriter
from memagent_batch.errors import MemagentError, NotLoggedError, NotReadError, ReadingError, TurnUnansweredError
from memagent_batch.loop.addresses import ReadingAddress, token_hash
from memagent_batch.loop.completions import why_unanswered
from memagent_batch.loop.engines.engine import Completer
from memagent_batch.loop.follow_ups.prompts import WHOLE_OR_FAILED
from memagent_batch.run.reading.agent import LoadedAgent
from memagent_batch.run.reading.places import EqualKey, EqualTurns, Suspects, TurnPlaces
from memagent_batch.types import Completion, Document, FinishReason, Outcome, Prompt, Question, QuestionTokens, Status

log = logging.getLogger(__name__)

NO_TURNS = LoggedTurns()


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCounts:
    """What the turns of a reading cost; the fields are columns of the tables."""

    num_turns: int = 0
    num_replayed_turns: int = 0
    num_prompt_tokens: int = 0
    num_cached_prompt_tokens: int = 0
    num_completion_tokens: int = 0
    engine_seconds: float = 0.0
    memory_truncations: int = 0
    """Turns that write the memory or a note and were cut at their budget."""

    def with_turn(self, prompt: Prompt, completion: Completion) -> "TurnCounts":
        """These counts and the cost of a turn."""
        is_cut = prompt.writes is not None and completion.finish_reason is FinishReason.LENGTH
        return replace(
            self,
            num_turns=self.num_turns + 1,
            num_replayed_turns=self.num_replayed_turns + completion.replayed,
            num_prompt_tokens=self.num_prompt_tokens + completion.num_prompt_tokens,
            num_cached_prompt_tokens=self.num_cached_prompt_tokens + completion.num_cached_prompt_tokens,
            num_completion_tokens=self.num_completion_tokens + completion.num_completion_tokens,
            engine_seconds=self.engine_seconds + completion.engine_seconds,
            memory_truncations=self.memory_truncations + is_cut,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a reading ended; the fields but `error`, and those of `counts`, are columns of the outcome log."""

    status: Status
    response: str | None = None
    """Text of the answer turn, without thoughts; None if there is no answer."""
    memory: str | None = None
    finish_reason: FinishReason | None = None
    error_type: str | None = None
    """What went wrong, if there is no answer."""
    error_message: str | None = None
    counts: TurnCounts
    turn_hashes: Sequence[str] = ()
    """Which turns it had; see `hash_turn`."""
    num_document_tokens: int
    num_chunks: int
    model: str
    started_at: datetime
    finished_at: datetime
    error: Exception | None = None
    """The exception behind `error_type`, for a caller that stops at some of them; no column."""

    def to_row(self) -> EndedRow:
        """How it ended, as the outcome log has it."""
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("counts", "error")}
        return cast("EndedRow", {**own, **asdict(self.counts)})


async def read(document: Document, question: Question, *, agent: LoadedAgent, turns: "ReadingTurns") -> Reading:
    """Reads a document for a question. The place where an exception becomes the end of a reading.

    Raises:
        MemagentError: what concerns more than this reading: a dead engine, a refused key, a log that can't be written.
    """
    finish = partial(_reading, document, agent=agent, turns=turns, started_at=datetime.now(UTC))
    num_chunks, turns.opens_thought = 0, agent.prompts.opens_thought
    try:
        if document.error is not None:
            raise document.error.with_traceback(None)  # one error ends many readings
        num_chunks = index(agent.cost(document).num_chunks)  # another number fits no row
        outcome = await _outcome(document, agent.tokenise(question), agent=agent, turns=turns)
        reading = finish(status=Status.OK, num_chunks=num_chunks, outcome=outcome)
        require_outcome(turns.address, reading.to_row())
    except NotReadError as error:
        return finish(status=Status.NOT_READ, num_chunks=num_chunks, error=error)
    except ReadingError as error:
        return finish(status=Status.FAILED, num_chunks=num_chunks, error=error)
    except MemagentError:
        raise
    except Exception as error:  # a policy's own fault concerns the reading alone; its row shows it
        log.exception("a reading failed in its policy, %s", type(agent.policy).__name__)
        return finish(status=Status.FAILED, num_chunks=num_chunks, error=error, place=place_of(error))
    return reading


def place_of(error: Exception) -> str:
    """Where a fault was raised, in brackets, for the row of the one reading that it concerns."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f" ({Path(frame.filename).name}, line {frame.lineno})"


async def _outcome(document: Document, tokens: QuestionTokens, *, agent: LoadedAgent, turns: "ReadingTurns") -> Outcome:
    """What the policy returns. Of the errors of turns that it runs side by side, the most serious is raised."""
    try:
        return await agent.policy.read(document, tokens, prompts=agent.prompts, turns=turns)
    except ExceptionGroup as group:
        error = _most_serious(group)
    raise error  # outside the `except`, so that its own cause and context stay


def _most_serious(error: Exception) -> Exception:
    """The error in a group that reaches furthest: beyond the reading, its end for now, its end, a fault of the code."""
    if isinstance(error, ExceptionGroup):
        return min(map(_most_serious, error.exceptions), key=_rank)
    return error


def _rank(error: Exception) -> int:
    if isinstance(error, NotReadError):
        return 1
    if isinstance(error, ReadingError):
        return 2
    return 0 if isinstance(error, MemagentError) else 3


def _reading(
    document: Document,
    *,
    agent: LoadedAgent,
    turns: "ReadingTurns",
    started_at: datetime,
    status: Status,
    num_chunks: int,
    outcome: Outcome | None = None,
    error: Exception | None = None,
    place: str = "",
) -> Reading:
    """A reading that ends now: with what its policy returned, or with an error.

    `place`: where a policy's own fault was raised.
    """
    return Reading(
        status=status,
        response=outcome.response if outcome else None,
        memory=outcome.memory.text if outcome else None,
        finish_reason=outcome.finish_reason if outcome else None,
        error_type=type(error).__name__ if error else None,
        error_message=writable(f"{error}{place}") if error else None,
        error=error,
        counts=turns.counts,
        turn_hashes=turns.turn_hashes,
        num_document_tokens=document.num_tokens,
        num_chunks=num_chunks,
        model=agent.model,
        started_at=started_at,
        finished_at=datetime.now(UTC),
    )


def writable(message: str) -> str:
    """Returns the message of an error as text that the log can hold: `?` for halves of surrogate pairs."""
    return message.encode(errors="replace").decode()


@dataclass(slots=True, kw_only=True)
class ReadingTurns:
    """`await turns(prompt)` for the policy of one reading. Mutable: it numbers and counts the turns of that reading."""

    engine: Completer
    """Answers the turns that the log does not hold."""
    address: ReadingAddress
    """The reading's address, from which each turn has its seed."""
    document_id: str = ""
    """The document as which the text is read, for the log."""
    seed: int
    is_sampled: bool = False
    """Whether completions are drawn with the seeds of their turns; else equal prompts have equal completions."""
    from_log: Mapping[str, LoggedTurns] = field(default_factory=dict)
    """Turns that the log holds of this question and sample, by fingerprint; those of follow-up questions have others
    than the reader's."""
    log: TurnLogWriter | None = None
    """Keeps new turns; None where nothing is kept."""
    suspects: Suspects = field(default_factory=Suspects)
    """The turns that are in flight."""
    equal: EqualTurns = field(default_factory=EqualTurns)
    """What other readings were answered to the same prompts, at temperature 0; they are not asked again."""
    places: TurnPlaces = field(default_factory=TurnPlaces)
    document: int = 0
    """Number of the document among those that share the places; the lower one is served first."""
    observe: Callable[[Prompt, Completion], None] | None = None
    """Receives every turn, replayed ones included."""
    opens_thought: bool = False
    """Whether completions begin inside a thought (`PromptTokens.opens_thought`); `read` sets it."""
    counts: TurnCounts = field(default=TurnCounts(), init=False)
    _num_asked: int = field(default=0, init=False)
    _awaited: list[asyncio.Future[None]] = field(default_factory=list, init=False)
    """Equal turns of other readings that turns of this one wait for."""
    _hashes: dict[int, str] = field(default_factory=dict, init=False)
    """The hash (`hash_turn`) of each finished turn of the reading, by the number of the turn."""
    _follow_ups: dict[tuple[str, str], Completion] = field(default_factory=dict, init=False)
    """Completions of follow-up questions, by fingerprint and hash of the prompt."""

    @property
    def turn_hashes(self) -> list[str]:
        """Hashes of the turns so far, in the order of asking; by these the outcome names them."""
        return [self._hashes[number] for number in sorted(self._hashes)]

    async def room(self) -> None:
        """Returns when no turn of the reading waits for a place, or for an equal turn of another reading."""
        await asyncio.sleep(0)  # a turn that was just asked takes its place first
        while self._awaited:
            await asyncio.wait(self._awaited[:1])
            await asyncio.sleep(0)  # the turn that waited goes on first
        await self.places.room(self.address)

    async def __call__(self, prompt: Prompt) -> Completion:
        """The completion of one prompt: taken from the log, or asked of the engine and recorded.

        Raises:
            TurnUnansweredError: it says nothing: it is empty, a thought alone, or a refusal.
            LogRowError: the turn does not fit the log.
            EngineRequestError: the engine died at this turn too often.
            MemagentError: what the engine or the log raises; see `Engine.complete` and `TurnLogWriter`.
        """
        number, self._num_asked = self._num_asked, self._num_asked + 1
        prompt = replace(prompt, number=number)
        completion = await self._complete(prompt)
        if prompt.fingerprint is None:
            self._hashes[number] = hash_turn(prompt, completion)
        self.counts = self.counts.with_turn(prompt, completion)
        if self.observe is not None:
            self.observe(prompt, completion)
        if (why := self._why_unanswered(prompt, completion.text, completion.finish_reason)) is not None:
            raise TurnUnansweredError(f"turn {prompt.path} was not read: {why}")
        return completion

    async def _complete(self, prompt: Prompt) -> Completion:
        """Takes the completion from the log, or asks the engine and records it.

        A follow-up question that was asked for another type of the same question is not asked again.
        """
        if prompt.fingerprint is None:
            return await self._logged_or_asked(prompt, self.address)
        turn = (prompt.fingerprint, token_hash(prompt.token_ids))
        if turn in self._follow_ups:
            return replace(self._follow_ups[turn], replayed=True)
        address = replace(self.address, fingerprint=prompt.fingerprint)
        self._follow_ups[turn] = await self._logged_or_asked(prompt, address)
        return self._follow_ups[turn]

    async def _logged_or_asked(self, prompt: Prompt, address: ReadingAddress) -> Completion:
        if (row := self._find_logged(prompt, address)) is None:
            return await self._equal_or_asked(prompt, address)
        completion = completion_of(row)
        is_here = (row["document_hash"], row["path"]) == (address.document_hash, prompt.path)
        if self.log is not None and not is_here:  # each version of a document is whole in the log
            self.log.record_turn(address, prompt, completion, document_id=self.document_id)
        return completion

    async def _equal_or_asked(self, prompt: Prompt, address: ReadingAddress) -> Completion:
        """Takes the completion of an equal turn of another reading, or asks the engine; records it in any case.

        While an equal turn is under way, this one waits for it, once: where that one fails, all that waited ask.
        """
        if self.is_sampled:
            return await self._ask(prompt, address)
        key = EqualKey(
            fingerprint=address.fingerprint,
            kind=prompt.kind,
            prompt_hash=token_hash(prompt.token_ids),
            max_tokens=prompt.max_tokens,
        )
        if (other := self.equal.under_way(key)) is not None:
            self._awaited.append(other)
            try:
                with self.suspects.watch(address, prompt.path):  # it is in flight too: the same prompt may kill
                    await asyncio.wait([other])
            finally:
                self._awaited.remove(other)
        if (completion := self.equal.find(key)) is None:
            return await self.equal.ask(
                key,
                partial(self._ask, prompt, address),
                may_keep=lambda asked: self._why_unanswered(prompt, asked.text, asked.finish_reason) is None,
            )
        if self.log is not None:
            await self.log.room()
            self.log.record_turn(address, prompt, completion, document_id=self.document_id)
        return completion

    def _find_logged(self, prompt: Prompt, address: ReadingAddress) -> TurnRow | None:
        """The row of a logged turn with this prompt that need not be asked again."""
        rows = self.from_log.get(address.fingerprint, NO_TURNS).find(
            kind=prompt.kind,
            prompt_hash=token_hash(prompt.token_ids),
            document_hash=address.document_hash,
            path=prompt.path,
            is_sampled=self.is_sampled,
        )
        return next((row for row in rows if not self._asks_again(prompt, row)), None)

    def _why_unanswered(self, prompt: Prompt, text: str, finish_reason: FinishReason) -> str | None:
        return why_unanswered(
            text,
            finish_reason=finish_reason,
            max_tokens=prompt.max_tokens,
            guide=prompt.guide,
            opens_thought=self.opens_thought and prompt.fingerprint is None,
        )

    def _asks_again(self, prompt: Prompt, row: TurnRow) -> bool:
        """Whether a turn failed in an earlier run by what it wrote: held, it would fail so forever.

        Within a run, and where nothing is kept and turns are only replayed, a row is what the turn brought.
        """
        if self.log is None or row["run_id"] >= self.log.run_id:
            return False
        finish_reason = FinishReason(row["finish_reason"])
        if self._why_unanswered(prompt, row["text"], finish_reason) is not None:
            return True
        if prompt.fingerprint is None or prompt.kind not in WHOLE_OR_FAILED:
            return False
        is_cut = finish_reason is FinishReason.LENGTH
        return is_cut or (prompt.guide is not None and not prompt.guide.allows(row["text"]))

    async def _ask(self, prompt: Prompt, address: ReadingAddress) -> Completion:
        """Asks the engine, and records the turn. While the store fails, turns wait here and memory is bounded."""
        seed = address.turn_seed(prompt.path, seed=self.seed)
        place = self.places.place(self.address, document=self.document, turn=prompt.number or 0)
        async with self.suspects.admit(address, prompt.path), place:
            if self.log is not None:
                await self.log.room()
            with self.suspects.watch(address, prompt.path):
                completion = await self.engine.complete(prompt, seed=seed)
        if self.log is not None:
            self.log.record_turn(address, prompt, completion, document_id=self.document_id)
        return completion


class FollowUpsOnly:
    """An engine for a reading that the log holds: it is asked follow-up questions, and no turn of the reading
    itself.
    """

    def __init__(self, engine: Completer) -> None:
        self._engine = engine

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        """The completion of a follow-up question.

        Raises:
            NotLoggedError: it is a turn of the reading, and the log does not hold it.
            MemagentError: what the engine raises.
        """
        if prompt.fingerprint is None:
            raise NotLoggedError(
                f"the log no longer holds turn {prompt.path}, so that nothing can be asked after the answer; restore "
                "its files in log/turns"
            )
        return await self._engine.complete(prompt, seed=seed)


class ReplayOnly:
    """Stands for an engine where a reading is replayed: it answers nothing."""

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        """Never answers.

        Raises:
            NotLoggedError: the log does not hold the turn.
        """
        raise NotLoggedError(prompt.path)

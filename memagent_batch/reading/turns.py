"""The turns of one reading: all that stands between its policy and the engine."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from memagent_batch.domain.addresses import ReadingAddress, token_hash
from memagent_batch.domain.follow_ups.prompts import WHOLE_OR_FAILED
from memagent_batch.domain.turns import Completion, FinishReason, Prompt
from memagent_batch.domain.unanswered import why_unanswered
from memagent_batch.engines.engine import Completer
from memagent_batch.errors import NotLoggedError, TurnUnansweredError
from memagent_batch.reading.places import TurnPlaces
from memagent_batch.reading.suspects import Suspects
from memagent_batch.store.turn_log.index import ReadingKey, reading_key
from memagent_batch.store.turn_log.rows import TurnRow, completion_of
from memagent_batch.store.turn_log.turns import LoggedRows
from memagent_batch.store.turn_log.writer import TurnLogWriter

LoggedTurns = Mapping[ReadingKey, LoggedRows]
"""Rows of the turn log by reading and turn path, as `read_turns` returns them."""
NO_ROWS = LoggedRows({})

FollowUpTurn = tuple[str, str, str]
"""A follow-up question of one reading: its fingerprint, its path, and the hash of its prompt."""


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


@dataclass(slots=True, kw_only=True)
class ReadingTurns:
    """`await turns(prompt)` for the policy of one reading. Mutable: it numbers and counts the turns of that reading."""

    engine: Completer
    """Answers the turns that the log does not hold."""
    address: ReadingAddress
    """The reading's address, from which each turn has its seed."""
    seed: int
    from_log: LoggedTurns = field(default_factory=dict)
    """Turns that the log holds of this reading."""
    last_hashes: Sequence[str] = ()
    """Hashes of the document's last versions, the latest first, whose turns of the same prompts are taken."""
    logged_follow_ups: Mapping[str, LoggedTurns] = field(default_factory=dict)
    """Follow-up questions that the log holds, by their fingerprint."""
    log: TurnLogWriter | None = None
    """Keeps new turns; None where nothing is kept."""
    suspects: Suspects = field(default_factory=Suspects)
    """The record of the turns that are in flight."""
    places: TurnPlaces = field(default_factory=TurnPlaces)
    document: int = 0
    """Number of the document among those that share the places; the lower one is served first."""
    observe: Callable[[Prompt, Completion], None] | None = None
    """Receives every turn, replayed ones included."""
    opens_thought: bool = False
    """Whether completions begin inside a thought (`PromptTokens.opens_thought`); `read` sets it."""
    counts: TurnCounts = field(default=TurnCounts(), init=False)
    _num_asked: int = field(default=0, init=False)
    _paths_of_last: dict[ReadingAddress, Mapping[tuple[str, str], str]] = field(default_factory=dict, init=False)
    _closed: dict[FollowUpTurn, Completion] = field(default_factory=dict, init=False)

    async def room(self) -> None:
        """Returns when no turn of the reading waits for a place; see `PlacedTurns`."""
        await asyncio.sleep(0)  # a turn that was just asked takes its place first
        await self.places.room(self.address)

    async def __call__(self, prompt: Prompt) -> Completion:
        """The completion of one prompt: taken from the log, or asked of the engine and recorded.

        Raises:
            TurnUnansweredError: it says nothing: it is empty, a thought alone, or a refusal.
            LogRowError: the turn does not fit the log.
            EngineRequestError: the engine died at this turn too often.
            MemagentError: what the engine or the log raises; see `Engine.complete` and `TurnLogWriter`.
        """
        prompt, self._num_asked = replace(prompt, number=self._num_asked), self._num_asked + 1
        address = self.address
        if prompt.fingerprint is not None:
            address = replace(address, fingerprint=prompt.fingerprint)
        if (row := self._from_log(prompt, address)) is not None:
            completion = completion_of(row)
        else:
            completion = await self._complete(prompt, address)
        if prompt.fingerprint is not None:
            self._closed[_follow_up_turn(prompt.fingerprint, prompt)] = completion
        self.counts = self.counts.with_turn(prompt, completion)
        if self.observe is not None:
            self.observe(prompt, completion)
        if (why := self._why_unanswered(prompt, completion.text, completion.finish_reason)) is not None:
            raise TurnUnansweredError(f"turn {prompt.path} was not read: {why}")
        return completion

    def _why_unanswered(self, prompt: Prompt, text: str, finish_reason: FinishReason) -> str | None:
        return why_unanswered(
            text,
            finish_reason=finish_reason,
            max_tokens=prompt.max_tokens,
            guide=prompt.guide,
            opens_thought=self.opens_thought and prompt.fingerprint is None,
        )

    def _from_log(self, prompt: Prompt, address: ReadingAddress) -> TurnRow | None:
        """The turn's row in the log, if it answered this very prompt, and need not be asked again."""
        row = self._rows(prompt, address).get(prompt.path)
        if row is None or row["prompt_hash"] != token_hash(prompt.token_ids) or self._asks_again(prompt, row):
            return None
        return row

    def _reused_from_last(self, prompt: Prompt, address: ReadingAddress) -> TurnRow | None:
        """The row of this very prompt in a last version of the document: at the same path, or else at another one.

        What is put into a document, or taken out, moves the paths of all that follows, and not always their prompts.
        """
        for last in (replace(address, document_hash=last_hash) for last_hash in self.last_hashes):
            if (row := self._from_log(prompt, last)) is not None:
                return row
            if last not in self._paths_of_last:
                self._paths_of_last[last] = self._rows(prompt, last).paths_by_prompt()
            path = self._paths_of_last[last].get((prompt.kind, token_hash(prompt.token_ids)))
            if path is not None and not self._asks_again(prompt, row := self._rows(prompt, last)[path]):
                return row
        return None

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

    def _rows(self, prompt: Prompt, address: ReadingAddress) -> LoggedRows:
        """What the log holds of a reading by path, under the fingerprint of such a turn."""
        from_log = self.from_log if prompt.fingerprint is None else self.logged_follow_ups.get(prompt.fingerprint, {})
        return from_log.get(reading_key(address), NO_ROWS)

    async def _complete(self, prompt: Prompt, address: ReadingAddress) -> Completion:
        """Takes the turn from a last version of the document, or asks the engine; records it.

        A follow-up question that was asked for another type of the same question is taken as it is. While the store
        fails, turns wait here and memory is bounded.
        """
        if prompt.fingerprint is not None and (turn := _follow_up_turn(prompt.fingerprint, prompt)) in self._closed:
            return replace(self._closed[turn], replayed=True)
        if (row := self._reused_from_last(prompt, address)) is not None:
            if self.log is not None:
                self.log.record_reused(address, prompt, row)
            return completion_of(row)
        seed = address.turn_seed(prompt.path, seed=self.seed)
        place = self.places.place(self.address, document=self.document, turn=prompt.number or 0)
        async with self.suspects.admit(address, prompt.path), place:
            if self.log is not None:
                await self.log.room()
            with self.suspects.watch(address, prompt.path):
                completion = await self.engine.complete(prompt, seed=seed)
        if self.log is not None:
            self.log.record_turn(address, prompt, completion)
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


def _follow_up_turn(fingerprint: str, prompt: Prompt) -> FollowUpTurn:
    return (fingerprint, prompt.path, token_hash(prompt.token_ids))

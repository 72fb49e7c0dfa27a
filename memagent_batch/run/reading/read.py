"""One reading as a function: a document, a question and an agent in, how it ended out."""

import logging
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import partial
from operator import index
from pathlib import Path
from typing import cast

from memagent_batch.data.store.turn_log.rows import EndedRow, require_outcome
from memagent_batch.errors import MemagentError, NotReadError, ReadingError
from memagent_batch.run.reading.agent import LoadedAgent
from memagent_batch.run.reading.turns import ReadingTurns, TurnCounts
from memagent_batch.types import Document, FinishReason, Outcome, Question, QuestionTokens, Status, cost_of

log = logging.getLogger(__name__)


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


async def read(document: Document, question: Question, *, agent: LoadedAgent, turns: ReadingTurns) -> Reading:
    """Reads a document for a question. The place where an exception becomes the end of a reading.

    Raises:
        MemagentError: what concerns more than this reading: a dead engine, a refused key, a log that can't be written.
    """
    finish = partial(_reading, document, agent=agent, turns=turns, started_at=datetime.now(UTC))
    num_chunks, turns.opens_thought = 0, agent.prompts.opens_thought
    try:
        if document.error is not None:
            raise document.error.with_traceback(None)  # one error ends many readings
        num_chunks = index(cost_of(agent.policy, agent.prompts, document).num_chunks)  # another number fits no row
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


async def _outcome(document: Document, tokens: QuestionTokens, *, agent: LoadedAgent, turns: ReadingTurns) -> Outcome:
    """What the policy returns. Of the errors of turns that it runs side by side, the most serious is raised."""
    try:
        return await agent.policy.read(document, tokens, prompts=agent.prompts, turns=turns)
    except ExceptionGroup as group:
        error = min(_leaves(group), key=_error_rank)
    raise error  # outside the `except`, so that its own cause and context stay


def _leaves(error: Exception) -> Iterator[Exception]:
    """The exceptions of a group and of the groups in it, in their order."""
    if not isinstance(error, ExceptionGroup):
        yield error
        return
    for each in error.exceptions:
        yield from _leaves(each)


def _error_rank(error: Exception) -> int:
    """How far an error reaches; the lowest rank concerns more than its reading."""
    if isinstance(error, NotReadError):
        return 1
    if isinstance(error, ReadingError):
        return 2
    return 0 if isinstance(error, MemagentError) else 3


def _reading(
    document: Document,
    *,
    agent: LoadedAgent,
    turns: ReadingTurns,
    started_at: datetime,
    status: Status,
    num_chunks: int,
    outcome: Outcome | None = None,
    error: Exception | None = None,
    place: str = "",
) -> Reading:
    """A reading that ends now: with what its policy returned, or with an error, as text that can be written.

    `place`: where a policy's own fault was raised.
    """
    return Reading(
        status=status,
        response=outcome.response if outcome else None,
        memory=outcome.memory.text if outcome else None,
        finish_reason=outcome.finish_reason if outcome else None,
        error_type=type(error).__name__ if error else None,
        error_message=f"{error}{place}".encode(errors="replace").decode() if error else None,
        error=error,
        counts=turns.counts,
        turn_hashes=turns.turn_hashes,
        num_document_tokens=document.num_tokens,
        num_chunks=num_chunks,
        model=agent.model,
        started_at=started_at,
        finished_at=datetime.now(UTC),
    )

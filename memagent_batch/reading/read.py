"""One reading as a function: a document, a question and an agent in, how it ended out."""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from memagent_batch.domain.document import Document
from memagent_batch.domain.readings import Question, Status
from memagent_batch.domain.turns import FinishReason
from memagent_batch.errors import MemagentError, NotReadError, ReadingError
from memagent_batch.log.index import Row
from memagent_batch.log.writer import require_outcome
from memagent_batch.reading.agent import Agent
from memagent_batch.reading.turns import ReadingTurns, TurnCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a reading ended; the fields are columns of the outcome log."""

    status: Status
    """How it ended."""
    response: str | None = None
    """Text of the answer turn, without thoughts; None where there is no answer."""
    memory: str | None = None
    """Memory that the answer was given from."""
    finish_reason: FinishReason | None = None
    """Why the answer ended."""
    error_type: str | None = None
    """What went wrong, where there is no answer."""
    error_message: str | None = None
    """Where and why."""
    counts: TurnCounts
    """What its turns cost."""
    num_document_tokens: int
    """Length of the document."""
    num_chunks: int
    """Chunks of the document."""
    model: str
    """Name of the model."""
    started_at: datetime
    """When it began, UTC."""
    finished_at: datetime
    """When it ended, UTC."""

    def to_row(self) -> Row:
        """A row of the outcome log, without run and address."""
        row = asdict(self)
        counts = row.pop("counts")
        return {**row, **counts}


async def read(document: Document, question: Question, *, agent: Agent, turns: ReadingTurns) -> Reading:
    """Reads a document for a question. The one place where an exception becomes the end of a reading.

    Raises:
        MemagentError: what concerns more than this reading: a dead engine, a refused key, a log that can't be written.
    """
    finish = partial(_reading, document, agent=agent, turns=turns, started_at=datetime.now(UTC))
    try:
        if document.error is not None:
            raise document.error.with_traceback(None)  # one error ends many readings
        tokens = agent.tokenise(question)
        outcome = await agent.policy.read(document, tokens, prompts=agent.prompts, turns=turns)
        reading = finish(
            status=Status.OK,
            response=outcome.response,
            memory=outcome.memory.text,
            finish_reason=outcome.finish_reason,
        )
        require_outcome(turns.address, reading.to_row())
    except NotReadError as error:
        return finish(status=Status.NOT_READ, **_description(error))
    except ReadingError as error:
        return finish(status=Status.FAILED, **_description(error))
    except MemagentError:
        raise
    except Exception as error:  # noqa: BLE001 - a policy's own fault concerns the reading alone; its row shows it
        return finish(status=Status.FAILED, **_description(error))
    return reading


def _reading(
    document: Document, *, agent: Agent, turns: ReadingTurns, started_at: datetime, status: Status, **ending: Any
) -> Reading:
    return Reading(
        status=status,
        **ending,
        counts=turns.counts,
        num_document_tokens=document.num_tokens,
        num_chunks=agent.policy.cost(agent.prompts, num_tokens=document.num_tokens).num_chunks,
        model=agent.model,
        started_at=started_at,
        finished_at=datetime.now(UTC),
    )


def _description(error: Exception) -> dict[str, Any]:
    """What a row without an answer shows of the error, as text that can be written."""
    return {"error_type": type(error).__name__, "error_message": str(error).encode(errors="replace").decode()}

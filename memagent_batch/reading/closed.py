"""Closes a reading: asks what is asked after its answer, and says how that ended as a row of the log."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from memagent_batch.budgets import closing_plan
from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.closing import ClosingConfig
from memagent_batch.domain.addresses import fingerprint
from memagent_batch.domain.answers import Extraction, extract_answer
from memagent_batch.domain.closing.answer_types import ValueType
from memagent_batch.domain.closing.evidence import MemoryTrace
from memagent_batch.domain.closing.plan import VALUE
from memagent_batch.domain.document import Document
from memagent_batch.domain.texts.sentences import Sentences
from memagent_batch.log.schemas import ClosedRow
from memagent_batch.prompts.closing import CLOSING_PROMPTS
from memagent_batch.reading.closing import ClosingResult, ClosingTurns, FinishedReading, ask_closing_turns
from memagent_batch.reading.read import Reading
from memagent_batch.reading.turns import ReadingTurns, TurnCounts
from memagent_batch.wiring import make_closing_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """What closes the readings of an agent."""

    turns: ClosingTurns
    """The turns."""
    extraction: Extraction
    """How answers are taken out of responses."""

    def of_type(self, value_type: ValueType | None) -> str | None:
        """The fingerprint under which the log keeps what they bring to a question of this type; None where nothing."""
        asked = [VALUE] * (value_type is not None) + self.turns.plan.kinds()
        if not asked:
            return None
        kinds = [self.turns.fingerprint(kind, value_type if kind == VALUE else None) for kind in asked]
        return fingerprint({"closing": kinds, "extraction": self.extraction.value})

    def turns_of_type(self, value_type: ValueType | None) -> list[str]:
        """The fingerprints under which the log keeps the turns of a question of this type."""
        return list(self.turns.fingerprints([value_type] if value_type else []))

    def of_turns(self, types: Iterable[ValueType | None]) -> list[str]:
        """The fingerprints under which the log keeps the turns, for questions of these types."""
        return sorted(self.turns.fingerprints([each for each in dict.fromkeys(types) if each is not None]))


def make_closing(config: ClosingConfig, agent: AgentConfig, *, reader_fingerprint: str) -> Closing:
    """What closes the readings of an agent, whose budgets fit its window."""
    turns = ClosingTurns(
        plan=closing_plan(config, agent),
        closings=CLOSING_PROMPTS,
        tokens=make_closing_tokens(agent),
        reader_fingerprint=reader_fingerprint,
    )
    return Closing(turns=turns, extraction=agent.extraction)


async def close_reading(
    reading: Reading,
    value_type: ValueType | None,
    *,
    question: str,
    document: Document,
    sentences: Sentences,
    trace: MemoryTrace,
    closing: Closing,
    turns: ReadingTurns,
) -> ClosedRow:
    """Asks the closing turns of a reading that was answered.

    Args:
        reading: The reading; its status is `ok`.
        value_type: The type that its question asks for.
        question: The question.
        document: The document.
        sentences: Its sentences; none are needed where no evidence is asked for.
        trace: Where its memory came from.
        closing: What is asked.
        turns: The reading's turns, its own ones asked.

    Raises:
        MemagentError: what concerns more than this reading.
    """
    response, before = reading.response or "", turns.counts
    result = await ask_closing_turns(
        FinishedReading(
            document=document,
            sentences=sentences,
            question=question,
            value_type=value_type,
            response=response,
            answer=extract_answer(response, extraction=closing.extraction),
            memory=reading.memory or "",
            trace=trace,
        ),
        closing=closing.turns,
        turns=turns,
    )
    return closed_row(result, before=before, after=turns.counts)


def closed_row(result: ClosingResult, *, before: TurnCounts, after: TurnCounts) -> ClosedRow:
    """What closing turns brought, as the log has it; the counts are those of the reading before and after them."""
    value, error = result.value, result.error
    problem = value.problem if value else None
    return {
        "value": value.value if value else None,
        "value_bool": value.boolean if value else None,
        "value_number": value.number if value else None,
        "value_label": value.label if value else None,
        "value_status": value.status.value if value else None,
        "confidence": result.confidence,
        "support": result.support.value if result.support else None,
        "support_probability": result.support_probability,
        "coverage": result.coverage,
        "closing_error": f"{type(error).__name__}: {error}" if error else problem,
        "evidence": None
        if result.evidence is None
        else [
            {
                "char_start": each.sentence.char_start,
                "char_end": each.sentence.char_end,
                "chunk_index": each.sentence.chunk_index,
            }
            for each in result.evidence
        ],
        "is_failed": error is not None,
        "num_turns": after.num_turns - before.num_turns,
        "num_prompt_tokens": after.num_prompt_tokens - before.num_prompt_tokens,
        "num_completion_tokens": after.num_completion_tokens - before.num_completion_tokens,
        "finished_at": datetime.now(UTC),
    }


def unclosed(replayed: Reading) -> ClosedRow:
    """Of a reading that was answered and can't be closed, since the log no longer holds how it was read."""
    none = TurnCounts()
    row = closed_row(ClosingResult(coverage=0.0), before=none, after=none)
    error = f"{replayed.error_type}: {replayed.error_message}"
    return {**row, "coverage": None, "closing_error": error, "is_failed": True}

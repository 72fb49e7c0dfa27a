"""What one reader has to say of the readings of a part of the plan: a row of `answers` each, and its audit trail."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from typing import TypedDict

import pyarrow as pa

from memagent_batch.domain.answers import Extraction, extract_answer
from memagent_batch.domain.readings import Status
from memagent_batch.domain.turns import FinishReason
from memagent_batch.errors import DocumentError
from memagent_batch.log.files import ReadingKey
from memagent_batch.log.index import read_closings, read_outcomes
from memagent_batch.log.question_list import AskedQuestion
from memagent_batch.log.rows import turn_memory
from memagent_batch.log.schemas import ClosedRow, ClosingColumns, OutcomeRow, ResultRow, SpanRow, TurnRow
from memagent_batch.log.turns import read_turns_of
from memagent_batch.runs.rows.projection import Origin, Projection
from memagent_batch.runs.tables.schemas import AnswerRow, MemoryRow

NOT_CLOSED: ClosingColumns = {
    "value": None,
    "value_bool": None,
    "value_number": None,
    "value_label": None,
    "value_status": None,
    "confidence": None,
    "support": None,
    "support_probability": None,
    "coverage": None,
    "closing_error": None,
}
"""Of a reading that was asked nothing after its answer."""


class PartDocument(TypedDict):
    """A document of a part of the plan, as its readings need it."""

    document_id: str
    document_hash: str | None
    error: str | None
    error_type: str | None
    readings: list[dict[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a reader has to say of a reading."""

    answer: AnswerRow
    """Its row of `answers`."""
    sentences: Sequence[SpanRow]
    """Sentences that the answer rests on."""
    memories: Sequence[MemoryRow]
    """Its rows of `memories`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPart:
    """What the log holds of the readings of a part, by one reader."""

    projection: Projection
    """What turns them into rows."""
    outcomes: Mapping[ReadingKey, OutcomeRow]
    """How they ended."""
    unread: Mapping[ReadingKey, OutcomeRow]
    """What stands in for the outcomes of those that could not be read now."""
    closed: Mapping[str, Mapping[ReadingKey, ClosedRow]]
    """What closing turns brought, by fingerprint."""
    turns: Mapping[str, Mapping[ReadingKey, Mapping[str, TurnRow]]]
    """Turns, by fingerprint and path."""

    def look(self, document: PartDocument, question: AskedQuestion, sample: int) -> Look | None:
        """What the reader has to say of a reading; None where the log lacks what ought to be there."""
        key = (document["document_hash"] or "", question["question_hash"], sample)
        outcome, closed = self.outcomes.get(key), self._closed_of(question, key)
        outcome = outcome if self._is_finished(question, key) else self.unread.get(key, outcome)
        is_open = closed is None and bool(question.get("closing_fingerprint"))
        if document["error"] is None and (outcome is None or (is_open and outcome["status"] == Status.OK)):
            return None
        origin, turns = self.projection.origin, self._turns_of(question, key, outcome)
        return Look(
            answer=answer_row(document, question, outcome, sample=sample, origin=origin, closed=closed),
            sentences=(closed["evidence"] if closed else None) or (),
            memories=list(_memory_rows(turns, document, question, sample=sample, projection=self.projection)),
        )

    def _closed_of(self, question: AskedQuestion, key: ReadingKey) -> ClosedRow | None:
        """What was asked after the answer to a question brought; None where nothing was."""
        return self.closed.get(question.get("closing_fingerprint") or "", {}).get(key)

    def _is_finished(self, question: AskedQuestion, key: ReadingKey) -> bool:
        """Whether the log holds an answer to a question, and all that was asked after it."""
        outcome, closed = self.outcomes.get(key), self._closed_of(question, key)
        if outcome is None or outcome["status"] != Status.OK:
            return False
        return not question.get("closing_fingerprint") or (closed is not None and not closed["is_failed"])

    def _turns_of(self, question: AskedQuestion, key: ReadingKey, outcome: OutcomeRow | None) -> Mapping[str, TurnRow]:
        """The turns of a reading by path, its closing turns among them."""
        found = {**self.turns[self.projection.reader_fingerprint].get(key, {})}
        if outcome is not None and outcome["status"] != Status.NOT_READ:
            found = _turns_had(found, outcome)
        for fingerprint in self.projection.closings.get(question.get("closing_fingerprint") or "", ()):
            found |= self.turns[fingerprint].get(key, {})
        return found


def _turns_had(turns: dict[str, TurnRow], outcome: OutcomeRow) -> dict[str, TurnRow]:
    """The turns that a reading had, without those that only another attempt asked.

    Two attempts that read at once may write other memories, and with some policies take other rounds and merges. A turn
    of the one then has a path that the other never asked. Where there are more turns than the reading had, one of each
    number is taken: that of the last run up to the one that ended the reading.
    """
    num_turns = outcome["num_turns"]
    if len(turns) <= num_turns or any(row["turn"] is None for row in turns.values()):
        return turns
    had: dict[int | None, TurnRow] = {}
    for row in turns.values():
        number, run_id = row["turn"], row["run_id"]
        is_beyond = outcome["status"] == Status.OK and number is not None and number >= num_turns
        if run_id > outcome["run_id"] or is_beyond:
            continue
        if number not in had or run_id > had[number]["run_id"]:
            had[number] = row
    return {row["path"]: row for row in had.values()}


def hold_part(part: pa.Table, *, projection: Projection, not_read: Sequence[OutcomeRow] = ()) -> HeldPart:
    """Reads the log files that a part (a table of `plan_parts`) names.

    `not_read`: what stands in for the outcomes of readings that were not read, of all readers. They don't say which
    type was asked for: a question with the same words and another type may have its answer and value.
    """
    files = {
        name: sorted({file for files in part[name].to_pylist() for file in files})
        for name in ("outcome_files", "turn_files", "closing_files")
    }
    reader, output = projection.reader_fingerprint, projection.output
    outcomes = read_outcomes(output, files["outcome_files"], reader_fingerprint=reader)
    closing_turns = {each for fingerprints in projection.closings.values() for each in fingerprints}
    return HeldPart(
        projection=projection,
        outcomes=outcomes,
        unread={
            (row["document_hash"], row["question_hash"], row["sample"]): row
            for row in not_read
            if row["reader_fingerprint"] == reader
        },
        closed=read_closings(output, files["closing_files"], fingerprints=list(projection.closings)),
        turns=read_turns_of(
            output,
            files["turn_files"],
            fingerprints=[reader, *sorted(closing_turns)],
            document_hashes=[value for value in part["document_hash"].to_pylist() if value is not None],
            ended_by={(reader, key): row["line"] for key, row in outcomes.items()},
            with_tokens=False,
        ),
    )


def answer_row(
    document: PartDocument,
    question: AskedQuestion,
    outcome: OutcomeRow | None,
    *,
    sample: int,
    origin: Origin,
    closed: ClosedRow | None = None,
) -> AnswerRow:
    """The row of `answers` of a reading.

    Args:
        document: The document.
        question: The question.
        outcome: How the reading ended; None where the document can't be read, which ends it.
        sample: Which of several draws.
        origin: Who answers.
        closed: What was asked after the answer; None where nothing was.
    """
    if document["error"] is not None or outcome is None:
        result, run_id = _unreadable_result(document, origin=origin), origin.run_id
    else:
        result, run_id = outcome, outcome["run_id"]
    row: AnswerRow = {
        **result,
        "run_id": run_id,
        "document_id": document["document_id"],
        "question_id": question["question_id"],
        "sample": sample,
        "question": question["question"],
        "answer": None,
        "document_hash": document["document_hash"],
        "question_hash": question["question_hash"],
        "reader_fingerprint": origin.reader_fingerprint,
        **(closing_columns(closed) if closed else NOT_CLOSED),
        "answer_type": question.get("answer_type"),
        "value_unit": question.get("unit"),
        "votes": None,
        "num_evidence": len(closed["evidence"]) if closed and closed["evidence"] is not None else None,
    }
    return _with_answer(row, extraction=origin.extraction) if row["status"] == Status.OK else row


def _with_answer(row: AnswerRow, *, extraction: Extraction) -> AnswerRow:
    """The row with the answer that its response holds, or with why it holds none."""
    row = row.copy()
    row["answer"] = extract_answer(row["response"] or "", extraction=extraction)
    if row["answer"] is None:
        row["error_type"] = "AnswerNotFound"
        cut = "; it was cut at policy.answer_tokens" if row["finish_reason"] == FinishReason.LENGTH else ""
        row["error_message"] = f"the response holds no answer in the form {extraction.value!r}{cut}"
    return row


def closing_columns(closed: ClosedRow) -> ClosingColumns:
    """What closing turns brought, as `answers` has it."""
    return {
        "value": closed["value"],
        "value_bool": closed["value_bool"],
        "value_number": closed["value_number"],
        "value_label": closed["value_label"],
        "value_status": closed["value_status"],
        "confidence": closed["confidence"],
        "support": closed["support"],
        "support_probability": closed["support_probability"],
        "coverage": closed["coverage"],
        "closing_error": closed["closing_error"],
    }


def _unreadable_result(document: PartDocument, *, origin: Origin) -> ResultRow:
    """How the readings of a document end that never reached a reader."""
    return {
        "status": Status.FAILED,
        "response": None,
        "memory": None,
        "finish_reason": None,
        "memory_truncations": 0,
        "num_document_tokens": None,
        "num_chunks": None,
        "num_turns": 0,
        "num_replayed_turns": 0,
        "num_prompt_tokens": 0,
        "num_cached_prompt_tokens": 0,
        "num_completion_tokens": 0,
        "num_markers": None,
        "engine_seconds": 0.0,
        "started_at": None,
        "finished_at": datetime.now(UTC),
        "model": origin.model,
        "error_type": document["error_type"] or DocumentError.__name__,
        "error_message": document["error"],
    }


def _memory_rows(
    turns: Mapping[str, TurnRow],
    document: PartDocument,
    question: AskedQuestion,
    *,
    sample: int,
    projection: Projection,
) -> Iterator[MemoryRow]:
    """The audit trail of one reading: turns in the order in which its policy asked for them."""
    memory = projection.first_memory
    for number, turn in enumerate(sorted(turns.values(), key=itemgetter("turn", "finished_at", "path"))):
        after = turn_memory(turn, memory, keep_word=projection.keep_word, opens_thought=projection.opens_thought)
        memory = after.memory
        yield {
            **turn,
            "document_id": document["document_id"],
            "question_id": question["question_id"],
            "sample": sample,
            "turn": number,
            "locator": None,
            "memory": after.shown,
            "changed": after.changed,
        }

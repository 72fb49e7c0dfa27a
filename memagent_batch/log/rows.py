"""Rows of the turn log: made of what a reading brings, and checked one by one before they wait for a flush."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pyarrow as pa

from memagent_batch.domain.addresses import ReadingAddress, token_hash
from memagent_batch.domain.prompts import new_memory
from memagent_batch.domain.turns import DIRECT, Completion, FinishReason, Prompt, Writes
from memagent_batch.errors import LogRowError
from memagent_batch.log.schemas import (
    OUTCOME_LOG,
    AddressRow,
    ClosedRow,
    ClosingRow,
    OutcomeRow,
    ResultRow,
    TurnRow,
)

OWN_COLUMNS = frozenset({"run_id", "prompt_hash", *ReadingAddress.__dataclass_fields__})
"""Columns that this project alone fills; the others hold what engines and policies bring."""


def turn_row(address: ReadingAddress, prompt: Prompt, completion: Completion, *, run_id: str) -> TurnRow:
    """The row of a turn that has just ended."""
    span = prompt.span
    return {
        "run_id": run_id,
        "document_hash": address.document_hash,
        "question_hash": address.question_hash,
        "sample": address.sample,
        "reader_fingerprint": address.reader_fingerprint,
        "path": prompt.path,
        "turn": prompt.number,
        "kind": prompt.kind,
        "writes": prompt.writes,
        "chunk_index": span.index if span else None,
        "token_start": span.token_start if span else None,
        "token_end": span.token_end if span else None,
        "char_start": span.char_start if span else None,
        "char_end": span.char_end if span else None,
        "prompt_hash": token_hash(prompt.token_ids),
        "token_ids": completion.token_ids,
        "text": completion.text,
        "logprobs": completion.logprobs,
        "finish_reason": completion.finish_reason,
        "num_prompt_tokens": completion.num_prompt_tokens,
        "num_cached_prompt_tokens": completion.num_cached_prompt_tokens,
        "engine_seconds": completion.engine_seconds,
        "finished_at": datetime.now(UTC),
        "menu_logprobs": completion.menu_logprobs,
        "held_from": None,
        "num_markers": completion.num_markers,
        "num_billed_tokens": completion.num_billed_tokens,
        "memory_after": prompt.memory_after(completion) if prompt.memory_after else None,
    }


def held_row(address: ReadingAddress, prompt: Prompt, held: TurnRow, *, run_id: str) -> TurnRow:
    """The row of a turn whose completion stands in `held`, the row of an earlier version of the document.

    It names the version that was asked, however many versions have taken the turn since: no chain is followed.
    """
    empty = Completion(token_ids=[], text="", finish_reason=FinishReason(held["finish_reason"]))
    return {
        **turn_row(address, replace(prompt, memory_after=None), empty, run_id=run_id),
        "finished_at": held["finished_at"],
        "held_from": held.get("held_from") or held["document_hash"],
        "memory_after": prompt.memory_after(completion_of(held)) if prompt.memory_after else None,
    }


def completion_of(row: TurnRow) -> Completion:
    """A row of the turn log as the completion of a replayed turn."""
    return Completion(
        token_ids=row["token_ids"],
        text=row["text"],
        finish_reason=FinishReason(row["finish_reason"]),
        logprobs=row["logprobs"],
        menu_logprobs=row["menu_logprobs"],
        num_prompt_tokens=row["num_prompt_tokens"],
        num_cached_prompt_tokens=row["num_cached_prompt_tokens"],
        num_billed_tokens=row.get("num_billed_tokens"),
        engine_seconds=row["engine_seconds"],
        num_markers=row.get("num_markers"),
        replayed=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnMemory:
    """What the row of a turn says of the memory."""

    memory: str
    """The memory after the turn."""
    shown: str
    """What `memories` shows: the memory, or the note that the turn wrote."""
    changed: bool
    """Whether the turn wrote something that is not the memory before it."""


def turn_memory(row: TurnRow, before: str, *, keep_word: str, opens_thought: bool) -> TurnMemory:
    """The memory after a turn.

    Args:
        row: the turn.
        before: the memory before it.
        keep_word: what the model writes to keep the memory; empty if it always writes a new one.
        opens_thought: whether the prompt ended inside a thought.
    """
    if row["kind"] == DIRECT:
        before = ""
    if (whole := row.get("memory_after")) is not None:
        return TurnMemory(memory=whole, shown=whole, changed=whole != before)
    written = None
    if row["writes"] is not None:
        written = new_memory(row["text"], keep_word=keep_word, opens_thought=opens_thought)
    if row["writes"] == Writes.NOTE:
        return TurnMemory(memory=before, shown=written or "", changed=written is not None and written != before)
    memory = before if written is None else written
    return TurnMemory(memory=memory, shown=memory, changed=memory != before)


def outcome_row(address: ReadingAddress, result: ResultRow, *, run_id: str) -> OutcomeRow:
    """The row of a reading that has ended."""
    return {"run_id": run_id, **_address_row(address), **result}


def closing_row(address: ReadingAddress, closed: ClosedRow, *, run_id: str) -> ClosingRow:
    """The row of a reading whose closing turns have ended; its address has their fingerprint."""
    return {"run_id": run_id, **_address_row(address), **closed}


def require_outcome(address: ReadingAddress, result: ResultRow) -> None:
    """Refuses an outcome that the log can't hold.

    Raises:
        LogRowError: names the column.
    """
    require_row(outcome_row(address, result, run_id=""), schema=OUTCOME_LOG)


def require_row(row: Mapping[str, object], *, schema: pa.Schema) -> None:
    """One row that does not fit would keep all the others of its file from being written."""
    for column in schema:
        value = row.get(column.name)
        if column.name in OWN_COLUMNS:
            continue
        if value is None and not column.nullable:
            raise LogRowError(f"`{column.name}` is missing, and the turn log has no room for that")
        try:
            pa.array([value], column.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise LogRowError(f"`{column.name}` does not fit the turn log: {type(error).__name__}: {error}") from error


def _address_row(address: ReadingAddress) -> AddressRow:
    return {
        "document_hash": address.document_hash,
        "question_hash": address.question_hash,
        "sample": address.sample,
        "reader_fingerprint": address.reader_fingerprint,
    }

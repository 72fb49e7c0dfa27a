"""The turn log as tables: one row for each finished turn, one for each reading that ended, one for each closed one.

Rows are made of what a reading brings, and checked one by one before they wait for a flush.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from hashlib import sha256
from typing import Annotated, Any, NotRequired, TypedDict, cast

import pyarrow as pa

from memagent_batch.data.store.columns import TIMESTAMP, Column, arrow_schema
from memagent_batch.errors import LogRowError
from memagent_batch.loop.addresses import ReadingAddress, token_hash
from memagent_batch.loop.prompts import new_memory
from memagent_batch.types import DIRECT, Completion, FinishReason, Prompt, Writes

TEXT_HASH = Column("SHA-256 of the document's text in UTF-8, hex")
RunId = Annotated[str, Column("the run that made this row")]
DocumentHash = Annotated[str, TEXT_HASH]
QuestionHash = Annotated[str, Column("SHA-256 of the question's text in UTF-8, hex")]
SampleNumber = Annotated[
    int, pa.int32(), Column("number of the reading among those of this document and question, from 0")
]
Fingerprint = Annotated[str, Column("hash of the agent, hex")]
TurnKind = Annotated[str, Column("update, read, merge, answer, direct; after the answer value, evidence, support")]
TurnWrites = Annotated[str | None, Column("what the completion becomes: memory, note, or null for an answer")]
ChunkIndex = Annotated[int | None, pa.int32(), Column("position of the chunk shown, from 0")]
TokenStart = Annotated[int | None, Column("first token of that chunk in the document", "tokens")]
TokenEnd = Annotated[int | None, Column("token after its last one", "tokens")]
CharStart = Annotated[int | None, Column("first character of that chunk in the stored text", "code points")]
CharEnd = Annotated[int | None, Column("character after its last one", "code points")]
ENDED_STATUS = Column("ok, failed, or in `answers` not_read")
EndedStatus = Annotated[str, ENDED_STATUS]
TypedJson = Annotated[str | None, Column("the answer as a value of that type, as JSON")]
TypedStatus = Annotated[
    str | None,
    Column(
        "ok, not_stated, not_read (not found, but not everything was read and shown to the model) or invalid; null if "
        "the question has no type, or its follow-up question failed"
    ),
]


class AddressRow(TypedDict):
    """What names a reading."""

    document_hash: DocumentHash
    question_hash: QuestionHash
    sample: SampleNumber
    fingerprint: Fingerprint


class _RunRow(TypedDict):
    run_id: RunId


class LoggedTurnRow(_RunRow, AddressRow):
    """One row for each finished turn of a version of a document."""

    document_id: Annotated[
        str,
        Column("the document as which this text was read; documents of equal text are read once, as one of them"),
    ]
    path: Annotated[str, Column("name of the turn in its reading, such as update/12")]
    turn: Annotated[
        int | None,
        pa.int32(),
        Column("position of the turn in its reading, from 0, in the order in which the policy asked"),
    ]
    kind: TurnKind
    writes: TurnWrites
    chunk_index: ChunkIndex
    token_start: TokenStart
    token_end: TokenEnd
    char_start: CharStart
    char_end: CharEnd
    prompt_hash: Annotated[str, Column("hash of the prompt's token ids, by which the turn is found")]
    turn_hash: Annotated[str, Column("hash of path, prompt and completion, by which the outcome names the turn")]
    token_ids: Annotated[Sequence[int], pa.list_(pa.int32()), Column("exactly the tokens that the engine returned")]
    text: Annotated[str, Column("their text, without control tokens except for the tags of thoughts")]
    logprobs: Annotated[
        Sequence[float] | None, pa.list_(pa.float32()), Column("log-probability of each token, if asked for")
    ]
    finish_reason: Annotated[str, Column("stop, or length if the completion was cut")]
    num_prompt_tokens: Annotated[int, Column("length of the prompt", "tokens")]
    num_cached_prompt_tokens: Annotated[int, Column("of these, found in the prefix cache", "tokens")]
    engine_seconds: Annotated[float, Column("time inside the engine", "seconds")]
    finished_at: Annotated[datetime, Column("when the turn ended")]
    menu_logprobs: Annotated[
        Sequence[float] | None, Column("log-probability of each entry of the menu that a follow-up question chose from")
    ]
    is_copy: Annotated[
        bool,
        Column(
            "whether the completion is a copy of a turn with the same prompt, of another version of the document or of "
            "another document; its costs are those of that turn, and were not paid again"
        ),
    ]
    num_billed_tokens: Annotated[
        int | None,
        Column(
            "the completion by the count of an API, thoughts that it hides included; null if it gives none",
            "tokens",
        ),
    ]
    memory_after: Annotated[
        str | None,
        Column("the whole memory after the turn, of a policy whose memory is more than one completion; else null"),
    ]


class TurnRow(LoggedTurnRow):
    """A turn of the log; one that is read without its tokens has their number in place of `logprobs` and them."""

    num_tokens: NotRequired[int]


class ResultColumns(TypedDict):
    """What a reading brought and took."""

    response: Annotated[str | None, Column("text of the answer turn, without thoughts")]
    memory: Annotated[str | None, Column("memory from which the answer was given")]
    finish_reason: Annotated[str | None, Column("stop, or length if the answer was cut")]
    memory_truncations: Annotated[
        int,
        pa.int32(),
        Column("turns whose memory or note was cut at its budget", "turns"),
    ]
    num_document_tokens: Annotated[int | None, Column("length of the document", "tokens")]
    num_chunks: Annotated[int | None, pa.int32(), Column("chunks of the document", "chunks")]
    num_turns: Annotated[int, pa.int32(), Column("turns of the reading, also those that were not asked", "turns")]
    num_replayed_turns: Annotated[
        int,
        pa.int32(),
        Column("of these, taken from the turn log or from another document with the same prompt", "turns"),
    ]
    num_prompt_tokens: Annotated[int, Column("prompt tokens of all turns", "tokens")]
    num_cached_prompt_tokens: Annotated[int, Column("of these, found in the prefix cache", "tokens")]
    num_completion_tokens: Annotated[int, Column("completion tokens of all turns", "tokens")]
    engine_seconds: Annotated[float, Column("time inside the engine, summed over turns", "seconds")]
    started_at: Annotated[datetime | None, TIMESTAMP, Column("when the reading began")]
    finished_at: Annotated[datetime, Column("when it ended")]


class ProvenanceColumns(TypedDict):
    """Which model read, and what went wrong."""

    model: Annotated[str, Column("the model that read")]
    error_type: Annotated[str | None, Column("kind of error; AnswerNotFound if the response has no answer")]
    error_message: Annotated[str | None, Column("where and why, and what to do")]


class EndedTurns(TypedDict):
    """Which turns a reading had."""

    turn_hashes: Annotated[
        Sequence[str] | None,
        pa.list_(pa.string()),
        Column("`turn_hash` of each turn that the reading had, follow-up questions excluded, in the order of asking"),
    ]


class ResultRow(ResultColumns, ProvenanceColumns):
    """How a reading ended, without run, address and turns."""

    status: EndedStatus


class EndedRow(ResultRow, EndedTurns):
    """How a reading ended, without run and address."""


class _EndedRow(_RunRow, AddressRow):
    status: EndedStatus


class OutcomeRow(_EndedRow, ResultColumns, ProvenanceColumns, EndedTurns):
    """One row for each reading that ended."""


class FollowUpColumns(TypedDict):
    """What the follow-up questions of a reading bring, except for its sentences."""

    value: TypedJson
    value_bool: Annotated[bool | None, Column("the value of type bool")]
    value_number: Annotated[float | None, Column("the value of type number, in `value_unit`")]
    value_label: Annotated[str | None, Column("the value of type label")]
    value_status: TypedStatus
    confidence: Annotated[
        float | None,
        Column("probability of a value chosen from a menu, given the memory, not the document, 0 to 1"),
    ]
    support: Annotated[
        str | None,
        Column("whether the sentences support the answer: supported, partly, contradicted, or not enough"),
    ]
    support_probability: Annotated[float | None, Column("probability of `support`, 0 to 1")]
    coverage: Annotated[
        float | None,
        Column("share of the document's tokens that turns showed, 0 to 1; null without follow-up questions"),
    ]
    follow_up_error: Annotated[str | None, Column("why the value is invalid or a follow-up question failed")]


class SpanRow(TypedDict):
    """A sentence of the document, in code points."""

    char_start: int
    char_end: int
    chunk_index: Annotated[int | None, pa.int32()]


class ClosedRow(FollowUpColumns):
    """What the follow-up questions of a reading brought, without run and address."""

    evidence: Annotated[
        list[SpanRow] | None,
        Column(
            "sentences that the answer rests on, the best first, as spans of code points; null if they were not "
            "asked for, or the turn failed"
        ),
    ]
    is_failed: Annotated[bool, Column("whether a follow-up question failed; --retry-failed asks again")]
    num_turns: Annotated[int, pa.int32(), Column("follow-up questions, replayed ones included", "turns")]
    num_prompt_tokens: Annotated[int, Column("prompt tokens of these turns", "tokens")]
    num_completion_tokens: Annotated[int, Column("completion tokens of these turns", "tokens")]
    finished_at: Annotated[datetime, Column("when the last one ended")]


class _FollowUpAddress(TypedDict):
    run_id: RunId
    document_hash: DocumentHash
    question_hash: QuestionHash
    sample: SampleNumber
    fingerprint: Annotated[str, Column("hash of the reader and of what was asked after the answer, hex")]


class FollowUpRow(_FollowUpAddress, ClosedRow):
    """One row for each answered reading whose follow-up questions have ended."""


TURN_LOG = arrow_schema(LoggedTurnRow)
OUTCOME_LOG = arrow_schema(OutcomeRow)
FOLLOW_UP_LOG = arrow_schema(FollowUpRow)
RUN_ID, SAMPLE = TURN_LOG.field("run_id"), TURN_LOG.field("sample")
COMPLETION_COLUMNS = frozenset(each.name for each in fields(Completion)) - {"replayed"}
"""Columns of a turn that have its completion, by the names of its fields."""
OWN_COLUMNS = frozenset({"run_id", "document_id", "prompt_hash", "turn_hash", *ReadingAddress.__dataclass_fields__})
"""Columns that this project alone fills; the others hold what engines and policies bring."""
UNFIT = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""What Arrow raises for a value that is not of a type."""


def turn_row(
    address: ReadingAddress, prompt: Prompt, completion: Completion, *, run_id: str, document_id: str = ""
) -> TurnRow:
    """The row of a turn that has just ended, or was taken from an equal turn for this document."""
    span = prompt.span
    row = {
        "run_id": run_id,
        **asdict(address),
        "document_id": document_id,
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
        "turn_hash": hash_turn(prompt, completion),
        **{name: getattr(completion, name) for name in COMPLETION_COLUMNS},
        "finished_at": datetime.now(UTC),
        "is_copy": completion.replayed,
        "memory_after": prompt.memory_after(completion) if prompt.memory_after else None,
    }
    return cast("TurnRow", row)


def hash_turn(prompt: Prompt, completion: Completion) -> str:
    """Hash of what was asked, where in the reading, and what came; 16 hex digits.

    Attempts that wrote the same need not be told apart; those that wrote something else have another hash.
    """
    parts = (prompt.path, token_hash(prompt.token_ids), repr([*completion.token_ids]), completion.text)
    return sha256("|".join(parts).encode(errors="surrogatepass")).hexdigest()[:16]


def completion_of(row: TurnRow) -> Completion:
    """A row of the turn log as the completion of a replayed turn."""
    taken: dict[str, Any] = {name: value for name, value in row.items() if name in COMPLETION_COLUMNS}
    return Completion(**{**taken, "finish_reason": FinishReason(row["finish_reason"])}, replayed=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnMemory:
    """What the row of a turn says of the memory."""

    memory: str
    shown: str
    """What `memories` shows: the memory, or the note that the turn wrote."""
    changed: bool
    """Whether the turn wrote something that is not the memory before it."""


def turn_memory(row: TurnRow, before: str, *, keep_word: str, opens_thought: bool) -> TurnMemory:
    """The memory after a turn.

    `keep_word` is what the model writes to keep the memory; empty if it always writes a new one.
    """
    if row["kind"] == DIRECT:
        before = ""
    if (whole := row["memory_after"]) is not None:
        return TurnMemory(memory=whole, shown=whole, changed=whole != before)
    written = None
    if row["writes"] is not None:
        written = new_memory(row["text"], keep_word=keep_word, opens_thought=opens_thought)
    if row["writes"] == Writes.NOTE:
        return TurnMemory(memory=before, shown=written or "", changed=written is not None and written != before)
    memory = before if written is None else written
    return TurnMemory(memory=memory, shown=memory, changed=memory != before)


def outcome_row(address: ReadingAddress, result: EndedRow, *, run_id: str) -> OutcomeRow:
    """The row of a reading that has ended."""
    return cast("OutcomeRow", {"run_id": run_id, **asdict(address), **result})


def require_outcome(address: ReadingAddress, result: EndedRow) -> None:
    """Refuses an outcome that the log can't hold.

    Raises:
        LogRowError: names the column.
    """
    OUTCOME_CHECK.require(outcome_row(address, result, run_id=""))


class RowCheck:
    """Refuses rows that do not fit a table of the log: one would keep all the others of its file from being written."""

    def __init__(self, schema: pa.Schema) -> None:
        self._type = pa.struct(list(schema))
        self._required = [each.name for each in schema if not each.nullable and each.name not in OWN_COLUMNS]

    def require(self, row: Mapping[str, object]) -> None:
        """Checks a row.

        Raises:
            LogRowError: names the column that is missing or does not fit.
        """
        for name in self._required:
            if row.get(name) is None:
                raise LogRowError(f"`{name}` is missing, and the turn log has no room for that")
        try:
            pa.array([row], self._type)  # whole: twice as fast as column by column, and this is done at every turn
        except UNFIT as error:
            name = next((each.name for each in self._type if not _fits(row.get(each.name), each.type)), "row")
            raise LogRowError(f"`{name}` does not fit the turn log: {type(error).__name__}: {error}") from error


def _fits(value: object, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except UNFIT:
        return False
    return True


OUTCOME_CHECK = RowCheck(OUTCOME_LOG)

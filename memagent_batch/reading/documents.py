"""A tokenised document as the reader takes it out of an Arrow row, not copied, and where its chunks may close."""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from memagent_batch.config.agent import AgentConfig
from memagent_batch.documents.document_index import CARRY_PREFIX
from memagent_batch.domain.document import BreakAt, Document
from memagent_batch.domain.texts.locators import LocatedRow
from memagent_batch.domain.texts.sentences import LINE_ENDS, Sentences
from memagent_batch.errors import DocumentError, SettingsError, TextUnavailableError
from memagent_batch.plugins import policy_class, setting_names


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDocument:
    """A document with the readings to do."""

    document_id: str
    document_hash: str
    """SHA-256 of its text; empty where a row of a dataset holds none."""
    document: Document
    readings: list[tuple[int, int]]
    """Row of the question list and sample of each reading."""
    turn_files: list[str]
    num_bytes: int = 0
    """Size of its text by the plan, bytes of UTF-8; 0 for a row of a dataset, which no plan counts."""
    last_hashes: list[str] = field(default_factory=list)
    """Hashes of its last versions, the latest first, where `turn_files` hold turns of those too."""
    follow_up_readings: list[tuple[int, int]] = field(default_factory=list)
    """Readings that have been answered, but whose follow-up questions are missing."""
    ended_by: list[str] = field(default_factory=list)
    """Run and writer that ended each of these."""
    sentences: Sentences = field(default_factory=Sentences)
    carried: Mapping[str, str | None] = field(default_factory=dict)
    """Its carried columns, by their names in the index."""


def planned_documents(call: pa.Table) -> list[PlannedDocument]:
    """The documents of a one-row table of the schema `CALL`."""
    documents = pa.Table.from_struct_array(call["documents"].chunk(0).flatten())
    return [_planned_document(documents.slice(row, 1)) for row in range(documents.num_rows)]


def unreadable(error: DocumentError | TextUnavailableError) -> Document:
    """A document without a text to read."""
    return Document(token_ids=(), token_chars=(), num_chars=0, error=error)


def _planned_document(row: pa.Table) -> PlannedDocument:
    token_ids, token_chars = (row[name].chunk(0).flatten().to_numpy().data for name in ("token_ids", "token_chars"))
    starts, ends = (row[name].chunk(0).flatten().to_numpy().data for name in ("sentence_starts", "sentence_ends"))
    breaks = row["breaks"].chunk(0).flatten().to_numpy().data
    lists = ["token_ids", "token_chars", "sentence_starts", "sentence_ends", "breaks"]
    (values,) = row.drop_columns(lists).to_pylist()
    document = Document(token_ids=token_ids, token_chars=token_chars, num_chars=values["num_chars"], breaks=breaks)
    if values["error"] is not None:
        kind = TextUnavailableError if values["is_unavailable"] else DocumentError
        document = unreadable(kind(values["error"]))
    return PlannedDocument(
        document_id=values["document_id"],
        document_hash=values["document_hash"],
        document=document,
        readings=[(reading["question"], reading["sample"]) for reading in values["readings"]],
        turn_files=values["turn_files"],
        num_bytes=values["num_bytes"] or 0,
        last_hashes=values["last_hashes"],
        follow_up_readings=[(reading["question"], reading["sample"]) for reading in values["follow_ups"]],
        ended_by=values["ended_by"],
        sentences=Sentences(starts=starts, ends=ends),
        carried={name: value for name, value in values.items() if name.startswith(CARRY_PREFIX)},
    )


def break_at(agent: AgentConfig) -> BreakAt | None:
    """Where the agent's chunks close; None where their length alone decides, or its policy has no such setting."""
    has_setting = "break_at" in setting_names(policy_class(agent.policy.kind))
    return agent.policy.break_at if has_setting else None


def require_rows(agent: AgentConfig, *, order_columns: Sequence[str]) -> None:
    """Checks that documents have the rows at which chunks are to close.

    Raises:
        SettingsError: each document is one row; says what to do.
    """
    if break_at(agent) is BreakAt.ROWS and not order_columns:
        raise SettingsError(
            "policy.break_at: rows closes chunks where rows end, and here each document is one row; name "
            "input.order_columns where documents are many rows, or choose lines, or leave it out"
        )


def find_breaks(
    text: str, rows: Sequence[LocatedRow], *, token_chars: Sequence[int], at: BreakAt | None
) -> Sequence[int]:
    """The tokens with which rows or lines begin, ascending; the first of the text is none.

    What begins inside a token breaks at the next one: the border moves by that token, and no text is lost.
    """
    breaks = array("q")
    for start in _starts(text, rows, at=at):
        token = bisect_left(token_chars, start)
        if (breaks[-1] if breaks else 0) < token < len(token_chars):
            breaks.append(token)
    return breaks


def with_breaks(document: Document, text: str, *, agent: AgentConfig, rows: Sequence[LocatedRow] = ()) -> Document:
    """The document with the breaks that the agent asks for; of one row where none are given."""
    return replace(document, breaks=find_breaks(text, rows, token_chars=document.token_chars, at=break_at(agent)))


def _starts(text: str, rows: Sequence[LocatedRow], *, at: BreakAt | None) -> Iterator[int]:
    match at:
        case BreakAt.ROWS:
            yield from (row.char_start for row in rows)
        case BreakAt.LINES:
            yield from (end.end() for end in LINE_ENDS.finditer(text))

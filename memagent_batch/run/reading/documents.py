"""A tokenised document as the reader takes it out of an Arrow row, not copied, and where its chunks may close."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pyarrow as pa

from memagent_batch.config.agent import AgentConfig, BreakAt
from memagent_batch.data.documents.document_index import CARRY_PREFIX
from memagent_batch.errors import DocumentError, SettingsError
from memagent_batch.loop.texts.locators import LocatedRow
from memagent_batch.loop.texts.sentences import LINE_ENDS, Sentences, cut_place, split_sentences, splits_amount
from memagent_batch.plugins import policy_class, setting_names
from memagent_batch.types import Document


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
    """Log files that hold turns of its text, or of another version of it."""
    num_bytes: int = 0
    """Size of its text by the plan, bytes of UTF-8; 0 for a row of a dataset, which no plan counts."""
    follow_up_readings: list[tuple[int, int]] = field(default_factory=list)
    """Readings that have been answered, but whose follow-up questions are missing."""
    outcome_files: list[str] = field(default_factory=list)
    """Log files that hold the outcomes of these."""
    sentences: Sentences = field(default_factory=Sentences)
    carried: Mapping[str, object] = field(default_factory=dict)
    """Its carried columns, by their names in the index."""


def planned_documents(call: pa.Table) -> list[PlannedDocument]:
    """The documents of a one-row table of the schema `CALL`."""
    documents = pa.Table.from_struct_array(call["documents"].chunk(0).flatten())
    return [_planned_document(documents.slice(row, 1)) for row in range(documents.num_rows)]


def unreadable(error: DocumentError) -> Document:
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
        document = unreadable(DocumentError(values["error"]))
    return PlannedDocument(
        document_id=values["document_id"],
        document_hash=values["document_hash"],
        document=document,
        readings=[(reading["question"], reading["sample"]) for reading in values["readings"]],
        turn_files=values["turn_files"],
        num_bytes=values["num_bytes"] or 0,
        follow_up_readings=[(reading["question"], reading["sample"]) for reading in values["follow_ups"]],
        outcome_files=values["outcome_files"],
        sentences=Sentences(starts=starts, ends=ends),
        carried={name: value for name, value in values.items() if name.startswith(CARRY_PREFIX)},
    )


def break_at(agent: AgentConfig) -> BreakAt | None:
    """Where the agent's chunks close; None where their length alone decides, or its policy has no such setting."""
    has_setting = "break_at" in setting_names(policy_class(agent.policy.kind))
    return agent.policy.break_at if has_setting else None


def require_rows(agent: AgentConfig, *, has_rows: bool) -> None:
    """Checks that documents have the rows at which chunks are to close.

    Raises:
        SettingsError: each document is one row; says what to do.
    """
    if break_at(agent) is BreakAt.ROWS and not has_rows:
        raise SettingsError(
            "policy.break_at: rows closes chunks where rows end, and here each document is one row; name "
            "input.order_columns where documents are many rows, or choose lines, or leave it out"
        )


def find_breaks(
    text: str,
    rows: Sequence[LocatedRow],
    *,
    token_chars: Sequence[int],
    at: BreakAt | None,
    max_tokens: int,
    sentences: Sentences | None = None,
) -> Sequence[int]:
    """Finds the tokens at which chunks of a text may close, ascending, at most `max_tokens` apart.

    Args:
        text: the text.
        rows: the rows that it is made of.
        token_chars: the first character of each of its tokens.
        at: where chunks close.
        max_tokens: most tokens between two places, what a chunk adds to the one before it: rows and lines that are
            longer have places at their sentences, and sentences that are longer between words and outside of numbers.
        sentences: the sentences of the text, where they are known.
    """
    breaks = array("q")
    if at in (None, BreakAt.LENGTH):
        return breaks
    for first, last in pairwise([0, *_ascending(_starts(text, rows, at=at), token_chars), len(token_chars)]):
        if last - first > max_tokens:
            sentences = sentences or split_sentences(text)
            breaks.extend(_inner_breaks(text, sentences, first, last, token_chars=token_chars, max_tokens=max_tokens))
        breaks.append(last)
    return breaks[:-1]


def chunk_breaks(
    text: str,
    rows: Sequence[LocatedRow] = (),
    *,
    token_chars: Sequence[int],
    agent: AgentConfig,
    sentences: Sentences | None = None,
) -> Sequence[int]:
    """The tokens at which chunks of a text may close for this agent; see `find_breaks`."""
    policy = agent.policy
    has_passages = "passage_tokens" in setting_names(policy_class(policy.kind))
    num_tokens = policy.passage_tokens if has_passages else policy.chunk_tokens
    max_tokens = max(1, num_tokens - policy.overlap_tokens)
    at = break_at(agent)
    return find_breaks(text, rows, token_chars=token_chars, at=at, max_tokens=max_tokens, sentences=sentences)


def with_breaks(document: Document, text: str, *, agent: AgentConfig, rows: Sequence[LocatedRow] = ()) -> Document:
    """The document with the breaks that the agent asks for; of one row where none are given."""
    return replace(document, breaks=chunk_breaks(text, rows, token_chars=document.token_chars, agent=agent))


def _starts(text: str, rows: Sequence[LocatedRow], *, at: BreakAt | None) -> Iterator[int]:
    match at:
        case BreakAt.ROWS:
            yield from (row.char_start for row in rows)
        case BreakAt.LINES:
            yield from (end.end() for end in LINE_ENDS.finditer(text))


def _ascending(chars: Iterable[int], token_chars: Sequence[int], *, after: int = 0) -> Iterator[int]:
    """The tokens that begin at these characters, each once, between `after` and the end.

    Where a character stands inside a token, the next one is taken: the border moves by that token, and no text is lost.
    """
    for char in chars:
        token = bisect_left(token_chars, char)
        if after < token < len(token_chars):
            yield token
            after = token


def _inner_breaks(
    text: str, sentences: Sentences, first: int, last: int, *, token_chars: Sequence[int], max_tokens: int
) -> Iterator[int]:
    """Places inside a span of tokens that is too long, at most `max_tokens` apart.

    White space belongs to what follows it, since tokens begin with it: a place is where it begins.
    """
    char_end = token_chars[last] if last < len(token_chars) else len(text)
    ends = (sentences.span(index)[1] for index in sentences.within(token_chars[first], char_end)[:-1])
    whole = (end for end in ends if not splits_amount(text, end))
    for end in [*_ascending(whole, token_chars, after=first), last]:
        while end - first > max_tokens:
            limit = first + max_tokens
            place = bisect_left(
                token_chars, cut_place(text, token_chars[first], min(token_chars[limit], len(text) - 1))
            )
            first = place if first < place <= limit else limit
            yield first
        if end < last:
            yield end
        first = end

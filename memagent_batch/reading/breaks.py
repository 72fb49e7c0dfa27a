"""Where the chunks of a document may close: the tokens with which its rows or lines begin."""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace

from memagent_batch.config.agent import AgentConfig
from memagent_batch.domain.document import BreakAt, Document
from memagent_batch.domain.texts.locators import LocatedRow
from memagent_batch.domain.texts.sentences import LINE_ENDS
from memagent_batch.errors import SettingsError
from memagent_batch.plugins import knob_names, policy_class


def break_at(agent: AgentConfig) -> BreakAt | None:
    """Where the agent's chunks close; None where their length alone decides, or its policy has no such knob."""
    has_knob = "break_at" in knob_names(policy_class(agent.policy.kind))
    return agent.policy.break_at if has_knob else None


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

    Args:
        text: The text.
        rows: Its rows; none where it is one.
        token_chars: First character of each token.
        at: Where chunks close.
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
    """Characters with which rows or lines begin."""
    match at:
        case BreakAt.ROWS:
            yield from (row.char_start for row in rows)
        case BreakAt.LINES:
            yield from (end.end() for end in LINE_ENDS.finditer(text))

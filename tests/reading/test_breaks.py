from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.cli.settings import job_of
from memagent_batch.config.agent import AgentConfig
from memagent_batch.domain.document import BreakAt
from memagent_batch.domain.texts.locators import LocatedRow
from memagent_batch.errors import SettingsError
from memagent_batch.plugins import make_policy
from memagent_batch.reading.documents import break_at, find_breaks, require_rows, with_breaks
from memagent_batch.wiring import identify_reader, make_tokenizer


def agent_of(**policy: Any) -> AgentConfig:
    return job_of(documents="d", ask="q", output="o", engine="simulated", policy={"chunk_tokens": 1000, **policy}).agent


AT_LINES = agent_of(break_at="lines")


def breaks_of(text: str, *, at: BreakAt | None, rows: list[str] = ()) -> list[str]:  # type: ignore[assignment]
    """What begins at each break, of a text whose characters are its tokens."""
    located, start = [], 0
    for row in rows:
        located.append(LocatedRow(char_start=start, char_end=start + len(row), locator=""))
        start += len(row) + 1
    found = find_breaks(text, located, token_chars=array("q", range(len(text))), at=at)
    return [text[first:] for first in found]


def test_breaks_are_where_rows_or_lines_begin() -> None:
    text = "a\r\nb\n\nc d\u2028e\n"
    assert breaks_of(text, at=None) == []
    assert breaks_of(text, at=BreakAt.LINES) == ["b\n\nc d\u2028e\n", "\nc d\u2028e\n", "c d\u2028e\n", "e\n"]
    rows = ["", "a b", "", "c"]
    assert breaks_of(" ".join(rows), at=BreakAt.ROWS, rows=rows) == ["a b  c", " c", "c"]
    assert breaks_of("one row", at=BreakAt.ROWS) == []


def test_line_that_begins_inside_a_token_breaks_at_the_next_one() -> None:
    found = find_breaks("a\nb\nc", (), token_chars=[0, 1, 1, 4], at=BreakAt.LINES)
    assert list(found) == [3]


@given(text=st.text(alphabet="ab \n\r", max_size=60), chunk_tokens=st.integers(1, 20))
def test_chunks_that_close_at_lines_rejoin_to_the_text(text: str, chunk_tokens: int) -> None:
    document = with_breaks(make_tokenizer(AT_LINES).document(text), text, agent=AT_LINES)
    spans = [chunk.span for chunk in document.chunks(chunk_tokens)]
    assert "".join(text[span.char_start : span.char_end] for span in spans) == text
    assert all(span.token_end - span.token_start <= chunk_tokens for span in spans)


@pytest.mark.parametrize("kind", ["overwrite", "gated", "heads", "parallel", "truncate", "retrieve"])
def test_only_breaks_that_are_asked_for_are_part_of_the_reader(kind: str) -> None:
    plain, broken = agent_of(kind=kind), agent_of(kind=kind, break_at="rows")
    has_chunks = kind not in {"truncate", "retrieve"}
    assert "break_at" not in make_policy(plain).identity()
    assert make_policy(broken).identity().get("break_at") == ("rows" if has_chunks else None)
    assert break_at(broken) == (BreakAt.ROWS if has_chunks else None)
    same = identify_reader(plain).fingerprint == identify_reader(broken).fingerprint
    assert same is not has_chunks


def test_breaks_at_rows_are_refused_where_documents_have_none() -> None:
    with pytest.raises(SettingsError, match=r"policy.break_at: rows .* name input.order_columns"):
        require_rows(agent_of(break_at="rows"), order_columns=())
    require_rows(agent_of(break_at="rows"), order_columns=("page",))
    require_rows(agent_of(kind="truncate", break_at="rows"), order_columns=())
    require_rows(AT_LINES, order_columns=())

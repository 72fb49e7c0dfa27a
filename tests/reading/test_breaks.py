import itertools
import re
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memagent_batch.cli.settings import job_of
from memagent_batch.config.agent import AgentConfig, BreakAt
from memagent_batch.errors import SettingsError
from memagent_batch.loop.prompt_sets.built_in import DEFAULT_PROMPTS
from memagent_batch.loop.prompt_sets.files import save_prompt_set
from memagent_batch.loop.texts.locators import LocatedRow
from memagent_batch.plugins import make_policy
from memagent_batch.run.budgets import fit_budgets_to_window
from memagent_batch.run.reading.documents import break_at, find_breaks, require_rows, with_breaks
from memagent_batch.run.wiring import identify_reader, make_tokenizer


def agent_of(**policy: Any) -> AgentConfig:
    return job_of(documents="d", ask="q", output="o", engine="simulated", policy={"chunk_tokens": 1000, **policy}).agent


AT_LINES = agent_of(break_at="lines")


def breaks_of(text: str, *, at: BreakAt | None, rows: list[str] = ()) -> list[str]:  # type: ignore[assignment]
    """What begins at each break, of a text whose characters are its tokens."""
    located, start = [], 0
    for row in rows:
        located.append(LocatedRow(char_start=start, char_end=start + len(row), locator=""))
        start += len(row) + 1
    found = find_breaks(text, located, token_chars=array("q", range(len(text))), at=at, max_tokens=1000)
    return [text[first:] for first in found]


def test_breaks_are_where_rows_or_lines_begin() -> None:
    text = "a\r\nb\n\nc d\u2028e\n"
    assert breaks_of(text, at=None) == []
    assert breaks_of(text, at=BreakAt.LINES) == ["b\n\nc d\u2028e\n", "\nc d\u2028e\n", "c d\u2028e\n", "e\n"]
    rows = ["", "a b", "", "c"]
    assert breaks_of(" ".join(rows), at=BreakAt.ROWS, rows=rows) == ["a b  c", " c", "c"]
    assert breaks_of("one row", at=BreakAt.ROWS) == []


def test_line_that_begins_inside_a_token_breaks_at_the_next_one() -> None:
    found = find_breaks("a\nb\nc", (), token_chars=[0, 1, 1, 4], at=BreakAt.LINES, max_tokens=10)
    assert list(found) == [3]


@given(
    text=st.text(alphabet="ab5 .,\n\ré€\u0301\U0001f600他。", max_size=80) | st.text(max_size=60),
    chunk_tokens=st.integers(1, 20),
    at=st.sampled_from(["sentences", "lines"]),
)
def test_chunks_that_close_at_breaks_rejoin_to_the_text(text: str, chunk_tokens: int, at: str) -> None:
    agent = agent_of(break_at=at, chunk_tokens=chunk_tokens)
    document = with_breaks(make_tokenizer(agent).document(text), text, agent=agent)
    spans = [chunk.span for chunk in document.chunks(chunk_tokens)]
    assert "".join(text[span.char_start : span.char_end] for span in spans) == text
    assert all(span.token_end - span.token_start <= chunk_tokens for span in spans)


AMOUNTS = ["EUR 4,250,000", "4.250.000 €", "4 250 000 EUR", "USD 4.25 million", "12.5 %", "31. Dezember 2024", "No. 31"]
WORDS = ["the", "tenant", "pays", "rent.", "Each", "party,", "keeps", "records;", "und", "Mieter"]


@given(
    words=st.lists(st.sampled_from(WORDS) | st.sampled_from(AMOUNTS), max_size=120),
    gap=st.sampled_from([" ", "  ", "\n", "\r\n", "\t"]),
    chunk_tokens=st.integers(120, 200),
    at=st.sampled_from(["sentences", "lines"]),
)
@example(words=["the"] * 14 + ["EUR 4,250,000", "31. Dezember 2024"], gap="\t", chunk_tokens=120, at="sentences")
def test_no_number_or_word_is_cut_by_a_chunk_border(words: list[str], gap: str, chunk_tokens: int, at: str) -> None:
    agent = agent_of(break_at=at, chunk_tokens=chunk_tokens)
    text = gap.join(each for pair in zip(words, itertools.cycle(WORDS), strict=False) for each in pair)
    document = with_breaks(make_tokenizer(agent).document(text), text, agent=agent)
    borders = [chunk.span.char_end for chunk in document.chunks(chunk_tokens)][:-1]
    whole = "|".join(map(re.escape, [*AMOUNTS, *WORDS]))
    inside = [match.span() for match in re.finditer(whole, text)]
    assert not [border for border in borders for start, end in inside if start < border < end]


def test_chunk_closes_at_the_end_of_a_sentence_and_one_that_is_too_long_between_words() -> None:
    agent = agent_of(break_at="sentences", chunk_tokens=40)
    short = "It rains in May. The sun shines on the whole town. "
    text = short + "A very long sentence goes on and on without any mark " * 8
    document = with_breaks(make_tokenizer(agent).document(text), text, agent=agent)
    chunks = [text[chunk.span.char_start : chunk.span.char_end] for chunk in document.chunks(40)]
    assert chunks[0].startswith(short.rstrip())
    assert {chunk.strip().split()[-1] for chunk in chunks} <= set(text.split())


def test_page_that_is_longer_than_a_chunk_closes_at_its_sentences() -> None:
    page = "One sentence is here. Another one is there. " * 4
    rows = [
        LocatedRow(char_start=0, char_end=len(page), locator=""),
        LocatedRow(char_start=len(page), char_end=len(page) + 4, locator=""),
    ]
    text = page + "End."
    breaks = find_breaks(text, rows, token_chars=range(len(text)), at=BreakAt.ROWS, max_tokens=60)
    assert [text[place:].lstrip()[:3] for place in breaks] == ["Ano", "One"] * 3 + ["Ano", "End"]
    assert find_breaks(text, rows, token_chars=range(len(text)), at=BreakAt.ROWS, max_tokens=200) == array(
        "q", [len(page)]
    )


def test_number_at_the_end_of_a_line_stays_with_its_currency() -> None:
    text = "Price in\nEUR\n4,250,000\nper year\n250\nEUR\n"
    found = find_breaks(text, (), token_chars=range(len(text)), at=BreakAt.SENTENCES, max_tokens=20)
    assert not {text.index("\n4,250"), text.index("\nEUR\n", 20)} & set(found)


@pytest.mark.parametrize(("version", "at"), [("published", BreakAt.LENGTH), ("1", BreakAt.SENTENCES)])
def test_chunks_close_at_sentences_by_default_unless_the_prompts_are_published_ones(
    version: str, at: BreakAt, tmp_path: Path
) -> None:
    prompts = replace(DEFAULT_PROMPTS, name="mine", version=version)
    save_prompt_set(prompts, tmp_path / "mine.json")
    agent = agent_of().model_copy(update={"prompt_set": str(tmp_path / "mine.json")})
    assert break_at(fit_budgets_to_window(agent)) is at
    given = agent.model_copy(update={"policy": agent.policy.model_copy(update={"break_at": BreakAt.LINES})})
    assert break_at(fit_budgets_to_window(given)) is BreakAt.LINES
    published = fit_budgets_to_window(agent)
    assert ("break_at" in make_policy(published).identity()) == (at is BreakAt.SENTENCES)


@pytest.mark.parametrize("kind", ["overwrite", "gated", "parallel", "truncate", "retrieve"])
def test_only_breaks_that_are_asked_for_are_part_of_the_reader(kind: str) -> None:
    plain, broken = agent_of(kind=kind), agent_of(kind=kind, break_at="rows")
    assert "break_at" not in make_policy(plain).identity()
    assert make_policy(broken).identity()["break_at"] == "rows"
    assert break_at(broken) is BreakAt.ROWS
    assert identify_reader(plain).fingerprint != identify_reader(broken).fingerprint
    by_length = agent_of(kind=kind, break_at="length")
    assert identify_reader(plain).fingerprint == identify_reader(by_length).fingerprint


def test_breaks_at_rows_are_refused_where_documents_have_none() -> None:
    with pytest.raises(SettingsError, match=r"policy.break_at: rows .* name input.order_columns"):
        require_rows(agent_of(break_at="rows"), has_rows=False)
    require_rows(agent_of(break_at="rows"), has_rows=True)
    require_rows(AT_LINES, has_rows=False)

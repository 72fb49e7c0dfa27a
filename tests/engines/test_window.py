"""Prompts that a server cuts, by its own counts: whatever its tokeniser is, and only then."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from memagent_batch.loop.engines.openai.window import PromptCounts, marked_text, missing_words
from memagent_batch.types import Prompt

TEMPLATE_TOKENS = 40


@dataclass(slots=True, kw_only=True)
class Server:
    """Counts tokens of a prompt with a tokeniser of its own, of which it has `share` for each of the user's."""

    share: float
    window: int = 10**9
    cache: set[int] = field(default_factory=set)
    """First tokens of prompts that it leaves out of its counts, as it has read them before."""
    num_asked: int = 0

    def count(self, prompt: Prompt) -> int:
        whole = TEMPLATE_TOKENS + round(self.share * len(prompt.token_ids))
        return 7 if prompt.token_ids[0] in self.cache else min(whole, self.window - prompt.max_tokens)

    async def ask(self, prompt: Prompt) -> int | None:
        self.num_asked += 1
        return self.count(prompt)

    def counts(self) -> PromptCounts:
        return PromptCounts(self.ask, probe_tokens=16)


def prompt_of(num_tokens: int, *, max_tokens: int = 256) -> Prompt:
    return Prompt(path="update/0", kind="update", token_ids=range(num_tokens), max_tokens=max_tokens)


async def is_cut(server: Server, counts: PromptCounts, prompt: Prompt) -> bool:
    return await counts.is_cut(prompt, server.count(prompt))


@pytest.mark.parametrize("window", [2048, 4096, 8192])
@pytest.mark.parametrize("share", [0.35, 1.0, 1.6])
async def test_prompt_that_exceeds_a_window_by_a_tenth_is_found_with_any_tokeniser(window: int, share: float) -> None:
    server = Server(share=share, window=window)
    counts, fits = server.counts(), int((window - 256 - TEMPLATE_TOKENS) / share) - 1
    assert not await is_cut(server, counts, prompt_of(fits // 2))
    assert not await is_cut(server, counts, prompt_of(fits))
    assert await is_cut(server, counts, prompt_of(int(fits * 1.1)))
    assert await is_cut(server, counts, prompt_of(fits * 5))


async def test_prompts_of_other_languages_are_no_cuts_and_those_of_one_are_looked_at_seldom() -> None:
    server = Server(share=1.0)
    counts = server.counts()
    for share in (1.0, 0.3, 2.0, 0.31, 1.9):
        server.share = share
        for num_tokens in range(2000, 3000, 10):
            assert not await is_cut(server, counts, prompt_of(num_tokens))
    before = server.num_asked
    for _ in range(100):
        assert not await is_cut(server, counts, prompt_of(2500))
    assert server.num_asked == before


async def test_text_with_more_tokens_than_the_window_is_found_after_lighter_ones() -> None:
    server = Server(share=0.25, window=4096)
    counts = server.counts()
    assert not await is_cut(server, counts, prompt_of(12_000))
    server.share = 0.9
    assert await is_cut(server, counts, prompt_of(12_000))


async def test_counts_without_what_is_cached_are_not_trusted_and_stop_no_run() -> None:
    server = Server(share=1.0)
    counts = server.counts()
    server.cache = {0}
    assert not await is_cut(server, counts, prompt_of(4000))
    assert not counts.are_trusted


async def test_server_that_cuts_beside_one_that_does_not_is_found_each_time() -> None:
    whole, small = Server(share=1.0), Server(share=1.0, window=1000)
    asked = 0

    async def ask(prompt: Prompt) -> int:
        nonlocal asked
        asked += 1
        return (whole, small)[asked % 2].count(prompt)  # in turn

    counts = PromptCounts(ask, probe_tokens=16)
    for num_tokens in (1900, 3000, 3000):
        assert not await counts.is_cut(prompt_of(num_tokens), whole.count(prompt_of(num_tokens)))
        assert await counts.is_cut(prompt_of(num_tokens), small.count(prompt_of(num_tokens)))
    assert counts.are_trusted


async def test_reply_without_a_count_or_of_a_short_prompt_says_nothing() -> None:
    server = Server(share=1.0)
    counts = server.counts()
    assert not await counts.is_cut(prompt_of(5000), None)
    assert not await counts.is_cut(prompt_of(500), 3)
    assert server.num_asked == 0


def words(text: str) -> int:
    return len(text.split())


@pytest.mark.parametrize(
    ("keep", "missing"),
    [
        (lambda text: text, []),
        (lambda text: text[-9000:], ["marigold", "harbor"]),
        (lambda text: text[:9000], ["harbor", "violin"]),
        (lambda text: text[:9000] + text[-9000:], ["harbor"]),
    ],
)
def test_marked_text_lacks_words_wherever_it_is_cut(keep: Callable[[str], str], missing: list[str]) -> None:
    text = marked_text(("marigold", "harbor", "violin"), num_tokens=8000, count=words)
    assert 7800 < words(text) <= 8000
    assert missing_words(f"I see: {keep(text).title()}", ("marigold", "harbor", "violin")) == missing

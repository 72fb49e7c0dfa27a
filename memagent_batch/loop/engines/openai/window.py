"""Whether a server reads all of each prompt. Some cut a prompt to their own window, answer with 200, and say nothing.

Two checks, neither of which trusts a tokeniser to be the server's:

- `PromptCounts` looks at the tokens that each reply says were read. Where they are more than any prompt so far that was
  read whole, or few for the length of the prompt, both halves of the same prompt are asked for their counts: a prompt
  that was cut has fewer tokens than its halves together.
- `MARKERS` are words at both ends and in the middle of a text as long as the longest prompt of the job, which the model
  is asked for at the start. They show a server that counts what it was sent, or nothing. A model that can't repeat the
  words of a short text is not asked for those of a long one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from memagent_batch.types import Prompt

CUT_REMEDY = (
    "the server cuts prompts to its own window. Serve the model with a window of at least that length: Ollama with "
    "OLLAMA_CONTEXT_LENGTH (its /v1 passes over num_ctx), llama.cpp's server with -c (for each of its -np slots), vLLM "
    "with --max-model-len; or lower policy.chunk_tokens"
)

SMALL_TOKENS = 512
"""Shorter prompts are not checked, tokens: no server has a window so small that it would cut them."""

SHARE_KEPT = 0.97
"""Least share of the tokens of its halves that a whole prompt has: the cut between them may add some."""

USUAL_SHARE = 0.98
"""A prompt that has less than this share of the tokens that its length lets expect is looked at."""

OVERHEAD_TOKENS = 64
"""Tokens of a chat template, which both halves have, until a short prompt has shown how many there are."""

MARKERS = (("marigold", "harbor", "violin"), ("lantern", "walnut", "copper"))
"""Words that are asked for, in the order of the tries."""

MARKED_TEXT = (
    "Three code words stand in this text: at its beginning, in its middle, and at its end. Write the three code words "
    "and nothing else.\n\nThe first code word is {0}.\n{filler}The second code word is {1}.\n{filler}The third code "
    "word is {2}.\n\nWrite the three code words of this text, in their order, and nothing else."
)
FILLER = "The committee read the report on page {number}, took note of it, and went on to the next item of its list.\n"
MARKED_ANSWER_TOKENS = 128
"""Budget of the answer: room for three words and for talk around them."""
SHORT_TOKENS = 400
"""Length of the short text."""

CACHE_TRIES = 3
"""How often a server must count a prompt that it has in its cache otherwise than one that it has not."""

CountTokens = Callable[[Prompt], Awaitable[int | None]]
"""Asks for a prompt; the tokens of it that the server says to have read, or None."""


def marked_text(words: Sequence[str], *, num_tokens: int, count: Callable[[str], int]) -> str:
    """A text of up to so many tokens, as `count` counts them, with the words at both ends and in the middle."""
    empty = MARKED_TEXT.format(*words, filler="")
    line_tokens = count("".join(FILLER.format(number=number) for number in range(100, 110))) / 10
    num_lines = max(1, int((num_tokens - count(empty)) / line_tokens / 2))
    filler = "".join(FILLER.format(number=number) for number in range(100, 100 + num_lines))
    return MARKED_TEXT.format(*words, filler=filler)


def missing_words(answer: str, words: Sequence[str]) -> list[str]:
    """The words that an answer does not hold."""
    return [word for word in words if word not in answer.casefold()]


class PromptCounts:
    """Whether the counts of tokens in replies fit the prompts."""

    def __init__(self, count_tokens: CountTokens, *, probe_tokens: int) -> None:
        """`probe_tokens`: budget of a request that is made for its count alone."""
        self._count_tokens = count_tokens
        self._probe_tokens = probe_tokens
        self._overhead_tokens = OVERHEAD_TOKENS
        self._longest: dict[int, int] = {}
        """Most tokens of a prompt that was read whole, by its budget."""
        self._least_share = 1e9
        """Least tokens read for each token by the own count."""
        self._checking = asyncio.Lock()
        self.are_trusted = True
        """Whether the counts follow the prompts; some servers leave out what they have in a cache."""

    def note_overhead(self, num_read: int | None) -> None:
        """Takes the count of a prompt of a few words."""
        self._overhead_tokens = num_read or self._overhead_tokens

    async def is_cut(self, prompt: Prompt, num_read: int | None) -> bool:
        """Whether the server has read a part of a prompt alone, by its own count."""
        if num_read is None or not self._is_unusual(prompt, num_read):
            return False
        async with self._checking:
            if not self._is_unusual(prompt, num_read):
                return False
            least = await self._least_tokens(prompt)
            if least is None or num_read >= least:
                self._longest[prompt.max_tokens] = max(num_read, self._longest.get(prompt.max_tokens, 0))
                self._least_share = min(self._least_share, num_read / len(prompt.token_ids))
                return False
            if not await self._leaves_out_cached(prompt, least):
                return True
            self.are_trusted = False
            return False

    def _is_unusual(self, prompt: Prompt, num_read: int) -> bool:
        if not self.are_trusted or len(prompt.token_ids) <= SMALL_TOKENS:
            return False
        is_longest = num_read > self._longest.get(prompt.max_tokens, 0)
        return is_longest or num_read < USUAL_SHARE * self._least_share * len(prompt.token_ids)

    async def _leaves_out_cached(self, prompt: Prompt, least: float) -> bool:
        """Whether the server counts no tokens that it has in a cache: the same prompt gets few, another beginning all.

        One of several servers that cuts prompts would not tell these apart each time.
        """
        for number in range(1, CACHE_TRIES + 1):
            uncached = replace(prompt, token_ids=prompt.token_ids[number:])  # no prefix cache holds its beginning
            counts = await self._count_tokens(uncached), await self._count_tokens(prompt)
            if counts[0] is None or counts[1] is None or counts[0] < least or counts[1] >= least:
                return False
        return True

    async def _least_tokens(self, prompt: Prompt) -> float | None:
        """Tokens that a prompt must have by the counts of its halves; None if there are none."""
        middle = len(prompt.token_ids) // 2
        halves = [prompt.token_ids[:middle], prompt.token_ids[middle:]]
        counts = [
            await self._count_tokens(replace(prompt, token_ids=half, max_tokens=self._probe_tokens, guide=None))
            for half in halves
        ]
        if None in counts:
            return None
        return SHARE_KEPT * (sum(filter(None, counts)) - self._overhead_tokens)

"""Documents of a length in tokens: units counted once each, put together by sums, corrected by a final measure."""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil

from memagent_batch.errors import SettingsError
from memagent_batch.tokens.tokenizer import Tokenizer

SHORTEST_TOKENS = 512
"""Shortest document of a suite, tokens: below it the needles themselves are most of the text."""

TOLERANCE = 0.02
"""Largest distance of a document's length from the one asked for, as a part of it."""

MOST_HIDDEN = 0.8
"""Largest part of a document that may be what is hidden in it, and not haystack."""

_GOOD = TOLERANCE / 2
"""Distance at which a document is not corrected further."""

_ROUNDS = 8
"""Corrections of one document; a tokeniser that is not at odds with sums needs one or two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A document on its way to its length."""

    text: str
    """The document."""
    starts: tuple[int, ...] = ()
    """First character of each thing hidden in it, in the order in which they were given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A document of the length that was asked for."""

    draft: Draft
    """The document."""
    num_tokens: int
    """Its length, measured, tokens."""


class TokenMeter:
    """Counts tokens as the main job's reader does."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Counts with this tokeniser."""
        self._tokenizer = tokenizer
        self._counts: dict[str, int] = {}

    def count(self, text: str) -> int:
        """Tokens of a text of any length."""
        return len(self._tokenizer.encode_document(text).token_ids)

    def count_once(self, text: str) -> int:
        """Tokens of a text that comes again: a sentence of an essay, a paragraph of a corpus. Keeps the count."""
        count = self._counts.get(text)
        if count is None:
            count = self._counts[text] = self.count(text)
        return count

    def cut(self, text: str, num_tokens: int) -> str:
        """The first tokens of a text."""
        starts = self._tokenizer.encode_document(text).token_chars
        return text if num_tokens >= len(starts) else text[: int(starts[num_tokens])]


class Stock:
    """Units with the sums of their tokens, drawn from a source as far as needed and kept for another round."""

    def __init__(self, units: Iterator[str], *, count: Callable[[str], int]) -> None:
        """Draws from `units`; `count` gives the tokens of a unit."""
        self._source = units
        self._count = count
        self._units: list[str] = []
        self._sums = [0]

    def take(self, num_tokens: int) -> tuple[list[str], int]:
        """The first units with at least so many tokens together, all where the source ends; and their tokens."""
        while self._sums[-1] < num_tokens:
            unit = next(self._source, None)
            if unit is None:
                break
            self._units.append(unit)
            self._sums.append(self._sums[-1] + self._count(unit))
        num_units = min(bisect_left(self._sums, num_tokens), len(self._units))
        return self._units[:num_units], self._sums[num_units]


def fit(build: Callable[[int], Draft], *, length_tokens: int, meter: TokenMeter, task: str) -> Fitted:
    """The document that `build` makes for a budget of tokens, the budget corrected until the measure is right.

    Args:
        build: makes a document of about so many tokens; the same for the same number.
        length_tokens: length asked for, tokens.
        meter: measures the whole.
        task: the task's name, for messages.

    Raises:
        SettingsError: no budget leads to within `TOLERANCE` of the length.
    """
    budget = length_tokens
    best: Fitted | None = None
    for _ in range(_ROUNDS):
        draft = build(budget)
        made = Fitted(draft=draft, num_tokens=meter.count(draft.text))
        excess = made.num_tokens - length_tokens
        if best is None or abs(excess) < abs(best.num_tokens - length_tokens):
            best = made
        if abs(excess) <= _GOOD * length_tokens:
            break
        budget -= excess
    if best is None or abs(best.num_tokens - length_tokens) > TOLERANCE * length_tokens:
        raise SettingsError(
            f"--lengths: {task} at {length_tokens} tokens comes no nearer than "
            f"{best.num_tokens if best else 0} tokens; ask for a greater length"
        )
    return best


def too_short(task: str, *, length_tokens: int, needed_tokens: int) -> SettingsError:
    """The error for a length in which the needles of a task find no room."""
    return SettingsError(
        f"--lengths: {length_tokens} tokens are too few for {task}, which hides {needed_tokens} tokens; "
        f"ask for {ceil(needed_tokens / MOST_HIDDEN)} or more, or leave out the task"
    )

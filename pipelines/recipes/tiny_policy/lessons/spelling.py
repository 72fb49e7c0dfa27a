"""Where the tokens of a prompt stand in its text."""

from collections.abc import Sequence
from itertools import accumulate

from memagent_batch.engines.tokenizer import Tokenizer


def spelled(tokens: Sequence[int], tokenizer: Tokenizer) -> tuple[str, list[int]]:
    """The text of tokens, each decoded alone, and the character behind the last one of each."""
    pieces = [tokenizer.decode([token]) for token in tokens]
    return "".join(pieces), list(accumulate(map(len, pieces)))

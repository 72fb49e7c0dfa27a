"""Conversations out of the rollouts table as padded arrays, as many together as a number of tokens allows."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor

Array = npt.NDArray[Any]

PAD = 0
"""Token id behind the end of a row; nothing before it sees it."""

COLUMNS = ("prompt_token_ids", "response_token_ids", "response_logprobs", "response_mask", "advantage")
"""What of the table is learnt from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One turn of a sample."""

    prompt: Array
    """Token ids; shape [num_prompt_tokens]."""
    response: Array
    """Token ids; shape [num_response_tokens], at least one."""
    logprobs: Array
    """Log-probability of each token of the response when it was drawn, nats; shape [num_response_tokens]."""
    mask: Array
    """1 where a token of the response is learnt from; shape [num_response_tokens]."""
    advantage: float
    """Advantage of its sample."""

    @property
    def num_tokens(self) -> int:
        """Tokens that the network sees: the last one of the response is only predicted."""
        return len(self.prompt) + len(self.response) - 1

    @property
    def num_learnt_tokens(self) -> int:
        """Tokens of the response that are learnt from."""
        return int(self.mask.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Conversations as arrays. `length` is that of the longest, `width` that of the longest response."""

    tokens: Tensor
    """Token ids, padded on the right; shape [batch, length]."""
    places: Tensor
    """Position before each token of the response; shape [batch, width]."""
    responses: Tensor
    """Token ids; shape [batch, width]."""
    logprobs: Tensor
    """Log-probabilities when drawn, nats; float32, shape [batch, width]."""
    mask: Tensor
    """True where a token is learnt from; shape [batch, width]."""
    advantages: Tensor
    """Float64, shape [batch, 1]."""

    def to(self, device: torch.device) -> "Batch":
        """The same on a device."""
        names = ("tokens", "places", "responses", "logprobs", "mask", "advantages")
        return Batch(**{name: getattr(self, name).to(device) for name in names})


def conversations(rows: pa.Table) -> list[Conversation]:
    """The rows of a rollouts table that are learnt from: those with an advantage, a response and a token unmasked."""
    rows = rows.select(COLUMNS).combine_chunks()
    prompts, responses, logprobs, masks = (_arrays(rows[name]) for name in COLUMNS[:4])
    found = []
    for place, advantage in enumerate(rows["advantage"].to_pylist()):
        if advantage is not None and masks[place].any():
            found.append(
                Conversation(
                    prompt=prompts[place],
                    response=responses[place],
                    logprobs=logprobs[place],
                    mask=masks[place],
                    advantage=advantage,
                )
            )
    return found


def batches(items: Sequence[Conversation], *, batch_tokens: int) -> Iterator[Batch]:
    """All conversations in batches of like length, of at most `batch_tokens` tokens with padding, or of one.

    Longest first, so that what does not fit into memory fails at once.
    """
    ordered = sorted(items, key=lambda item: item.num_tokens, reverse=True)
    start = 0
    while start < len(ordered):
        size = max(batch_tokens // ordered[start].num_tokens, 1)
        yield to_batch(ordered[start : start + size])
        start += size


def to_batch(items: Sequence[Conversation]) -> Batch:
    """Pads conversations into arrays."""
    size, width = len(items), max(len(item.response) for item in items)
    tokens = np.full((size, max(item.num_tokens for item in items)), PAD, np.int64)
    places = np.zeros((size, width), np.int64)
    responses = np.zeros((size, width), np.int64)
    logprobs = np.zeros((size, width), np.float32)
    mask = np.zeros((size, width), np.bool_)
    for row, item in enumerate(items):
        first, num_responses = len(item.prompt) - 1, len(item.response)
        tokens[row, : item.num_tokens] = np.concatenate([item.prompt, item.response[:-1]])
        places[row] = np.minimum(first + np.arange(width), first + num_responses - 1)
        responses[row, :num_responses] = item.response
        logprobs[row, :num_responses] = item.logprobs
        mask[row, :num_responses] = item.mask
    return Batch(
        tokens=torch.from_numpy(tokens),
        places=torch.from_numpy(places),
        responses=torch.from_numpy(responses),
        logprobs=torch.from_numpy(logprobs),
        mask=torch.from_numpy(mask),
        advantages=torch.tensor([[item.advantage] for item in items], dtype=torch.float64),
    )


def _arrays(column: pa.ChunkedArray) -> list[Array]:
    """The lists of a column, each a view of its values; an empty one where there is none."""
    lists = column.combine_chunks()
    lists = lists.chunk(0) if isinstance(lists, pa.ChunkedArray) and lists.num_chunks else lists
    if not len(lists):
        return []
    offsets = lists.offsets.to_numpy()
    values = lists.values.to_numpy(zero_copy_only=False)
    return [values[start:stop] for start, stop in itertools.pairwise(offsets)]

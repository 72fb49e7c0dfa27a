"""Conversations out of the rollouts table as padded arrays, as many together as a number of tokens allows.

Samples of a question often write the same to the same prompt, and their prompts begin alike. The network sees such a
text once, and a start that texts share as well; each of them counts.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from memagent_batch.errors import InputError
from memagent_batch.training.learner.trees import Sample, Tree, packed, tree_of

Array = npt.NDArray[Any]
TREE_TEXTS = 2
"""A tree has at most the length of so many texts: each of its tokens meets all of its row, hidden or not."""
LEARNT_COLUMNS = ("prompt_token_ids", "response_token_ids", "response_logprobs", "response_mask", "advantage")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One turn of a sample."""

    prompt: Array
    """Token ids; shape [num_prompt_tokens]."""
    response: Array
    """Token ids; shape [num_response_tokens], at least one."""
    logprobs: Array
    """Log-probability of each token of the response when it was drawn, nats; shape [num_response_tokens].

    NaN for a token that no network drew: it counts as drawn by the one that learns from it. With an advantage of 1,
    its gradient is that of supervised fine-tuning."""
    mask: Array
    """1 where a token of the response is learnt from; shape [num_response_tokens]."""
    advantage: float

    @property
    def num_tokens(self) -> int:
        """Tokens that the network sees: the last one of the response is only predicted."""
        return len(self.prompt) + len(self.response) - 1

    @property
    def num_learnt_tokens(self) -> int:
        """Tokens of the response that are learnt from."""
        return int(self.mask.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationBatch:
    """Conversations as arrays. Their distinct prompts with responses are the texts; `length` is that of the longest
    row, `width` that of the longest response, `num_targets` counts the tokens of the responses of all texts.
    """

    tokens: Tensor
    """Token ids, a text or a tree of texts in each row; shape [rows, length]."""
    positions: Tensor
    """Place of each token in its text; shape [rows, length]."""
    ends: Tensor | None
    """The place after the last token of the row that sees each; shape [rows, length]. None if a row is one text."""
    sources: Tensor
    """The token from which each target is predicted, counted over all rows; shape [num_targets]."""
    targets: Tensor
    """Token ids; shape [num_targets]."""
    places: Tensor
    """Which target each token of a response is; shape [batch, width]."""
    logprobs: Tensor
    """Log-probabilities when drawn, nats, NaN where a token was not drawn; float32, shape [batch, width]."""
    mask: Tensor
    """True where a token is learnt from; shape [batch, width]."""
    advantages: Tensor
    """Float64, shape [batch, 1]."""

    def to(self, device: torch.device) -> "ConversationBatch":
        """The same on a device."""
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        return ConversationBatch(**{name: None if each is None else each.to(device) for name, each in arrays.items()})

    @property
    def sees(self) -> Tensor | None:
        """Whether the token of a row sees that of a column; shape [rows, 1, length, length]. None: all before it."""
        if self.ends is None:
            return None
        places = torch.arange(self.ends.shape[1], device=self.ends.device)
        return (places <= places[:, None]) & (places[:, None] < self.ends[:, None, None])


def conversations(rows: pa.Table) -> list[Conversation]:
    """The rows of a rollouts table that are learnt from: those with an advantage, a response and a token unmasked.

    Raises:
        InputError: a log-probability is not a number.
    """
    rows = rows.select(LEARNT_COLUMNS)
    prompts, responses, logprobs, masks = (_list_arrays(rows[name]) for name in LEARNT_COLUMNS[:4])
    found = []
    for place, advantage in enumerate(rows["advantage"].to_pylist()):
        if advantage is not None and masks[place].any():
            if np.isnan(logprobs[place]).any():
                raise InputError("rollouts: a log-probability is not a number; collect again with another engine")
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


def batches(items: Iterable[Conversation], *, batch_tokens: int, in_trees: bool = False) -> Iterator[ConversationBatch]:
    """All conversations in batches of like length, of at most `batch_tokens` tokens with padding, or of one row.

    Longest first, so that what does not fit into memory fails at once. `in_trees` puts texts that begin alike into one
    row; the network must take a mask of any form.
    """
    texts: dict[Sample, list[Conversation]] = {}
    for item in items:
        sample = Sample(prompt=tuple(item.prompt.tolist()), response=tuple(item.response.tolist()))
        texts.setdefault(sample, []).append(item)
    longest = max(len(sample.prompt) + len(sample.response) for sample in texts)
    packs = (
        packed(texts, max_tokens=min(batch_tokens, TREE_TEXTS * longest)) if in_trees else [[text] for text in texts]
    )
    trees = sorted(map(tree_of, packs), key=lambda tree: len(tree.token_ids), reverse=True)
    start = 0
    while start < len(trees):
        size = max(batch_tokens // len(trees[start].token_ids), 1)
        yield _batch_of(trees[start : start + size], texts=texts)
        start += size


def _batch_of(trees: Sequence[Tree], *, texts: Mapping[Sample, Sequence[Conversation]]) -> ConversationBatch:
    length = max(len(tree.token_ids) for tree in trees)
    rows = np.zeros((3, len(trees), length), np.int64)
    rows[2] = np.arange(1, length + 1)  # what is filled in sees itself: one that sees nothing gives NaN
    for row, tree in enumerate(trees):
        rows[:, row, : len(tree.token_ids)] = tree.token_ids, tree.positions, tree.ends
    tokens, positions, ends = torch.from_numpy(rows)
    items: list[Conversation] = []
    places, num_targets = [], 0
    for sample in (sample for tree in trees for sample in tree.samples):
        items += texts[sample]
        places += [np.arange(num_targets, num_targets + len(sample.response))] * len(texts[sample])
        num_targets += len(sample.response)
    return ConversationBatch(
        tokens=tokens,
        positions=positions,
        ends=ends if any(len(tree.samples) > 1 for tree in trees) else None,
        sources=torch.from_numpy(np.concatenate([row * length + tree.sources for row, tree in enumerate(trees)])),
        targets=torch.from_numpy(np.concatenate([tree.targets for tree in trees])),
        places=_padded(places),
        logprobs=_padded((item.logprobs for item in items), dtype=torch.float32),
        mask=_padded((item.mask for item in items), dtype=torch.bool),
        advantages=torch.tensor([[item.advantage] for item in items], dtype=torch.float64),
    )


def _padded(rows: Iterable[Array], *, dtype: torch.dtype = torch.int64) -> Tensor:
    return pad_sequence([torch.tensor(row, dtype=dtype) for row in rows], batch_first=True)


def _list_arrays(column: pa.ChunkedArray) -> list[Array]:
    empty: Array = np.empty(0)
    return [cell.values.to_numpy(zero_copy_only=False) if cell.is_valid else empty for cell in column]

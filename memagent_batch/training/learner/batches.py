"""Conversations out of the rollouts table as padded arrays, as many together as a number of tokens allows.

Samples of a question often write the same to the same prompt. The network sees such a text once; each of them counts.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from memagent_batch.errors import InputError

Array = npt.NDArray[Any]
PAD = 0
"""What stands behind the end of a row; nothing before it sees it."""
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
    """Conversations as arrays. `texts` are their distinct prompts with responses, `length` is that of the longest,
    `width` that of the longest response.
    """

    tokens: Tensor
    """Token ids, padded on the right; shape [texts, length]."""
    places: Tensor
    """Position before each token of the response; shape [texts, width]."""
    responses: Tensor
    """Token ids; shape [texts, width]."""
    text: Tensor
    """Which text each conversation is; shape [batch]."""
    logprobs: Tensor
    """Log-probabilities when drawn, nats, NaN where a token was not drawn; float32, shape [batch, width]."""
    mask: Tensor
    """True where a token is learnt from; shape [batch, width]."""
    advantages: Tensor
    """Float64, shape [batch, 1]."""

    def to(self, device: torch.device) -> "ConversationBatch":
        """The same on a device."""
        return ConversationBatch(**{field.name: getattr(self, field.name).to(device) for field in fields(self)})


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


def batches(items: Sequence[Conversation], *, batch_tokens: int) -> Iterator[ConversationBatch]:
    """All conversations in batches of like length, of at most `batch_tokens` tokens with padding, or of one text.

    Longest first, so that what does not fit into memory fails at once.
    """
    texts = sorted(_by_text(items), key=lambda same: same[0].num_tokens, reverse=True)
    start = 0
    while start < len(texts):
        size = max(batch_tokens // texts[start][0].num_tokens, 1)
        yield to_batch([item for same in texts[start : start + size] for item in same])
        start += size


def to_batch(items: Sequence[Conversation]) -> ConversationBatch:
    """Pads conversations into arrays."""
    texts = _by_text(items)
    number = {id(item): row for row, same in enumerate(texts) for item in same}
    firsts = [same[0] for same in texts]
    places = [len(item.prompt) - 1 + np.arange(len(item.response)) for item in firsts]
    return ConversationBatch(
        tokens=_padded(np.concatenate([item.prompt, item.response[:-1]]) for item in firsts),
        places=_padded(places),
        responses=_padded(item.response for item in firsts),
        text=torch.tensor([number[id(item)] for item in items]),
        logprobs=_padded((item.logprobs for item in items), dtype=torch.float32),
        mask=_padded((item.mask for item in items), dtype=torch.bool),
        advantages=torch.tensor([[item.advantage] for item in items], dtype=torch.float64),
    )


def _padded(rows: Iterable[Array], *, dtype: torch.dtype = torch.int64) -> Tensor:
    return pad_sequence([torch.tensor(row, dtype=dtype) for row in rows], batch_first=True, padding_value=PAD)


def _by_text(items: Sequence[Conversation]) -> list[list[Conversation]]:
    """The conversations, those of the same prompt and response together, in the order of the first of each."""
    texts: dict[tuple[bytes, bytes], list[Conversation]] = {}
    for item in items:
        texts.setdefault((item.prompt.tobytes(), item.response.tobytes()), []).append(item)
    return list(texts.values())


def _list_arrays(column: pa.ChunkedArray) -> list[Array]:
    empty: Array = np.empty(0)
    return [cell.values.to_numpy(zero_copy_only=False) if cell.is_valid else empty for cell in column]

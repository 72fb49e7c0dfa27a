"""The objective of Multi-Conv DAPO (MemAgent, arXiv 2507.02259), summed over tokens of any number of conversations.

With r the ratio of a token's probability now to that when it was drawn, A its sample's advantage, and p_ref its
probability under a frozen reference, over the T tokens of a step that are learnt from:

    L = 1/T sum( -g + w min(p_ref/p - log(p_ref/p) - 1, limit) )
    g = min(r A, clip(r, 1 - low, 1 + high) A), and at least c A where A is negative (dual clip)

The sums are taken here; the learner divides by T, which all parts of a step share.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from memagent_batch.config.training import LearnerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSums:
    """Sums over the tokens that are learnt from; scalars. All but `loss` are figures without a gradient."""

    loss: Tensor
    kl: Tensor
    """Its estimate of the divergence from the reference, nats; 0 without one."""
    clipped: Tensor
    """Tokens whose ratio is clipped, on either side or by the dual clip: they have no gradient."""
    ratio: Tensor
    """Ratios of probabilities, now to when drawn."""
    nll: Tensor
    """Minus the log-probabilities now, nats."""
    max_logprob_change: Tensor
    """Largest distance of two log-probabilities, now and when drawn, nats: not a sum."""


def token_sums(
    logprobs: Tensor,
    *,
    drawn_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    reference_logprobs: Tensor | None,
    settings: LearnerConfig,
) -> TokenSums:
    """The objective over a batch of conversations.

    Args:
        logprobs: log-probabilities of the drawn tokens now, nats; shape [batch, length].
        drawn_logprobs: the same when they were drawn; NaN for those that were not drawn.
        advantages: of each token's sample.
        mask: true where a token is learnt from; what stands elsewhere counts for nothing.
        reference_logprobs: log-probabilities under the reference; without them there is no such term.
        settings: clipping, and the weight of the divergence.
    """
    drawn_logprobs = torch.where(drawn_logprobs.isnan(), logprobs.detach(), drawn_logprobs)
    change = (logprobs - drawn_logprobs).masked_fill(~mask, 0.0)
    ratio = change.exp()
    free = ratio * advantages
    clipped = ratio.clamp(1.0 - settings.clip_low, 1.0 + settings.clip_high) * advantages
    gain = torch.minimum(free, clipped)
    if settings.dual_clip is not None:
        gain = torch.where(advantages < 0, torch.maximum(gain, settings.dual_clip * advantages), gain)
    loss = -gain.masked_fill(~mask, 0.0).sum()
    kl = logprobs.new_zeros(())
    if reference_logprobs is not None:
        gap = (reference_logprobs - logprobs).masked_fill(~mask, 0.0)
        estimates = gap.exp() - gap - 1.0
        kl = (estimates if settings.kl_limit is None else estimates.clamp(max=settings.kl_limit)).sum()
    return TokenSums(
        loss=loss + settings.kl_weight * kl,
        kl=kl.detach(),
        clipped=((gain != free) & mask).sum(),
        ratio=ratio.detach().masked_fill(~mask, 0.0).sum(),
        nll=-logprobs.detach().masked_fill(~mask, 0.0).sum(),
        max_logprob_change=change.detach().abs().max(),
    )

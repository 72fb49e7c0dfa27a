"""The training loop: phases by the clock, gradients shared by processes, and an average of the weights."""

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as distributed
import torch.nn.functional as functional

from pipelines.recipes.tiny_policy.examples import IGNORED, PaddedExamples
from pipelines.recipes.tiny_policy.network import logits_at
from pipelines.recipes.tiny_policy.optimiser import Optimiser, average_into

SMOOTHING = 0.97
"""Weight of the past in the running loss."""

AVERAGE_DECAY = 0.995
"""Weight of the past in the average of the weights, which is what is shipped."""

RISE_STEPS = 40
"""Steps in which the learning rate rises at the start of a phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One stretch of training."""

    name: str
    """Name in the log."""
    steps: Iterator[Sequence[PaddedExamples]]
    """Batches of each step; their gradients are added up; endless."""
    seconds: float
    """Longest wall clock."""
    first_rate: float
    """Learning rate after the rise."""
    last_rate: float
    """Learning rate at the end; in between it falls as a cosine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a phase stands."""

    phase: str
    """Name of the phase."""
    step: int
    """Steps done in it."""
    seconds: float
    """Wall clock since it began."""
    loss: float
    """Running loss, in nats for each target token, weighted."""
    exact: dict[str, float]
    """Running share of examples whose every token greedy decoding would get right, by kind."""
    num_tokens: int
    """Tokens seen in the phase by all processes, padding included."""


class Trainer:
    """A network, its optimiser, and the average of its weights."""

    def __init__(self, network: Any, *, num_processes: int = 1, dtype: torch.dtype = torch.bfloat16) -> None:
        """Takes the network to train, and the number format of its products.

        With more processes, `torch.distributed` must be up.
        """
        self.network = network
        self._dtype = dtype
        self._exact: dict[str, float] = {}
        self.averaged = copy.deepcopy(network)
        self._optimiser = Optimiser(network)
        self._num_processes = num_processes

    def run(self, phase: Phase, report: Callable[[Progress], None]) -> None:
        """Trains through a phase; `report` is called after each step, in every process."""
        start = time.monotonic()
        loss = math.nan
        num_tokens = 0
        for step, step_batches in enumerate(phase.steps):
            seconds = time.monotonic() - start
            new_loss, batch_tokens, ended = self._step(step_batches, phase, step=step, seconds=seconds)
            loss = _smoothed(loss, new_loss)
            num_tokens += batch_tokens
            report(
                Progress(
                    phase=phase.name,
                    step=step,
                    seconds=seconds,
                    loss=loss,
                    exact=dict(self._exact),
                    num_tokens=num_tokens,
                )
            )
            if ended:
                return

    def _step(
        self, batches: Sequence[PaddedExamples], phase: Phase, *, step: int, seconds: float
    ) -> tuple[float, int, bool]:
        weight = sum(float(batch.weights.sum()) for batch in batches)
        loss = 0.0
        for batch in batches:
            logits = logits_at(self.network, batch, dtype=self._dtype)
            wanted = batch.targets.flatten()
            losses = functional.cross_entropy(logits.flatten(0, 1), wanted, ignore_index=IGNORED, reduction="none")
            part = (losses * batch.weights.flatten()).sum() / weight
            part.backward()
            loss += part.item()
            for kind, is_exact in zip(batch.kinds, exact_branches(logits, batch).tolist(), strict=True):
                self._exact[kind] = _smoothed(self._exact.get(kind, math.nan), float(is_exact))
        num_tokens = sum(batch.num_tokens for batch in batches)
        sums = torch.tensor([loss, num_tokens, min(seconds / phase.seconds, 1.0)])
        self._share(sums)
        means = (sums / self._num_processes).tolist()
        self._optimiser.step(learning_rate=_learning_rate(phase, step=step, part=means[2]))
        decay = min(AVERAGE_DECAY, (step + 1) / (step + 10))
        average_into(self.averaged.parameters(), self.network.parameters(), decay=decay)
        return means[0], int(sums[1]), means[2] >= 1.0

    def _share(self, sums: torch.Tensor) -> None:
        """Averages gradients over the processes, and adds up the figures of a step, in one message."""
        if self._num_processes == 1:
            return
        gradients = [weight.grad for weight in self.network.parameters()]
        flat = torch.cat([*(gradient.flatten() for gradient in gradients), sums])
        distributed.all_reduce(flat)
        start = 0
        for gradient in gradients:
            gradient.copy_(flat[start : start + gradient.numel()].view_as(gradient) / self._num_processes)
            start += gradient.numel()
        sums.copy_(flat[start:])


def exact_branches(logits: torch.Tensor, batch: PaddedExamples) -> torch.Tensor:
    """Whether greedy decoding would write each branch's target, token for token; booleans by branch."""
    is_wrong = (logits.argmax(-1) != batch.targets) & batch.written
    owners = batch.owners.gather(1, batch.places)[is_wrong]
    return torch.bincount(owners, minlength=len(batch.kinds)) == 0


def _smoothed(past: float, new: float) -> float:
    return new if math.isnan(past) else SMOOTHING * past + (1.0 - SMOOTHING) * new


def _learning_rate(phase: Phase, *, step: int, part: float) -> float:
    falling = phase.last_rate + (phase.first_rate - phase.last_rate) * 0.5 * (1.0 + math.cos(math.pi * part))
    return falling * min(1.0, (step + 1) / RISE_STEPS)

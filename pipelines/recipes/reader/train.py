"""Trains the adapter on files of samples, on CPU or a GPU; goes on where it was stopped. See README.md."""

import argparse
import json
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from safetensors.torch import load_file
from torch.utils.data import DataLoader, Dataset

from memagent_batch.models.adapter import ADAPTER_WEIGHTS
from memagent_batch.training.learner.trees import Sample, Tree, packed, tree_of
from pipelines.recipes.reader.model import Reader, save_adapter

WARM_UP_STEPS, LAST_RATE = 20, 0.05
"""Steps until the highest learning rate is reached; the share of it at the end."""
SAVE_SECONDS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The size of a step, for a device."""

    rate: float
    """The highest learning rate."""
    tokens: int
    tree_tokens: int
    """Tokens of one tree, at most: 1,600 hold some 3 GiB."""
    groups: int
    """Groups of samples whose trees are packed together."""
    trees: int
    """Trees that are computed together."""
    workers: int
    """Processes that make trees; 0: the one that trains."""


STEPS = {
    "cpu": Steps(rate=4e-4, tokens=2700, tree_tokens=1600, groups=1, trees=1, workers=0),
    "cuda": Steps(rate=1e-3, tokens=20_000, tree_tokens=1600, groups=18, trees=20, workers=12),
}


class Groups(Dataset[list[Tree]]):  # type: ignore[misc]
    """Runs of groups as trees; after the last the first again.

    Args:
        lines: groups as JSON.
    """

    def __init__(self, lines: Sequence[str], steps: Steps) -> None:
        self._lines, self._steps = lines, steps

    def __getitem__(self, number: int) -> list[Tree]:
        """The trees of a run."""
        first = number * self._steps.groups
        turns = [
            turn
            for at in range(first, first + self._steps.groups)
            for turn in json.loads(self._lines[at % len(self._lines)])["turns"]
        ]
        samples = [Sample(prompt=turn["prompt"], response=turn["completion"]) for turn in turns]
        return [tree_of(pack) for pack in packed(samples, max_tokens=self._steps.tree_tokens)]


class Trainer:
    """One run: its folder holds `data/*.jsonl`, and gets `state.pt`, `log.jsonl`, `adapter/`."""

    def __init__(
        self,
        folder: Path,
        model: str,
        *,
        all_tokens: int,
        device: str = "cpu",
        adapter: Path | None = None,
        rate: float | None = None,
    ) -> None:
        """Takes up the run where it was saved last, or begins it with the weights of an adapter."""
        self._folder, self._all_tokens, self._steps = folder, all_tokens, STEPS[device]
        if rate is not None:
            self._steps = replace(self._steps, rate=rate)
        torch.manual_seed(0)
        self._reader = Reader(model, device=device)
        self._optimizer = torch.optim.AdamW([each for _, each in self._reader.trained()], weight_decay=0.0)
        self._at = {"step": 0, "tokens": 0, "group": 0}
        lines = [line for file in sorted((folder / "data").glob("*.jsonl")) for line in file.open()]
        if not lines:
            raise SystemExit(f"there are no samples in {folder / 'data'}; make some with samples.py")
        self._stops = False
        if (folder / "state.pt").exists():
            state = torch.load(folder / "state.pt", weights_only=True, map_location=device)
            for name, parameter in self._reader.trained():
                parameter.data.copy_(state["adapter"][name])
            self._optimizer.load_state_dict(state["optimizer"])
            self._at = state["at"]
        elif adapter is not None:
            weights = load_file(adapter / ADAPTER_WEIGHTS)
            for name, parameter in self._reader.trained():
                parameter.data.copy_(weights[name])
        runs = range(self._at["group"] // self._steps.groups, 1 << 40)
        groups = Groups(lines, self._steps)
        self._runs = iter(DataLoader(groups, sampler=runs, batch_size=None, num_workers=self._steps.workers))

    def run(self) -> None:
        """Trains until all tokens are used, or a signal asks to stop; saves."""
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        saved = time.monotonic()
        while self._at["tokens"] < self._all_tokens and not self._stops:
            self._log(self._step())
            if time.monotonic() - saved > SAVE_SECONDS:
                self._save()
                saved = time.monotonic()
        self._save()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stops = True

    def _step(self) -> dict[str, Any]:
        began, rate = time.monotonic(), self._rate()
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        trees: list[Tree] = []
        while (num_tokens := sum(len(tree.token_ids) for tree in trees)) < self._steps.tokens:
            trees += next(self._runs)
            self._at["group"] += self._steps.groups
        num_targets, losses = sum(len(tree.targets) for tree in trees), []
        for first in range(0, len(trees), self._steps.trees):
            loss = self._reader.loss(trees[first : first + self._steps.trees]) / num_targets
            loss.backward()
            losses.append(loss.detach())
        norm = torch.nn.utils.clip_grad_norm_([each for _, each in self._reader.trained()], 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._at["step"] += 1
        self._at["tokens"] += num_tokens
        seconds = time.monotonic() - began
        return {
            **self._at,
            "loss": round(sum(map(float, losses)), 4),
            "norm": round(float(norm), 3),
            "rate": rate,
            "samples": sum(len(tree.samples) for tree in trees),
            "seconds": round(seconds, 1),
            "tokens_per_second": round(num_tokens / seconds),
        }

    def _rate(self) -> float:
        warm = min(1.0, (self._at["step"] + 1) / WARM_UP_STEPS)
        left = max(0.0, 1 - self._at["tokens"] / self._all_tokens)
        return self._steps.rate * warm * (LAST_RATE + (1 - LAST_RATE) * left)

    def _log(self, line: dict[str, Any]) -> None:
        with (self._folder / "log.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(line, flush=True)

    def _save(self) -> None:
        adapter = {name: parameter.detach() for name, parameter in self._reader.trained()}
        part = self._folder / "state.part"
        torch.save({"adapter": adapter, "optimizer": self._optimizer.state_dict(), "at": self._at}, part)
        part.replace(self._folder / "state.pt")
        save_adapter(self._reader, self._folder / "adapter")


def main() -> None:
    """Trains."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of the run, with samples in data/*.jsonl")
    parser.add_argument("--model", required=True, help="folder of the base model")
    parser.add_argument("--tokens", type=int, default=2_500_000, help="tokens to train, over all starts")
    parser.add_argument("--adapter", type=Path, help="folder of an adapter that a new run begins with")
    parser.add_argument("--rate", type=float, help="the highest learning rate, in place of the device's")
    parser.add_argument("--device", choices=list(STEPS), default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="of the CPU")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    trainer = Trainer(
        arguments.folder,
        arguments.model,
        all_tokens=arguments.tokens,
        device=arguments.device,
        adapter=arguments.adapter,
        rate=arguments.rate,
    )
    trainer.run()


if __name__ == "__main__":
    main()

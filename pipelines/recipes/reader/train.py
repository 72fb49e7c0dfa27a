"""Trains the adapter on files of samples, with one thread; goes on where it was stopped. See README.md."""

import argparse
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from pipelines.recipes.reader.model import Reader, save_adapter
from pipelines.recipes.reader.trees import Sample, Tree, packed, tree_of

RATE, WARM_UP_STEPS, LAST_RATE = 4e-4, 20, 0.05
"""Highest learning rate; the steps until it is reached; the share of it at the end."""
STEP_TOKENS, TREE_TOKENS = 2700, 1600
"""Tokens of a step and, at most, of one tree: 1,600 hold some 3 GiB."""
SAVE_SECONDS = 600


class Trainer:
    """One run: its folder holds `data/*.jsonl`, and gets `state.pt`, `log.jsonl`, `adapter/`."""

    def __init__(self, folder: Path, model: str, *, all_tokens: int) -> None:
        """Takes up the run where it was saved last."""
        self._folder, self._all_tokens = folder, all_tokens
        torch.manual_seed(0)
        self._reader = Reader(model)
        self._optimizer = torch.optim.AdamW([each for _, each in self._reader.trained()], lr=RATE, weight_decay=0.0)
        self._at = {"step": 0, "tokens": 0, "group": 0}
        self._lines = [line for file in sorted((folder / "data").glob("*.jsonl")) for line in file.open()]
        if not self._lines:
            raise SystemExit(f"there are no samples in {folder / 'data'}; make some with samples.py")
        self._stops = False
        if (folder / "state.pt").exists():
            state = torch.load(folder / "state.pt", weights_only=True)
            for name, parameter in self._reader.trained():
                parameter.data.copy_(state["adapter"][name])
            self._optimizer.load_state_dict(state["optimizer"])
            self._at = state["at"]

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
        num_tokens, num_samples, num_targets, loss = 0, 0, 0, 0.0
        for tree, in_tree in self._trees():
            part = self._reader.loss(tree)
            part.backward()
            loss, num_targets = loss + part.item(), num_targets + len(tree.targets)
            num_tokens, num_samples = num_tokens + len(tree.token_ids), num_samples + in_tree
        parameters = [each for _, each in self._reader.trained()]
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad /= num_targets
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, 1.0))
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._at["step"] += 1
        self._at["tokens"] += num_tokens
        seconds = time.monotonic() - began
        return {
            **self._at,
            "loss": round(loss / num_targets, 4),
            "norm": round(norm, 3),
            "rate": rate,
            "samples": num_samples,
            "seconds": round(seconds, 1),
            "tokens_per_second": round(num_tokens / seconds),
        }

    def _trees(self) -> Iterator[tuple[Tree, int]]:
        """The trees of one step, each with the number of its samples."""
        room = STEP_TOKENS
        while room > 0:
            for pack in packed(self._next_group(), max_tokens=TREE_TOKENS):
                tree = tree_of(pack)
                yield tree, len(pack)
                room -= len(tree.token_ids)

    def _next_group(self) -> list[Sample]:
        """The next group, in the order of the files; after the last, the first again."""
        turns = json.loads(self._lines[self._at["group"] % len(self._lines)])["turns"]
        self._at["group"] += 1
        return [Sample(prompt=turn["prompt"], completion=turn["completion"]) for turn in turns]

    def _rate(self) -> float:
        warm = min(1.0, (self._at["step"] + 1) / WARM_UP_STEPS)
        left = max(0.0, 1 - self._at["tokens"] / self._all_tokens)
        return RATE * warm * (LAST_RATE + (1 - LAST_RATE) * left)

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
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    Trainer(arguments.folder, arguments.model, all_tokens=arguments.tokens).run()


if __name__ == "__main__":
    main()

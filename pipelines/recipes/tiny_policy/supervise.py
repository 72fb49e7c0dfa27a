"""Trains the tiny policy from a seed: tokeniser, start weights, reading. `make train-tiny` runs it."""

import argparse
import ctypes
import json
import random
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from itertools import dropwhile
from pathlib import Path
from typing import Any

from memagent_batch.engines.tokenizer import Tokenizer
from memagent_batch.evaluation.needles.facts import Split
from pipelines.recipes.tiny_policy.lessons.backgrounds import training_units
from pipelines.recipes.tiny_policy.lessons.closings import ClosingMaker
from pipelines.recipes.tiny_policy.lessons.scenes import SceneMaker
from pipelines.recipes.tiny_policy.lessons.streams import training_streams
from pipelines.recipes.tiny_policy.lessons.turns import TurnMaker
from pipelines.recipes.tiny_policy.network import build_network, load_network
from pipelines.recipes.tiny_policy.schedule import Makers, phases
from pipelines.recipes.tiny_policy.training import Phase, Progress, Trainer
from pipelines.recipes.tiny_policy.vocabulary import write_tokenizer

LOG_SECONDS = 30.0
"""Time between two lines of the log."""

SAVE_SECONDS = 150.0
"""Time between two checkpoints."""


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="model folder to write")
    parser.add_argument("--log", type=Path, required=True, help="file to write losses and figures to, as JSON lines")
    parser.add_argument("--minutes", type=float, default=90.0, help="wall clock of the training")
    parser.add_argument("--processes", type=int, default=2, help="processes of one thread each that share the work")
    parser.add_argument("--seed", type=int, default=0, help="source of every choice")
    parser.add_argument("--start", type=Path, help="model folder to go on from")
    parser.add_argument("--first-phase", help="the phase to begin with (default: short)")
    parser.add_argument("--last", type=Path, help="folder for the weights before they are averaged, to go on from")
    options = parser.parse_args()
    _place_tokenizer(options.output, options)
    if options.last:
        _place_tokenizer(options.last, options)
    options.log.unlink(missing_ok=True)
    if options.processes == 1:
        _train(0, options)
        return
    with tempfile.TemporaryDirectory() as meeting:
        import torch.multiprocessing as processes

        processes.spawn(_train, args=(options, f"file://{meeting}/meeting"), nprocs=options.processes)


class Recorder:
    """Writes log lines and checkpoints of the averaged weights, from the first process only."""

    def __init__(self, options: argparse.Namespace, trainer: Trainer) -> None:
        """Starts both clocks."""
        self._options = options
        self._trainer = trainer
        self._logged = self._saved = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        """Logs and saves when it is time."""
        now = time.monotonic()
        if now - self._logged > LOG_SECONDS or progress.step == 0:
            self._logged = now
            self._append(progress)
        if now - self._saved > SAVE_SECONDS:
            self._saved = now
            self.save()

    def save(self) -> None:
        """Writes the averaged weights, and the last ones where they are asked for."""
        save(self._trainer.averaged, self._options.output)
        if self._options.last:
            save(self._trainer.network, self._options.last)

    def _append(self, progress: Progress) -> None:
        """Appends a line."""
        line = {
            "phase": progress.phase,
            "step": progress.step,
            "seconds": round(progress.seconds),
            "loss": round(progress.loss, 5),
            "exact": {kind: round(share, 3) for kind, share in sorted(progress.exact.items())},
            "num_tokens": progress.num_tokens,
        }
        with self._options.log.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")


def save(network: Any, folder: Path) -> None:
    """Writes weights and configuration so that a reader sees each file whole, old or new."""
    with tempfile.TemporaryDirectory(dir=folder) as fresh:
        network.save_pretrained(fresh)
        for path in Path(fresh).iterdir():
            shutil.copymode(folder / "tokenizer.json", path)
            path.replace(folder / path.name)


def _train(rank: int, options: argparse.Namespace, meeting: str = "") -> None:
    """One process of the training; several meet at a place."""
    import torch
    import torch.distributed as distributed

    torch.set_num_threads(1)
    _keep_freed_memory()
    if meeting:
        distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=options.processes)
    tokenizer = Tokenizer(str(options.output))
    makers = _makers(tokenizer, seed=options.seed)
    end = tokenizer.end_token_id or 0
    if options.start:
        network = load_network(options.start, end_token_id=end, pad_token_id=0)
    else:
        network = build_network(seed=options.seed, end_token_id=end, pad_token_id=0)
    trainer = Trainer(network, num_processes=options.processes)
    recorder = Recorder(options, trainer)
    rng = random.Random(f"{options.seed} {rank}")
    for phase in _from(options, phases(makers, rng, seconds=60.0 * options.minutes)):
        trainer.run(phase, recorder if rank == 0 else _ignore)
        if rank == 0:
            recorder.save()
    if meeting:
        distributed.destroy_process_group()


def _makers(tokenizer: Tokenizer, *, seed: int) -> Makers:
    units = training_units(seed=seed)
    streams = training_streams(tokenizer, units, seed=seed)
    return Makers(
        turns=TurnMaker(tokenizer, SceneMaker(tokenizer, streams)),
        closings=ClosingMaker(tokenizer, units, split=Split.TRAINING),
    )


def _place_tokenizer(folder: Path, options: argparse.Namespace) -> None:
    """Keeps the tokeniser that a folder has, else copies that of the start folder, else trains a new one.

    Weights depend on it, and so do all figures in tokens: the shipped one stays.
    """
    if (folder / "tokenizer.json").exists():
        return
    if options.start is None:
        write_tokenizer(folder, seed=options.seed)
        return
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(options.start / name, folder / name)


def _from(options: argparse.Namespace, phases: Iterable[Phase]) -> Iterator[Phase]:
    """The phases that are left to do."""
    if not options.first_phase:
        return iter(phases)
    return dropwhile(lambda phase: phase.name != options.first_phase, phases)


def _ignore(_progress: Progress) -> None:
    """Reports nothing."""


def _keep_freed_memory() -> None:
    """Has glibc keep large blocks for the next step; fresh pages from the kernel cost more than the arithmetic."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        m_trim_threshold, m_mmap_max = -1, -4
        mallopt(m_mmap_max, 0)
        mallopt(m_trim_threshold, 2**31 - 1)


if __name__ == "__main__":
    main()

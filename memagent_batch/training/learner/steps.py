"""The loop's state on disk: a folder for each step. Each file in it appears whole or not at all.

loop.json              what the loop is, so that another command can't go on in it
steps/00003/rollouts/  what was collected; whole once rollouts.json is there
steps/00003/model/     the weights after the step, a whole model folder
steps/00003/state.pt   weights in full and the optimiser, to go on from
steps/00003/update.json      the step's figures; with it the update is done
steps/00003/evaluation.json  the held-out questions, where they were read
metrics.jsonl          made from these
model/                 the last weights, when the loop has ended
"""

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from memagent_batch.config.training import TrainLoopConfig
from memagent_batch.errors import OutputError
from memagent_batch.runs.manifest import public_settings
from memagent_batch.store.claims import read_owner_record
from memagent_batch.store.json_files import read_json, write_json
from memagent_batch.store.location import Location
from memagent_batch.training.learner.learner import sync
from memagent_batch.training.rollouts.table import ROLLOUTS_FILE

LOOP_FORMAT = "memagent-loop/1"
LOOP_FILE, UPDATE_FILE, HELD_OUT_FILE = "loop.json", "update.json", "evaluation.json"
MODEL_FOLDER, STATE_FILE = "model", "state.pt"

RESUMABLE_SETTINGS = (
    *("output", "log_format", "pool", "loop.max_steps", "loop.max_minutes", "loop.keep_every"),
    *("learner.learning_rate", "learner.bf16", "learner.batch_tokens", "learner.device"),
    *("vllm.gpu_memory_utilization", "vllm.cpu_kv_cache_gib"),
)
"""Settings that another call of the same loop may change: budget, room, and what helps where an update went wrong."""


class HeldOutFigures(TypedDict):
    """`evaluation.json`: what became of the held-out questions after a step."""

    held_out_reward: float | None
    """Mean over the samples that have a reward; None where none has."""
    held_out: int
    held_out_failed: int
    """Readings that failed; they have no reward."""
    evaluation_seconds: float


Figures = Mapping[str, float | None]
"""Figures of a step by name, as `update.json` and `metrics.jsonl` hold them; whole numbers among them."""


class Step:
    """One step's folder. Step 0 is the model that the loop begins with."""

    def __init__(self, folder: Path, number: int) -> None:
        self.number = number
        self.folder = folder / "steps" / f"{number:05d}"

    @property
    def place(self) -> Location:
        """The folder, as tables are written to it."""
        return Location(uri=str(self.folder))

    @property
    def model(self) -> Path:
        """Its weights."""
        return self.folder / MODEL_FOLDER

    @property
    def state(self) -> Path:
        """What the learner goes on from."""
        return self.folder / STATE_FILE

    def has_rollouts(self) -> bool:
        """Whether its table is whole."""
        return read_json(self.place / ROLLOUTS_FILE) is not None

    def update(self) -> Figures | None:
        """The step's figures; None where the update is not done."""
        return read_json(self.place / UPDATE_FILE)

    def evaluation(self) -> Figures | None:
        """What became of the held-out questions; None where they were not read."""
        return read_json(self.place / HELD_OUT_FILE)

    def write_update(self, figures: Figures) -> None:
        """Ends the update: model and state are there."""
        sync(self.folder)
        write_json(self.place / UPDATE_FILE, figures)

    def write_evaluation(self, figures: HeldOutFigures) -> None:
        """Keeps what became of the held-out questions."""
        write_json(self.place / HELD_OUT_FILE, figures)

    def drop_weights(self, *, keep_model: bool) -> None:
        """Removes what no later step needs; the state last, so that an interrupted removal is noticed."""
        if not keep_model:
            shutil.rmtree(self.model, ignore_errors=True)
        self.state.unlink(missing_ok=True)


def claim_loop(training: TrainLoopConfig) -> Path:
    """The loop's folder, if it is empty or this very loop's.

    Raises:
        OutputError: it holds something else, or the same loop with other settings; names them.
    """
    folder = Path(training.output)
    settings = public_settings(training)
    place = Location(uri=str(folder))
    record = read_owner_record(place, LOOP_FILE, layout=LOOP_FORMAT)
    if record is None:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(place / LOOP_FILE, {"format": LOOP_FORMAT, "settings": settings})
        return folder
    now, then = flat_settings(settings), flat_settings(record["settings"])
    changed = sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name))
    if changed:
        raise OutputError(
            f"output: {folder} belongs to a loop with other settings in {', '.join(changed)}; choose another output, "
            f"or "
            f"give what {LOOP_FILE} says"
        )
    return folder


def flat_settings(settings: Mapping[str, object], *, within: str = "") -> dict[str, object]:
    """Settings by their dotted names, those left out that another call may change."""
    flat: dict[str, object] = {}
    for key, value in settings.items():
        name = f"{within}{key}"
        if name in RESUMABLE_SETTINGS:
            continue
        if isinstance(value, Mapping) and value:
            flat |= flat_settings(value, within=f"{name}.")
        else:
            flat[name] = value
    return flat


def last_step(folder: Path) -> Step:
    """The last step whose update is done; step 0 if there is none."""
    return max(done_steps(folder), key=lambda step: step.number, default=Step(folder, 0))


def done_steps(folder: Path) -> Iterator[Step]:
    """The steps whose updates are done, in order."""
    names = sorted(path.name for path in (folder / "steps").glob("*") if re.fullmatch(r"\d{5}", path.name))
    for name in names:
        step = Step(folder, int(name))
        if step.update() is not None:
            yield step


def metric_lines(folder: Path) -> list[Figures]:
    """A line for each step, with what became of the held-out questions where they were read; step 0 has only that."""
    before = Step(folder, 0).evaluation()
    lines: list[Figures] = [{"step": 0, **before}] if before else []
    return lines + [{**(step.update() or {}), **(step.evaluation() or {})} for step in done_steps(folder)]


def write_metrics(folder: Path, lines: Sequence[Figures]) -> None:
    """Writes the whole of `metrics.jsonl` again."""
    text = "".join(json.dumps(dict(line)) + "\n" for line in lines)
    Location(uri=str(folder / "metrics.jsonl")).write_bytes(text.encode())


def place_model(step: Step, folder: Path, *, start: Path) -> Path:
    """Copies the step's model to `model/` of the loop, whole, in place of one that is there."""
    fresh, target = folder / ".tmp-model", folder / MODEL_FOLDER
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(step.model if step.number else start, fresh)
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)
    return target

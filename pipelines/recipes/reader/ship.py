"""Merges the adapter of a run into its base, to be measured; and puts it where the product ships it. See README.md."""

import argparse
import json
import shutil
from pathlib import Path

from memagent_batch.domain.texts.escapes import unescaped
from memagent_batch.evaluation.measures import report_text
from memagent_batch.evaluation.record import open_evaluation, read_scores
from memagent_batch.models.adapter import ADAPTER_CONFIG, ADAPTER_WEIGHTS, merge_adapter
from memagent_batch.models.packaged import MODEL_HASH, READER
from memagent_batch.models.weights import model_sha256
from memagent_batch.store.location import Location

MAX_ADAPTER_BYTES = 20_000_000
CARD = Path(__file__).with_name("card.txt").read_text()


def merge(run: Path, base: Path) -> Path:
    """The model that a run has trained so far: the folder `model` in it, written again each time."""
    folder = run / "model"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    merge_adapter(base, run / "adapter", folder)
    return folder


def ship(run: Path, *, evaluation: Path, to: Path = READER) -> None:
    """Writes adapter, card (with the figures of an evaluation of the merged model) and its hash into the package."""
    adapter = run / "adapter"
    if (size := (adapter / ADAPTER_WEIGHTS).stat().st_size) > MAX_ADAPTER_BYTES:
        raise SystemExit(f"{adapter} has {size:,} bytes, more than {MAX_ADAPTER_BYTES:,}: train one of a lower rank")
    to.mkdir(exist_ok=True)
    for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS):
        shutil.copyfile(adapter / name, to / name)
    last = json.loads((run / "log.jsonl").read_text().splitlines()[-1])
    rank = json.loads((adapter / ADAPTER_CONFIG).read_text())["r"]
    measured = Location(uri=str(evaluation))
    read = open_evaluation(measured)
    report = unescaped(report_text(read, read_scores(measured, read)))
    (to / "README.md").write_text(CARD.format(rank=rank, tokens=last["tokens"], table=report))
    (to / MODEL_HASH).write_text(model_sha256(str(run / "model")) + "\n")


def main() -> None:
    """Merges; with an evaluation of the merged model, ships."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="folder of the run")
    parser.add_argument("--model", type=Path, help="folder of the base model, to merge")
    parser.add_argument("--evaluation", type=Path, help="output of `memagent evaluate run` over RUN/model, to ship it")
    arguments = parser.parse_args()
    if arguments.model:
        print(merge(arguments.run, arguments.model))
    if arguments.evaluation:
        ship(arguments.run, evaluation=arguments.evaluation)


if __name__ == "__main__":
    main()

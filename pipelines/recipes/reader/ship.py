"""Merges the adapter of a run into its base, to be measured; and puts it where the product ships it. See README.md."""

import argparse
import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq

from memagent_batch.evaluation.measures import score_table
from memagent_batch.models.adapter import ADAPTER_CONFIG, ADAPTER_WEIGHTS, merge_adapter
from memagent_batch.models.packaged import MODEL_HASH, READER
from memagent_batch.models.weights import model_sha256

MAX_ADAPTER_BYTES = 20_000_000
CARD = """# reader-135m

A LoRA adapter of rank {rank} over SmolLM2-135M-Instruct (Apache-2.0) that makes it a memory agent; made by
`pipelines/recipes/reader/` with {tokens:,} training tokens. `memagent models install reader-135m` merges the two.

It was taught English facts, changelogs, copyright files and licences, in chunks of up to 512 tokens. It was not taught
other languages, JSON values, arithmetic, or answers that are lists of anything but licences.

What it reads right, on kinds, wordings, names and files that it never saw (lengths in tokens):

```
{table}
```
"""


def merge(run: Path, base: Path) -> Path:
    """The model that a run has trained so far: the folder `model` in it, written again each time."""
    folder = run / "model"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    merge_adapter(base, run / "adapter", folder)
    return folder


def ship(run: Path, *, evaluation: Path, to: Path = READER) -> None:
    """Writes adapter, card and hash of the merged model into the package.

    Args:
        run: folder of a run that `merge` has merged.
        evaluation: output of `memagent evaluate run` over its model; its figures go into the card.
        to: the folder to write.
    """
    adapter = run / "adapter"
    if (size := (adapter / ADAPTER_WEIGHTS).stat().st_size) > MAX_ADAPTER_BYTES:
        raise SystemExit(f"{adapter} has {size:,} bytes, more than {MAX_ADAPTER_BYTES:,}: train one of a lower rank")
    to.mkdir(exist_ok=True)
    for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS):
        shutil.copyfile(adapter / name, to / name)
    last = json.loads((run / "log.jsonl").read_text().splitlines()[-1])
    rank = json.loads((adapter / ADAPTER_CONFIG).read_text())["r"]
    table = score_table(pq.read_table(evaluation / "scores"))
    (to / "README.md").write_text(CARD.format(rank=rank, tokens=last["tokens"], table=table))
    (to / MODEL_HASH).write_text(model_sha256(str(run / "model")) + "\n")


def main() -> None:
    """Merges; with an evaluation of the merged model, ships."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="folder of the run")
    parser.add_argument("--model", type=Path, help="folder of the base model, to merge")
    parser.add_argument("--evaluation", type=Path, help="output of `memagent evaluate run` over RUN/model, to ship it")
    arguments = parser.parse_args()
    if arguments.model:
        print(f"{model_sha256(str(merge(arguments.run, arguments.model)))}  {arguments.run / 'model'}")
    if arguments.evaluation:
        ship(arguments.run, evaluation=arguments.evaluation)
        print(f"written to {READER}: memagent models install reader-135m")


if __name__ == "__main__":
    main()

"""Merges the adapter of a run into its base, to be measured; and puts it where the product ships it. See README.md."""

import argparse
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from safetensors.torch import load_file, save_file

from memagent_batch.domain.follow_ups.answer_types import NOT_STATED_ENTRY
from memagent_batch.evaluation.measures import summarise
from memagent_batch.evaluation.record import read_evaluation, read_scores
from memagent_batch.models.adapter import ADAPTER_CONFIG, ADAPTER_WEIGHTS, merge_adapter
from memagent_batch.models.packaged import MODEL_HASH, READER
from memagent_batch.models.weights import model_sha256
from memagent_batch.store.location import Location
from pipelines.recipes.reader.facts import ABSENT, FORMS
from pipelines.recipes.reader.suite import CHUNK_TOKENS, PAPERS

MAX_ADAPTER_BYTES = 20_000_000
CARD = Path(__file__).with_name("card.txt").read_text()


def merge(run: Path, base: Path) -> Path:
    """The model that a run has trained so far: the folder `model` in it, written again each time."""
    folder = run / "model"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    merge_adapter(base, run / "adapter", folder)
    return folder


def write_mean(adapters: Sequence[Path], run: Path) -> None:
    """Makes the mean of adapters, weight by weight, the adapter of a run; one that is named twice counts twice.

    They must come from one another by training: the mean of two that were trained apart means nothing.
    """
    weights = [load_file(adapter / ADAPTER_WEIGHTS) for adapter in adapters]
    means = {name: sum(each[name].double() for each in weights) / len(weights) for name in weights[0]}
    folder = run / "adapter"
    folder.mkdir(parents=True, exist_ok=True)
    save_file(
        {name: mean.to(weights[0][name].dtype) for name, mean in means.items()},
        folder / ADAPTER_WEIGHTS,
        metadata={"format": "pt"},
    )
    shutil.copyfile(adapters[0] / ADAPTER_CONFIG, folder / ADAPTER_CONFIG)


def ship(run: Path, *, tokens: int, evaluation: Path, to: Path = READER) -> None:
    """Writes adapter, card (with the figures of an evaluation of the merged model) and its hash into the package."""
    adapter = run / "adapter"
    if (size := (adapter / ADAPTER_WEIGHTS).stat().st_size) > MAX_ADAPTER_BYTES:
        raise SystemExit(f"{adapter} has {size:,} bytes, more than {MAX_ADAPTER_BYTES:,}: train one of a lower rank")
    to.mkdir(exist_ok=True)
    for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS):
        shutil.copyfile(adapter / name, to / name)
    rank = json.loads((adapter / ADAPTER_CONFIG).read_text())["r"]
    measured = Location(uri=str(evaluation))
    if (record := read_evaluation(measured)) is None:
        raise SystemExit(f"{evaluation} is not the output of `memagent evaluate run`")
    table = "\n".join(card_lines(read_scores(measured, record)))
    (to / "README.md").write_text(CARD.format(rank=rank, tokens=tokens, table=table))
    (to / MODEL_HASH).write_text(model_sha256(str(run / "model")) + "\n")


def card_lines(scores: pa.Table) -> Iterator[str]:
    """What each policy reads right, as Markdown: by length, and of what is not there."""
    is_absent, is_fact = pc.equal(scores["task"], ABSENT), pc.is_in(scores["task"], value_set=pa.array(FORMS))
    is_paper = pc.equal(scores["task"], PAPERS)
    is_real = pc.invert(pc.or_(pc.or_(is_fact, is_absent), is_paper))
    parts = {"facts": is_fact, "whole papers": is_paper, "real files": is_real, NOT_STATED_ENTRY: is_absent}
    cells = [
        (f"{cell['variant']}, {name}", cell)
        for name, members in parts.items()
        for cell in summarise(scores.filter(members), by=("length_tokens",))
    ]
    lengths = sorted({cell["length_tokens"] or 0 for _, cell in cells})
    yield f"| policy | {' | '.join(f'{length // CHUNK_TOKENS} chunks' for length in lengths)} |"
    yield f"|---|{'---|' * len(lengths)}"
    for name in dict.fromkeys(name for name, _ in cells):
        of_length = {cell["length_tokens"]: cell for each, cell in cells if each == name}
        yield f"| {name} | {' | '.join(_share(of_length.get(length)) for length in lengths)} |"


def _share(cell: Mapping[str, Any] | None) -> str:
    return "" if cell is None else "{score:.2f} ({low:.2f}–{high:.2f}) n={n}".format(**cell)


def main() -> None:
    """Merges; with an evaluation of the merged model, ships."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="folder of the run")
    parser.add_argument("--mean", type=Path, nargs="+", help="folders of adapters; RUN/adapter becomes their mean")
    parser.add_argument("--model", type=Path, help="folder of the base model, to merge")
    parser.add_argument("--evaluation", type=Path, help="output of `memagent evaluate run` over RUN/model, to ship it")
    parser.add_argument("--tokens", type=int, help="training tokens of the adapter that is shipped, for its card")
    arguments = parser.parse_args()
    if (arguments.evaluation is None) != (arguments.tokens is None):
        parser.error("--evaluation and --tokens go together")
    if arguments.mean:
        write_mean(arguments.mean, arguments.run)
    if arguments.model:
        print(merge(arguments.run, arguments.model))
    if arguments.evaluation:
        ship(arguments.run, tokens=arguments.tokens, evaluation=arguments.evaluation)


if __name__ == "__main__":
    main()

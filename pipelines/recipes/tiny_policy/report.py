"""Measures a tiny policy on held-out documents and appends the figures to a log. Last step of the recipe."""

import argparse
import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from memagent_batch.evaluation.needles.stories import StoryKind
from pipelines.recipes.tiny_policy.documents import Text
from pipelines.recipes.tiny_policy.evaluation import Evaluator, Setting, figures

NEAR_RIVALS = 3
"""Sentences that are made to be mixed up with the needle: four keys in all, as in RULER's first multi-key task."""

SEED = 20_000
"""Source of the held-out documents."""

POLICIES = ("overwrite", "gated", "parallel")
"""Policies that read the whole document."""


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="model folder")
    parser.add_argument("--log", type=Path, required=True, help="file to which a JSON line is added for each figure")
    parser.add_argument("--policies", nargs="+", default=list(POLICIES), help="policies that read")
    parser.add_argument("--chunks", type=int, nargs="+", default=[4, 20], help="lengths of the documents, in chunks")
    parser.add_argument("--texts", nargs="+", default=["noise", "running"], help="what the documents are made of")
    parser.add_argument("--kinds", nargs="+", default=list(StoryKind), help="what is asked")
    parser.add_argument("--documents", type=int, default=50, help="documents for each figure")
    parser.add_argument("--show-wrong", type=int, default=0, help="wrong readings of each setting that are printed")
    options = parser.parse_args()
    asyncio.run(append_figures(options))


async def append_figures(options: argparse.Namespace) -> None:
    """Reads the documents of each setting, and appends a line for each to the log."""
    evaluator = Evaluator(options.model)
    await evaluator.start()
    try:
        for setting in settings(options):
            start = time.monotonic()
            ended = await evaluator.ended(setting, seed=SEED)
            found = figures(ended, seconds=round(time.monotonic() - start, 1))
            line = {"phase": "evaluation", **asdict(setting)}
            line |= {name: value if value is None else round(value, 4) for name, value in asdict(found).items()}
            with options.log.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line) + "\n")
            for each in [each for each in ended if not each.is_right][: options.show_wrong]:
                print(json.dumps([each.document.story.question, each.wanted, each.answer, each.memory]))
    finally:
        await evaluator.stop()


def settings(options: argparse.Namespace) -> Iterator[Setting]:
    """The settings, the shortest documents first."""
    for num_chunks in options.chunks:
        for policy in options.policies:
            for text in map(Text, options.texts):
                for kind, num_rivals, is_told, has_type in _questions(options.kinds):
                    yield Setting(
                        policy=policy,
                        text=text,
                        kind=kind,
                        num_chunks=num_chunks,
                        num_rivals=num_rivals,
                        is_told=is_told,
                        has_type=has_type,
                        num_documents=options.documents,
                    )


def _questions(kinds: Sequence[str]) -> Iterator[tuple[StoryKind, int, bool, bool]]:
    """What is asked of a text: a needle alone, among near rivals, and not there; the other stories among rivals."""
    for kind in map(StoryKind, kinds):
        if kind is StoryKind.SINGLE:
            yield kind, 0, True, False
            yield kind, NEAR_RIVALS, True, True
            yield kind, NEAR_RIVALS, False, False
            yield kind, NEAR_RIVALS, False, True
        else:
            yield kind, NEAR_RIVALS, True, True


if __name__ == "__main__":
    main()

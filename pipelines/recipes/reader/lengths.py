"""Draws accuracy against length, for each policy and before training: the picture of the benchmarks page, as SVG.

python -m pipelines.recipes.reader.lengths EVAL --untrained EVAL_OF_THE_BASE > docs/pictures/reader-lengths.svg
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2
import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.evaluation.measures import summarise
from memagent_batch.evaluation.record import read_evaluation, read_scores
from memagent_batch.store.location import Location
from pipelines.recipes.reader.facts import FORMS
from pipelines.recipes.reader.suite import CHUNK_TOKENS

COLOURS = ("#1a7f37", "#0969da", "#8250df", "#bf8700", "#cf222e", "#6e7781")
UNTRAINED_COLOUR = "#24292f"
LEFT, RIGHT, TOP, BOTTOM, LABEL_HEIGHT = 120, 540, 56, 300, 17
"""Where the lengths and shares stand, and the distance of two names, pixels."""


@dataclass(slots=True, kw_only=True)
class Line:
    """A policy in the picture."""

    name: str
    shares: dict[int, tuple[float, int]]
    """Share of facts right, and number of facts, by length in tokens."""
    colour: str
    is_untrained: bool = False
    points: Sequence[tuple[int, int]] = ()
    label_y: int = 0


def shares(evaluation: str) -> dict[str, dict[int, tuple[float, int]]]:
    """Share of facts right and number of facts, by variant and length."""
    place = Location(uri=evaluation)
    if (record := read_evaluation(place)) is None:
        raise SystemExit(f"{evaluation} is not the output of `memagent evaluate run`")
    scores = read_scores(place, record)
    facts = scores.filter(pc.is_in(scores["task"], value_set=pa.array(FORMS)))
    found: dict[str, dict[int, tuple[float, int]]] = {}
    for cell in summarise(facts, by=("length_tokens",)):
        found.setdefault(cell["variant"], {})[cell["length_tokens"]] = (cell["score"], cell["n"])
    return found


def height(share: float) -> int:
    """Where a share stands, pixels from the top."""
    return round(BOTTOM - share * (BOTTOM - TOP))


def drawn(trained: str, *, untrained: str | None) -> str:
    """The picture."""
    lines = [
        Line(name=name, shares=of, colour=COLOURS[number % len(COLOURS)])
        for number, (name, of) in enumerate(shares(trained).items())
    ]
    for name, of in shares(untrained).items() if untrained else ():
        lines.append(Line(name=f"{name}, before training", shares=of, colour=UNTRAINED_COLOUR, is_untrained=True))
    lengths = sorted(lines[0].shares)
    step = (RIGHT - LEFT) // max(1, len(lengths) - 1)
    places = {length: LEFT + number * step for number, length in enumerate(lengths)}
    for line in lines:
        line.points = [(places[length], height(line.shares[length][0])) for length in lengths]
    last = TOP - LABEL_HEIGHT
    for line in sorted(lines, key=lambda line: line.points[-1][1]):
        last = line.label_y = max(line.points[-1][1], last + LABEL_HEIGHT)
    template = Path(__file__).with_name("lengths.svg.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(trim_blocks=True, autoescape=True, undefined=jinja2.StrictUndefined)
    counts = {length: number for length, (_, number) in lines[0].shares.items()}
    return environment.from_string(template).render(
        lines=lines, places=places, counts=counts, height=height, chunk_tokens=CHUNK_TOKENS
    )


def main() -> None:
    """Prints the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("evaluation", help="output of `memagent evaluate run` over the suite")
    parser.add_argument("--untrained", help="the same of the base model")
    arguments = parser.parse_args()
    print(drawn(arguments.evaluation, untrained=arguments.untrained))


if __name__ == "__main__":
    main()

"""Runs one measurement and prints its figures, one JSON object a line."""

import argparse
import importlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

Figures = dict[str, Any]
"""One line of results: what was measured, under which settings, and the figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One measurement."""

    name: str
    """Name on the command line, and in each line of its figures."""
    answers: str
    """The question that its figures answer."""
    module: str
    """Module with `add_options(parser)` and `measure(arguments)`, imported when it is run."""
    runs: int | None = None
    """Default of `--runs`; None where a scenario runs everything once."""


SCENARIOS = (
    Scenario(
        name="ceiling",
        answers="How much of vLLM's own speed reaches the readings?",
        module="benchmarks.ceiling.ceiling",
        runs=3,
    ),
    Scenario(
        name="peers",
        answers="How fast is the job against others who run the same loop?",
        module="benchmarks.peers.comparison",
        runs=3,
    ),
    Scenario(
        name="same-accuracy",
        answers="How much sooner are as many answers right as with others who run the published loop?",
        module="benchmarks.peers.same_accuracy",
        runs=3,
    ),
    Scenario(
        name="overhead",
        answers="What does everything that is not the engine cost?",
        module="benchmarks.whole_job.overhead",
        runs=5,
    ),
    Scenario(
        name="length",
        answers="Does a token of a long document cost more than one of a short document?",
        module="benchmarks.whole_job.length",
    ),
    Scenario(
        name="scale",
        answers="How much of the engines' time is used as replicas are added?",
        module="benchmarks.whole_job.scale",
        runs=1,
    ),
    Scenario(
        name="start",
        answers="How long is it from the command to the first turn, and where does the time go?",
        module="benchmarks.whole_job.start",
        runs=3,
    ),
)


def main() -> None:
    names = {scenario.name: scenario for scenario in SCENARIOS}
    if not sys.argv[1:] or sys.argv[1] in ("-h", "--help"):
        print("usage: python -m benchmarks NAME [options]; NAME --help lists the options\n")
        print("\n".join(f"  {scenario.name:<19}{scenario.answers}" for scenario in SCENARIOS))
        return
    if sys.argv[1] not in names:
        sys.exit(f"no benchmark is called {sys.argv[1]!r}; there are {', '.join(names)}")
    scenario = names[sys.argv[1]]
    module = importlib.import_module(scenario.module)
    arguments = _parser(scenario, module).parse_args(sys.argv[2:])
    measure: Callable[[argparse.Namespace], Iterator[Figures]] = module.measure
    stdout = sys.stdout  # a session of Ray's that a benchmark opens turns what is printed in it to stderr
    for figures in measure(arguments):
        print(json.dumps({"benchmark": scenario.name, **figures}), file=stdout, flush=True)


def _parser(scenario: Scenario, module: ModuleType) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {scenario.name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if scenario.runs is not None:
        parser.add_argument("--runs", type=int, default=scenario.runs, help=f"runs of each (default: {scenario.runs})")
    module.add_options(parser)
    return parser


if __name__ == "__main__":
    main()

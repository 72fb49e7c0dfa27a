"""The fault table: each fault strikes the real job, and the report tells what is lost, doubled or repeated.

Prints a JSON line for each try, and the whole table in Markdown at the end.
"""

import argparse
import json
import random
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from tests.faults.fault import ON_VLLM, Fault
from tests.faults.kills import kill_at_moments, make_vllm_corpus, run_undisturbed
from tests.faults.report import FaultReport, table
from tests.faults.strike import strike


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="seed of the random moments (default: 0)")
    parser.add_argument("--times", type=int, default=1, help="times that each fault is tried (default: 1)")
    parser.add_argument(
        "--faults", nargs="+", type=Fault, default=list(Fault), metavar="FAULT", help="names as in the table (all)"
    )
    options = parser.parse_args()
    reports: dict[Fault, list[FaultReport]] = {}
    for fault in options.faults:
        for report in _reports(fault, times=options.times, seed=options.seed):
            reports.setdefault(fault, []).append(report)
            print(json.dumps(asdict(report)), flush=True)
    print(table(reports))


def _reports(fault: Fault, *, times: int, seed: int) -> Iterator[FaultReport]:
    """A report for each try."""
    sources = [random.Random(f"{fault}-{seed}-{number}") for number in range(times)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if fault in ON_VLLM:
            corpus = make_vllm_corpus(folder)
            reference = run_undisturbed(corpus, output=folder / "undisturbed")
            for number, rng in enumerate(sources):
                yield kill_at_moments(fault, corpus, reference=reference, output=folder / f"run-{number}", rng=rng)
            return
        for number, rng in enumerate(sources):
            place = folder / str(number)
            place.mkdir()
            yield strike(fault, place, rng=rng)


if __name__ == "__main__":
    main()

"""Speed and memory of making suites: tokens a minute of long samples, and peak memory for few samples against many.

Every run is the real command in a process of its own; the time to import and to load the tokeniser is taken off by a
run that makes one short sample.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TASKS = ("niah_single_1", "niah_single_2", "niah_multikey_2")
"""Needles in noise, in essays, among needles."""

_CHILD = (
    "import json, resource, sys\n"
    "from jobs.evaluate_make import main\n"
    "code = main(sys.argv[1:])\n"
    "used = resource.getrusage(resource.RUSAGE_SELF)\n"
    "print(json.dumps([used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))\n"
    "sys.exit(code)\n"
)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--tokens", default="1M", help="length of a sample (default: 1M, 1,048,576 tokens)")
    options.add_argument("--runs", type=int, default=3, help="runs of each (default: 3)")
    options.add_argument("--samples", type=int, nargs=2, default=[2, 10], help="samples compared (default: 2 10)")
    options.add_argument("--json", action="store_true", help="JSON lines only")
    known = options.parse_args()
    few, many = known.samples
    for task in TASKS:
        runs = [_run(task, known.tokens, few) for _ in range(known.runs)]
        rates = [run["tokens"] / run["cpu_seconds"] * 60 for run in runs]
        peaks = {few: [run["peak_mib"] for run in runs], many: [_run(task, known.tokens, many)["peak_mib"]]}
        print(json.dumps(_figures(task, known.tokens, rates, peaks)), flush=True)
        if not known.json:
            growth = max(peaks[many]) / statistics.median(peaks[few]) - 1
            print(
                f"{task}: {statistics.median(rates):,.0f} tokens/min of one core; {few} to {many} samples {growth:+.1%}"
            )


def _run(task: str, tokens: str, samples: int) -> dict[str, Any]:
    """CPU seconds, peak resident memory and tokens of one command."""
    with tempfile.TemporaryDirectory() as folder:
        idle = _spend(folder + "/idle", task, "512", 1)
        used = _spend(folder + "/suite", task, tokens, samples)
        record = json.loads(Path(folder, "suite", "suite.json").read_text())
    num_tokens = record["cells"][0]["length_tokens"] * (samples + 1)  # one more is made as a trial
    return {"tokens": num_tokens, "cpu_seconds": used[0] - idle[0], "peak_mib": used[1]}


def _spend(output: str, task: str, tokens: str, samples: int) -> tuple[float, float]:
    arguments = ["--output", output, "--tasks", task, "--lengths", tokens, "--samples", str(samples)]
    command = [sys.executable, "-c", _CHILD, *arguments]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds, peak = json.loads(said.splitlines()[-1])
    return seconds, peak


def _figures(task: str, tokens: str, rates: list[float], peaks: dict[int, list[float]]) -> dict[str, Any]:
    return {
        "benchmark": "suites",
        "task": task,
        "length": tokens,
        "runs": len(rates),
        "tokens_per_cpu_minute_median": round(statistics.median(rates)),
        "tokens_per_cpu_minute_range": [round(min(rates)), round(max(rates))],
        **{f"peak_mib_{samples}_samples": [round(peak, 1) for peak in found] for samples, found in peaks.items()},
    }


if __name__ == "__main__":
    main()

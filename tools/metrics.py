"""Prints how large this checkout is, in files that git tracks: `python tools/metrics.py`."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
PACKAGE = "memagent_batch"
APPS, READERS = f"{PACKAGE}/apps/", f"{PACKAGE}/data/ingest/readers/"
"""What is built on runs, and the readers of kinds of files: all else of the package is its core."""

TURN = {
    "cli.answer.Answer.run": "",
    "run.flows.answer.answer_checked": "answer_checked(",
    "run.flows.answer.answer_plan": "answer_plan(",
    "run.flows.answer.read_plan": "read_plan(",
    "run.flows.answer.read_documents": "read_documents(",
    "run.executors.reader.Reader.__call__": "reader=Reader",
    "run.executors.reader.Reader.read": "self.read(",
    "run.executors.reader.Reader._read": "self._read(",
    "run.executors.reader.Reader._result": "self._result(",
    "run.reading.read.read": "read(",
    "run.reading.read._outcome": "_outcome(",
    "loop.policies.overwrite.OverwritePolicy.read": "policy.read(",
    "run.reading.read.ReadingTurns.__call__": "turns(",
    "run.reading.read.ReadingTurns._complete": "self._complete(",
    "run.reading.read.ReadingTurns._logged_or_asked": "self._logged_or_asked(",
    "run.reading.read.ReadingTurns._equal_or_asked": "self._equal_or_asked(",
    "run.reading.read.ReadingTurns._ask": "self._ask(",
    "loop.engines.vllm.engine.VllmEngine.complete": "engine.complete(",
}
"""The functions that follow one another from the command line to vLLM, each with how the one before it names it.

A test holds this to the code. What calls a `Reader`, in this process or on a cluster, need not be read for it."""


def main() -> None:
    """Prints a row for each figure."""
    for name, number in measure(CHECKOUT).items():
        print(f"{name:<44}{number:>12,}")


def measure(root: Path) -> dict[str, int]:
    """All figures of a checkout."""
    python = tracked(root, "*.py")
    tests = [name for name in python if name.startswith("tests/")]
    package = tracked(root, f"{PACKAGE}/*.py")
    core = [name for name in package if not name.startswith((APPS, READERS))]
    return {
        "Python outside tests, lines": num_lines(root, python) - num_lines(root, tests),
        "core (all but apps and readers), lines": num_lines(root, core),
        "packages at the top": len({name.split("/")[1] for name in package if name.count("/") > 1}),
        "files to open to follow one turn": len({turn_file(root, name) for name in TURN}),
        "tests, lines": num_lines(root, tests),
        "Markdown, words": sum(len(read(root, name).split()) for name in tracked(root, "*.md")),
    }


def turn_file(root: Path, function: str) -> Path:
    """The file of the package that holds a function."""
    path = root / PACKAGE
    for name in function.split("."):
        if (path / f"{name}.py").exists():
            return path / f"{name}.py"
        path /= name
    raise FileNotFoundError(f"no module of {PACKAGE} holds {function}")


def tracked(root: Path, pattern: str) -> list[str]:
    """Paths of tracked files that are there."""
    listed = subprocess.run(["git", "ls-files", pattern], cwd=root, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.splitlines() if (root / name).exists()]


def read(root: Path, name: str) -> str:
    """The text of a file."""
    return (root / name).read_text(encoding="utf-8")


def num_lines(root: Path, names: Sequence[str]) -> int:
    """Lines of the files, blank ones and comments included."""
    return sum(read(root, name).count("\n") for name in names)


if __name__ == "__main__":
    main()

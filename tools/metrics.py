"""Prints how large this checkout is, in files that git tracks: `python tools/metrics.py`."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
PACKAGE = "memagent_batch"
APPS, READERS = f"{PACKAGE}/apps/", f"{PACKAGE}/data/ingest/readers/"
"""What is built on runs, and the readers of kinds of files: all else of the package is its core."""


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
        "tests, lines": num_lines(root, tests),
        "Markdown, words": sum(len(read(root, name).split()) for name in tracked(root, "*.md")),
    }


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

"""Prints how large this checkout is, in files that git tracks: `python tools/metrics.py`."""

import ast
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
PACKAGE = "memagent_batch"
COMPANIONS = ("convert", "pages", "evaluation", "review", "audit", "training", "models")
"""Rooms of the package that the main path never imports."""
COMMANDS = ("cli", "flows")
"""Rooms of which the main path has what `memagent answer` imports."""
Trees = Mapping[str, ast.Module]
"""The modules of the package, by path below the checkout."""


def main() -> None:
    """Prints a row for each figure."""
    for name, number in measure(CHECKOUT).items():
        print(f"{name:<44}{number:>12,}")


def measure(root: Path) -> dict[str, int]:
    """All figures of a checkout."""
    python = tracked(root, "*.py")
    tests = [name for name in python if name.startswith("tests/")]
    product = [name for name in python if not name.startswith("tests/")]
    trees = package_trees(root)
    answer = reached(trees, f"{PACKAGE}.cli.main") | reached(trees, f"{PACKAGE}.cli.answer")
    main_path = [
        name
        for name in trees
        if (room := name.split("/")[1]) not in COMPANIONS and (room not in COMMANDS or name in answer)
    ]
    return {
        "Python outside tests, lines": num_lines(root, product),
        "main path, lines": num_lines(root, main_path),
        "tests, lines": num_lines(root, tests),
        "Markdown, words": sum(len(read(root, name).split()) for name in tracked(root, "*.md")),
    }


def package_trees(root: Path) -> Trees:
    """The parsed modules of the package and of what users run."""
    names = [name for package in (PACKAGE, "pipelines", "jobs") for name in tracked(root, f"{package}/*.py")]
    return {name: ast.parse(read(root, name), name) for name in names if "recipes" not in name.split("/")}


def imported_modules(tree: ast.Module) -> Iterator[str]:
    """Modules that a module imports, wherever the import stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def reached(trees: Trees, module: str) -> set[str]:
    """Modules that a module imports, at once or through others, and itself."""
    by_name = {module_name(name): name for name in trees}
    waiting, found = [module], set()
    while waiting:
        path = by_name.get(waiting.pop())
        if path is not None and path not in found:
            found.add(path)
            waiting += imported_modules(trees[path])
    return found


def module_name(path: str) -> str:
    """The dotted name of a module."""
    return path.removesuffix(".py").replace("/", ".")


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

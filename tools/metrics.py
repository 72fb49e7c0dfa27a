"""Prints how large a checkout is and how many concepts its code has: `python tools/metrics.py [CHECKOUT ...]`.

Only files that git tracks count, and only the standard library is needed. With several checkouts, each has a column.
"""

import argparse
import ast
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
PACKAGE = "memagent_batch"
COMPANIONS = ("convert", "pages", "evaluation", "review", "audit", "training", "models")
"""Rooms of the package that the main path never imports."""
COMMANDS = ("cli", "flows")
"""Rooms of which the main path has what `memagent answer` imports."""
SMALL_FILE_LINES = 45
LARGE_FILE_LINES = 600
LONG_FUNCTION_LINES = 45
Trees = Mapping[str, ast.Module]
"""The modules of the package, by path below the checkout."""


def main() -> None:
    """Prints a row for each figure and a column for each checkout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", type=Path, nargs="*", default=[CHECKOUT], help="default: this one")
    parser.add_argument("--names", action="store_true", help="list the names that two modules define")
    options = parser.parse_args()
    columns = [measure(root) for root in options.checkouts]
    for name in columns[0]:
        print(f"{name:<44}" + "".join(f"{column[name]:>12,}" for column in columns))
    if options.names:
        print("\n".join(sorted(names_defined_twice(package_trees(options.checkouts[-1])))))


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
    modules = [name for name in trees if not name.endswith(("__init__.py", "__main__.py"))]
    importers = Counter(imported for name in trees for imported in set(imported_modules(trees[name])))
    return {
        "Python outside tests, lines": num_lines(root, product),
        "main path, lines": num_lines(root, main_path),
        "tests, lines": num_lines(root, tests),
        "Markdown, words": sum(len(read(root, name).split()) for name in tracked(root, "*.md")),
        "modules of the package": len(modules),
        "modules with one importer in the package": sum(importers[module_name(name)] == 1 for name in modules),
        f"modules under {SMALL_FILE_LINES} lines": sum(num_lines(root, [name]) < SMALL_FILE_LINES for name in modules),
        f"modules over {LARGE_FILE_LINES} lines": sum(num_lines(root, [name]) > LARGE_FILE_LINES for name in modules),
        "names defined in two modules": len(names_defined_twice(trees)),
        "classes": sum(isinstance(node, ast.ClassDef) for tree in trees.values() for node in ast.walk(tree)),
        f"functions over {LONG_FUNCTION_LINES} lines": sum(
            (node.end_lineno or 0) - node.lineno >= LONG_FUNCTION_LINES
            for tree in trees.values()
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ),
    }


def package_trees(root: Path) -> Trees:
    """The parsed modules of the package; of older checkouts, also of the packages that stood beside it."""
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


def names_defined_twice(trees: Trees) -> list[str]:
    """Functions, classes and constants that two modules or more define at their top level, with their modules."""
    modules: dict[str, set[str]] = defaultdict(set)
    for module, tree in trees.items():
        for name in defined_names(tree.body):
            modules[name].add(module)
    ignored = ("main", "log")  # each command has its own
    return [
        f"{name}: {', '.join(sorted(places))}"
        for name, places in modules.items()
        if len(places) > 1 and name not in ignored and not name.startswith("__")
    ]


def defined_names(statements: Sequence[ast.stmt]) -> Iterator[str]:
    """Names that these statements define."""
    for node in statements:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Assign(targets=targets):
                yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name


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

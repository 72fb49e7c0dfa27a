"""Prints the figures of the house: how large the product is, how full its folders are, how deep its stacks.

    python tests/architecture/metrics.py [--root CHECKOUT ...] [--json]

Reads the sources of any commit with the standard library alone. Only the frames of a turn need the product's own
dependencies: `turn_frames.py` runs a reading. With several checkouts, each has a column.
"""

import argparse
import ast
import json
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGES = ("memagent_batch", "pipelines")
"""What the product is made of; tests, benchmarks and infra are not counted."""
RECIPES = ("pipelines", "recipes")
"""What makes the shipped weights, and does not ship."""

WHOLE_SETTINGS = frozenset({"Settings", "JobConfig"})
"""Types that hold every knob of a run."""

LONGEST_FILE_LINES = 350
"""Lines above which a file is counted as too long."""

UNTYPED = "dict[str, Any]"
FRAMES_SECONDS = 60
"""Longest time for the reading whose frames are counted."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file of the product."""

    path: Path
    """Below the checkout."""
    text: str
    """Its contents."""
    tree: ast.Module
    """The same, parsed."""

    @property
    def num_lines(self) -> int:
        """Lines, blank ones and comments included."""
        return self.text.count("\n")

    @property
    def functions(self) -> list[Function]:
        """Functions and methods, nested ones included."""
        return [node for node in ast.walk(self.tree) if isinstance(node, Function)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure."""

    name: str
    """What is counted."""
    value: int | None
    """How many; None where it can't be measured."""
    note: str = ""
    """Where, or why not."""
    items: Sequence[str] = ()
    """What was counted, where that is worth a list; shown with `--json`."""


def main() -> int:
    """Prints the figures; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, nargs="+", default=[CHECKOUT], help="checkouts (default: this one)")
    parser.add_argument("--json", action="store_true", help="print JSON, with the names that were counted")
    options = parser.parse_args()
    figures = {str(root): measure(root) for root in options.root}
    print(as_json(figures) if options.json else as_table(figures))
    return 0


def measure(root: Path) -> list[Figure]:
    """All figures of a checkout."""
    sources = list(read_sources(root))
    return [
        Figure(name="product lines", value=sum(source.num_lines for source in sources), note=f"{len(sources)} files"),
        fullest_folder(sources),
        untyped_rows(sources),
        turn_frames(root),
        whole_settings(sources),
        names_twice(sources),
        long_files(sources),
        longest_function(sources),
    ]


def read_sources(root: Path) -> Iterator[Source]:
    """The product's Python files."""
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            if path.relative_to(root).parts[:2] == RECIPES:
                continue
            text = path.read_text(encoding="utf-8")
            yield Source(path=path.relative_to(root), text=text, tree=ast.parse(text, str(path)))


def fullest_folder(sources: Sequence[Source]) -> Figure:
    """Python files directly in the folder that has most of them, without `__init__.py`."""
    counts = Counter(source.path.parent for source in sources if source.path.name != "__init__.py")
    ((folder, count),) = counts.most_common(1)
    items = [f"{folder} {count}" for folder, count in counts.most_common()]
    return Figure(name="files in the fullest folder", value=count, note=str(folder), items=items)


def untyped_rows(sources: Sequence[Source]) -> Figure:
    """Lines with the type `dict[str, Any]` in them, however often."""
    lines = {
        f"{source.path}:{node.lineno}"
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Subscript) and ast.unparse(node) == UNTYPED
    }
    return Figure(name=f"lines with {UNTYPED}", value=len(lines), items=sorted(lines))


def turn_frames(root: Path) -> Figure:
    """Frames between a policy's `await` and the engine's `complete`; neither of the two is counted."""
    name = "frames from policy to engine"
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("turn_frames.py"))],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root.resolve())},
        capture_output=True,
        text=True,
        timeout=FRAMES_SECONDS,
        check=False,
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return Figure(name=name, value=None, note=f"not measured: {reason}; see turn_frames.py")
    frames = done.stdout.splitlines()
    files = dict.fromkeys(frame.split(":")[0] for frame in frames)
    return Figure(name=name, value=len(frames), note=", ".join(files), items=frames)


def whole_settings(sources: Sequence[Source]) -> Figure:
    """Functions and methods with a parameter whose annotation names one of `WHOLE_SETTINGS`."""
    names = [
        f"{source.path}:{function.lineno} {function.name}"
        for source in sources
        for function in source.functions
        if any(_names_in(annotation) & WHOLE_SETTINGS for annotation in _annotations(function))
    ]
    return Figure(name="functions that take all settings", value=len(names), items=names)


def names_twice(sources: Sequence[Source]) -> Figure:
    """Names that two or more files define at their top level: functions, classes, aliases, constants.

    Private names count, since a reader who looks for one finds several. `main` and names like `__all__` don't: every
    command has the one, Python gives the other its meaning. A name defined several times in one file counts once, and
    what is imported is not defined. Names in `if` and `try` blocks of a module count as top level too.
    """
    files: dict[str, set[str]] = defaultdict(set)
    for source in sources:
        for name in _defined(source.tree.body):
            files[name].add(str(source.path))
    twice = {name: sorted(paths) for name, paths in sorted(files.items()) if len(paths) > 1 and _counts(name)}
    num_public = sum(not name.startswith("_") for name in twice)
    items = [f"{name}: {', '.join(paths)}" for name, paths in twice.items()]
    return Figure(
        name="top-level names in two files or more", value=len(twice), note=f"{num_public} public", items=items
    )


def long_files(sources: Sequence[Source]) -> Figure:
    """Files over `LONGEST_FILE_LINES`; the longest one is named in any case."""
    by_length = sorted(sources, key=lambda source: -source.num_lines)
    items = [f"{source.path} {source.num_lines}" for source in by_length if source.num_lines > LONGEST_FILE_LINES]
    note = f"longest: {by_length[0].path} {by_length[0].num_lines}"
    return Figure(name=f"files over {LONGEST_FILE_LINES} lines", value=len(items), note=note, items=items)


def longest_function(sources: Sequence[Source]) -> Figure:
    """Lines from `def` to the end, docstring included."""
    lengths = {
        f"{source.path}:{function.lineno} {function.name}": (function.end_lineno or 0) - function.lineno + 1
        for source in sources
        for function in source.functions
    }
    name = max(lengths, key=lambda name: lengths[name])
    over = [f"{name} {length}" for name, length in lengths.items() if length > 40]
    return Figure(name="lines of the longest function", value=lengths[name], note=name, items=over)


def as_table(figures: Mapping[str, Sequence[Figure]]) -> str:
    """The figures as text: a column for each checkout, and notes on the last one."""
    *_, last = figures.values()
    header = ["", *[Path(root).resolve().name for root in figures], ""]
    rows = [
        [figure.name, *[_number(column[position]) for column in figures.values()], figure.note]
        for position, figure in enumerate(last)
    ]
    widths = [max(len(row[position]) for row in [header, *rows]) for position in range(len(header) - 1)]
    lines = []
    for name, *values, note in [header, *rows]:
        numbers = "  ".join(value.rjust(width) for value, width in zip(values, widths[1:], strict=True))
        lines.append(f"{name.ljust(widths[0])}  {numbers}  {note}".rstrip())
    return "\n".join(lines)


def as_json(figures: Mapping[str, Sequence[Figure]]) -> str:
    """The figures as JSON, by checkout and name."""
    values = {
        root: {
            figure.name: {"value": figure.value, "note": figure.note, "items": list(figure.items)} for figure in column
        }
        for root, column in figures.items()
    }
    return json.dumps(values, indent=2)


def _number(figure: Figure) -> str:
    return "-" if figure.value is None else f"{figure.value:,}"


def _annotations(function: Function) -> list[ast.expr]:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return [argument.annotation for argument in every if argument and argument.annotation]


def _names_in(annotation: ast.expr) -> set[str]:
    """Names that an annotation mentions, also where it is written as a text."""
    names = set()
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name | ast.Attribute):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            names |= set(re.findall(r"\w+", node.value))
    return names


def _defined(statements: Sequence[ast.stmt]) -> Iterator[str]:
    """Names that these statements define."""
    for node in statements:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Assign(targets=targets):
                yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.If() | ast.Try():
                yield from _defined([*node.body, *node.orelse])


def _counts(name: str) -> bool:
    return name != "main" and not (name.startswith("__") and name.endswith("__"))


if __name__ == "__main__":
    sys.exit(main())

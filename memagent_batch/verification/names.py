"""Names of files as records give them: below the output, and nowhere else."""

from collections.abc import Iterable
from pathlib import PurePosixPath


def outside(names: Iterable[object]) -> list[str]:
    """Those that are no names of files below the output: absolute ones, with `..`, or no texts."""
    return [str(name) for name in names if not _is_below(name)]


def _is_below(name: object) -> bool:
    if not isinstance(name, str) or not name or "\\" in name or "://" in name or "::" in name:
        return False
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts

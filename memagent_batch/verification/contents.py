"""What of an output is there: all of it, or what a bundle took along."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from memagent_batch.errors import OutputError
from memagent_batch.files.json_files import read_json
from memagent_batch.files.location import Location

BUNDLE_FILE = "bundle.json"
"""Says that a folder is an unpacked bundle, and what is not in it."""
BUNDLE_FORMAT = "memagent-bundle/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Which files of an output are there."""

    left_out: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What a bundle leaves out: patterns of names, by what it is."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Hashes of the files of a bundle that no run recorded, as those of reviews."""

    def has(self, name: str) -> bool:
        """Whether a file, or the folder of files, belongs to it."""
        patterns = (pattern for patterns in self.left_out.values() for pattern in patterns)
        return not any(fnmatchcase(name, pattern) for pattern in patterns)


def read_contents(output: Location) -> Contents:
    """What is there, as a bundle says; everything where this is no bundle.

    Raises:
        OutputError: the bundle is of another version, or its list is damaged.
    """
    record = read_json(output / BUNDLE_FILE)
    if record is None:
        return Contents()
    if record.get("format") != BUNDLE_FORMAT:
        raise OutputError(f"{output / BUNDLE_FILE} has the layout {record.get('format')!r}, not {BUNDLE_FORMAT!r}")
    return Contents(left_out=record["left_out"], files=record["files"])

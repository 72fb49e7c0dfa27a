"""What of an output may be absent: nothing, or what a bundle leaves out."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any

from memagent_batch.errors import OutputError
from memagent_batch.files.json_files import read_json
from memagent_batch.files.location import Location
from memagent_batch.runs.claim import ANSWER_TABLES
from memagent_batch.runs.history.history import INDEX_FILE, RUNS_FOLDER
from memagent_batch.runs.record.log_files import LOG_TABLES, list_log
from memagent_batch.verification.findings import Finding, Kind, Report
from memagent_batch.verification.names import outside

BUNDLE_FILE = "bundle.json"
"""Says that a folder is an unpacked bundle, and what is not in it."""
BUNDLE_FORMAT = "memagent-bundle/1"
LOG_LEFT_OUT = "the turn log"
TABLES_LEFT_OUT = "the tables"
INDEX_LEFT_OUT = "the index of a table that was read"
LEFT_OUT: Mapping[str, Sequence[str]] = {
    LOG_LEFT_OUT: [f"{folder}/*" for folder in LOG_TABLES],
    INDEX_LEFT_OUT: [f"{RUNS_FOLDER}/*/{INDEX_FILE}"],
    TABLES_LEFT_OUT: [f"{folder}/*" for folder in ANSWER_TABLES.folders],
}
"""All that a bundle may leave out: patterns of names, by what it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Which files of an output may be absent. Whatever is there is checked."""

    left_out: Collection[str] = ()
    """What a bundle leaves out: names of `LEFT_OUT`."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Hashes of the files of a bundle that no run recorded, as those of reviews."""

    def may_lack(self, name: str) -> bool:
        """Whether a file may be absent."""
        return any(fnmatchcase(name, pattern) for what in self.left_out for pattern in LEFT_OUT[what])


def read_contents(output: Location, reports: list[Report]) -> Contents:
    """What may be absent, as a bundle says; nothing where this is no bundle. What is wrong with it goes to `reports`.

    Raises:
        OutputError: the bundle is of another version, or its list is damaged.
    """
    record = read_json(output / BUNDLE_FILE)
    if record is None:
        return Contents()
    if record.get("format") != BUNDLE_FORMAT:
        raise OutputError(f"{output / BUNDLE_FILE} has the layout {record.get('format')!r}, not {BUNDLE_FORMAT!r}")
    left_out: Any = record.get("left_out")
    files: Any = record.get("files")
    is_valid = isinstance(left_out, list) and isinstance(files, dict) and not outside(files)
    if not is_valid or not all(isinstance(value, str) for value in chain(left_out, files.values())):
        raise OutputError(f"{output / BUNDLE_FILE} is damaged; unpack the bundle again")
    what = ""
    if unknown := sorted(set(left_out) - LEFT_OUT.keys()):
        what = f"it leaves out {unknown[0]!r}, which no bundle does"
    elif LOG_LEFT_OUT in left_out and any(list_log(output)):
        what = "it says that the turn log is not here, and files of it are: this is no unpacked bundle"
    if what:
        reports.append(Finding(kind=Kind.CHAIN, where=BUNDLE_FILE, what=what, since=""))
        return Contents()
    return Contents(left_out=left_out, files=files)

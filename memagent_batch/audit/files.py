"""Compares the bytes of an output's files with the lists that its runs left, `runs/RUN_ID/SHA256SUMS`."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import sha256
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, TypeAlias, cast

from memagent_batch.domain.texts.shares import quantity
from memagent_batch.errors import OutputError
from memagent_batch.runs.claim import ANSWER_TABLES, named_files
from memagent_batch.runs.history import RUNS_FOLDER
from memagent_batch.runs.manifest import MANIFEST_FILE, PART_TABLES, Manifest
from memagent_batch.runs.record import (
    LOG_TABLES,
    RECORD_FILES,
    SIGN_OFF_LOG_FOLDER,
    SIGNATURE_FILE,
    SIGNED_FOLDER,
    SUMS_FILE,
    file_hashes,
    is_below,
    list_log,
    list_sign_offs,
    logged_sign_offs,
    parse_sums,
    record_file,
    signer_of,
)
from memagent_batch.store.errors import FILE_ERRORS, storage_errors
from memagent_batch.store.json_files import json_bytes, json_object
from memagent_batch.store.location import Location
from memagent_batch.store.turn_log.question_list import ASKED_FOLDER

CLAIMED = "claimed_by"
"""Field that a later attempt adds to the manifest that is published, and to no other."""
_TABLE_FOLDERS = tuple(f"{folder}/" for folder in ANSWER_TABLES.folders)
_LOG_FOLDERS = tuple(f"{folder}/" for folder in LOG_TABLES)


class FindingKind(StrEnum):
    """What is wrong."""

    CHANGED = "changed"
    """A file has other bytes than its run recorded."""
    GONE = "gone"
    CHAIN = "chain"
    """Runs do not follow one from the other."""
    SIGNATURE = "signature"
    """A list is not signed by one of the allowed signers."""
    COUNTS = "counts"
    """Numbers of rows or readings do not add up."""
    ROWS = "rows"
    """Rows do not follow from the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong."""

    kind: FindingKind
    where: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchecked:
    """What could not be checked. It is not a sign that something is wrong."""

    what: str
    why: str


FileReport: TypeAlias = Finding | Unchecked


def split(reports: Iterable[FileReport]) -> tuple[list[Finding], list[Unchecked]]:
    """What is wrong, one finding for each place, and what could not be checked, each once."""
    each = list(dict.fromkeys(reports))
    found: dict[str, Finding] = {}
    for report in each:
        if isinstance(report, Finding):
            first = found.get(report.where)
            found[report.where] = replace(first, what=f"{first.what}; {report.what}") if first else report
    return [*found.values()], [report for report in each if isinstance(report, Unchecked)]


@dataclass(slots=True, kw_only=True)
class CheckedFiles:
    """What came of the files of an output. Mutable: runs are checked one after another."""

    output: Location
    reports: list[FileReport]
    """Gets what is wrong, and what can't be checked."""
    run_id: str
    record_files: Mapping[str, frozenset[str]]
    manifest: Manifest | None = None
    """Its manifest; None if neither copy can be read."""
    sha256: str = ""
    """Of its list; empty if it has none."""
    signer: str = ""
    """Who has signed the list; empty if that was not checked."""
    num_runs: int = 0
    """Runs that have a list."""
    num_sign_off_files: int = 0
    """Files of sign-offs that are as they were signed."""
    log: list[str] = field(default_factory=list)
    """Files of the log that its tables rest on and that are as they were."""
    hashes: dict[str, str | None] = field(default_factory=dict)
    """The files that were looked at, with the hashes that they have; None for one that is gone."""
    wrong: set[str] = field(default_factory=set)
    """Of these, files that are not as their run recorded them."""

    @property
    def num_files(self) -> int:
        """Files that are as they were recorded."""
        return sum(1 for name, value in self.hashes.items() if value is not None and name not in self.wrong)

    def check_run(self, run_id: str) -> dict[str, str] | None:
        """Compares the files that a run lists, each once; returns its list, None if there is none to go by."""
        name = record_file(run_id, SUMS_FILE)
        data = _bytes(self.output, name)
        if data is None:
            self._find(FindingKind.GONE, name, f"run {run_id} recorded it")
            return None
        try:
            wanted = parse_sums(data, name=name)
        except OutputError as error:
            self._find(FindingKind.CHANGED, name, str(error))
            self.wrong.add(name)
            return None
        self.num_runs += 1
        if run_id == self.run_id:
            self.sha256 = sha256(data).hexdigest()
        self.hashes |= file_hashes(self.output, wanted.keys() - self.hashes.keys())
        for each in sorted(name for name in wanted if name not in self.wrong):
            if self.hashes[each] is None:
                self._missing(each, run_id)
            elif self.hashes[each] != wanted[each]:
                self._find(FindingKind.CHANGED, each, f"its bytes are not those that run {run_id} recorded")
                self.wrong.add(each)
        return wanted

    def check_older(self) -> None:
        """Checks the runs before the last one, the newest first, and that each names the one before it."""
        runs = [run_id for run_id, names in self.record_files.items() if MANIFEST_FILE in names]
        older = [run_id for run_id in runs if run_id != self.run_id][::-1]
        for after, run_id in pairwise([self.run_id, *older]):
            self._check_link(after, run_id)
            self.check_run(run_id)

    def check_listed(self, wanted: Mapping[str, str]) -> None:
        """Looks for files that the last run must list and does not: its record and its tables."""
        run_id, tables = self.run_id, named_files(self.manifest)
        record = [record_file(run_id, name) for name in (*RECORD_FILES, MANIFEST_FILE)]
        for name in dict.fromkeys([*record, f"{ASKED_FOLDER}/{run_id}.parquet", *tables]):
            if name not in wanted:
                self._find(FindingKind.CHANGED, record_file(run_id, SUMS_FILE), f"it does not list {name}")

    def check_sign_offs(self) -> None:
        """Compares files of sign-offs with the lists that were written with them."""
        try:
            wanted = logged_sign_offs(self.output)
        except OutputError as error:
            self._find(FindingKind.CHANGED, SIGN_OFF_LOG_FOLDER, str(error))
            return
        self.hashes |= file_hashes(self.output, wanted.keys() - self.hashes.keys())
        for name in sorted(wanted.keys() - self.wrong):
            if self.hashes[name] != wanted[name]:
                is_gone = self.hashes[name] is None
                what = "it is not there" if is_gone else "its bytes are not those"
                self._find(FindingKind.GONE if is_gone else FindingKind.CHANGED, name, f"{what} that were signed")
                self.wrong.add(name)
        names = {name for name in list_sign_offs(self.output) if name.startswith(SIGNED_FOLDER)}
        self.num_sign_off_files = len(names & self.hashes.keys() - self.wrong)
        left = len(names - self.hashes.keys())
        if left:
            why = "no run has listed them yet: the next one does"
            self.reports.append(Unchecked(what=f"{quantity(left, 'file')} of sign-offs", why=why))

    def check_signature(self, allowed: Path | None) -> None:
        """Whether one of the allowed signers has signed the last list, which covers those before it."""
        name, signed = (record_file(self.run_id, file) for file in (SUMS_FILE, SIGNATURE_FILE))
        data = _bytes(self.output, signed)
        if allowed is None:
            if data is not None:
                self.reports.append(Unchecked(what=f"the signature {signed}", why="it needs --allowed-signers"))
            return
        try:
            if data is None:
                raise OutputError(f"it is not signed: there is no {signed}")
            listed = _bytes(self.output, name) or b""  # no list: no signature of it
            self.signer = signer_of(listed, data, allowed=allowed)
        except OutputError as error:
            self._find(FindingKind.SIGNATURE, name, str(error))

    def _find(self, kind: FindingKind, where: str, what: str) -> None:
        self.reports.append(Finding(kind=kind, where=where, what=what))

    def _missing(self, name: str, run_id: str) -> None:
        """Reports a file that a run lists and that is not there; not a table that a later run has replaced."""
        folder, _, rest = name.partition("/")
        other, is_last = rest.partition("/")[0], run_id == self.run_id
        if folder == RUNS_FOLDER and other != run_id and other not in self.record_files:
            why = f"the folder {RUNS_FOLDER}/{other} is not there; folders of old runs may be deleted"
            self.reports.append(Unchecked(what=f"run {other}", why=why))
        elif name == record_file(run_id, MANIFEST_FILE) and is_last:
            why = f"its copy {name} is not there: the run was killed before it, and the next one makes it"
            self.reports.append(Unchecked(what="the manifest of the last run", why=why))
        elif is_last or not name.startswith(_TABLE_FOLDERS):
            self._find(FindingKind.GONE, name, f"run {run_id} recorded it")
            self.wrong.add(name)

    def _check_link(self, after: str, run_id: str) -> None:
        """Whether the list of a run names the finished run before it, or one that has been deleted since."""
        name = record_file(after, SUMS_FILE)
        try:
            listed = parse_sums(_bytes(self.output, name) or b"", name=name)
        except OutputError:
            return
        named = {each.split("/")[1] for each in listed if each.startswith(f"{RUNS_FOLDER}/")} - {after}
        if listed and max(named, default="") < run_id:
            what = f"run {after} does not name it as the run before"
            self._find(FindingKind.CHAIN, record_file(run_id, SUMS_FILE), what)


def published_manifest(output: Location) -> bytes | None:
    """The manifest that an output shows, as its run wrote it: without the mark of a later attempt."""
    data = _bytes(output, MANIFEST_FILE)
    value = json_object(data)
    if value is None or CLAIMED not in value or json_bytes(value) != data:
        return data
    return json_bytes({name: each for name, each in value.items() if name != CLAIMED})


def check_files(
    output: Location, *, all_runs: bool, allowed_signers: Path | None, reports: list[FileReport]
) -> CheckedFiles:
    """Hashes the files that the last run lists, or those of every run.

    Raises:
        OutputError: no run has finished here.
        StorageError: a file can't be read.
    """
    files = _record_files(output)
    published = published_manifest(output)
    shown = _manifest_of(published)
    runs = [run_id for run_id, names in files.items() if MANIFEST_FILE in names]
    if published is None and not runs:
        raise OutputError(f"output: no run has finished at {output} (no {MANIFEST_FILE})")
    last = max([*runs, *([shown["run_id"]] if shown and shown["run_id"] in files else [])], default="")
    checked = CheckedFiles(output=output, reports=reports, run_id=last, record_files=files)
    wanted = checked.check_run(last) if last else None
    recorded = (wanted or {}).get(record_file(last, MANIFEST_FILE))
    copies = [published, _bytes(output, record_file(last, MANIFEST_FILE)) if last else None]
    checked.manifest = _last_manifest(copies, run_id=last, recorded=recorded)
    reports += _of_published(published, shown, run_id=last, recorded=recorded)
    checked.log = [*list_log(output)]
    if wanted is not None:
        checked.check_listed(wanted)
        checked.log = [name for name in wanted if name.startswith(_LOG_FOLDERS) and name not in checked.wrong]
    checked.check_sign_offs()
    checked.check_signature(allowed_signers)
    left = len({*list_log(output)} - {*checked.log} - checked.wrong)
    if left:
        why = "no finished run rests on them: a run goes on, or was stopped"
        reports.append(Unchecked(what=f"{left:,} files of the log", why=why))
    if all_runs:
        checked.check_older()
    return checked


def _record_files(output: Location) -> dict[str, frozenset[str]]:
    """Runs in `runs/`, the oldest first, with the names of their files."""
    start = len((output / RUNS_FOLDER).path) + 1
    found: dict[str, set[str]] = {}
    for path in (output / RUNS_FOLDER).files():
        run_id, _, name = path[start:].partition("/")
        found.setdefault(run_id, set()).add(name)
    return {run_id: frozenset(found[run_id]) for run_id in sorted(found)}


def _last_manifest(copies: Iterable[bytes | None], *, run_id: str, recorded: str | None) -> Manifest | None:
    """The copy of the last run's manifest that it recorded; any copy if it has recorded none."""
    for data in copies:
        manifest = _manifest_of(data)
        is_recorded = recorded is None or sha256(data or b"").hexdigest() == recorded
        if manifest is not None and manifest["run_id"] == run_id and is_recorded:
            return manifest
    return None


def _of_published(
    data: bytes | None, shown: Manifest | None, *, run_id: str, recorded: str | None
) -> Iterator[FileReport]:
    """Whether the manifest that an output shows is the one of its last run."""
    if data is None:
        yield Finding(kind=FindingKind.GONE, where=MANIFEST_FILE, what="it is not there")
    elif shown is None:
        what = "it is not a manifest of a run, or it names files outside the output"
        yield Finding(kind=FindingKind.CHANGED, where=MANIFEST_FILE, what=what)
    elif shown["run_id"] != run_id:
        what = f"it is of run {shown['run_id']}, and the last finished run is {run_id}"
        yield Finding(kind=FindingKind.CHAIN, where=MANIFEST_FILE, what=what)
    elif recorded is not None and sha256(data).hexdigest() != recorded:
        what = f"its bytes are not those that run {run_id} recorded"
        yield Finding(kind=FindingKind.CHANGED, where=MANIFEST_FILE, what=what)


def _bytes(output: Location, name: str) -> bytes | None:
    place = output / name
    with storage_errors(place.uri, of=FILE_ERRORS):
        return place.read_bytes_if_there()


def _manifest_of(data: bytes | None) -> Manifest | None:
    """The manifest in a file; None if it is not one, or names files outside the output."""
    value = json_object(data)
    if value is None or not isinstance(value.get("files"), dict) or not isinstance(value.get("parts"), list):
        return None
    run_id = value.get("run_id")
    is_run = is_below(run_id) and "/" not in str(run_id)
    return cast("Manifest", value) if is_run and all(map(is_below, _file_names(value))) else None


def _file_names(value: Mapping[str, Any]) -> Iterable[Any]:
    lists = (names if isinstance(names, list) else [None] for names in value["files"].values())
    parts = (
        [part.get(f"{table}_file") or table for table in PART_TABLES] if isinstance(part, dict) else [None]
        for part in value["parts"]
    )
    return chain(chain.from_iterable(lists), chain.from_iterable(parts))

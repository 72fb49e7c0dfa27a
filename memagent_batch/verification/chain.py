"""Follows the chain of manifests from the last run back: each names the hash of the one before."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from memagent_batch.errors import OutputError
from memagent_batch.files.location import Location
from memagent_batch.runs.history.history import RUNS_FOLDER
from memagent_batch.runs.manifest import MANIFEST_FILE, Manifest
from memagent_batch.runs.record.card import CARD_FILE
from memagent_batch.runs.record.log_files import LOG_FILES
from memagent_batch.runs.record.projections import PROJECTION_FILE
from memagent_batch.verification.findings import Finding, Kind, Report, Unchecked
from memagent_batch.verification.links import Link, StoredManifest, read_stored, record_name

CLOCK_SECONDS = 5.0
"""Seconds by which a run may be shorter on the wall clock than it was: clocks are corrected by less all the time."""
SEALED_FILES = frozenset({LOG_FILES, PROJECTION_FILE, CARD_FILE})
"""Files in the record of a run that only runs with hashes have."""
Records = Mapping[str, frozenset[str]]
"""Runs in `runs/`, sorted, with the names of their files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The finished runs of an output whose manifests can be read."""

    links: Sequence[Link]
    """The oldest first."""
    since: str
    """The run from which on each leads to the next."""
    manifest: Manifest
    """That of the last run."""
    is_certain: bool
    """Whether the two copies of that one are the same."""

    @property
    def last(self) -> Link:
        """The last run."""
        return self.links[-1]

    def has(self, sha256: str) -> bool:
        """Whether a run has this manifest, or named it as the one before."""
        before = (link.seal["before"] for link in self.links if link.seal)
        return sha256 in {*(link.sha256 for link in self.links), *(each["sha256"] for each in before if each)}

    def first_with(self, name: str, value: str) -> str:
        """The first run that recorded a file with this hash."""
        for link in self.links:
            if link.seal is not None and link.seal["files"].get(name) == value:
                return link.run_id
        return self.last.run_id


def read_chain(output: Location, reports: list[Report]) -> Chain | None:
    """The chain; None where no manifest can be read. What is wrong with it goes to `reports`.

    Raises:
        OutputError: no run has finished here.
        StorageError: the output can't be read.
    """
    records = _records(output)
    last, is_certain = _last(output, _with_manifest(records), reports)
    if last is None or last.manifest is None:
        return None
    links, since = _followed(output, last.link(), records, reports)
    linked = {link.run_id for link in links}
    for run_id in _with_manifest(records):
        if links[0].run_id < run_id not in linked:
            what = "no later run names it as the run before"
            reports.append(Finding(kind=Kind.CHAIN, where=record_name(run_id), what=what, since=run_id))
    reports.extend(_clock(links))
    return Chain(links=links, since=since, manifest=last.manifest, is_certain=is_certain)


def _records(output: Location) -> Records:
    start = len((output / RUNS_FOLDER).path) + 1
    found: dict[str, set[str]] = {}
    for path in (output / RUNS_FOLDER).files():
        run_id, _, name = path[start:].partition("/")
        found.setdefault(run_id, set()).add(name)
    return {run_id: frozenset(found[run_id]) for run_id in sorted(found)}


def _with_manifest(records: Records) -> list[str]:
    return [run_id for run_id, names in records.items() if MANIFEST_FILE in names]


def _last(output: Location, runs: Sequence[str], reports: list[Report]) -> tuple[StoredManifest | None, bool]:
    """The manifest of the last run, and whether its copies are the same: its record, or else what is shown."""
    stored = read_stored(output / MANIFEST_FILE)
    if stored is None and not runs:
        raise OutputError(f"output: no run has finished at {output} (no {MANIFEST_FILE})")
    shown = stored.as_recorded() if stored else None
    of_shown = shown.manifest["run_id"] if shown and shown.manifest else ""
    newest = max([of_shown, *runs])
    if shown is None:
        reports.append(Finding(kind=Kind.GONE, where=MANIFEST_FILE, what="it is not there", since=newest))
    elif shown.manifest is None:
        reports.append(Finding(kind=Kind.CHANGED, where=MANIFEST_FILE, what=shown.problem, since=newest))
    elif of_shown != newest:
        what = f"it is of run {of_shown}, and run {newest} has finished after that one"
        reports.append(Finding(kind=Kind.CHAIN, where=MANIFEST_FILE, what=what, since=newest))
    record = read_stored(output / record_name(newest))
    if record is None:
        why = f"its copy {record_name(newest)} is not there: the run was killed before it, and the next one makes it"
        reports.append(Unchecked(what="the manifest of the last run", why=why))
        return shown, True
    is_same = _is_copy(record, shown if of_shown == newest else None, run_id=newest, reports=reports)
    return (record if record.manifest is not None else shown), is_same


def _is_copy(record: StoredManifest, shown: StoredManifest | None, *, run_id: str, reports: list[Report]) -> bool:
    """Whether the record of a run has its own manifest, the one that is shown where there is one."""
    name = record_name(run_id)
    if record.manifest is None:
        reports.append(Finding(kind=Kind.CHANGED, where=name, what=record.problem, since=run_id))
    elif record.manifest["run_id"] != run_id:
        what = f"it is the manifest of run {record.manifest['run_id']}"
        reports.append(Finding(kind=Kind.CHANGED, where=name, what=what, since=run_id))
        return False
    if shown is None or shown.data == record.data:
        return True
    where, what = f"{MANIFEST_FILE}, {name}", "the two differ, so that one of them was changed"
    reports.append(Finding(kind=Kind.CHANGED, where=where, what=what, since=run_id))
    return False


def _followed(output: Location, last: Link, records: Records, reports: list[Report]) -> tuple[list[Link], str]:
    """The links from the last one back, turned round; and the run from which on each leads to the next.

    Behind a record that is gone or can't be read, the newest older one begins a chain of its own.
    """
    links, since = [last], ""
    while True:
        link = links[-1]
        if link.seal is None:
            reports.append(_without_seal(output, link, records))
            break
        named = link.seal["before"]
        if named is None:
            break
        before = _before(output, link, records, reports)
        if before is None:
            since = since or link.run_id
            before = _newest_below(output, min(named["run_id"], link.run_id), records)
        if before is None:
            break
        links.append(before)
    return links[::-1], since or links[-1].run_id


def _newest_below(output: Location, run_id: str, records: Records) -> Link | None:
    """The newest run before one that has a readable manifest."""
    for each in reversed([each for each in _with_manifest(records) if each < run_id]):
        stored = read_stored(output / record_name(each))
        if stored and stored.manifest is not None and stored.manifest["run_id"] == each:
            return stored.link()
    return None


def _without_seal(output: Location, link: Link, records: Records) -> Report:
    """What a run without hashes means: an older version closed it, unless it or one before it was closed by this."""
    older = [run_id for run_id in records if run_id <= link.run_id]
    stored = (read_stored(output / record_name(each)) for each in reversed(older) if each != link.run_id)
    if any(records[run_id] & SEALED_FILES for run_id in older) or any(
        each.manifest is not None and each.link().seal is not None for each in stored if each
    ):
        what = "it has no hashes of its files, though this run or one before it was closed with them"
        return Finding(kind=Kind.CHAIN, where=record_name(link.run_id), what=what, since=link.run_id)
    why = "a version that recorded no hashes closed it"
    return Unchecked(what=f"files of run {link.run_id} and of those before it", why=why)


def _before(output: Location, link: Link, records: Records, reports: list[Report]) -> Link | None:
    """The link before, where there is one that can be read."""
    named = link.seal["before"] if link.seal else None
    if named is None:
        return None
    run_id, name = named["run_id"], record_name(named["run_id"])
    if run_id >= link.run_id:
        what = f"it names run {run_id} as the run before it"
        reports.append(Finding(kind=Kind.CHAIN, where=record_name(link.run_id), what=what, since=link.run_id))
        return None
    stored = read_stored(output / name) if run_id in records else None
    if stored is None and run_id in records:
        what = f"run {link.run_id} found it when it closed"
        reports.append(Finding(kind=Kind.GONE, where=name, what=what, since=link.run_id))
        return None
    if stored is None:
        why = f"the folder {RUNS_FOLDER}/{run_id} is not there; folders of old nights may be deleted"
        reports.append(Unchecked(what=f"run {run_id}", why=why))
        return None
    if stored.manifest is None:
        reports.append(Finding(kind=Kind.CHANGED, where=name, what=stored.problem, since=link.run_id))
        return None
    before = stored.link()
    if before.sha256 != named["sha256"] or before.run_id != run_id:
        what = f"it is not the manifest that run {link.run_id} found when it closed"
        reports.append(Finding(kind=Kind.CHANGED, where=name, what=what, since=link.run_id))
    return before if before.run_id == run_id else None


def _clock(links: Sequence[Link]) -> Iterator[Report]:
    """Where a clock went back: during a run, or from one run to the next."""
    for link in links:
        length = _seconds(link.started_at, link.finished_at)
        if length < link.seconds - CLOCK_SECONDS:
            what = f"it took {link.seconds:,.0f} s, and its clock says {length:,.0f} s"
            yield Finding(kind=Kind.CLOCK, where=record_name(link.run_id), what=what, since=link.run_id)
    for before, link in pairwise(links):
        if _seconds(before.finished_at, link.started_at) < -CLOCK_SECONDS:
            what = f"it began at {link.started_at}, before run {before.run_id} had closed at {before.finished_at}"
            yield Finding(kind=Kind.CLOCK, where=record_name(link.run_id), what=what, since=link.run_id)


def _seconds(start: str, end: str) -> float:
    """Seconds between two times; 0 where one is no time, which its hash shows."""
    try:
        return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
    except (ValueError, TypeError):
        return 0.0

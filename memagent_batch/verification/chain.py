"""Follows the chain of manifests from the last run back: each names the hash of the one before."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from memagent_batch.errors import OutputError
from memagent_batch.files.location import Location
from memagent_batch.runs.history import RUNS_FOLDER
from memagent_batch.runs.manifest import MANIFEST_FILE, Manifest
from memagent_batch.verification.findings import Finding, Kind, Report, Unchecked
from memagent_batch.verification.links import Link, StoredManifest, read_stored, record_name

CLOCK_SECONDS = 5.0
"""Seconds by which a run may be shorter on the wall clock than it was: clocks are corrected by less all the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The finished runs of an output, as far back as one leads to the other."""

    links: Sequence[Link]
    """The oldest first."""
    manifest: Manifest
    """That of the last run."""

    @property
    def last(self) -> Link:
        """The last run."""
        return self.links[-1]

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
    records = _recorded_runs(output)
    last = _last(output, records, reports)
    if last is None or last.manifest is None:
        return None
    links = _followed(output, last.link(), records, reports)
    oldest = links[0].run_id
    for run_id in records:
        if run_id > oldest and run_id not in {link.run_id for link in links}:
            what = "no later run names it as the run before"
            reports.append(Finding(kind=Kind.CHAIN, where=record_name(run_id), what=what, since=run_id))
    reports.extend(_clock(links))
    return Chain(links=links, manifest=last.manifest)


def _recorded_runs(output: Location) -> list[str]:
    """Runs with a manifest in `runs/`, sorted."""
    suffix = f"/{MANIFEST_FILE}"
    files = (output / RUNS_FOLDER).files()
    return sorted(path.removesuffix(suffix).rpartition("/")[2] for path in files if path.endswith(suffix))


def _last(output: Location, records: Sequence[str], reports: list[Report]) -> StoredManifest | None:
    """The manifest of the last run: its record, or what is shown where that is not whole."""
    stored = read_stored(output / MANIFEST_FILE)
    if stored is None and not records:
        raise OutputError(f"output: no run has finished at {output} (no {MANIFEST_FILE})")
    shown = stored.as_recorded() if stored else None
    of_shown = shown.manifest["run_id"] if shown and shown.manifest else ""
    newest = max([of_shown, *records])
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
        return shown
    if record.manifest is None:
        name = record_name(newest)
        reports.append(Finding(kind=Kind.CHANGED, where=name, what=record.problem, since=newest))
    if of_shown == newest and shown is not None and shown.data != record.data:
        where, what = f"{MANIFEST_FILE}, {record_name(newest)}", "the two differ, so that one of them was changed"
        reports.append(Finding(kind=Kind.CHANGED, where=where, what=what, since=newest))
    return record if record.manifest is not None else shown


def _followed(output: Location, last: Link, records: Sequence[str], reports: list[Report]) -> list[Link]:
    """The links from the last one back, turned round."""
    links = [last]
    while True:
        link = links[-1]
        if link.seal is None:
            why = "a version that recorded no hashes closed it"
            reports.append(Unchecked(what=f"files of run {link.run_id} and of those before it", why=why))
            break
        before = _before(output, link, records, reports)
        if before is None:
            break
        links.append(before)
    return links[::-1]


def _before(output: Location, link: Link, records: Sequence[str], reports: list[Report]) -> Link | None:
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
    if stored is None and (output / f"{RUNS_FOLDER}/{run_id}").files():
        what = f"run {link.run_id} found it when it closed"
        reports.append(Finding(kind=Kind.GONE, where=name, what=what, since=link.run_id))
        return None
    if stored is None:
        why = f"the folder {RUNS_FOLDER}/{run_id} is not there; folders of old nights may be deleted"
        reports.append(Unchecked(what=f"run {run_id} and those before it", why=why))
        return None
    if stored.manifest is None:
        reports.append(Finding(kind=Kind.CHANGED, where=name, what=stored.problem, since=link.run_id))
        return None
    before = stored.link()
    if before.sha256 != named["sha256"] or before.run_id != run_id:
        what = f"it is not the manifest that run {link.run_id} found when it closed"
        reports.append(Finding(kind=Kind.CHANGED, where=name, what=what, since=link.run_id))
    return before


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

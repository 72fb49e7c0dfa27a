"""Compares the bytes of files with the hashes that runs recorded."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain as chain_of

from memagent_batch.errors import OutputError
from memagent_batch.files.json_files import read_json
from memagent_batch.files.location import Location
from memagent_batch.log.question_list import ASKED_FOLDER
from memagent_batch.runs.history.history import RUNS_FOLDER
from memagent_batch.runs.manifest import RUN_FILE
from memagent_batch.runs.record.hashes import file_hash, file_hashes
from memagent_batch.runs.record.log_files import LOG_FILES, list_log, read_log_list
from memagent_batch.runs.record.sealing import RECORD_FILES
from memagent_batch.verification.chain import Chain
from memagent_batch.verification.contents import LOG_LEFT_OUT, Contents
from memagent_batch.verification.findings import Finding, Kind, Report, Unchecked
from memagent_batch.verification.links import Link, record_name


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFiles:
    """What came of the files of an output."""

    num_files: int
    """Files whose bytes are those that their run recorded."""
    log: Collection[str]
    """Of these, files of the log that the tables of the last run rest on."""
    wrong: Collection[str]
    """Other files that their run recorded: changed or gone."""


def check_files(output: Location, chain: Chain, *, contents: Contents, reports: list[Report]) -> CheckedFiles:
    """Hashes the files of the records, the tables of the last run, and the log.

    Args:
        output: The output.
        chain: Its runs.
        contents: What of an output is there.
        reports: Takes what is wrong.

    Raises:
        StorageError: a file can't be read.
    """
    wanted = {**contents.files, **dict(_recorded(output, chain))}
    wrong: set[str] = set()
    num_files = 0
    for name, value in file_hashes(output, wanted, in_blocks=True):
        if value is None and contents.may_lack(name):
            continue
        problem = _problem(name, value, wanted[name], since=chain.first_with(name, wanted[name]))
        num_files += problem is None
        if problem is not None:
            wrong.add(name)
            reports.append(problem)
    for link in chain.links:
        reports.extend(_without_hash(link, chain))
    log = set[str]() if LOG_LEFT_OUT in contents.left_out else set(_sound_log(output, chain, reports))
    return CheckedFiles(num_files=num_files + len(log), log=log, wrong=wrong)


def _without_hash(link: Link, chain: Chain) -> Iterator[Report]:
    """Files that a run must have recorded and did not: of each its record, of the last one its tables too."""
    if link.seal is None:
        return
    run_id = link.run_id
    names = [f"{ASKED_FOLDER}/{run_id}.parquet", RUN_FILE, *(f"{RUNS_FOLDER}/{run_id}/{name}" for name in RECORD_FILES)]
    tables = chain_of.from_iterable(chain.manifest["files"].values()) if link is chain.last else ()
    for name in dict.fromkeys([*names, *tables]):
        if name not in link.seal["files"]:
            what = f"it has no hash of {name}"
            yield Finding(kind=Kind.CHANGED, where=record_name(run_id), what=what, since=run_id)


def _recorded(output: Location, chain: Chain) -> Iterator[tuple[str, str]]:
    """Files and hashes: of each run its record, of the last one all."""
    for link in chain.links:
        own = (f"{RUNS_FOLDER}/{link.run_id}/", f"{ASKED_FOLDER}/{link.run_id}.")
        for name, value in link.seal["files"].items() if link.seal else ():
            is_shown = link is chain.last and (name != RUN_FILE or not _is_of_later_run(output, link))
            if name.startswith(own) or is_shown:
                yield name, value


def _is_of_later_run(output: Location, link: Link) -> bool:
    """Whether a run has begun since, which writes `run.json` of its own."""
    try:
        record = read_json(output / RUN_FILE)
    except OutputError:
        return False
    return record is not None and str(record.get("run_id", "")) > link.run_id


def _problem(name: str, found: str | None, recorded: str, *, since: str) -> Finding | None:
    if found == recorded:
        return None
    if found is None:
        return Finding(kind=Kind.GONE, where=name, what=f"run {since} recorded it", since=since)
    what = f"its bytes are not those that run {since} recorded"
    return Finding(kind=Kind.CHANGED, where=name, what=what, since=since)


def _sound_log(output: Location, chain: Chain, reports: list[Report]) -> Iterator[str]:
    """Files of the log that the last run rests on and that are as they were; reports the others."""
    lists = [(link.run_id, name) for link in chain.links if link.seal and (name := _list_name(link)) in _files(link)]
    if not lists:
        return
    known = _read_list(output / lists[-1][1])
    wrong = {name: value for name, value in file_hashes(output, known, in_blocks=False) if value != known[name]}
    yield from (name for name in known if name not in wrong)
    firsts = _first_runs(output, lists, wrong) if wrong else {}
    for name, value in wrong.items():
        problem = _problem(name, value, known[name], since=firsts.get(name, chain.last.run_id))
        reports.extend([problem] if problem else [])
    reports.extend(_dropped(output, lists))
    left = len(set(list_log(output)) - known.keys())
    if left:
        why = "no finished run rests on them: a run goes on, or was stopped"
        reports.append(Unchecked(what=f"{left:,} files of the log", why=why))


def _dropped(output: Location, lists: Sequence[tuple[str, str]]) -> Iterator[Report]:
    """Files of the log that one run rested on and the next one did not find."""
    before: Mapping[str, str] = {}
    for run_id, name in lists:
        known = _read_list(output / name)
        for file in before.keys() - known.keys() if known else ():
            if file_hash(output / file) != before[file]:
                what = f"runs before {run_id} rest on it, and run {run_id} did not find it"
                yield Finding(kind=Kind.GONE, where=file, what=what, since=run_id)
        before = known


def _first_runs(output: Location, lists: Iterable[tuple[str, str]], names: Collection[str]) -> dict[str, str]:
    """The first run that listed each file."""
    firsts: dict[str, str] = {}
    for run_id, name in lists:
        for file in names & _read_list(output / name).keys():
            firsts.setdefault(file, run_id)
    return firsts


def _read_list(place: Location) -> Mapping[str, str]:
    """A list of log files; empty where it is damaged, which its own hash shows."""
    try:
        return read_log_list(place)
    except OutputError:
        return {}


def _list_name(link: Link) -> str:
    return f"{RUNS_FOLDER}/{link.run_id}/{LOG_FILES}"


def _files(link: Link) -> Mapping[str, str]:
    return link.seal["files"] if link.seal else {}

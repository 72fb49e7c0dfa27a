"""Decides which of several attempts owns an output, and replaces its tables without a gap.

The newest `run.json` is the claim. An attempt writes it once, asks every few seconds whether its claim still stands,
and leaves when a newer attempt has claimed the output.

A record (`manifest.json`, `rollouts.json`) names the files of its tables, and tables count only by their record. To
replace them, an attempt that holds the claim

1. writes new files beside the old ones: names carry the run's id, so that no attempt writes over another's;
2. takes the version of the record that is there, asks for the claim, and replaces that version by its own record in one
   conditional write (`Location.replace`). What was shown until then stays whole until then;
3. lists the files that its record does not name, neither as its own nor as replaced, asks for the claim again, and
   removes them.

A record never replaces a newer attempt's: that attempt has changed the version since, or holds the claim. No
file of a newer attempt is removed: it is written after that attempt's claim, and the listing comes before the question
for the claim. A newer attempt may take over files of the record that it finds after its claim: an older attempt that
may still remove files published that record, and spares them.
"""

import os.path
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from fsspec.utils import glob_translate

from memagent_batch.config.job import JobConfig
from memagent_batch.config.sources import SourceConfig
from memagent_batch.documents.lake.table import LakeKind, table_name
from memagent_batch.errors import MemagentError, OutputError, StorageError, SupersededError
from memagent_batch.masking import mask_url
from memagent_batch.runs.manifest import FORMAT, MANIFEST_FILE, PART_TABLES, RUN_FILE
from memagent_batch.store.claims import read_owner_record, replace_shown
from memagent_batch.store.errors import storage_errors
from memagent_batch.store.json_files import json_bytes, read_json
from memagent_batch.store.location import Location
from memagent_batch.store.turn_log.keys import FOLLOW_UPS_FOLDER, KEYS_FOLDER, OUTCOMES_FOLDER, TURNS_FOLDER
from memagent_batch.store.turn_log.question_list import ASKED_FOLDER

INPUT_FOLDER = "input"
"""Where documents and questions lie that came from a program and not from files."""
LOG_FOLDERS = (TURNS_FOLDER, OUTCOMES_FOLDER, FOLLOW_UPS_FOLDER, KEYS_FOLDER, ASKED_FOLDER)
"""Where the turn log lies, which may be there before a run is."""
OUTPUT_FILES = (
    MANIFEST_FILE,
    "answers/part-00000-RUN.parquet",
    "answers/part-00000-RUN.arrow",
    "log/turns/RUN-WRITER-000001.parquet",
    "runs/RUN/plan.parquet",
)
"""Files as every output has them, by which a pattern is tried."""
PUBLISH_TRIES = 5
"""Times that another attempt may replace the record between the look at it and the writing."""


def claim_output(output: Location, job: JobConfig) -> None:
    """Checks that a run may write here: an empty place, one that the same job wrote before, or a log without a run.

    Raises:
        OutputError: the place holds something else, or lies among the documents; says what, and what to do.
    """
    require_disjoint(job, output=job.output)
    record = read_owner_record(output, RUN_FILE, layout=FORMAT, beside=(INPUT_FOLDER, *LOG_FOLDERS))
    if record is None:
        return
    documents, questions = asked_documents(job), asked_questions(job)
    now = {"documents": documents, "questions": questions, "slice": job.input.slice}
    before = {
        "documents": _after_move(record["documents"], documents, record=record, job=job),
        "questions": _after_move(record["questions"], questions, record=record, job=job),
        "slice": record["settings"].get("input", {}).get("slice"),
    }
    differences = [f"{name} {before[name]}, not {now[name]}" for name in now if before[name] != now[name]]
    if differences and not job.adopt_output:
        raise OutputError(
            f"output: {output.uri} belongs to a run over {'; '.join(differences)}; choose another output, or go on in "
            "this one with adopt_output: what still fits is not read again"
        )


def require_log_place(place: Location) -> Location:
    """The place, where a turn log may be kept without a run: an empty one, a log, or the output of a run."""
    read_owner_record(
        place,
        RUN_FILE,
        layout=FORMAT,
        beside=LOG_FOLDERS,
        remedy="choose an empty folder for the log",
    )
    return place


def asked_documents(job: JobConfig) -> str | list[str]:
    """Where the documents are, for `run.json`: the URI of the one place, or of each of several."""
    places = list(dict.fromkeys(_asked_place(uri, job) for uri in job.documents))
    return places[0] if len(places) == 1 else places


def require_disjoint(sources: SourceConfig, *, output: str) -> None:
    """Refuses an output whose files the next run would find among its documents, and documents inside the output."""
    for uri in sources.documents:
        _require_apart(uri, sources, output=output)


def _require_apart(uri: str, sources: SourceConfig, *, output: str) -> None:
    documents, place = _claimed_place(uri, sources), _claimed_place(output, sources)
    if not documents or not place:
        return  # a file system that is not there, or not reached: reading the inputs says so
    wildcards = set("*?[") & set(documents)
    if documents.startswith(f"{place}/{INPUT_FOLDER}/"):
        return
    if f"{documents}/".startswith(f"{place}/") and not wildcards:
        raise OutputError(
            f"output: the documents {mask_url(uri)} lie inside the output {mask_url(output)}, "
            "where a run keeps its own files; choose an output beside them"
        )
    if _finds(documents, [f"{place}/{name}" for name in OUTPUT_FILES], is_pattern=bool(wildcards)):
        raise OutputError(
            f"output: {mask_url(output)} lies inside the documents {mask_url(uri)}, so that the "
            "next run would read its tables as documents; choose an output beside them"
        )


def _claimed_place(uri: str, sources: SourceConfig) -> str:
    """The same text for the same place, with links on a disk resolved; empty if there is no such file system."""
    name = table_name(uri)
    if name is not None and name.kind is LakeKind.ICEBERG:
        return ""  # only its catalog knows where it lies
    location = Location(uri=name.place if name else uri, storage_options=sources.storage_options)
    try:
        path = os.path.realpath(location.path) if location.is_local else location.path
        return str(location.fs.unstrip_protocol(path)).rstrip("/")
    except (ValueError, TypeError, ImportError, OSError):
        return ""


def _finds(documents: str, files: Iterable[str], *, is_pattern: bool) -> bool:
    """Whether documents at this place would have one of the files among them, as `shards.list_files` looks for them."""
    if not is_pattern:
        below = [file.removeprefix(f"{documents}/") for file in files if file.startswith(f"{documents}/")]
        return any(not name.startswith((".", "_")) and "/." not in name and "/_" not in name for name in below)
    pattern = re.compile(glob_translate(documents))
    ends = {file: [match.start() for match in re.finditer("/", file)] for file in files}
    places = {file[:end] for file in files for end in (*ends[file], None)}  # a folder stands for all below it
    return any(pattern.match(place) for place in places)


def asked_questions(job: JobConfig) -> list[str]:
    """Where the questions come from, for `run.json`."""
    listed = _asked_place(job.questions, job) if job.questions else None
    asked = [str(each if isinstance(each, str) else each.get("question", "")) for each in job.ask]
    return [text for text in (listed, *asked) if text]


def _asked_place(uri: str, job: JobConfig) -> str:
    """The place of an input; of a file of the output's own input its folder, since every night has other files."""
    place, folder = canonical(uri, job), f"{canonical(job.output, job)}/{INPUT_FOLDER}/"
    return folder + place.removeprefix(folder).split("/")[0] if place.startswith(folder) else place


def _after_move(
    recorded: str | Sequence[str], now: str | Sequence[str], *, record: Mapping[str, Any], job: JobConfig
) -> str | list[str]:
    """Returns recorded places as they are called now.

    One that is not among today's places, and lay beside the output, was moved or copied with it.
    """
    if not isinstance(recorded, str):
        return [str(_after_move(place, now, record=record, job=job)) for place in recorded]
    place = recorded.removeprefix(f"{LakeKind.DELTA}://")  # as earlier versions wrote the folder of a table
    old, new = (
        posixpath.dirname(canonical(output, job)) for output in (record["settings"].get("output", ""), job.output)
    )
    is_moved = place.startswith(f"{old}/") and place not in ([now] if isinstance(now, str) else now)
    return new + place.removeprefix(old) if is_moved else place


def canonical(uri: str, sources: SourceConfig) -> str:
    """One text for each place, in whichever form it is written; without credentials."""
    name = table_name(uri)
    if name is not None and name.kind is LakeKind.ICEBERG:
        return name.uri  # every night reads another version
    place = Location(uri=name.place if name else uri, storage_options=sources.storage_options)
    try:
        return mask_url(place.fs.unstrip_protocol(place.path))
    except (ValueError, TypeError, ImportError, OSError):
        return mask_url(uri)  # a file system that is not there, or not reached: reading the inputs says so


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSet:
    """Tables that are replaced together."""

    record: str
    """Name of the file that names their files, under `files`."""
    folders: tuple[str, ...]


ANSWER_TABLES = TableSet(record=MANIFEST_FILE, folders=PART_TABLES)


def require_claim(output: Location, *, run_id: str) -> None:
    """Returns where the run holds the claim.

    Raises:
        SupersededError: a newer attempt does; names it.
        StorageError: nobody can tell: the store does not answer.
    """
    place = output / RUN_FILE
    with storage_errors(place.uri):
        record = read_json(place)
    if record is None:
        raise SupersededError(f"{place.uri} was removed while run {run_id} went on; this run leaves the output alone")
    if record["run_id"] != run_id:
        raise SupersededError(
            f"output: {output.uri} was claimed by a newer attempt, run {record['run_id']}; this one, run {run_id}, "
            "leaves and shows nothing. What it has read is in the log, and is not read again"
        )


@contextmanager
def claimed_files(output: Location, *, run_id: str) -> Iterator[list[str]]:
    """The block in which a task of a run writes files, and adds their names to the list.

    Raises:
        SupersededError: a newer attempt holds the claim, before or after; none of the files is left.
    """
    require_claim(output, run_id=run_id)
    names = list[str]()
    yield names
    try:
        require_claim(output, run_id=run_id)
    except SupersededError:
        for name in names:
            (output / name).delete()
        raise


def remove_leftovers(output: Location, *, tables: TableSet, run_id: str) -> None:
    """Removes files that the record does not name, so that attempts that are killed again and again fill no disk.

    One of them may be of an older attempt that is about to publish. So the record is changed first, in a field that
    only says by whom: the older attempt's conditional write fails then. Without a record nothing is removed.

    Raises:
        SupersededError: a newer attempt holds the claim; nothing was removed.
    """
    place = output / tables.record
    for _ in range(PUBLISH_TRIES):
        version = place.version()
        record = read_json(place)
        strangers = unreferenced_files(output, record, tables=tables)
        require_claim(output, run_id=run_id)
        if record is None or not strangers:
            return
        sealed = json_bytes({**record, "claimed_by": run_id})
        if place.replace(sealed, version=version):
            output.delete_files(strangers)
            return
    raise StorageError(f"{place.uri} changes whenever it is looked at; see what else writes to the output")


@contextmanager
def removed_on_failure(output: Location, *, tables: TableSet, run_id: str) -> Iterator[None]:
    """The block in which a run writes files of tables; where it fails, they are removed, and nobody else's."""
    try:
        yield
    except BaseException:
        with suppress(MemagentError):  # the block's own error is what counts; the next run removes the files
            strangers = unreferenced_files(output, read_json(output / tables.record), tables=tables)
            output.delete_files([path for path in strangers if run_id in path.rsplit("/", 1)[-1]])
        raise


def publish(output: Location, record: Mapping[str, Any], *, tables: TableSet, run_id: str) -> None:
    """Shows the run's tables in place of those before, by one write, and removes files that are not theirs.

    Raises:
        SupersededError: a newer attempt holds the claim; the tables that were there are there still.
    """
    require = partial(require_claim, output, run_id=run_id)
    replace_shown(output / tables.record, json_bytes(record), require=require)
    strangers = unreferenced_files(output, record, tables=tables)
    with suppress(SupersededError):  # the newer attempt removes them
        require()
        output.delete_files(strangers)


def named_files(record: Mapping[str, Any] | None) -> list[str]:
    """Names of all table files of a record, below the output."""
    files = record["files"] if record else []
    return list(chain.from_iterable(files.values())) if isinstance(files, dict) else list(files)


def unreferenced_files(output: Location, record: Mapping[str, Any] | None, *, tables: TableSet) -> list[str]:
    """Paths of the files in the tables' folders that the record does not name at all, half-written ones included."""
    replaced = record.get("replaced", []) if record else []
    named = {(output / name).path for name in chain(named_files(record), *(night["files"] for night in replaced))}
    files = (path for folder in tables.folders for path in (output / folder).files(temporary=True))
    return [path for path in files if path not in named]

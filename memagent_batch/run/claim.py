"""Whether a run may write to an output: an empty place, or one that the same job wrote before."""

import os.path
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any

from fsspec.utils import glob_translate

from memagent_batch.config.job import JobConfig
from memagent_batch.config.sources import SourceConfig
from memagent_batch.data.documents.lake.table import LakeKind, table_name
from memagent_batch.data.ingest.tables import DOCUMENTS_TABLE
from memagent_batch.data.store.delta import OutputTable
from memagent_batch.data.store.errors import output_errors
from memagent_batch.data.store.location import Location
from memagent_batch.errors import OutputError, SettingsError, StorageError
from memagent_batch.masking import mask_url
from memagent_batch.run.history import read_run_record, require_readable
from memagent_batch.run.tables import ANSWERS_TABLE, RUNS_TABLE

INPUT_FOLDER = "input"
"""Where documents and questions lie that came from a program and not from files."""
INGEST_FOLDER = "_ingest"
"""Where an ingest keeps rows that are not joined yet, in a folder for each run."""
SCRATCH_FOLDER = "scratch"
"""Where a plan of an output in a store keeps its documents, in a folder for each plan."""
OWN_FOLDERS = (INPUT_FOLDER, INGEST_FOLDER, SCRATCH_FOLDER, "log", "sources", "documents", "runs")
"""What may be there before the first run has begun."""
OUTPUT_FILES = (
    "answers/part-00000-RUN-HASH.parquet",
    "answers/_delta_log/00000000000000000000.json",
    "log/turns/RUN-WRITER-000001.parquet",
)
"""Files as every output has them, by which a pattern is tried."""


def claim_output(output: Location, job: JobConfig) -> None:
    """Checks that a run may write here: an empty place, one that the same job wrote before, or a log without a run.

    Raises:
        OutputError: the place holds something else, or lies among the documents; says what, and what to do.
    """
    require_disjoint(job, output=job.output)
    _require_carried(job)
    record = _require_place(output)
    if record is None:
        return
    _require_partitions(output, job)
    documents, questions = asked_documents(job), asked_questions(job)
    if reads_own_documents(job):
        documents = record["documents"]
    now = {"documents": documents, "questions": questions}
    before = {
        "documents": _after_move(record["documents"], documents, record=record, job=job),
        "questions": _after_move(record["questions"], questions, record=record, job=job),
    }
    differences = [f"{name} {before[name]}, not {now[name]}" for name in now if before[name] != now[name]]
    if differences and not job.adopt_output:
        raise OutputError(
            f"output: {output.uri} belongs to a run over {'; '.join(differences)}; choose another output, or go on in "
            "this one with adopt_output: what still fits is not read again"
        )


def _require_carried(job: JobConfig) -> None:
    """Refuses to partition tables by columns that are not carried."""
    others = [name for name in job.record.partition_by if name not in job.input.carry_columns]
    if others:
        raise SettingsError(f"record.partition_by: {others[0]!r} is no carried column; name it in input.carry_columns")


def _require_partitions(output: Location, job: JobConfig) -> None:
    """Refuses an output whose table `answers` has other partition columns: a Delta table keeps those it began with."""
    answers = OutputTable(output=output, name=ANSWERS_TABLE)
    columns = list(answers.open().metadata().partition_columns) if answers.exists() else list(job.record.partition_by)
    if columns != list(job.record.partition_by):
        raise OutputError(
            f"output: the tables at {output} are partitioned by {', '.join(columns) or 'no column'}, and stay so; set "
            f"record.partition_by to {columns}, or choose another output"
        )


def require_log_place(place: Location) -> Location:
    """The place, where a turn log may be kept without a run: an empty one, a log, or the output of a run."""
    _require_place(place)
    return place


def _require_place(output: Location) -> dict[str, Any] | None:
    """What the latest run of an output was asked; None if the place is empty, or has no run yet.

    Raises:
        OutputError: it holds other files, or an output of an earlier version, lies in another output, or can't be
            reached.
    """
    with output_errors(output.uri):
        require_readable(output)
        if OutputTable(output=output, name=RUNS_TABLE).exists():
            return read_run_record(output)
        _require_outside_outputs(output)
        own = tuple(f"{output.path}/{folder}/" for folder in OWN_FOLDERS)
        others = [path for path in output.files() if not path.startswith(own)]
    if others:
        raise OutputError(
            f"output: {output} holds other files ({others[0]}, {len(others)} in all), and no run of memagent-batch; "
            "choose an empty folder"
        )
    return None


def _require_outside_outputs(output: Location) -> None:
    """Refuses a place inside another output, whose tables would remove files of unknown names from their folders."""
    path = os.path.realpath(output.path) if output.is_local else output.path
    for folder in PurePosixPath(path).parents:
        first_commit = output.at(f"{folder}/{RUNS_TABLE}/_delta_log/{0:020}.json")
        is_output = False
        with suppress(StorageError):  # not everyone may look into the folders above
            is_output = first_commit.exists()
        if is_output:
            outer = folder if output.is_local else output.at(str(folder))
            raise OutputError(
                f"output: {output} lies inside the output {outer}, whose runs remove files that are not theirs; choose "
                "a folder outside of it"
            )


def asked_documents(job: JobConfig) -> str | list[str]:
    """Where the documents are, for the record of a run: the URI of the one place, or of each of several."""
    places = list(dict.fromkeys(_asked_place(uri, job) for uri in job.documents))
    return places[0] if len(places) == 1 else places


def reads_own_documents(job: JobConfig) -> bool:
    """Whether the documents of a job are those that its output has already: their sources may be gone."""
    places = {_claimed_place(uri, job) for uri in job.documents}
    output = Location(uri=job.output, storage_options=job.storage_options)
    return places == {_claimed_place(job.output, job)} and OutputTable(output=output, name=DOCUMENTS_TABLE).exists()


def recorded_documents(output: Location, job: JobConfig) -> str | list[str]:
    """What a run records as its documents: of one that reads its own, what the run before it recorded."""
    record = read_run_record(output) if reads_own_documents(job) else None
    recorded: str | list[str] = record["documents"] if record else asked_documents(job)
    return recorded


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
    location = Location(uri=output, storage_options=sources.storage_options)
    if documents == place and OutputTable(output=location, name=DOCUMENTS_TABLE).exists():
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
    """Whether documents at this place would have one of the files among them, as `list_files` looks for them."""
    if not is_pattern:
        below = [file.removeprefix(f"{documents}/") for file in files if file.startswith(f"{documents}/")]
        return any(not name.startswith((".", "_")) and "/." not in name and "/_" not in name for name in below)
    pattern = re.compile(glob_translate(documents))
    ends = {file: [match.start() for match in re.finditer("/", file)] for file in files}
    places = {file[:end] for file in files for end in (*ends[file], None)}  # a folder stands for all below it
    return any(pattern.match(place) for place in places)


def asked_questions(job: JobConfig) -> list[str]:
    """Where the questions come from, for the record of a run."""
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
    old, new = (
        posixpath.dirname(canonical(output, job)) for output in (record["settings"].get("output", ""), job.output)
    )
    is_moved = recorded.startswith(f"{old}/") and recorded not in ([now] if isinstance(now, str) else now)
    return new + recorded.removeprefix(old) if is_moved else recorded


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

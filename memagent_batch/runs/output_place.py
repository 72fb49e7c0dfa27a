"""Where a run may write: an empty place, or one that the same job wrote before; apart from its documents."""

import os.path
import re
from collections.abc import Iterable

from fsspec.utils import glob_translate

from memagent_batch.config.job import JobConfig
from memagent_batch.config.sources import SourceConfig
from memagent_batch.errors import OutputError
from memagent_batch.files.claims import claimed_record
from memagent_batch.files.location import Location
from memagent_batch.inputs.lake.table import LakeKind, table_name
from memagent_batch.log.question_list import ASKED_FOLDER
from memagent_batch.log.writer import CLOSINGS_FOLDER, OUTCOMES_FOLDER, TURNS_FOLDER
from memagent_batch.masking import shown
from memagent_batch.reading.suspects import DEATHS_FOLDER
from memagent_batch.runs.manifest import FORMAT, MANIFEST_FILE, RUN_FILE

INPUT_FOLDER = "input"
"""Where documents and questions lie that came from a program and not from files."""
LOG_FOLDERS = (TURNS_FOLDER, OUTCOMES_FOLDER, CLOSINGS_FOLDER, ASKED_FOLDER, DEATHS_FOLDER)
"""Where the turn log lies, which may be there before a run is."""
OUTPUT_FILES = (
    MANIFEST_FILE,
    "answers/part-00000-RUN.parquet",
    "answers/part-00000-RUN.arrow",
    "log/turns/RUN-WRITER-000001.parquet",
    "runs/RUN/plan.parquet",
)
"""Files as every output has them, by which a pattern is tried."""


def claim_output(output: Location, job: JobConfig) -> None:
    """Checks that a run may write here: an empty place, one that the same job wrote before, or a log without a run.

    Raises:
        OutputError: the place holds something else, or lies among the documents; says what, and what to do.
    """
    require_apart(job, output=job.output)
    record = claimed_record(output, RUN_FILE, layout=FORMAT, beside=(INPUT_FOLDER, *LOG_FOLDERS))
    if record is None:
        return
    asked = (asked_documents(job), asked_questions(job))
    if (record["documents"], record["questions"]) != asked and not job.adopt_output:
        raise OutputError(
            f"output: {output.uri} belongs to a run over documents {record['documents']} and questions "
            f"{record['questions']}; choose another output, or say --adopt-output to go on in this one"
        )


def require_log_place(place: Location) -> Location:
    """The place, where a turn log may be kept without a run: an empty one, a log, or the output of a run.

    Raises:
        OutputError: it holds something else, or can't be reached.
    """
    claimed_record(
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


def require_apart(sources: SourceConfig, *, output: str) -> None:
    """Refuses an output whose files the next run would find among its documents, and documents inside the output.

    Raises:
        OutputError: names both.
    """
    for uri in sources.documents:
        _require_apart(uri, sources, output=output)


def _require_apart(uri: str, sources: SourceConfig, *, output: str) -> None:
    documents, place = _place(uri, sources), _place(output, sources)
    if not documents or not place:
        return  # a file system that is not there, or not reached: reading the inputs says so
    wildcards = set("*?[") & set(documents)
    if documents.startswith(f"{place}/{INPUT_FOLDER}/"):
        return
    if f"{documents}/".startswith(f"{place}/") and not wildcards:
        raise OutputError(
            f"output: the documents {shown(uri)} lie inside the output {shown(output)}, "
            "where a run keeps its own files; choose an output beside them"
        )
    if _finds(documents, [f"{place}/{name}" for name in OUTPUT_FILES], is_pattern=bool(wildcards)):
        raise OutputError(
            f"output: {shown(output)} lies inside the documents {shown(uri)}, so that the "
            "next run would read its tables as documents; choose an output beside them"
        )


def _place(uri: str, sources: SourceConfig) -> str:
    """The same text for the same place, with links on a disk resolved; empty where there is no such file system."""
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
    places = {file[:end] for file in files for end in (*_slashes(file), len(file))}  # a folder stands for all below it
    return any(pattern.match(place) for place in places)


def _slashes(path: str) -> list[int]:
    return [place for place, character in enumerate(path) if character == "/"]


def asked_questions(job: JobConfig) -> list[str]:
    """Where the questions come from, for `run.json`."""
    listed = _asked_place(job.questions, job) if job.questions else None
    asked = [str(each if isinstance(each, str) else each.get("question", "")) for each in job.ask]
    return [text for text in (listed, *asked, job.input.question_column) if text]


def _asked_place(uri: str, job: JobConfig) -> str:
    """The place of an input; of a file of the output's own input its folder, since every night has other files."""
    place, folder = canonical(uri, job), f"{canonical(job.output, job)}/{INPUT_FOLDER}/"
    return folder + place.removeprefix(folder).split("/")[0] if place.startswith(folder) else place


def canonical(uri: str, sources: SourceConfig) -> str:
    """One text for each place, in whichever form it is written; without credentials."""
    name = table_name(uri)
    if name is not None:  # every night reads another version
        is_folder = name.kind is LakeKind.DELTA
        return f"{name.kind}://{canonical(name.place, sources)}" if is_folder else name.uri
    place = Location(uri=uri, storage_options=sources.storage_options)
    try:
        return shown(place.fs.unstrip_protocol(place.path))
    except (ValueError, TypeError, ImportError, OSError):
        return shown(uri)  # a file system that is not there, or not reached: reading the inputs says so

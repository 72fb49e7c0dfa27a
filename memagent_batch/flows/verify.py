"""Checks an output: the chain of its manifests, its files, its counts, and that its tables follow from its log."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from memagent_batch.config.job import JobConfig
from memagent_batch.config.sources import InputConfig
from memagent_batch.errors import InputError, MemagentError, OutputChangedError, OutputError
from memagent_batch.files.errors import output_errors
from memagent_batch.files.json_files import read_json
from memagent_batch.files.location import Location
from memagent_batch.log.question_list import ASKED_FOLDER
from memagent_batch.runs.history.document_texts import DocumentTexts
from memagent_batch.runs.history.history import PLAN_FILE, REMOVED_FILE, RUNS_FOLDER, PastRun, read_run
from memagent_batch.runs.manifest import MANIFEST_FILE
from memagent_batch.runs.record.log_files import LOG_FILES
from memagent_batch.runs.record.projections import PROJECTION_FILE, restored_projection
from memagent_batch.runs.tables.table_files import read_tables
from memagent_batch.runs.tables.tables import REMOVED_FOLDER
from memagent_batch.verification.chain import Chain, read_chain
from memagent_batch.verification.comparison import differences
from memagent_batch.verification.contents import LOG_LEFT_OUT, Contents, read_contents
from memagent_batch.verification.counts import check_counts
from memagent_batch.verification.files import CheckedFiles, check_files
from memagent_batch.verification.findings import Finding, Kind, Report, Unchecked, split
from memagent_batch.verification.links import read_stored, record_name
from memagent_batch.verification.reread import Reread, reread
from memagent_batch.verification.rows import RowCheck

WITHOUT_TEXT = "--without-text"
DAMAGED = "something is wrong with the record, or could not be checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Which turns are asked of the engine again."""

    num: int
    """How many; none for 0."""
    seed: int
    """Seed of the draw."""
    job_of: Callable[[PastRun], JobConfig]
    """The job of a run, with its secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a check of an output says."""

    run_id: str
    """The last finished run; empty where no manifest can be read."""
    since: str
    """The first run that the chain holds from."""
    sha256: str
    """Of the last run's manifest: whoever keeps it can tell later that all up to here is as it was."""
    num_runs: int
    """Runs on the chain."""
    num_files: int
    """Files whose bytes are those that were recorded."""
    num_rows: int
    """Rows of tables that were compared with the log."""
    findings: Sequence[Finding]
    """What is wrong."""
    unchecked: Sequence[Unchecked]
    """What could not be checked."""
    reread: Reread | None
    """What the engine says again; None where it was not asked."""
    not_asked: str
    """Why the engine was not asked though it was to be; empty where it was, or was not to be."""
    failure: MemagentError | None
    """What kept it from being asked, where that is an error."""


def verify(output: Location, *, expected: str | None, with_text: bool, drawn: Drawn) -> Verification:
    """Checks an output, or an unpacked bundle as far as its content goes.

    Args:
        output: The output.
        expected: SHA-256 of a manifest that an earlier check has shown; None for none.
        with_text: Whether the documents may be read, for evidence and locators.
        drawn: Which turns are asked again, where nothing is wrong.

    Raises:
        OutputError: no run has finished here, or the output can't be reached.
        StorageError: a file can't be read for a cause of its store.
        OutputChangedError: something is wrong, and a run has finished while it was looked at.
    """
    reports: list[Report] = []
    with output_errors(output.uri):
        shown = _shown_manifest(output)
        contents = read_contents(output, reports)
        chain = read_chain(output, reports)
    if chain is None:
        return _verification(reports, not_asked=_not_asked(drawn, DAMAGED))
    reports += [Unchecked(what=what, why="it is not in this bundle") for what in contents.left_out]
    if expected is not None and not chain.has(expected):
        what = f"no manifest on the chain has the SHA-256 {expected}"
        reports.append(Finding(kind=Kind.CHAIN, where=RUNS_FOLDER, what=what, since=""))
    files = check_files(output, chain, contents=contents, reports=reports)
    checked = _checked_tables(output, chain, files, contents, with_text=with_text, reports=reports)
    if split(reports)[0] and _shown_manifest(output) != shown:
        raise OutputChangedError(f"a run has finished at {output} while it was looked at; run the same command again")
    again, failure, not_asked = _ask_again(checked, files, drawn, reports)
    return replace(
        _verification(reports, chain=chain, files=files, num_rows=checked.num_rows if checked else 0),
        reread=again,
        failure=failure,
        not_asked=not_asked,
    )


def _shown_manifest(output: Location) -> bytes:
    stored = read_stored(output / MANIFEST_FILE)
    return stored.as_recorded().data if stored else b""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    """The last run, whose tables were checked."""

    past: PastRun
    num_rows: int


def _checked_tables(
    output: Location,
    chain: Chain,
    files: CheckedFiles,
    contents: Contents,
    *,
    with_text: bool,
    reports: list[Report],
) -> _Checked | None:
    """Checks what the last manifest says of its tables; None where it can't be opened, or says what can't be."""
    name, run_id = record_name(chain.last.run_id), chain.last.run_id
    damaged = sorted(_needed(run_id).intersection(files.wrong)) + ([] if chain.is_certain else [MANIFEST_FILE])
    if damaged:
        reports.append(Unchecked(what="counts and rows", why=f"they need {', '.join(damaged)}"))
        return None
    try:
        past = read_run(output, chain.manifest)
        reports += check_counts(output, past.manifest, plan=past.plan)
        reports += _removed(past)
        is_logged = LOG_LEFT_OUT not in contents.left_out
        num_rows = _against_log(past, files, with_text=with_text, reports=reports) if is_logged else 0
        return _Checked(past=past, num_rows=num_rows)
    except (OutputError, AttributeError, KeyError, TypeError, ValueError) as error:
        what = f"it can't be followed: {type(error).__name__}: {error}"
        reports.append(Finding(kind=Kind.COUNTS, where=name, what=what, since=run_id))
        return None


def _not_asked(drawn: Drawn, why: str) -> str:
    return f"{drawn.num:,} turns were to be asked again, and none was: {why}" if drawn.num else ""


def _ask_again(
    checked: _Checked | None, files: CheckedFiles, drawn: Drawn, reports: list[Report]
) -> tuple[Reread | None, MemagentError | None, str]:
    """What the engine says again; or why it was not asked, and the error where there was one.

    It is asked only where nothing is wrong: else the record may name another engine, or other documents.
    """
    if not drawn.num or checked is None or split(reports)[0]:
        return None, None, _not_asked(drawn, DAMAGED)
    past = checked.past
    texts = _texts(past, reports)
    if texts is None:
        return None, None, _not_asked(drawn, "the documents can't be read")
    try:
        job = drawn.job_of(past)
        return reread(past, job, texts=texts, log=sorted(files.log), num=drawn.num, seed=drawn.seed), None, ""
    except MemagentError as error:
        return None, error, _not_asked(drawn, str(error))


def _needed(run_id: str) -> set[str]:
    """Files of a run's record without which nothing can be counted or compared."""
    record = {f"{RUNS_FOLDER}/{run_id}/{name}" for name in (PLAN_FILE, REMOVED_FILE, PROJECTION_FILE, LOG_FILES)}
    return {*record, f"{ASKED_FOLDER}/{run_id}.parquet"}


def _against_log(past: PastRun, files: CheckedFiles, *, with_text: bool, reports: list[Report]) -> int:
    """Rows that were compared with the log."""
    place = past.output / f"{RUNS_FOLDER}/{past.run_id}/{PROJECTION_FILE}"
    record, of_rows = read_json(place), "whether the rows follow from the log"
    if record is None:
        reports.append(Unchecked(what=of_rows, why=f"{PROJECTION_FILE} of run {past.run_id} is not there"))
        return 0
    settings = InputConfig(**{**past.manifest["settings"]["input"], "carry_columns": (), "question_column": None})
    places: dict[str, object] = {"output": past.output, "run_id": past.run_id, "documents": None, "input": settings}
    projection = restored_projection(record, **places)
    if projection is None:
        versions = ", ".join(f"{name} {version}" for name, version in past.manifest["versions"].items())
        why = f"a version that makes other rows made the tables ({versions})"
        reports.append(Unchecked(what=of_rows, why=why))
        return 0
    of_texts = [
        *(["the table 'evidence'"] if projection.has_evidence else []),
        *(["locators"] if settings.locator is not None else []),
    ]
    texts = _texts(past, reports) if of_texts and with_text else None
    if texts is not None:
        projection = restored_projection(record, **{**places, "documents": texts.documents}) or projection
    else:
        reports += [Unchecked(what=what, why="it needs the texts of the documents") for what in of_texts]
    check = RowCheck(past=past, projection=projection, log=files.log, texts=texts)
    reports += check.reports()
    return check.num_rows


def _texts(past: PastRun, reports: list[Report]) -> DocumentTexts | None:
    """The texts of the documents; None where they can't be reached."""
    names = (past.plan[name].to_pylist() for name in ("document_id", "document_hash"))
    wanted = {name: value for name, value in zip(*names, strict=True) if value is not None}
    try:
        return DocumentTexts(past.output, past.manifest, wanted=wanted, without=WITHOUT_TEXT)
    except (InputError, OutputError) as error:
        reports.append(Unchecked(what="what the documents are needed for", why=str(error)))
        return None


def _removed(past: PastRun) -> list[Report]:
    """Whether the table `removed` is the one of the record."""
    names = past.manifest["files"].get(REMOVED_FOLDER, [])
    try:
        actual: pa.Table = read_tables(past.output, names)
    except OutputError:  # its hash shows it
        return []
    lines = differences(past.removed, actual, keys=["document_id"])
    return [Finding(kind=Kind.ROWS, where=name, what=line, since=past.run_id) for line in lines for name in names[:1]]


def _verification(
    reports: Sequence[Report],
    *,
    chain: Chain | None = None,
    files: CheckedFiles | None = None,
    num_rows: int = 0,
    not_asked: str = "",
) -> Verification:
    findings, unchecked = split(reports)
    return Verification(
        run_id=chain.last.run_id if chain else "",
        since=chain.since if chain else "",
        sha256=chain.last.sha256 if chain else "",
        num_runs=len(chain.links) if chain else 0,
        num_files=files.num_files if files else 0,
        num_rows=num_rows,
        findings=findings,
        unchecked=unchecked,
        reread=None,
        failure=None,
        not_asked=not_asked,
    )

"""Checks an output: the chain of its manifests, its files, its counts, and that its tables follow from its log."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from memagent_batch.config import JobConfig
from memagent_batch.errors import InputError, OutputError
from memagent_batch.files.errors import output_errors
from memagent_batch.files.json_files import read_json
from memagent_batch.files.location import Location
from memagent_batch.log.question_list import ASKED_FOLDER
from memagent_batch.log.writer import TURNS_FOLDER
from memagent_batch.runs.document_texts import DocumentTexts
from memagent_batch.runs.history import PLAN_FILE, REMOVED_FILE, RUNS_FOLDER, PastRun, open_run
from memagent_batch.runs.record.log_files import LOG_FILES
from memagent_batch.runs.record.projections import PROJECTION_FILE, restored_projection
from memagent_batch.runs.rows.projection import Projection
from memagent_batch.runs.table_files import read_tables
from memagent_batch.runs.tables import ANSWERS_FOLDER, EVIDENCE_FOLDER, REMOVED_FOLDER
from memagent_batch.verification.chain import Chain, read_chain
from memagent_batch.verification.comparison import differences
from memagent_batch.verification.contents import Contents, read_contents
from memagent_batch.verification.counts import check_counts
from memagent_batch.verification.files import CheckedFiles, check_files
from memagent_batch.verification.findings import Finding, Kind, Report, Unchecked, split
from memagent_batch.verification.reread import Reread, reread
from memagent_batch.verification.rows import RowCheck

WITHOUT_TEXT = "--without-text"


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


def verify(output: Location, *, expected: str | None, with_text: bool, drawn: Drawn) -> Verification:
    """Checks an output, or an unpacked bundle as far as its content goes.

    Args:
        output: The output.
        expected: SHA-256 of a manifest that an earlier check has shown; None for none.
        with_text: Whether the documents may be read, for evidence.
        drawn: Which turns are asked again.

    Raises:
        OutputError: no run has finished here, or the output can't be reached.
        SettingsError: turns are to be asked again, of another reader.
        StorageError: a file can't be read for a cause of its store.
    """
    reports: list[Report] = []
    with output_errors(output.uri):
        contents = read_contents(output)
        chain = read_chain(output, reports)
    if chain is None:
        return _verification(reports)
    reports += [Unchecked(what=what, why="it is not in this bundle") for what in contents.left_out]
    if expected is not None and expected not in {link.sha256 for link in chain.links}:
        what = f"no manifest on the chain has the SHA-256 {expected}"
        reports.append(Finding(kind=Kind.CHAIN, where=RUNS_FOLDER, what=what, since=""))
    files = check_files(output, chain, contents=contents, reports=reports)
    damaged = sorted(_needed(chain.last.run_id).intersection(files.wrong))
    if damaged:
        reports.append(Unchecked(what="counts and rows", why=f"they need {', '.join(damaged)}"))
        return _verification(reports, chain=chain, files=files)
    past = replace(open_run(output, chain.last.run_id), manifest=chain.manifest)
    reports += check_counts(output, chain.manifest, plan=past.plan, contents=contents)
    if contents.has(f"{ANSWERS_FOLDER}/"):
        reports += _removed(past)
    if not contents.has(f"{TURNS_FOLDER}/"):
        return _verification(reports, chain=chain, files=files)
    num_rows, again = _against_log(past, files, contents, with_text=with_text, drawn=drawn, reports=reports)
    return _verification(reports, chain=chain, files=files, num_rows=num_rows, again=again)


def _needed(run_id: str) -> set[str]:
    """Files of a run's record without which nothing can be counted or compared."""
    record = {f"{RUNS_FOLDER}/{run_id}/{name}" for name in (PLAN_FILE, REMOVED_FILE, PROJECTION_FILE, LOG_FILES)}
    return {*record, f"{ASKED_FOLDER}/{run_id}.parquet"}


def _against_log(
    past: PastRun,
    files: CheckedFiles,
    contents: Contents,
    *,
    with_text: bool,
    drawn: Drawn,
    reports: list[Report],
) -> tuple[int, Reread | None]:
    """Rows that were compared with the log, and what the engine says again."""
    record = read_json(past.output / f"{RUNS_FOLDER}/{past.run_id}/{PROJECTION_FILE}")
    has_evidence = EVIDENCE_FOLDER in past.manifest["files"] and contents.has(f"{ANSWERS_FOLDER}/")
    texts = _texts(past, reports) if drawn.num > 0 or (with_text and has_evidence) else None
    places: dict[str, object] = {"output": past.output, "run_id": past.run_id}
    if texts is not None:
        places |= {"documents": texts.documents, "input": texts.settings}
    num_rows = 0
    projection = restored_projection(record, **places) if record is not None else None
    if projection is None:
        versions = ", ".join(f"{name} {version}" for name, version in past.manifest["versions"].items())
        why = f"a version that makes other rows made the tables ({versions})"
        reports.append(Unchecked(what="whether the rows follow from the log", why=why))
    elif contents.has(f"{ANSWERS_FOLDER}/"):
        if has_evidence and texts is None:
            reports.append(Unchecked(what="the table 'evidence'", why="it needs the texts of the documents"))
        check = RowCheck(past=past, projection=projection, log=files.log, texts=texts)
        reports += check.reports()
        num_rows = check.num_rows
    if drawn.num == 0 or texts is None:
        return num_rows, None
    log = sorted(files.log)
    return num_rows, reread(past, drawn.job_of(past), texts=texts, log=log, num=drawn.num, seed=drawn.seed)


def _texts(past: PastRun, reports: list[Report]) -> DocumentTexts | None:
    """The texts of the documents; None where they can't be reached."""
    names = (past.plan[name].to_pylist() for name in ("document_id", "document_hash"))
    wanted = {name: value for name, value in zip(*names, strict=True) if value is not None}
    try:
        return DocumentTexts(past.output, past.manifest, wanted=wanted, without=WITHOUT_TEXT)
    except InputError as error:
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
    again: Reread | None = None,
) -> Verification:
    findings, unchecked = split(reports)
    return Verification(
        run_id=chain.last.run_id if chain else "",
        since=chain.links[0].run_id if chain else "",
        sha256=chain.last.sha256 if chain else "",
        num_runs=len(chain.links) if chain else 0,
        num_files=files.num_files if files else 0,
        num_rows=num_rows,
        findings=findings,
        unchecked=unchecked,
        reread=again,
    )

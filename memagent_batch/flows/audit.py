"""Checks an output: files, counts, and that its tables follow from its log."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memagent_batch.audit.files import (
    CheckedFiles,
    FileReport,
    Finding,
    Unchecked,
    check_files,
    published_manifest,
    split,
)
from memagent_batch.audit.reread import Reread, reread
from memagent_batch.audit.tables import check_tables, texts_of
from memagent_batch.config.job import JobConfig
from memagent_batch.errors import MemagentError, OutputChangedError
from memagent_batch.runs.history import PastRun
from memagent_batch.runs.manifest import read_run_record
from memagent_batch.store.errors import output_errors
from memagent_batch.store.location import Location

DAMAGED = "something is wrong with the record, or could not be checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class RereadSample:
    """Which turns are asked of the engine again."""

    num: int
    seed: int
    job: JobConfig
    """Its agent is the run's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a check of an output says."""

    run_id: str
    sha256: str
    signer: str
    """Who has signed the list; empty if that was not checked."""
    num_runs: int
    num_files: int
    """Files whose bytes are those that were recorded."""
    num_sign_off_files: int
    """Of these, files with sign-offs."""
    num_rows: int
    """Rows of tables that were compared with the log."""
    findings: Sequence[Finding]
    unchecked: Sequence[Unchecked]
    reread: Reread | None = None
    """What the engine says again; None if it was not asked."""
    not_asked: str = ""
    """Why the engine was not asked though it was to be."""
    failure: MemagentError | None = None
    """What kept it from being asked, if that is an error."""


def verify(
    output: Location,
    *,
    with_text: bool = True,
    all_runs: bool = False,
    allowed_signers: Path | None = None,
    drawn: RereadSample | None = None,
) -> Verification:
    """Checks an output; if nothing is wrong, asks the drawn turns again.

    The files of all runs, or those of the last one. `with_text`: evidence and locators are checked in the documents.
    The signature is checked if it is said who may have signed.

    Raises:
        OutputError: no run has finished here, or the output can't be reached.
        StorageError: a file can't be read for a cause of its store.
        OutputChangedError: something is wrong, and a run has finished while it was looked at.
    """
    reports: list[FileReport] = []
    with output_errors(output.uri):
        read_run_record(output)
        published = published_manifest(output)
        files = check_files(output, all_runs=all_runs, allowed_signers=allowed_signers, reports=reports)
    past, num_rows = check_tables(output, files, with_text=with_text, reports=reports)
    if split(reports)[0] and published_manifest(output) != published:
        raise OutputChangedError(f"a run has finished at {output} while it was looked at; run the same command again")
    asked_again = _reread_if_sound(past, files, drawn, reports)
    findings, unchecked = split(reports)
    return Verification(
        run_id=files.run_id,
        sha256=files.sha256,
        signer=files.signer,
        num_runs=files.num_runs,
        num_files=files.num_files,
        num_sign_off_files=files.num_sign_off_files,
        num_rows=num_rows,
        findings=findings,
        unchecked=unchecked,
        **asked_again,
    )


def _reread_if_sound(
    past: PastRun | None, files: CheckedFiles, drawn: RereadSample | None, reports: list[FileReport]
) -> dict[str, Any]:
    """The fields of `Verification` on what the engine says again, or why it was not asked.

    It is asked only if nothing is wrong: else the record may name another engine, or other documents.
    """
    if drawn is None:
        return {}
    if past is None or split(reports)[0]:
        return {"not_asked": _not_asked(drawn, DAMAGED)}
    texts = texts_of(past, reports)
    if texts is None:
        return {"not_asked": _not_asked(drawn, "the documents can't be read")}
    try:
        again = reread(past, drawn.job, texts=texts, log=sorted(files.log), num=drawn.num, seed=drawn.seed)
    except MemagentError as error:
        return {"not_asked": _not_asked(drawn, str(error)), "failure": error}
    return {"reread": again}


def _not_asked(drawn: RereadSample, why: str) -> str:
    return f"{drawn.num:,} turns were to be asked again, and none was: {why}"

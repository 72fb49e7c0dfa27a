"""Checks the tables of the last run: that its numbers add up, and that each row follows from the log."""

from collections.abc import Iterator

import pyarrow.compute as pc

from memagent_batch.audit.files import CheckedFiles, FileReport, Finding, FindingKind, Unchecked
from memagent_batch.audit.rows import RowCheck
from memagent_batch.config.sources import InputConfig
from memagent_batch.errors import InputError, OutputError
from memagent_batch.runs.document_texts import DocumentTexts
from memagent_batch.runs.history import PLAN_FILE, REMOVED_FILE, PastRun, read_run
from memagent_batch.runs.manifest import MANIFEST_FILE, PART_TABLES, rows_of_files
from memagent_batch.runs.projection import PROJECTION_FILE, restored_projection
from memagent_batch.runs.record import LOG_TABLES, record_file
from memagent_batch.runs.tables import count_rows
from memagent_batch.store.errors import FILE_ERRORS, storage_errors
from memagent_batch.store.json_files import read_json
from memagent_batch.store.location import Location
from memagent_batch.store.turn_log.question_list import ASKED_FOLDER

WITHOUT_TEXT = "--without-text"


def check_tables(
    output: Location, files: CheckedFiles, *, with_text: bool, reports: list[FileReport]
) -> tuple[PastRun | None, int]:
    """Checks the tables of the last manifest; gives its run, if it can be opened, and the number of compared rows."""
    run_id, manifest = files.run_id, files.manifest
    record = [record_file(run_id, name) for name in (PLAN_FILE, REMOVED_FILE, PROJECTION_FILE)]
    damaged = sorted(files.wrong.intersection([*record, f"{ASKED_FOLDER}/{run_id}.parquet"]))
    if damaged or manifest is None:
        why = f"they need {', '.join(damaged) or MANIFEST_FILE}, which is not as it was recorded"
        reports.append(Unchecked(what="counts and rows", why=why))
        return None, 0
    try:
        past = read_run(output, manifest)
        reports += (each for each in _count_findings(past) if each.where not in files.wrong)
        return past, _against_log(past, files, with_text=with_text, reports=reports)
    except (OutputError, AttributeError, KeyError, TypeError, ValueError) as error:
        what = f"it can't be followed: {type(error).__name__}: {error}"
        reports.append(Finding(kind=FindingKind.COUNTS, where=record_file(run_id, MANIFEST_FILE), what=what))
        return None, 0


def texts_of(past: PastRun, reports: list[FileReport]) -> DocumentTexts | None:
    """The texts of the documents of a run; None if they can't be reached."""
    names = (past.plan[name].to_pylist() for name in ("document_id", "document_hash"))
    wanted = {name: value for name, value in zip(*names, strict=True) if value is not None}
    try:
        return DocumentTexts(past.output, past.manifest, wanted=wanted, without=WITHOUT_TEXT)
    except (InputError, OutputError) as error:
        reports.append(Unchecked(what="what the documents are needed for", why=str(error)))
        return None


def _count_findings(past: PastRun) -> Iterator[Finding]:
    manifest, counts = past.manifest, past.manifest["counts"]
    planned = pc.sum(pc.list_value_length(past.plan["readings"])).as_py() or 0
    ended = counts["ok"] + counts["failed"] + counts["not_read"]
    if not planned == counts["asked"] == ended == counts["answers_rows"]:
        what = f"the counts do not close: {planned:,} readings are planned, and the manifest has {dict(counts)}"
        yield Finding(kind=FindingKind.COUNTS, where=record_file(past.run_id, PLAN_FILE), what=what)
    for table in PART_TABLES:
        files = [name for part in manifest["parts"] if (name := part.get(f"{table}_file"))]
        if files != manifest["files"].get(table, []):
            what = f"the parts of the table {table!r} have other files than the manifest lists"
            yield Finding(kind=FindingKind.COUNTS, where=record_file(past.run_id, MANIFEST_FILE), what=what)
    for part in manifest["parts"]:
        for name, num_rows in rows_of_files(part).items():
            place = past.output / name
            with storage_errors(place.uri, of=FILE_ERRORS):
                found = count_rows(place)
            if found != num_rows:
                has = "can't be read" if found is None else f"has {found:,} rows"
                what = f"it {has}, and the manifest says {num_rows:,} rows"
                yield Finding(kind=FindingKind.COUNTS, where=name, what=what)


def _against_log(past: PastRun, files: CheckedFiles, *, with_text: bool, reports: list[FileReport]) -> int:
    """Rows that were compared with the log."""
    rows = "whether the rows follow from the log"
    if any(name.startswith(LOG_TABLES) for name in files.wrong):
        reports.append(Unchecked(what=rows, why="the log is not as it was recorded"))
        return 0
    record = read_json(past.output / record_file(past.run_id, PROJECTION_FILE))
    if record is None:
        reports.append(Unchecked(what=rows, why=f"{PROJECTION_FILE} of run {past.run_id} is not there"))
        return 0
    settings = InputConfig.recorded(past.manifest["settings"]["input"])
    places: dict[str, object] = {"output": past.output, "run_id": past.run_id, "documents": None, "input": settings}
    projection = restored_projection(record, **places)
    if projection is None:
        versions = ", ".join(f"{name} {version}" for name, version in past.manifest["versions"].items())
        why = f"a version that makes other rows made the tables ({versions})"
        reports.append(Unchecked(what=rows, why=why))
        return 0
    of_texts = [
        *(["the table 'evidence'"] if projection.has_evidence else []),
        *(["locators"] if settings.locator is not None else []),
    ]
    texts = texts_of(past, reports) if of_texts and with_text else None
    if texts is not None:
        projection = restored_projection(record, **{**places, "documents": texts.documents}) or projection
    else:
        reports += [Unchecked(what=what, why="it needs the texts of the documents") for what in of_texts]
    check = RowCheck(past=past, projection=projection, log=files.log, texts=texts, wrong=files.wrong)
    reports += check.reports()
    return check.num_rows

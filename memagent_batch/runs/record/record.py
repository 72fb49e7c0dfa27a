"""The record that a run leaves in `runs/RUN_ID/` when it closes: how its tables were made, its card, and its list."""

from collections.abc import Iterable
from hashlib import sha256

from memagent_batch.errors import StorageError
from memagent_batch.files.json_files import json_bytes, write_json
from memagent_batch.log.question_list import ASKED_FOLDER
from memagent_batch.runs.claim import named_files, require_claim
from memagent_batch.runs.history.history import INDEX_FILE, PLAN_FILE, REMOVED_FILE, PastRun
from memagent_batch.runs.manifest import MANIFEST_FILE
from memagent_batch.runs.record.card import CARD_FILE, run_card
from memagent_batch.runs.record.projections import PROJECTION_FILE, projection_record
from memagent_batch.runs.record.sums import LOG_TABLES, file_hashes, known_hashes, link_before, record_file, write_sums
from memagent_batch.runs.run import Run
from memagent_batch.runs.tables.part_report import PartReport

RECORD_FILES = (PLAN_FILE, REMOVED_FILE, PROJECTION_FILE, CARD_FILE)
"""Files of `runs/RUN_ID/` beside the manifest and the list; the index of a table of a lake is there for some runs."""


def write_record(
    past: PastRun,
    *,
    run: Run,
    reports: Iterable[PartReport],
    log_files: Iterable[str],
    before: PastRun | None,
) -> None:
    """Writes the record of a run that is about to be published, its manifest excepted, which the list has already.

    Tables are hashed while they are written. What is read back here are the small files of the record, and the files
    of the log that the run before does not list.

    Args:
        past: The run, whose tables and plan are written.
        run: The same, with its settings.
        reports: What the parts of the tables reported.
        log_files: Files of the turn log that they were made of.
        before: The last finished run.

    Raises:
        SettingsError: the key can't sign.
        StorageError: a file can't be written or read back.
        SupersededError: a newer attempt holds the claim, and has removed a file.
    """
    output, run_id = past.output, past.run_id
    write_json(output / record_file(run_id, PROJECTION_FILE), projection_record(run.projection))
    (output / record_file(run_id, CARD_FILE)).write_bytes(run_card(past).encode())
    tables = named_files(past.manifest)
    hashes = {name: value for name, value in known_hashes(before).items() if name in {*tables, *log_files}}
    hashes |= {each["file"]: each["sha256"] for report in reports for each in report.get("hashes") or ()}
    record = [record_file(run_id, name) for name in (*RECORD_FILES, INDEX_FILE)]
    names = {*tables, *record, *log_files, f"{ASKED_FOLDER}/{run_id}.parquet", *link_before(before)}
    optional = record_file(run_id, INDEX_FILE)
    for name, value in file_hashes(output, sorted(names - hashes.keys())):
        if value is not None:
            hashes[name] = value
        elif name != optional and not name.startswith(LOG_TABLES):
            require_claim(output, run_id=run_id)  # else a newer attempt may have removed this one's files
            raise StorageError(f"{output / name} is gone before the run has closed; run the same command again")
    hashes[record_file(run_id, MANIFEST_FILE)] = sha256(json_bytes(past.manifest)).hexdigest()
    write_sums(output, hashes, run_id=run_id, sign=run.job.record.sign)

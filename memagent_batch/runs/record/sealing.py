"""Seals a run that is about to be shown: hashes of its files, and of the record of the run before.

Tables are hashed while they are written. What is read back here are the small files of the record, and the files of
the log that no run before has hashed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain

from memagent_batch.errors import StorageError
from memagent_batch.files.json_files import write_json
from memagent_batch.log.question_list import ASKED_FOLDER
from memagent_batch.runs.claim import require_claim
from memagent_batch.runs.history.history import INDEX_FILE, PLAN_FILE, REMOVED_FILE, RUNS_FOLDER, PastRun
from memagent_batch.runs.manifest import MANIFEST_FILE, RUN_FILE, Manifest
from memagent_batch.runs.record.card import CARD_FILE, card
from memagent_batch.runs.record.estimates import read_estimates
from memagent_batch.runs.record.evaluations import read_evaluations
from memagent_batch.runs.record.hashes import file_hash, file_hashes
from memagent_batch.runs.record.log_files import LOG_FILES, hash_log, known_hashes, write_log_files
from memagent_batch.runs.record.projections import PROJECTION_FILE, projection_record
from memagent_batch.runs.record.seal import RunBefore, Seal
from memagent_batch.runs.rows.projection import Projection
from memagent_batch.runs.tables.part_report import PartReport

RECORD_FILES = (PLAN_FILE, REMOVED_FILE, LOG_FILES, PROJECTION_FILE, CARD_FILE)
"""Files of `runs/RUN_ID/` beside the manifest; the index of a table of a lake is there for some runs."""


def sealed(
    past: PastRun,
    *,
    projection: Projection,
    reports: Iterable[PartReport],
    log_files: Iterable[str],
    before: PastRun | None,
) -> PastRun:
    """The run with its seal in the manifest; writes what the seal names and is not there yet.

    Args:
        past: The run, whose tables and plan are written.
        projection: How its tables were made.
        reports: What the parts of the tables reported.
        log_files: Files of the turn log that they were made of.
        before: The last finished run.

    Raises:
        StorageError: a file can't be written or read back.
        SupersededError: a newer attempt holds the claim, and has removed a file.
    """
    output, folder = past.output, f"{RUNS_FOLDER}/{past.run_id}"
    write_json(output / f"{folder}/{PROJECTION_FILE}", projection_record(projection))
    write_log_files(output / f"{folder}/{LOG_FILES}", hash_log(output, log_files, _known(before)))
    evaluations = [*read_evaluations(output).values()]
    text = card(past, estimates=read_estimates(output), evaluations=evaluations)
    (output / f"{folder}/{CARD_FILE}").write_bytes(text.encode())
    tables = {**_recorded(before), **_written(reports)}
    names = [*chain.from_iterable(past.manifest["files"].values())]
    files = {name: tables[name] for name in names if name in tables}
    index = [INDEX_FILE] if (output / f"{folder}/{INDEX_FILE}").exists() else []
    record = [f"{folder}/{name}" for name in (*RECORD_FILES, *index)]
    read_back = {*names, *record, f"{ASKED_FOLDER}/{past.run_id}.parquet", RUN_FILE} - files.keys()
    for name, value in file_hashes(output, sorted(read_back), in_blocks=False):
        if value is None:
            require_claim(output, run_id=past.run_id)  # else a newer attempt may have removed this one's files
            raise StorageError(f"{output / name} is gone before the run has closed; run the same command again")
        files[name] = value
    seal: Seal = {"before": _link(before), "files": dict(sorted(files.items()))}
    manifest: Manifest = {**past.manifest, "record": seal}
    return replace(past, manifest=manifest)


def _known(before: PastRun | None) -> Mapping[str, str]:
    """Hashes of log files that the run before has taken."""
    if before is None:
        return {}
    name = f"{RUNS_FOLDER}/{before.run_id}/{LOG_FILES}"
    return known_hashes(before.output / name, recorded_hashes(before.manifest).get(name))


def recorded_hashes(manifest: Manifest) -> Mapping[str, str]:
    """Hashes of the files of a run, by name; none where another version closed it."""
    return manifest["record"]["files"] if "record" in manifest else {}


def _recorded(before: PastRun | None) -> Mapping[str, str]:
    return recorded_hashes(before.manifest) if before else {}


def _written(reports: Iterable[PartReport]) -> dict[str, str]:
    """Hashes of the table files that this run has written."""
    hashes = chain.from_iterable(report.get("hashes") or () for report in reports)
    return {each["file"]: each["sha256"] for each in hashes}


def _link(before: PastRun | None) -> RunBefore | None:
    if before is None:
        return None
    place = before.output / f"{RUNS_FOLDER}/{before.run_id}/{MANIFEST_FILE}"
    found = file_hash(place)
    if found is None:
        raise StorageError(f"{place} is gone since this run began; restore it, and run the same command again")
    return {"run_id": before.run_id, "sha256": found}

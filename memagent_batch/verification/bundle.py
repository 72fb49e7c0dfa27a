"""Packs the record of an output for someone outside: one archive; `verify` checks what is in it."""

import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypedDict

from memagent_batch.errors import OutputError
from memagent_batch.files.errors import FILE_ERRORS, output_errors, storage_errors
from memagent_batch.files.location import Location
from memagent_batch.log.question_list import ASKED_FOLDER
from memagent_batch.runs.claim import ANSWER_TABLES
from memagent_batch.runs.escalation.thresholds import THRESHOLDS_FOLDER
from memagent_batch.runs.history.history import LATEST, RUNS_FOLDER, PastRun, find_run
from memagent_batch.runs.manifest import MANIFEST_FILE, RUN_FILE, require_manifest
from memagent_batch.runs.record.card import CARD_FILE, card
from memagent_batch.runs.record.confidences import read_confidences
from memagent_batch.runs.record.estimates import REVIEWS_FOLDER, read_estimates
from memagent_batch.runs.record.evaluations import read_evaluations
from memagent_batch.runs.record.hashes import READ_BYTES, file_hash
from memagent_batch.runs.record.sealing import RECORD_FILES
from memagent_batch.verification.contents import BUNDLE_FILE, BUNDLE_FORMAT, LEFT_OUT, TABLES_LEFT_OUT
from memagent_batch.verification.names import outside

RECORDED = frozenset({MANIFEST_FILE, *RECORD_FILES})
"""Files of `runs/RUN_ID/` that are packed: all but the index of a table, which says where its files lie."""
REVIEWED = frozenset({"review.json", "sample.parquet", "estimate.json", "estimate.md"})
"""Files of `review/ID/` that are packed: not the pages and sheets, which hold texts."""
LEARNT = (f"{REVIEWS_FOLDER}/labels/", f"{THRESHOLDS_FOLDER}/")
"""Folders of reviews that are packed whole: labels, and the thresholds that they taught."""


class Packed(TypedDict):
    """What was packed."""

    run_id: str
    """The last finished run."""
    files: int
    """Files in the archive."""
    left_out: list[str]
    """What of the output is not among them."""
    sha256: str
    """Of the archive, hex: whoever gets it can tell that it is this one."""


def write_bundle(output: Location, target: Location, *, with_tables: bool) -> Packed:
    """Packs the record up to the last finished run into a zip archive, which appears whole or not at all.

    Args:
        output: The output.
        target: The archive.
        with_tables: Whether the tables of the run are packed too.

    Raises:
        OutputError: no run has finished, or the manifest names a file that is gone or not below the output.
        StorageError: a file can't be read or written.
    """
    with output_errors(output.uri):
        require_manifest(output)
    past = find_run(output, LATEST)
    left_out = [what for what in LEFT_OUT if what != TABLES_LEFT_OUT or not with_tables]
    evaluations = read_evaluations(output)
    measured = [*_reviews(output), *evaluations]
    names = [MANIFEST_FILE, RUN_FILE, *_record(output), *measured, *(_tables(past) if with_tables else ())]
    with TemporaryDirectory() as folder:
        file = Path(folder) / "bundle.zip"
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            hashes = {name: _pack(archive, name, output / name) for name in names}
            confidences = read_confidences(output, past.manifest, questions=past.questions)
            estimates = read_estimates(output)
            text = card(past, estimates=estimates, evaluations=[*evaluations.values()], confidences=confidences)
            data = text.encode()
            archive.writestr(_entry(CARD_FILE), data)
            hashes[CARD_FILE] = sha256(data).hexdigest()
            others = {name: hashes[name] for name in (*measured, CARD_FILE)}
            archive.writestr(_entry(BUNDLE_FILE), _contents(past.run_id, left_out=left_out, files=others))
        target.write_file(file)
        digest = file_hash(Location(uri=str(file)), in_blocks=True) or ""
    return {"run_id": past.run_id, "files": len(hashes) + 1, "left_out": left_out, "sha256": digest}


def _contents(run_id: str, *, left_out: Sequence[str], files: Mapping[str, str]) -> bytes:
    """What `bundle.json` says."""
    made_at = datetime.now(UTC).isoformat()
    value = {"format": BUNDLE_FORMAT, "run_id": run_id, "made_at": made_at, "left_out": left_out, "files": files}
    return json.dumps(value, indent=2).encode()


def _tables(past: PastRun) -> list[str]:
    """Files of the tables, which lie in their folders and nowhere else."""
    names = list(chain.from_iterable(past.manifest["files"].values()))
    folders = tuple(f"{folder}/" for folder in ANSWER_TABLES.folders)
    if strange := [*outside(names), *(name for name in names if not name.startswith(folders))]:
        raise OutputError(f"the manifest of run {past.run_id} names {strange[0]!r} as a file of a table; restore it")
    return names


def _record(output: Location) -> Iterator[str]:
    """Files of the records of runs, and their question lists."""
    yield from (name for name in _below(output, RUNS_FOLDER) if name.rpartition("/")[2] in RECORDED)
    yield from _below(output, ASKED_FOLDER)


def _reviews(output: Location) -> Iterator[str]:
    """Samples and estimates of reviews, the labels, and the thresholds that they taught."""
    for name in _below(output, REVIEWS_FOLDER):
        if name.startswith(LEARNT) or name.rpartition("/")[2] in REVIEWED:
            yield name


def _below(output: Location, folder: str) -> list[str]:
    start = len((output / folder).path) - len(folder)
    return [path[start:] for path in (output / folder).files()]


def _pack(archive: zipfile.ZipFile, name: str, place: Location) -> str:
    """Copies a file into the archive; returns its hash."""
    digest = sha256()
    with (
        storage_errors(place.uri, of=FILE_ERRORS),
        place.open() as source,
        archive.open(_entry(name), "w", force_zip64=True) as entry,
    ):
        while block := source.read(READ_BYTES):
            digest.update(block)
            entry.write(block)
    return digest.hexdigest()


def _entry(name: str) -> zipfile.ZipInfo:
    """A place in the archive, without a time of its own."""
    entry = zipfile.ZipInfo(name)
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry

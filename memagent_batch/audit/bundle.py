"""Packs the record of one run for someone outside: an archive that is checked without this software."""

import zipfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypedDict

from memagent_batch.errors import OutputChangedError
from memagent_batch.review.estimate_files import REVIEWS_FOLDER
from memagent_batch.review.sign_offs import SIGNED_FOLDER
from memagent_batch.runs.history import RUNS_FOLDER, PastRun
from memagent_batch.runs.manifest import MANIFEST_FILE
from memagent_batch.runs.record import (
    NAMESPACE,
    READ_BYTES,
    RECORD_FILES,
    SIGNATURE_FILE,
    SUMS_FILE,
    parse_sums,
    record_file,
    sums_bytes,
)
from memagent_batch.runs.tables import ANSWERS_FOLDER, EVIDENCE_FOLDER
from memagent_batch.store.errors import FILE_ERRORS, storage_errors
from memagent_batch.store.location import Location
from memagent_batch.store.turn_log.question_list import ASKED_FOLDER

README_FILE = "README.md"
RECORDED = frozenset({MANIFEST_FILE, SUMS_FILE, SIGNATURE_FILE, *RECORD_FILES})
"""Files of `runs/RUN_ID/` that are packed: all but the index of a table, which says where its files lie."""
PACKED_OF_REVIEWS = frozenset({"review.json", "sample.parquet", "estimate.json", "estimate.md"})
"""Files of `review/ID/` that are packed: not the pages and sheets, which hold texts."""
PEOPLES_FILES = (f"{REVIEWS_FOLDER}/labels/", f"{SIGNED_FOLDER}/")
README = (files("memagent_batch.audit") / "bundle.txt").read_text(encoding="utf-8")


class Packed(TypedDict):
    """What was packed."""

    run_id: str
    files: int
    sha256: str
    """Of the archive, hex: whoever gets it can tell that it is this one."""


def write_bundle(past: PastRun, target: Location, *, with_tables: bool) -> Packed:
    """Packs the record of a run into a zip archive, which appears whole or not at all.

    Raises:
        OutputChangedError: a file has changed since it was verified.
        StorageError: a file can't be read or written.
    """
    output = past.output
    run_sums = record_file(past.run_id, SUMS_FILE)
    recorded = parse_sums((output / run_sums).read_bytes_if_there() or b"", name=run_sums)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "bundle.zip"
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            hashes: dict[str, str] = {}
            for name in _packed_names(past, with_tables=with_tables):
                hashes[name] = _pack_file(archive, name, output / name)
                if recorded.get(name, hashes[name]) != hashes[name]:
                    raise OutputChangedError(f"{output / name} has changed while it was packed; run the command again")
            readme = _readme(past.run_id, run_sums).encode()
            archive.writestr(_entry(README_FILE), readme)
            hashes[README_FILE] = sha256(readme).hexdigest()
            archive.writestr(_entry(SUMS_FILE), sums_bytes(hashes))
        target.write_file(file)
        with file.open("rb") as stream:
            digest = sha256()
            while block := stream.read(READ_BYTES):
                digest.update(block)
    return {"run_id": past.run_id, "files": len(hashes) + 1, "sha256": digest.hexdigest()}


def _readme(run_id: str, run_sums: str) -> str:
    packed_at = datetime.now(UTC).isoformat(timespec="seconds")
    return README.format(run_id=run_id, packed_at=packed_at, sums=SUMS_FILE, run_sums=run_sums, namespace=NAMESPACE)


def _packed_names(past: PastRun, *, with_tables: bool) -> Iterator[str]:
    files: Mapping[str, list[str]] = past.manifest["files"]
    yield from (name for name in _below(past.output, f"{RUNS_FOLDER}/{past.run_id}") if name.split("/")[2] in RECORDED)
    yield f"{ASKED_FOLDER}/{past.run_id}.parquet"
    for table in (ANSWERS_FOLDER, EVIDENCE_FOLDER) if with_tables else ():
        yield from files.get(table, [])
    for name in _below(past.output, REVIEWS_FOLDER):
        if name.startswith(PEOPLES_FILES) or name.rpartition("/")[2] in PACKED_OF_REVIEWS:
            yield name


def _below(output: Location, folder: str) -> list[str]:
    start = len((output / folder).path) - len(folder)
    return [path[start:] for path in (output / folder).files()]


def _pack_file(archive: zipfile.ZipFile, name: str, place: Location) -> str:
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
    """A place in the archive, without its own time."""
    entry = zipfile.ZipInfo(name)
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry

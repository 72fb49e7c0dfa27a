"""The manifests of an output as links of a chain: each as it lies there, with what is wrong with it by itself."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, cast

from memagent_batch.errors import OutputError
from memagent_batch.files.errors import FILE_ERRORS, storage_errors
from memagent_batch.files.json_files import json_bytes
from memagent_batch.files.location import Location
from memagent_batch.runs.history.history import RUNS_FOLDER
from memagent_batch.runs.manifest import MANIFEST_FILE, Manifest
from memagent_batch.runs.record.seal import RunBefore, Seal
from memagent_batch.verification.names import outside

PART_FILES = ("answers_file", "memories_file", "evidence_file", "results_file")
"""Fields of a part of the tables that name its files."""
CLAIMED = "claimed_by"
"""Field that a later attempt adds to the manifest that is shown, and to no other."""
_SHAPE: Mapping[str, type] = {
    "run_id": str,
    "counts": dict,
    "reasons": dict,
    "totals": dict,
    "reader_fingerprint": str,
    "settings": dict,
    "started_at": str,
    "finished_at": str,
    "seconds": (float | int),  # type: ignore[dict-item]
    "files": dict,
    "parts": list,
    "versions": dict,
}
"""Fields that a manifest has, and what they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The manifest of a finished run."""

    run_id: str
    """The run."""
    sha256: str
    """Of its bytes, hex."""
    started_at: str
    """When the run began, ISO 8601."""
    finished_at: str
    """When it closed."""
    seconds: float
    """How long it took by the monotonic clock."""
    seal: Seal | None
    """Hashes of its files; None where a version without them closed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredManifest:
    """A manifest as it lies in a file."""

    data: bytes
    """Its bytes."""
    manifest: Manifest | None
    """What it says; None where it is no manifest."""
    problem: str
    """Why not."""

    def link(self) -> Link:
        """Its place in the chain.

        Raises:
            OutputError: it is no manifest.
        """
        if self.manifest is None:
            raise OutputError(self.problem)
        return Link(
            run_id=self.manifest["run_id"],
            sha256=sha256(self.data).hexdigest(),
            started_at=self.manifest["started_at"],
            finished_at=self.manifest["finished_at"],
            seconds=self.manifest["seconds"],
            seal=self.manifest.get("record"),
        )

    def as_recorded(self) -> "StoredManifest":
        """As its own run wrote it, without the mark of a later attempt."""
        if self.manifest is None or CLAIMED not in self.manifest or json_bytes(self.manifest) != self.data:
            return self
        own = cast("Manifest", {name: value for name, value in self.manifest.items() if name != CLAIMED})
        return StoredManifest(data=json_bytes(own), manifest=own, problem="")


def record_name(run_id: str) -> str:
    """Name of the manifest in the record of a run."""
    return f"{RUNS_FOLDER}/{run_id}/{MANIFEST_FILE}"


def read_stored(place: Location) -> StoredManifest | None:
    """The manifest in a file; None where there is no file.

    Raises:
        StorageError: it can't be read.
    """
    with storage_errors(place.uri, of=FILE_ERRORS):
        data = place.read_bytes_if_there()
    if data is None:
        return None
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:  # the second: nested too deeply
        return StoredManifest(data=data, manifest=None, problem=f"it is no JSON: {error}")
    problem = next(_problems(value), "")
    return StoredManifest(data=data, manifest=None if problem else value, problem=problem)


def _problems(value: Any) -> Iterator[str]:
    """What keeps a JSON value from being a manifest."""
    if not isinstance(value, dict):
        yield "it is no JSON object"
        return
    wrong = [name for name, kind in _SHAPE.items() if not isinstance(value.get(name), kind)]
    yield from (f"it has no valid field {name!r}" for name in wrong)
    if not wrong:
        named = [value["run_id"], *_named_files(value)]
        yield from (f"it names {name!r}, which is no place below the output" for name in outside(named))
    seal = value.get("record")
    if seal is not None:
        yield from _problems_of_seal(seal)


def _named_files(value: Mapping[str, Any]) -> Iterator[Any]:
    """Names of table files in a manifest."""
    for names in value["files"].values():
        yield from names if isinstance(names, list) else [None]
    for part in value["parts"]:
        yield from (part.get(column) or column for column in PART_FILES) if isinstance(part, dict) else [None]


def _problems_of_seal(seal: Any) -> Iterator[str]:
    files = seal.get("files") if isinstance(seal, dict) else None
    if not isinstance(files, dict) or not all(isinstance(each, str) for each in files.values()):
        yield "its field 'record' is not valid"
        return
    yield from (f"its field 'record' names {name!r}, which is no place below the output" for name in outside(files))
    before = seal.get("before", {})
    if before is None:
        return
    if not isinstance(before, dict) or outside(before.get(name) for name in RunBefore.__annotations__):
        yield "its field 'record' does not name the run before"

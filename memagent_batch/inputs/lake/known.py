"""What a run keeps of the index of a table, so that the next one indexes only files that it has not seen."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.config.sources import InputConfig
from memagent_batch.inputs.document_index import BAD_FILE, is_there
from memagent_batch.inputs.lake.table import Table
from memagent_batch.inputs.shards import FoundShards, Shard

_FILES = b"memagent.files"
"""Key of the files in the metadata of a kept index."""
_CODE = 3
"""Raised with every change of the code that changes a row of an index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedTable:
    """What was indexed, where it has versions."""

    versions: Mapping[str, str]
    """Version of a table, or commit of each data set of the hub, by the place as the user names it."""
    files: Mapping[str, str]
    """Fingerprints of the files of a table, by path: of what decides the rows that they give the index."""

    @classmethod
    def found(cls, found: FoundShards, *, settings: InputConfig) -> "IndexedTable | None":
        """What is indexed with these settings; None for files without versions."""
        if found.table is not None:
            return cls.of(found.table, settings=settings)
        return cls(versions=found.commits, files={}) if found.commits else None

    @classmethod
    def of(cls, table: Table, *, settings: InputConfig) -> "IndexedTable":
        """A table that is indexed with these settings."""
        shared = json.dumps([_CODE, settings.model_dump(mode="json"), repr(sorted(table.columns.items()))])
        files = {file.path: sha256(f"{file.fingerprint()} {shared}".encode()).hexdigest() for file in table.files}
        return cls(versions={table.uri: table.version}, files=files)


def kept_index(index: pa.Table, table: IndexedTable) -> pa.Table:
    """The index as a run keeps it: documents that are there, with the files that it knows in the metadata.

    A file with rows that can't be read is not known: every night looks again.
    """
    bad = set(index.filter(pc.equal(index["error_type"], BAD_FILE))["path"].to_pylist())
    files = {path: fingerprint for path, fingerprint in table.files.items() if path not in bad}
    return index.filter(is_there(index)).replace_schema_metadata({_FILES: json.dumps(files).encode()})


def known_files(kept: pa.Table, table: IndexedTable, *, settings: InputConfig) -> frozenset[str]:
    """Files of a table whose rows a kept index has. Where documents have many rows: all of them, or none."""
    files: dict[str, str] = json.loads((kept.schema.metadata or {}).get(_FILES, b"{}"))
    if settings.order_columns:
        return frozenset(files) if files == table.files else frozenset()
    return frozenset(path for path, fingerprint in table.files.items() if files.get(path) == fingerprint)


def known_rows(kept: pa.Table, files: Collection[str]) -> pa.Table:
    """The rows of a kept index that come from these files."""
    paths = pa.array(sorted(files), kept.schema.field("path").type)
    return kept.filter(pc.is_in(kept["path"], value_set=paths)).replace_schema_metadata(None)


def shards_without(shards: Sequence[Shard], files: Collection[str]) -> list[Shard]:
    """The shards that are left when these files need not be indexed."""
    kept = [replace(shard, paths=tuple(path for path in shard.paths if path not in files)) for shard in shards]
    return [shard for shard in kept if shard.paths]

"""Texts of a finished run's documents, fetched again from where the run read them.

A text counts only where its hash is the one that the run read.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.config import InputConfig
from memagent_batch.errors import InputError, OutputError
from memagent_batch.files.json_files import read_json
from memagent_batch.files.location import Location
from memagent_batch.inputs.documents import INDEX_SCHEMA, index_shard
from memagent_batch.inputs.shards import find_shards
from memagent_batch.inputs.texts import fetch_texts
from memagent_batch.runs.manifest import RUN_FILE, Manifest

REMEDY = "put the documents back, or say --without-text"


class DocumentTexts:
    """Texts by document_id; the index of those that are wanted is held, and one text at a time."""

    def __init__(self, output: Location, manifest: Manifest, *, wanted: Mapping[str, str]) -> None:
        """Finds the wanted documents, by id and hash, among the files that the run read.

        Raises:
            InputError: the documents can't be reached or read.
        """
        self._settings = _input_settings(manifest)
        uris = _document_uris(output, manifest)
        self._places = [Location(uri=uri, storage_options=output.storage_options) for uri in uris]
        tables = [INDEX_SCHEMA.empty_table()]
        try:
            for shard in find_shards(*self._places, settings=self._settings).shards:
                index = index_shard(shard, settings=self._settings, storage_options=output.storage_options)
                tables.extend(_wanted_rows(table, wanted) for table in index)
        except InputError as error:
            raise InputError(f"the texts of the documents can't be shown: {error}; {REMEDY}") from error
        self._index = pa.concat_tables(tables).combine_chunks()
        self._rows = {name: row for row, name in enumerate(self._index["document_id"].to_pylist())}

    def __contains__(self, document_id: str) -> bool:
        """Whether the text that the run read is there."""
        return document_id in self._rows

    def fetch(self, document_ids: list[str]) -> Iterator[tuple[str, str]]:
        """Streams id and text of these documents, in the order of their files; those that have changed are left out."""
        rows = [self._rows[name] for name in dict.fromkeys(document_ids) if name in self._rows]
        if not rows:
            return
        table = self._index.take(pa.array(rows, pa.int64()))
        names = table["document_id"].to_pylist()
        for fetched in fetch_texts(table, documents=self._places[0], settings=self._settings):
            if fetched.text is not None:
                yield names[fetched.row], fetched.text


def _wanted_rows(table: pa.Table, wanted: Mapping[str, str]) -> pa.Table:
    pairs = zip(table["document_id"].to_pylist(), table["document_hash"].to_pylist(), strict=True)
    keep = [document_hash is not None and wanted.get(name) == document_hash for name, document_hash in pairs]
    return table.filter(pc.and_(pa.array(keep, pa.bool_()), pc.is_null(table["error"]))).select(INDEX_SCHEMA.names)


def _input_settings(manifest: Manifest) -> InputConfig:
    return InputConfig(**{**manifest["settings"]["input"], "carry_columns": (), "question_column": None})


def _document_uris(output: Location, manifest: Manifest) -> list[str]:
    """Where the run's documents are: as `run.json` has them, with their whole paths, where it is of this run.

    Raises:
        OutputError: the run kept no place of documents.
    """
    record: Mapping[str, Any] = read_json(output / RUN_FILE) or {}
    kept = record["documents"] if record.get("run_id") == manifest["run_id"] else manifest["settings"].get("documents")
    if not kept:
        raise OutputError(f"{output} does not say where its documents are; say --without-text")
    return [kept] if isinstance(kept, str) else list(kept)

"""Texts of a finished run's documents, fetched again from where the run read them, by their places.

A text counts only where its hash is the one that the run read.
"""

from collections.abc import Iterator, Mapping

import pyarrow as pa

from memagent_batch.config import InputConfig
from memagent_batch.errors import OutputError
from memagent_batch.files.json_files import read_json
from memagent_batch.files.location import Location
from memagent_batch.inputs.documents import INDEX_SCHEMA, index_shard
from memagent_batch.inputs.shards import find_shards
from memagent_batch.inputs.texts import fetch_texts
from memagent_batch.runs.manifest import RUN_FILE, Manifest


def fetch_documents(output: Location, manifest: Manifest, *, wanted: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Streams id and text of the wanted documents; those that are gone or have changed are left out.

    Args:
        output: The run's location.
        manifest: The run.
        wanted: Hash of the text by document_id.

    Raises:
        InputError: the documents can't be reached or read.
        OutputError: the run kept no place of documents.
    """
    settings = InputConfig(**{**manifest["settings"]["input"], "carry_columns": (), "question_column": None})
    places = [Location(uri=uri, storage_options=output.storage_options) for uri in _document_uris(output, manifest)]
    for shard in find_shards(*places, settings=settings).shards:
        for table in index_shard(shard, settings=settings, storage_options=output.storage_options):
            index = _wanted_rows(table, wanted)
            for fetched in fetch_texts(index, documents=places[0], settings=settings):
                if fetched.text is not None:
                    yield index["document_id"][fetched.row].as_py(), fetched.text


def _wanted_rows(table: pa.Table, wanted: Mapping[str, str]) -> pa.Table:
    pairs = zip(table["document_id"].to_pylist(), table["document_hash"].to_pylist(), strict=True)
    keep = [hash_ is not None and wanted.get(name) == hash_ for name, hash_ in pairs]
    return table.filter(pa.array(keep, pa.bool_())).select(INDEX_SCHEMA.names).combine_chunks()


def _document_uris(output: Location, manifest: Manifest) -> list[str]:
    """Where the documents are: as `run.json` has them, with their whole paths, where it is of this run."""
    record = read_json(output / RUN_FILE) or {}
    kept = record["documents"] if record.get("run_id") == manifest["run_id"] else manifest["settings"].get("documents")
    if not kept:
        raise OutputError(f"{output} does not say where its documents are; say --without-page for the sheet alone")
    return [kept] if isinstance(kept, str) else list(kept)

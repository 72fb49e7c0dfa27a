"""Texts of a finished run's documents, fetched again from where the run read them.

A text counts only where its hash is the one that the run read.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.config.sources import InputConfig, OnBadFile
from memagent_batch.documents.document_index import (
    IndexedFiles,
    index_schema,
    other_shards,
    reuse_index,
    row_schema,
)
from memagent_batch.documents.indexing import index_shard
from memagent_batch.documents.lake.table import at_version, table_name
from memagent_batch.documents.lake.tables import documents_place, texts_place
from memagent_batch.documents.rows import group_rows
from memagent_batch.documents.shards import cut_shards, find_shards
from memagent_batch.documents.texts import fetch_texts
from memagent_batch.domain.texts.locators import LocatedRow
from memagent_batch.errors import InputError, OutputError
from memagent_batch.runs.history import read_kept_index
from memagent_batch.runs.manifest import Manifest, read_run_record
from memagent_batch.store.database import on_disk
from memagent_batch.store.location import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentText:
    """The text of a document, as the run read it."""

    document_id: str
    text: str
    rows: Sequence[LocatedRow]
    """Where its rows stand in the text; none where it is one row."""


class DocumentTexts:
    """Texts by document_id; the index of those that are wanted is held, and one text at a time.

    They are fetched from `documents` by `settings`.
    """

    def __init__(self, output: Location, manifest: Manifest, *, wanted: Mapping[str, str], without: str) -> None:
        """Finds the wanted documents among what the run read: a table of a lake in the run's version while it has it.

        They are wanted by id and hash. `without` is the option of the command that does without texts, for messages.

        Raises:
            InputError: the documents can't be reached or read.
            OutputError: the run kept no place of documents.
        """
        self.settings = InputConfig.recorded(manifest["settings"]["input"])
        uris = _document_uris(output, manifest)
        if not uris:
            raise OutputError(f"{output} does not say where its documents are; pass {without}")
        names, hashes = (pa.array(values, pa.large_string()) for values in (wanted.keys(), wanted.values()))
        hashed = pa.table({"document_id": names, "document_hash": hashes})
        try:
            self.documents, index = _find(uris, output, manifest, wanted=hashed, settings=self.settings)
        except InputError as error:
            remedy = f"put the documents back, or say {without}"
            raise InputError(f"the texts of the documents can't be shown: {error}; {remedy}") from error
        self._index = index.combine_chunks()
        self._rows = {name: row for row, name in enumerate(self._index["document_id"].to_pylist())}

    def fetch(self, document_ids: Sequence[str]) -> Iterator[DocumentText]:
        """Streams the texts of these documents, in the order of their files; those that have changed are left out."""
        rows = [self._rows[name] for name in dict.fromkeys(document_ids) if name in self._rows]
        if not rows:
            return
        table = self._index.take(pa.array(rows, pa.int64()))
        names = table["document_id"].to_pylist()
        for fetched in fetch_texts(table, documents=self.documents, settings=self.settings):
            if fetched.text is not None:
                yield DocumentText(document_id=names[fetched.row], text=fetched.text, rows=fetched.rows)


def _find(
    uris: Sequence[str], output: Location, manifest: Manifest, *, wanted: pa.Table, settings: InputConfig
) -> tuple[Location, pa.Table]:
    """Where texts are fetched from, and the index of those that are wanted."""
    version = next((version for name, version in manifest["tables"].items() if table_name(name)), None)
    if version is not None:  # of a table of a lake
        with suppress(InputError):  # a vacuum took files of that version: the newest may have the same texts
            return _find_in([at_version(uris[0], version)], output, manifest, wanted=wanted, settings=settings)
    return _find_in(uris, output, manifest, wanted=wanted, settings=settings)


def _find_in(
    uris: Sequence[str], output: Location, manifest: Manifest, *, wanted: pa.Table, settings: InputConfig
) -> tuple[Location, pa.Table]:
    options = output.storage_options
    found = find_shards(*[documents_place(uri, options) for uri in uris], settings=settings)
    carried = tuple(manifest["settings"]["input"].get("carry_columns", ()))  # the kept index has them
    kept_settings = settings.model_copy(update={"carry_columns": carried})
    place, indexed = texts_place(found.places, options), IndexedFiles.found(found, settings=kept_settings)
    reused = reuse_index(read_kept_index(output), indexed, found.shards, settings=settings)
    others = other_shards(reused.changed, found.shards, read=reused.shards)
    shards = cut_shards([*reused.shards, *others], settings=settings, storage_options=options)
    tables = chain.from_iterable(map(partial(index_shard, settings=settings, storage_options=options), shards))
    schema = index_schema(settings)  # without the columns that the run carried
    rows = _of_ids(on_disk(tables, schema=row_schema(settings) if settings.order_columns else schema), wanted)
    new = [rows]
    if settings.order_columns:  # rows of a document lie in any shard; one that can't be joined now has changed
        joined = settings.model_copy(update={"on_bad_file": OnBadFile.RECORD})
        new = list(group_rows(rows, documents=place, settings=joined))
    known = _of_ids(reused.rows, wanted).select(schema.names).cast(schema)
    return place, _of_hashes(pa.concat_tables([known, *new]), wanted)


def _of_ids(table: pa.Table, wanted: pa.Table) -> pa.Table:
    return table.filter(pc.is_in(table["document_id"], value_set=wanted["document_id"].combine_chunks()))


def _of_hashes(table: pa.Table, wanted: pa.Table) -> pa.Table:
    place = pc.index_in(table["document_id"], value_set=wanted["document_id"].combine_chunks())
    is_same = pc.equal(table["document_hash"], wanted["document_hash"].take(place))
    return table.filter(pc.and_(pc.fill_null(is_same, False), pc.is_null(table["error"])))


def _document_uris(output: Location, manifest: Manifest) -> list[str]:
    """Where the run's documents are: as `run.json` has them, with their whole paths, where it is of this run."""
    record = read_run_record(output) or {}
    kept = record["documents"] if record.get("run_id") == manifest["run_id"] else manifest["settings"].get("documents")
    return [kept] if isinstance(kept, str) else list(kept or ())

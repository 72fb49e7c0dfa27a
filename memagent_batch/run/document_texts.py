"""Texts of a finished run's documents, of the version of the table `documents` that it read."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.data.documents.stored import StoredDocuments
from memagent_batch.data.store.location import Location
from memagent_batch.errors import OutputError
from memagent_batch.loop.texts.locators import LocatedRow
from memagent_batch.run.manifest import DocumentsRecord, Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentText:
    """The text of a document, as the run read it."""

    document_id: str
    text: str
    parts: Sequence[LocatedRow]
    """Where its parts stand in the text."""


class DocumentTexts:
    """Texts by document_id; the places of those that are wanted are held, and some megabytes of texts at a time."""

    def __init__(self, output: Location, manifest: Manifest, *, wanted: Mapping[str, str]) -> None:
        """Finds the wanted documents, by id and hash, among those that the run read.

        Raises:
            OutputError: the version of the table is gone.
        """
        self._run_id, self._documents = manifest["run_id"], documents_of(output, manifest)
        self._places = self._documents.find_places(wanted).combine_chunks()
        self.document_ids = frozenset(self._places["document_id"].to_pylist())
        """Ids of the documents that were found."""

    def fetch(self, document_ids: Iterable[str]) -> Iterator[DocumentText]:
        """Streams the texts of these documents, in the order of their places.

        Raises:
            OutputError: the run read a text of one of them that the table does not hold.
        """
        wanted = dict.fromkeys(document_ids)
        if lacking := wanted.keys() - self.document_ids:
            raise OutputError(
                f"{self._documents.table.place} does not hold the text of document {min(lacking)!r} that run "
                f"{self._run_id} read; run the same command again, which reads what is there"
            )
        ids = pa.array(wanted, pa.large_string())
        places = self._places.filter(pc.is_in(self._places["document_id"], value_set=ids))
        names = places["document_id"].to_pylist()
        for stored in self._documents.read_texts(places):
            yield DocumentText(document_id=names[stored.row], text=stored.text, parts=stored.parts)


def documents_of(output: Location, manifest: Manifest) -> StoredDocuments:
    """Returns the documents that a run read."""
    record = manifest["documents_table"]
    place = (
        output if record["output"] is None else Location(uri=record["output"], storage_options=output.storage_options)
    )
    return StoredDocuments(output=place, version=record["version"])


def documents_record(documents: StoredDocuments, *, output: Location) -> DocumentsRecord:
    """Returns what a run into `output` records of the documents that it reads."""
    is_own = documents.output.uri.rstrip("/") == output.uri.rstrip("/")
    return {"output": None if is_own else str(documents.output), "version": documents.version}

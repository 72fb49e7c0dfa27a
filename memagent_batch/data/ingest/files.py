"""One file to its parts: its kind, its converter in its own process, then its attachments."""

import re
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from memagent_batch.data.ingest.losses import FileDocument, FilePart
from memagent_batch.data.ingest.readers.converter import Part, PartStatus
from memagent_batch.data.ingest.readers.kinds import KINDS_VERSION, FileKind
from memagent_batch.data.ingest.readers.process.protocol import MAX_DOCUMENTS, SOURCE_TIMES
from memagent_batch.data.ingest.readers.process.sandbox import Limits
from memagent_batch.data.ingest.readers.process.worker import Converted, ConverterServer

MAX_DEPTH = 8
WHOLE_TIMES = 10
"""A file with all its attachments may take this many times the limit of one process."""
LATE = f"its file with all attachments takes more than {WHOLE_TIMES} times --ingest.seconds"
NAME_CHARACTERS = 100
"""Longest name of an attachment in an id."""

KINDS_READER = f"kinds {KINDS_VERSION}"
"""Reader of files that have no converter."""
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f/\\\u2028\u2029\u202a-\u202e\u2066-\u2069]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenConverter:
    """A converter of this run."""

    name: str
    path: str
    version: str

    @property
    def reader(self) -> str:
        """Its name and version, without the sign that parts the readers of a source."""
        return f"{self.name} {self.version}".replace(";", ",")


def endings_reader(converters: Mapping[str, ChosenConverter]) -> str:
    """Stands for the endings for which the user named converters, where one could be used that was not."""
    return f"endings {','.join(sorted(kind for kind in converters if kind.startswith('.')))}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Document:
    """A document of a source: the file itself, or an attachment."""

    document_id: str
    name: str
    """Its file's name, whose ending tells its kind."""
    file: Path
    place: str = ""
    """Where it stands in its source, before its own locators."""
    depth: int = 0
    failure: str | None = None
    content_hash: str | None = None


class FileConverter:
    """Converts files one after another, with one server."""

    def __init__(self, server: ConverterServer, *, converters: Mapping[str, ChosenConverter], limits: Limits) -> None:
        self._server = server
        self._converters = converters
        self._limits = limits
        self._paths = {kind: converter.path for kind, converter in converters.items()}
        self._ends_at, self._left_bytes = 0.0, 0
        """What the file at hand may still take, with all its attachments: until when, and bytes."""
        self.readers = set[str]()
        """What has read the last file and all that is attached to it, or would read more of it."""

    def convert(self, file: Path, *, name: str) -> list[FileDocument]:
        """The file as a document, then all that is attached to it. Never raises for what a file holds."""
        waiting = deque([_Document(document_id=name, name=name, file=file)])
        documents = list[FileDocument]()
        self._ends_at = time.monotonic() + WHOLE_TIMES * self._limits.seconds
        self._left_bytes = SOURCE_TIMES * self._limits.output_bytes
        self.readers = set()
        num_documents = 0
        while waiting:
            document = waiting.popleft()
            num_documents += 1
            refusal = _refusal(document, num_documents=num_documents, is_late=self._is_late())
            if refusal is not None:
                documents.append(_refused(refusal, document))
                continue
            converted = self._converted(document.file)
            parts = [_file_part(item, document, reader=self._reader(kind)) for kind, item in self._parts(converted)]
            counts = {"num_words": converted.num_words, "num_missing": converted.num_missing}
            if parts:  # an archive is nothing but its attachments
                documents.append(_described(document, parts, metadata=converted.metadata, **counts))
            self.readers.add(self._reader(converted.kind))
            attached = [_attached(item, document, converted.folder) for item in converted.items if "file" in item]
            waiting.extendleft(reversed(attached))
            if document.depth:
                document.file.unlink(missing_ok=True)
        parts = [part for each in documents for part in each.parts]
        self.readers |= {part.reader for part in parts if part.reader}
        if num_documents > 1 or KINDS_READER in self.readers:
            self.readers.add(endings_reader(self._converters))
        if any(part.status is PartStatus.NEEDS_OCR for part in parts):
            self.readers.add(self._reader(FileKind.IMAGE))
        return documents

    def _reader(self, kind: str | None) -> str:
        converter = self._converters.get(kind or "")
        return converter.reader if converter else KINDS_READER

    def _is_late(self) -> bool:
        return time.monotonic() > self._ends_at

    def _converted(self, file: Path) -> Converted:
        most_bytes = min(self._left_bytes, self._limits.output_bytes)
        converted = self._server.convert(file, converters=self._paths, limits=self._limits, output_bytes=most_bytes)
        self._left_bytes -= converted.num_bytes
        return converted

    def _parts(self, converted: Converted) -> Iterator[tuple[str | None, Mapping[str, Any]]]:
        """The parts of one document, each with the kind of its converter; if that failed, a last one says so."""
        for item in converted.items:
            if item.get("picture"):
                yield from self._read_picture(converted, item)
            elif "file" not in item:
                yield converted.kind, item
        if converted.failure is not None:
            num = len(converted.items)
            kept = f"; what was read of it until then is kept ({num} parts and attachments)" if num else ""
            yield converted.kind, asdict(Part(status=PartStatus.FAILED, reason=f"{converted.failure}{kept}"))
        elif not converted.items:
            yield converted.kind, asdict(Part(status=PartStatus.EMPTY, reason="it holds nothing"))

    def _read_picture(
        self, converted: Converted, item: Mapping[str, Any]
    ) -> Iterator[tuple[str | None, Mapping[str, Any]]]:
        """What OCR reads of a picture, in a process of its own; else the part as it is, and why."""
        failure: str | None = LATE
        kind, pages = converted.kind, list[Mapping[str, Any]]()
        if not self._is_late():
            read = self._converted(converted.folder / Path(str(item["picture"])).name)
            failure, kind = read.failure, read.kind
            pages = [*read.items] if any(str(page.get("text", "")).strip() for page in read.items) else []
            if not (failure or pages):
                why = next((page.get("reason") for page in read.items), None) or "OCR reads nothing"
                yield converted.kind, {**item, "reason": f"{item['reason']}; {why}"}
        for page in pages:
            below = f"{item['locator']}, {page['locator']}" if len(pages) > 1 else item["locator"]
            yield kind, {**page, "locator": below}
        if failure and not pages and item["text"].strip():
            yield converted.kind, item
        if failure:
            yield converted.kind, {**item, "status": PartStatus.FAILED, "reason": f"{item['reason']}; OCR: {failure}"}


def unopened(name: str, part: Part) -> list[FileDocument]:
    """A file that is not opened, as a document of one part that says why."""
    return [_refused(part, _Document(document_id=name, name=name, file=Path()))]


def _refused(refusal: Part, document: _Document) -> FileDocument:
    part = _file_part(asdict(refusal), document, reader=KINDS_READER)
    return _described(document, [part])


def _described(document: _Document, parts: list[FilePart], **others: Any) -> FileDocument:
    return FileDocument(document_id=document.document_id, parts=parts, content_hash=document.content_hash, **others)


def _refusal(document: _Document, *, num_documents: int, is_late: bool) -> Part | None:
    if document.failure is not None:
        return Part(status=PartStatus.FAILED, reason=document.failure)
    if document.depth > MAX_DEPTH:
        return Part(status=PartStatus.SKIPPED, reason=f"attachments are nested more than {MAX_DEPTH} deep")
    if num_documents > MAX_DOCUMENTS:
        return Part(status=PartStatus.SKIPPED, reason=f"its file holds more than {MAX_DOCUMENTS:,} documents")
    if is_late:
        return Part(status=PartStatus.FAILED, reason=LATE)
    return None


def _file_part(item: Mapping[str, Any], document: _Document, *, reader: str) -> FilePart:
    text = _sound(str(item["text"]).replace("\r\n", "\n").replace("\r", "\n"))  # mails have other line ends
    status = PartStatus(item["status"])
    if status is PartStatus.OK and not text.strip():
        status = PartStatus.EMPTY
    return FilePart(
        document_id=document.document_id,
        locator=", ".join(filter(None, (document.place, _sound(str(item["locator"]))))) or "file",
        text=text if status.has_text else None,
        status=status,
        reason=None if item["reason"] is None else _sound(str(item["reason"])),
        reader=reader,
    )


def _attached(item: Mapping[str, Any], document: _Document, folder: Path) -> _Document:
    name = _sound(_UNSAFE.sub("_", str(item["name"]))).strip() or "unnamed"
    locator = _sound(" ".join(str(item["locator"]).split()))[: 2 * NAME_CHARACTERS]
    short = name if len(name) <= NAME_CHARACTERS else name[: NAME_CHARACTERS // 2] + name[-NAME_CHARACTERS // 2 :]
    return replace(
        document,
        document_id=f"{document.document_id}/{item['number']}-{short}",
        name=short,
        file=folder / Path(str(item["file"])).name,  # no path that its process could have made up
        place=", ".join(filter(None, (document.place, locator))),
        depth=document.depth + 1,
        failure=item["failure"],
        content_hash=str(item["content_hash"]),
    )


def _sound(text: str) -> str:
    """The text without lone surrogates, which no table can hold."""
    return text.encode("utf-8", errors="replace").decode("utf-8")

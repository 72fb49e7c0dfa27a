"""What a file becomes, as rows that tests compare: its parts and those of its attachments."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memagent_batch.data.ingest.files import ChosenConverter, FileConverter
from memagent_batch.data.ingest.readers.converter import ending_of
from memagent_batch.data.ingest.readers.kinds import FileKind
from memagent_batch.plugins import CONVERTERS

ConvertedRow = dict[str, Any]


def converted_rows(converter: FileConverter, file: Path, *, name: str) -> list[ConvertedRow]:
    """The parts of a file; `part` counts within each document, `converter` is the name of what read it."""
    counts, rows = Counter[str](), list[ConvertedRow]()
    for part in (part for document in converter.convert(file, name=name) for part in document.parts):
        counts[part.document_id] += 1
        rows.append(
            {
                "document_id": part.document_id,
                "part": counts[part.document_id],
                "locator": part.locator,
                "text": part.text,
                "status": part.status.value,
                "reason": part.reason,
                "converter": str(part.reader).rpartition(" ")[0],
            }
        )
    assert rows
    return rows


class RowsOf:
    """Converts what a file of some name holds."""

    def __init__(self, converter: FileConverter, folder: Path) -> None:
        self._converter, self._folder = converter, folder

    def __call__(self, name: str, data: bytes) -> list[ConvertedRow]:
        file = self._folder / f"source{ending_of(name)}"
        file.write_bytes(data)
        return converted_rows(self._converter, file, name=name)


def chosen(more: Mapping[str, str] = {}) -> dict[str, ChosenConverter]:
    own = {".lie": "tests.convert.hostile:Lying", ".stop": "tests.convert.hostile:Stopping", **more}
    names = {kind.value: kind.value for kind in FileKind} | own
    return {kind: ChosenConverter(name=name, path=CONVERTERS.path(name), version="1") for kind, name in names.items()}

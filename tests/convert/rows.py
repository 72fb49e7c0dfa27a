"""What a file becomes, as rows that tests compare: its parts and those of its attachments."""

from collections import Counter
from pathlib import Path
from typing import Any

from memagent_batch.data.ingest.files import FileConverter

ConvertedRow = dict[str, Any]


def converted_rows(converter: FileConverter, file: Path, *, name: str) -> list[ConvertedRow]:
    """The parts of a file; `part` counts within each document, `converter` is the name of what read it."""
    counts, rows = Counter[str](), list[ConvertedRow]()
    for part in converter.convert(file, name=name):
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

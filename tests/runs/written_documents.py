"""Documents of a finished run, as files or tables: what tests of pages and reviews read texts of again."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.config.sources import InputConfig
from memagent_batch.documents.rows import joined_hash, row_text
from memagent_batch.domain.addresses import text_hash

PARAGRAPH = "\n\n"


class Form(StrEnum):
    ROWS = "rows"
    PAGES = "pages"
    """A row for each paragraph, in no order, over two files."""
    DELTA = "delta"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenDocuments:
    hashes: Mapping[str, str]
    input: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)


def write_documents(folder: Path, texts: Mapping[str, str], *, form: Form, file: str) -> WrittenDocuments:
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.table({"document_id": list(texts), "text": list(texts.values())})
    hashes = {name: text_hash(text) for name, text in texts.items()}
    if form is Form.PAGES:
        return _write_pages(folder, texts, file=file)
    if form is Form.DELTA:
        from deltalake import write_deltalake

        write_deltalake(str(folder), table)
        return WrittenDocuments(hashes=hashes, tables={f"delta://{folder}": "0"})
    pq.write_table(table, folder / file, row_group_size=5)
    return WrittenDocuments(hashes=hashes)


def _write_pages(folder: Path, texts: Mapping[str, str], *, file: str) -> WrittenDocuments:
    settings = InputConfig(order_columns=("page",))
    rows, hashes = [], {}
    for name, text in texts.items():
        pages = text.split(PARAGRAPH)
        rows += [{"document_id": name, "text": page, "page": number} for number, page in enumerate(pages)]
        hashes[name] = joined_hash([row_text(page, [], settings=settings).hash() for page in pages])
    for number, half in enumerate((rows[1::2], rows[::2])):
        pq.write_table(pa.Table.from_pylist(half[::-1]), folder / f"{number}-{file}", row_group_size=5)
    return WrittenDocuments(hashes=hashes, input={"order_columns": ["page"]})

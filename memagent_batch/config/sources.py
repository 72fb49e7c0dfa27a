"""What is read: documents and questions, and how they are reached."""

from collections.abc import Mapping
from enum import StrEnum
from string import Formatter
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    JsonValue,
    Tag,
    field_serializer,
    field_validator,
    model_validator,
)

from memagent_batch.config.ingest import IngestConfig
from memagent_batch.config.section import Count, Section, Text, TextOrTexts, as_tuple
from memagent_batch.config.storage import StorageOptions, StorageSetting


def _question_form(question: Any) -> str:
    return "row" if isinstance(question, dict) else "text"


_TextOrRow = Annotated[
    Annotated[Text, Tag("text")] | Annotated[dict[str, JsonValue], Tag("row")], Discriminator(_question_form)
]
Asked = Annotated[tuple[_TextOrRow, ...], BeforeValidator(as_tuple)]
"""One question or several: texts, or rows of a question list."""

_Bytes = Annotated[int, Field(ge=1, le=10**15)]


class OnBadFile(StrEnum):
    """How a run treats a file that can't be read: malformed, or with an ending that is not known."""

    FAIL = "fail"
    """The run is refused, and the file named."""
    RECORD = "record"
    """The file, or each bad line or row of it, becomes `failed` rows; all other documents are read."""


class Trust(StrEnum):
    """What says that a file has not changed since the last run."""

    ETAG = "etag"
    """Its size and ETag; on a disk its size and times. A file that is known by them is not opened."""
    CONTENT = "content"
    """The hash of its content: every run reads every file."""


class InputConfig(Section):
    """Where texts stand in the input."""

    document_id_column: str = "document_id"
    """Column with the id of a document: unique, unless `order_columns` are given."""
    text_column: str = "text"
    """Column with the text of a document."""
    carry_columns: TextOrTexts = ()
    """Columns of the documents to copy into `answers` and `results`, with their types."""
    carry: Mapping[str, str] = Field(default_factory=dict)
    """Columns to copy under another name: `{status: contract_status}`."""
    format: Literal["auto", "files", "parquet", "jsonl", "csv", "tsv", "arrow", "text"] = "auto"
    """Format of the documents. `auto` goes by the endings; in a folder with data files it takes only their rows, unless
    `documents` names other files. `files` makes every file a document, unless all are Parquet, JSONL or Arrow."""
    where: Text | None = None
    """Condition over the rows, in SQL: `year >= 2026 and kind in ('contract', 'offer')`."""
    order_columns: TextOrTexts = ()
    """Makes all rows of one id one document, ordered by these columns."""
    locator: Text | None = None
    """With `order_columns`: the place of a row in its source, such as `page {page}`."""
    header: Text | None = None
    """With `order_columns`: a line above the text of each row, such as `{sender}, {sent_at}`."""
    inventory: Text | None = None
    """List of the files below the folder `documents`: Parquet files with columns `path` (or `key`), `size` and `etag`,
    or `manifest.json` of S3 Inventory."""
    slice: Annotated[str, Field(pattern=r"^[1-9]\d*/[1-9]\d*$")] | None = None
    """Part of the documents that this run reads: `3/20` is the third of twenty."""
    max_document_bytes: _Bytes | None = 1024**3
    """Longest text of a document, in UTF-8 and unpacked, and longest line of JSONL and CSV, bytes; null for no
    limit."""
    trust: Trust = Trust.ETAG
    """How a run knows that a file has not changed: by size and ETag (on a disk, size and times), or by reading it."""
    on_bad_file: OnBadFile = OnBadFile.FAIL
    """If a file, line or row can't be read: `fail` refuses the run, `record` makes `failed` rows."""

    @property
    def carried(self) -> Mapping[str, str]:
        """Columns to carry, by their names in the input, with the names that they have in the tables."""
        return {**{name: name for name in self.carry_columns}, **self.carry}

    @field_validator("slice")
    @classmethod
    def _check_slice(cls, part: str | None) -> str | None:
        number, count = map(int, (part or "1/1").split("/"))
        if number > count:
            raise ValueError(f"there is no slice {number} of {count}; write 1/{count} to {count}/{count}")
        return part

    @field_validator("locator", "header")
    @classmethod
    def _check_template(cls, template: str | None) -> str | None:
        """Columns in braces are names and nothing else, so that a template shows values as they are."""
        try:
            parts = list(Formatter().parse(template or ""))
        except ValueError as error:
            raise ValueError(f"{error}; write columns in braces, and a brace itself twice") from None
        for _, name, form, conversion in parts:
            if name is not None and (not name or set("[].") & set(name) or name.isdigit() or form or conversion):
                raise ValueError(f"{{{name}}} names no column; write columns in braces, such as {{page}}")
        return template

    @model_validator(mode="after")
    def _check_rows(self) -> Self:
        if not self.order_columns and (self.locator or self.header):
            raise ValueError("input.locator and input.header are for documents of many rows: name input.order_columns")
        return self


class Storage(Section):
    """How files are reached."""

    storage_options: StorageSetting = StorageOptions()
    """Arguments of the fsspec file system, such as endpoint_url or key. Never recorded. Give secrets as
    MEMAGENT_STORAGE_OPTIONS (JSON) or in the job file."""


class SourceConfig(Storage):
    """The documents and the questions, and how to open them."""

    documents: Annotated[TextOrTexts, Field(min_length=1)]
    """Files, folders or globs, as paths or fsspec URLs; one table (delta://FOLDER or
    iceberg://CATALOG/DATABASE.TABLE, optionally with @VERSION); or the output of another run."""
    questions: str | None = None
    """Question list: a Parquet, JSONL, CSV, TSV, Arrow or text file (one question per line), or a table."""
    limit: Count | None = None
    """Number of documents to read, as a fair sample. A larger limit takes the same ones and more."""
    limit_seed: int = 0
    """Another seed takes another sample."""
    again_from: str | None = None
    """Another output: reads only those of its readings that `again_where` selects."""
    again_where: Text | None = None
    """Condition over the answers of `again_from`, in SQL: `confidence < 0.8`. On the command line also `--where`."""
    ask: Asked = ()
    """A question for every document; can be repeated. In a job file also a group with the columns of a question
    list."""
    input: InputConfig = InputConfig()
    """Where texts stand in the input."""
    ingest: IngestConfig = IngestConfig()
    """How document files become text."""

    @model_validator(mode="after")
    def _check_again(self) -> Self:
        if (self.again_from is None) != (self.again_where is None):
            raise ValueError("again_from and again_where need each other: which output, and which of its readings")
        if self.again_from is not None and self.limit is not None:
            raise ValueError("limit is not for a second pass: narrow again_where")
        return self

    @field_serializer("documents")
    def _documents(self, documents: tuple[str, ...]) -> str | list[str]:
        return documents[0] if len(documents) == 1 else list(documents)

    @model_validator(mode="after")
    def _check_questions(self) -> Self:
        if not (self.questions or self.ask):
            raise ValueError("no question: set questions or ask")
        return self

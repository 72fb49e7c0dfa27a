"""The files of a suite: written as its samples are made, `suite.json` last."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.errors import MemagentError, OutputError, StorageError
from memagent_batch.evaluation.suites.schemas import (
    DOCUMENTS_FOLDER,
    QUESTIONS_FILE,
    SUITE_DOCUMENTS,
    SUITE_FILE,
    SUITE_FORMAT,
    SUITE_QUESTIONS,
)
from memagent_batch.files.location import Location
from memagent_batch.runs.manifest import reaching, read_json, write_json

ASKED = "asked"
"""Entry of `suite.json` that says all that decides what is in a suite."""


def claim_suite(output: Location, asked: Mapping[str, Any]) -> bool:
    """Checks that a suite may be written here; returns whether it is there already, whole.

    Args:
        output: The suite's folder.
        asked: All that decides what is in the suite, as JSON gives it back.

    Raises:
        OutputError: the place holds another suite, half a suite, or something else; says what to do.
    """
    with reaching(output):
        record = read_json(output / SUITE_FILE)
        files = [] if record else output.files()
    if record is None:
        if files:
            raise OutputError(
                f"output: {output.uri} holds {len(files)} files ({files[0]}) and no {SUITE_FILE}: other files, or a "
                "suite that was not finished; delete them or choose an empty folder"
            )
        return False
    if record.get("format") != SUITE_FORMAT:
        raise OutputError(
            f"output: {output.uri} has the layout {record.get('format')!r}, this version writes {SUITE_FORMAT!r}; "
            "choose another folder"
        )
    if record.get(ASKED) != asked:
        there = record.get(ASKED) or {}
        different = sorted(name for name in {*asked, *there} if asked.get(name) != there.get(name))
        raise OutputError(
            f"output: {output.uri} holds a suite that was made with other {', '.join(different)}; choose another "
            "folder, or delete this one"
        )
    return True


def write_suite_record(output: Location, record: Mapping[str, Any]) -> None:
    """Writes `suite.json`, which makes the suite whole."""
    write_json(output / SUITE_FILE, {"format": SUITE_FORMAT, **record})


def delete_unfinished(output: Location) -> None:
    """Removes the documents and questions of a suite that has no `suite.json`."""
    with reaching(output):
        (output / DOCUMENTS_FOLDER).delete()
        (output / QUESTIONS_FILE).delete()


class RowWriter:
    """Appends to one Parquet file; each call is a row group of its own, so that one can be read without the others."""

    def __init__(self, writer: pq.ParquetWriter, *, schema: pa.Schema) -> None:
        """Writes rows of this schema."""
        self._writer = writer
        self._schema = schema

    def write(self, rows: list[dict[str, Any]]) -> None:
        """Writes the rows as one row group."""
        self._writer.write_table(pa.Table.from_pylist(rows, schema=self._schema))


@contextmanager
def write_documents(output: Location, *, name: str) -> Iterator[RowWriter]:
    """Opens one file of documents.

    Raises:
        StorageError: it can't be written; names the place and the cause.
    """
    with _writing(output / DOCUMENTS_FOLDER / f"{name}.parquet", schema=SUITE_DOCUMENTS) as rows:
        yield rows


@contextmanager
def write_questions(output: Location) -> Iterator[RowWriter]:
    """Opens the file of questions.

    Raises:
        StorageError: it can't be written; names the place and the cause.
    """
    with _writing(output / QUESTIONS_FILE, schema=SUITE_QUESTIONS) as rows:
        yield rows


@contextmanager
def _writing(place: Location, *, schema: pa.Schema) -> Iterator[RowWriter]:
    try:
        if place.is_local:
            place.fs.makedirs(place.path.rpartition("/")[0], exist_ok=True)
        with (
            place.fs.open(place.path, "wb") as stream,
            pq.ParquetWriter(stream, schema, compression="zstd") as writer,
        ):
            yield RowWriter(writer, schema=schema)
    except MemagentError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise StorageError(
            f"{place.uri} can't be written: {type(error).__name__}: {error}; make room or mend its rights"
        ) from error

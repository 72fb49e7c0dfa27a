"""Inputs that are no files become files of the output: places of documents must be found again, tonight and tomorrow.

Each file appears whole and is named by the hash of its bytes, so that the same table is the same file. Then the files
of the input before are removed: the folder holds one input, and a run reads the folder.
"""

import io
from collections.abc import Collection, Sequence
from functools import partial
from hashlib import sha256
from os import PathLike
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from ray.data import Dataset

from memagent_batch.errors import InputError
from memagent_batch.files.location import Location, absolute
from memagent_batch.ray_data.session import CPU_SHARE, ray_session, with_long_loops

ROW_GROUP_BYTES = 32 * 1024 * 1024
"""Text of a row group, about, bytes: tasks read row groups side by side, and a row group is decoded as a whole."""

Documents: TypeAlias = str | PathLike[str] | Sequence[str | PathLike[str]] | pa.Table | Dataset | Any
"""Paths or URIs, an Arrow table, a data frame that pyarrow reads, such as one of pandas, or a Ray Dataset."""


def document_places(documents: Documents) -> tuple[str, ...]:
    """The paths and URIs, where documents are named; nothing where they are given."""
    places = [documents] if isinstance(documents, str | PathLike) else documents
    is_list = isinstance(places, list | tuple) and all(isinstance(place, str | PathLike) for place in places)
    return tuple(map(absolute, places)) if is_list else ()


def write_documents(documents: Documents, *, folder: Location, columns: Collection[str]) -> None:
    """Makes these columns of the documents the files of a folder.

    Raises:
        InputError: this is no table, it has no rows, or lacks a column.
        StorageError: the folder can't be written.
    """
    if isinstance(documents, Dataset):
        names = _write_dataset(documents, folder, columns)
    else:
        names = [write_table(_columns_of(_as_table(documents), columns), folder=folder)]
    if not any(names):
        raise InputError("documents: there is no row; give at least one document")
    _remove_others(folder, names)


def write_questions(questions: pa.Table, *, folder: Location) -> None:
    """Makes a question list the only file of a folder.

    Raises:
        StorageError: the folder can't be written.
    """
    _remove_others(folder, [write_table(questions, folder=folder)])


def write_table(table: pa.Table, *, folder: Location) -> str:
    """Writes a table as one Parquet file, unless it is there; returns its name, empty for a table without rows."""
    if not table.num_rows:
        return ""
    sink = io.BytesIO()
    rows = max(1, ROW_GROUP_BYTES * table.num_rows // max(1, table.nbytes))
    pq.write_table(table.replace_schema_metadata(None), sink, compression="zstd", row_group_size=rows)
    data = sink.getvalue()
    place = folder / f"{sha256(data).hexdigest()[:32]}.parquet"
    if not place.exists():
        place.write_bytes(data)
    return place.uri.rsplit("/", 1)[-1]


def _write_dataset(dataset: Dataset, folder: Location, columns: Collection[str]) -> list[str]:
    """Writes each block as a file, in parallel."""
    with ray_session():
        names = with_long_loops(dataset).map_batches(
            partial(_write_block, folder=folder, columns=columns),
            batch_size=None,
            batch_format="pyarrow",
            num_cpus=CPU_SHARE,
        )
        batches = names.iter_batches(batch_size=None, batch_format="pyarrow")
        return [name for batch in batches for name in batch["name"].to_pylist()]


def _write_block(block: pa.Table, *, folder: Location, columns: Collection[str]) -> pa.Table:
    """Ray Data UDF: a block in, its file written, the file's name out."""
    if not block.num_rows:
        return pa.table({"name": pa.array([], pa.string())})
    return pa.table({"name": [write_table(_columns_of(block, columns), folder=folder)]})


def _as_table(documents: Documents) -> pa.Table:
    try:
        return pa.table(documents)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise InputError(
            f"documents: this {type(documents).__name__} can't be read as a table ({error}); give paths, an Arrow "
            "table, a data frame or a Ray Dataset"
        ) from error


def _columns_of(table: pa.Table, columns: Collection[str]) -> pa.Table:
    for name in columns:
        if table.schema.names.count(name) != 1:
            count = "no" if name not in table.schema.names else "more than one"
            there = ", ".join(map(repr, table.schema.names)) or "none"
            raise InputError(
                f"documents: the table has {count} column {name!r}; its columns: {there}; name the right ones with "
                "input=InputConfig(document_id_column=..., text_column=...)"
            )
    return table.select(list(columns))


def _remove_others(folder: Location, names: Collection[str]) -> None:
    folder.delete_files([path for path in folder.files() if path.rsplit("/", 1)[-1] not in names])

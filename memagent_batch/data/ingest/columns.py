"""Columns of the input that `documents` holds beside its own: those to carry, and those that `input.where` needs."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from memagent_batch.config.sources import InputConfig, OnBadFile
from memagent_batch.config.storage import Options
from memagent_batch.data.documents.data_files import DataFile
from memagent_batch.data.documents.formats.columnar import open_grouped, present_columns
from memagent_batch.data.documents.formats.formats import GROUPED, Format
from memagent_batch.data.documents.formats.lines import open_lines
from memagent_batch.data.documents.formats.records import ColumnKind, InputColumn, Presence
from memagent_batch.data.documents.lake.table import partition_values
from memagent_batch.data.documents.lake.tables import documents_place
from memagent_batch.data.documents.scope import WHERE_PREFIX
from memagent_batch.data.documents.source_listing import SourceListing
from memagent_batch.data.documents.where import Condition, parse_where
from memagent_batch.data.ingest.tables import DOCUMENTS
from memagent_batch.data.store.columns import TIMESTAMP
from memagent_batch.data.store.database import filter_to_disk
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError, InputUnreachableError

MAX_TYPED_FILES = 16
"""Most files that are opened to find the types of columns."""
MAX_TYPED_LINES = 1000
"""Lines of a JSONL file that decide the types of its columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredColumn:
    """A column of the input in `documents`."""

    name: str
    """In the input."""
    stored: str
    """In `documents`."""
    type: pa.DataType

    @property
    def is_carried(self) -> bool:
        """Whether it is carried into `answers`; else it is there for `input.where`."""
        return not self.stored.startswith(WHERE_PREFIX)

    def to_read(self) -> InputColumn:
        """The column as a reader takes it."""
        return InputColumn(
            name=self.name,
            kind=ColumnKind.TYPED,
            presence=Presence.SOME if self.is_carried else Presence.OPTIONAL,
            setting="input.carry_columns" if self.is_carried else "input.where",
            type=self.type,
        )


def documents_schema(columns: Sequence[StoredColumn]) -> pa.Schema:
    """The schema of `documents` with these columns."""
    return pa.schema([*DOCUMENTS, *(pa.field(each.stored, each.type) for each in columns)])


def require_carried(settings: InputConfig) -> None:
    """Refuses columns to carry that can't stand in `documents`.

    Raises:
        InputError: two have one name, or one has a name of `documents` itself; says which.
    """
    stored: dict[str, str] = {}
    reserved = {name.lower() for name in DOCUMENTS.names}
    for name, target in settings.carried.items():
        if target.lower() in reserved or target.startswith(WHERE_PREFIX):
            raise InputError(
                f"input.carry_columns: `documents` has a column {target!r} of its own; carry yours under another name, "
                f"input.carry: {{{name}: my_{name}}}"
            )
        if (other := stored.setdefault(target.lower(), name)) != name:
            raise InputError(
                f"input.carry_columns: {other!r} and {name!r} would both be {target!r} (SQL does not tell small "
                "letters from capitals); rename one with input.carry"
            )


def require_own_columns(table: pa.Schema, output: Location) -> None:
    """Refuses a table with a carried column whose name an own column of `documents` has got since.

    Raises:
        InputError: names the column.
    """
    stored = {field.name.lower(): field for field in table}
    for field in DOCUMENTS:
        other = stored.get(field.name)
        if other is None or (other.name == field.name and types.is_struct(other.type) == types.is_struct(field.type)):
            continue
        raise InputError(
            f"output: {output} carries a column {other.name!r} of its input, and `documents` now has one of its own; "
            "choose an empty output, and carry yours under another name with input.carry"
        )


def folder_columns(listing: SourceListing, settings: InputConfig) -> tuple[StoredColumn, ...]:
    """The columns to carry and those of the condition for document files: keys of their folders are the only ones."""
    carried = [StoredColumn(name=name, stored=stored, type=pa.string()) for name, stored in settings.carried.items()]
    if settings.where is None:
        return tuple(carried)
    keys = partition_values(listing.sources["path"][0].as_py(), root=listing.place.root)
    numbers = listing.place.number_keys or ()
    conditioned = [
        StoredColumn(name=name, stored=WHERE_PREFIX + name, type=pa.int64() if name in numbers else pa.string())
        for name in parse_where(settings.where).columns_among(keys)
    ]
    return (*carried, *conditioned)


def folder_values(path: str, columns: Sequence[StoredColumn], *, root: str) -> dict[str, Any]:
    """The values of `folder_columns` for a document file.

    Raises:
        InputError: its folders lack a column to carry.
    """
    keys = partition_values(path, root=root) if columns else {}
    for column in columns:
        if column.is_carried and column.name not in keys:
            raise InputError(
                f"{path}: a document file has no column {column.name!r}; leave out input.carry_columns, or write "
                "the documents as Parquet, JSONL or CSV"
            )
    return {column.stored: keys[column.name].cast(column.type).as_py() for column in columns if column.name in keys}


def find_columns(
    listing: SourceListing,
    is_read: npt.NDArray[np.bool_],
    *,
    settings: InputConfig,
    options: Options,
    table: pa.Schema | None,
) -> tuple[StoredColumn, ...]:
    """The columns to carry and those of the condition, with their types.

    Args:
        listing: The data files. The types are those of the first file that has the column.
        is_read: Which of them are read.
        settings: Which columns are carried, and the condition on rows.
        options: How the files are reached.
        table: The schema of `documents` if there is one: what it has keeps its type.

    Raises:
        InputError: a file can't be opened.
    """
    where = None if settings.where is None else parse_where(settings.where)
    carried: dict[str, pa.DataType | None] = dict.fromkeys(settings.carried)
    conditioned: dict[str, pa.DataType | None] = {}
    files = _sample_files(listing, is_read, options=options) if carried or where else iter(())
    for file in islice(files, MAX_TYPED_FILES):
        try:
            types_of_file = _file_types(file, [*carried], where=where)
        except InputError as error:
            if settings.on_bad_file != OnBadFile.RECORD or isinstance(error, InputUnreachableError):
                raise
            continue
        for target, found in zip((carried, conditioned), types_of_file, strict=True):
            target |= {name: target.get(name) or type_ for name, type_ in found.items()}
        if None not in carried.values() and None not in conditioned.values():
            break
    columns = [(name, settings.carried[name], type_) for name, type_ in carried.items()]
    columns += [(name, WHERE_PREFIX + name, type_) for name, type_ in conditioned.items()]
    kept = {field.name: field.type for field in table or ()}
    return tuple(
        StoredColumn(name=name, stored=stored, type=kept.get(stored) or type_ or pa.string())
        for name, stored, type_ in columns
    )


def _sample_files(listing: SourceListing, is_read: npt.NDArray[np.bool_], *, options: Options) -> Iterator[DataFile]:
    """The first of the files to read of each format, then those whose types of columns can be seen."""
    documents = documents_place(listing.place.uri, options)
    sources = filter_to_disk(listing.sources, pa.chunked_array([pa.array(is_read)]))
    formats = sources["format"]
    first = [pc.index(formats, each).as_py() for each in reversed(pc.unique(formats))]
    is_grouped = pc.is_in(formats, value_set=pa.array([each.value for each in GROUPED]))
    for number in [*first, *pc.indices_nonzero(is_grouped).slice(0, MAX_TYPED_FILES).to_pylist()]:
        (row,) = sources.slice(number, 1).to_pylist()
        yield listing.place.data_file(row, documents, lake_file=listing.lake_files.get(row["path"]))


_Types = dict[str, pa.DataType | None]
"""Types of columns by name; None where nothing tells."""


def _file_types(file: DataFile, names: Sequence[str], *, where: Condition | None) -> tuple[_Types, _Types]:
    """The types of the columns to carry and of those of the condition in one file."""
    keys = {
        name: pa.int64() if name in (file.number_keys or ()) else storable_type(key.type)
        for name, key in file.keys.items()
    }
    if file.format not in GROUPED:
        found = _json_types(file.location) if file.format is Format.JSONL else dict.fromkeys(names, pa.string())
        conditioned = [] if where is None else where.columns_among(keys)
        return {name: keys.get(name) or found.get(name) for name in names}, {name: keys[name] for name in conditioned}
    with open_grouped(file.location) as grouped:
        there = file.lake_columns or [*grouped.schema.names, *keys]
        conditioned = [] if where is None else where.columns_among(there)
        wanted = [
            InputColumn(name=name, kind=ColumnKind.TYPED, presence=Presence.OPTIONAL)
            for name in dict.fromkeys([*names, *conditioned])
        ]
        present = present_columns(grouped.schema, columns=file.columns(wanted), where=file.location.uri)
        stored = {
            each.column.name: storable_type(grouped.schema.field(each.stored_as).type)
            for each in present
            if each.stored_as is not None
        }
    found = {**stored, **keys}
    return {name: found.get(name) for name in names}, {name: found.get(name) for name in conditioned}


def _json_types(location: Location) -> dict[str, pa.DataType]:
    """The types of keys by the first lines of a JSONL file; text where its values are of several."""
    found: dict[str, set[type]] = {}
    with open_lines(location, max_bytes=None) as lines:
        for line in islice(lines, MAX_TYPED_LINES):
            try:
                item = json.loads(line) if line.strip() else {}
            except (ValueError, RecursionError):
                continue  # its own error comes when the file is read
            for name, value in item.items() if isinstance(item, dict) else ():
                if value is not None:
                    found.setdefault(name, set()).add(type(value))
    return {name: _json_type(kinds) for name, kinds in found.items()}


def _json_type(kinds: set[type]) -> pa.DataType:
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int}:
        return pa.int64()
    return pa.float64() if kinds <= {int, float} else pa.string()


def storable_type(type_: pa.DataType) -> pa.DataType | None:
    """The type of a column of Delta that holds the values of an Arrow type; text for one that has none.

    None for the null type, which says nothing.
    """
    if isinstance(type_, pa.BaseExtensionType):
        return storable_type(type_.storage_type)
    if types.is_dictionary(type_):
        return storable_type(type_.value_type)
    if types.is_null(type_):
        return None
    if types.is_timestamp(type_):
        return pa.timestamp("us") if type_.tz is None else TIMESTAMP
    wider = {
        pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0),
        pa.float16(): pa.float32(), pa.date64(): pa.date32(), pa.large_binary(): pa.binary(),
    }  # fmt: skip
    if type_ in wider:
        return wider[type_]
    is_kept = types.is_signed_integer(type_) or types.is_floating(type_) or types.is_boolean(type_)
    if is_kept or types.is_date(type_) or types.is_decimal128(type_) or types.is_binary(type_):
        return type_
    if types.is_list(type_) or types.is_large_list(type_):
        return pa.list_(storable_type(type_.value_type) or pa.string())
    return pa.string()

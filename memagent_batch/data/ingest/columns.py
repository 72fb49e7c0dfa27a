"""Columns of the input that `documents` holds beside its own: those to carry, and those that `input.where` needs."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from memagent_batch.config.sources import InputConfig, OnBadFile
from memagent_batch.config.storage import Options
from memagent_batch.data.documents.data_files import DataFile, column_names, missing_in_text
from memagent_batch.data.documents.formats.columnar import open_grouped, present_columns
from memagent_batch.data.documents.formats.formats import GROUPED, Format
from memagent_batch.data.documents.formats.lines import filled_lines, open_lines
from memagent_batch.data.documents.formats.records import ColumnKind, InputColumn, Presence, missing_column
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
"""Files that are opened to find the types of columns, beside the last one of each format."""
MAX_TYPED_LINES = 1000
"""Lines of a JSONL file that decide the types of its columns."""
FOUND_COLUMNS = pa.schema(
    [pa.field("source", pa.large_string()), pa.field("name", pa.large_string()), pa.field("type", pa.binary())]
)
"""Columns that files have; `type` is the serialised schema of a column with the type."""


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
            presence=Presence.SOME_FILE if self.is_carried else Presence.OPTIONAL,
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
    search: Callable[[Sequence[str]], Iterable[pa.Table]],
) -> tuple[StoredColumn, ...]:
    """The columns to carry and those of the condition, with their types.

    Args:
        listing: The data files. The types are those of the first file that has the column.
        is_read: Which of them are read.
        settings: Which columns are carried, and the condition on rows.
        options: How the files are reached.
        table: The schema of `documents` if there is one: what it has keeps its type.
        search: Looks for columns in all files that are read; yields rows of `FOUND_COLUMNS`. It is called if a column
            to carry is in none of the few files that are opened here.

    Raises:
        InputError: a file can't be opened, or no file has a column to carry.
    """
    where = None if settings.where is None else parse_where(settings.where)
    carried, conditioned = _Types(), _Types()
    first: tuple[DataFile, FileColumns] | None = None
    for file in _sample_files(listing, is_read, options=options) if settings.carried or where else ():
        found = file_columns(file, [*settings.carried], where=where, settings=settings)
        if found is None:
            continue
        first = first or (file, found)
        for target, types_of_file in ((carried, found.carried), (conditioned, found.conditioned)):
            target |= {name: target.get(name) or type_ for name, type_ in types_of_file.items()}
        if all(carried.get(name) for name in settings.carried) and None not in conditioned.values():
            break
    kept = {field.name: field.type for field in table or ()}
    # a column of the table came from sources that are not read now, unless all are
    reads_all = bool(is_read.all()) and settings.where is None and settings.slice is None
    elsewhere = {name for name, stored in settings.carried.items() if stored in kept and not reads_all}
    missing = [name for name in settings.carried if name not in carried and name not in elsewhere]
    if first is not None and missing:
        lake_columns = listing.place.lake_columns.keys()
        if not lake_columns or lake_columns >= {*missing}:
            carried |= _first_types(search(missing))
        _require_found(missing, {*carried, *lake_columns}, first=first, num_files=int(is_read.sum()))
    columns = [(name, stored, carried.get(name)) for name, stored in settings.carried.items()]
    columns += [(name, WHERE_PREFIX + name, type_) for name, type_ in conditioned.items()]
    return tuple(
        StoredColumn(name=name, stored=stored, type=kept.get(stored) or type_ or pa.string())
        for name, stored, type_ in columns
    )


def _sample_files(listing: SourceListing, is_read: npt.NDArray[np.bool_], *, options: Options) -> Iterator[DataFile]:
    """The first of the files to read of each format, some whose types of columns can be seen, and the last ones.

    Columns that were added with time are in the last file, by a name such as `day=2026-11-29`.
    """
    documents = documents_place(listing.place.uri, options)
    sources = filter_to_disk(listing.sources, pa.chunked_array([pa.array(is_read)]))
    formats = sources["format"]
    counts = pc.value_counts(formats).to_pylist()  # in the order of the sources, which are sorted by format
    stops = np.cumsum([each["counts"] for each in counts]).tolist()
    first = [stop - each["counts"] for each, stop in zip(counts, stops, strict=True)]
    is_grouped = pc.is_in(formats, value_set=pa.array([each.value for each in GROUPED]))
    grouped = pc.indices_nonzero(is_grouped).slice(0, MAX_TYPED_FILES).to_pylist()
    for number in dict.fromkeys([*[*reversed(first), *grouped][:MAX_TYPED_FILES], *(stop - 1 for stop in stops)]):
        (row,) = sources.slice(number, 1).to_pylist()
        yield listing.place.data_file(row, documents, lake_file=listing.lake_files.get(row["path"]))


def _first_types(found: Iterable[pa.Table]) -> "_Types":
    """The type that each column has in the first file that has it with one."""
    rows = sorted((row for table in found for row in table.to_pylist()), key=itemgetter("source"))
    types_of_columns = _Types()
    for row in rows:
        type_ = pa.ipc.read_schema(pa.py_buffer(row["type"])).field(0).type
        types_of_columns[row["name"]] = types_of_columns.get(row["name"]) or storable_type(type_)
    return types_of_columns


def _require_found(
    names: Sequence[str], found: Collection[str], *, first: "tuple[DataFile, FileColumns]", num_files: int
) -> None:
    """Refuses columns to carry that no file has.

    Raises:
        InputError: names one, and the columns that there are.
    """
    file, columns = first
    for name in names:
        if name in found:
            continue
        column = StoredColumn(name=name, stored=name, type=pa.string()).to_read()
        if file.format is Format.TEXT:
            raise missing_in_text(column, where=file.location.uri)
        others = f" (as all {num_files} files that are read)" if num_files > 1 else ""
        where = file.lake_uri if file.lake_file is not None else f"{file.location.uri}{others}"
        raise missing_column(column, there=columns.there, where=where)


_Types = dict[str, pa.DataType | None]
"""Types of columns by name; None where nothing tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileColumns:
    """Columns of one file, with those types that can be stored."""

    there: Sequence[str]
    """The names of all; of JSONL, those in the lines that were looked at."""
    carried: _Types
    """Those to carry that it has."""
    conditioned: _Types
    """Those of the condition that it has."""


def file_columns(
    file: DataFile,
    names: Sequence[str],
    *,
    settings: InputConfig,
    where: Condition | None = None,
    reads_all: bool = False,
) -> FileColumns | None:
    """Opens a file to find columns in it; None if it can't be read, and bad files are recorded, or if it has no column.

    Args:
        file: The file.
        names: Columns to carry.
        settings: What happens with a file that can't be read.
        where: The condition.
        reads_all: Whether all lines of JSONL are read, if need be; else the first ones.

    Raises:
        InputError: the file can't be read, and bad files are not recorded, or its store does not answer.
    """
    keys: _Types = {
        name: pa.int64() if name in (file.number_keys or ()) else storable_type(key.type)
        for name, key in file.keys.items()
    }
    try:
        if file.format in GROUPED:
            return _grouped_columns(file, names, keys=keys, where=where)
        if file.format is Format.UNKNOWN:
            return None
        found: _Types = {}
        if file.format is Format.JSONL:
            found = _json_types(file.location, names=names if reads_all else ())
        elif file.format is not Format.TEXT:
            found = dict.fromkeys(column_names(file), pa.string())
    except InputError as error:
        if settings.on_bad_file != OnBadFile.RECORD or isinstance(error, InputUnreachableError):
            raise
        return None
    if not found and file.format is not Format.TEXT:
        return None
    conditioned = [] if where is None else where.columns_among(keys)
    found |= keys
    return FileColumns(
        there=[*found],
        carried={name: found[name] for name in names if name in found},
        conditioned={name: keys[name] for name in conditioned},
    )


def _grouped_columns(file: DataFile, names: Sequence[str], *, keys: _Types, where: Condition | None) -> FileColumns:
    with open_grouped(file.location) as grouped:
        there = [*file.lake_columns] or [*grouped.schema.names, *keys]
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
    return FileColumns(
        there=there,
        carried={name: found[name] for name in names if name in found},
        conditioned={name: found.get(name) for name in conditioned},
    )


def _json_types(location: Location, *, names: Sequence[str]) -> _Types:
    """The types of keys by the first lines of a JSONL file; text where its values are of several.

    Reads further lines until it has seen the keys `names`.
    """
    found: dict[str, set[type]] = {}
    with open_lines(location, max_bytes=None) as lines:
        for number, line in enumerate(filled_lines(lines)):
            if number >= MAX_TYPED_LINES and found.keys() >= {*names}:
                break
            try:
                item = {} if isinstance(line, InputError) else json.loads(line)
            except (ValueError, RecursionError):
                continue  # its own error comes when the file is read
            for name, value in item.items() if isinstance(item, dict) else ():
                kinds = found.setdefault(name, set())
                if value is not None:
                    kinds.add(type(value))
    return {name: _json_type(kinds) if kinds else None for name, kinds in found.items()}


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

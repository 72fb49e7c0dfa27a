"""Columns of the input that `documents` holds beside its own: those to carry, and those that `input.where` needs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
from pyarrow import types

from memagent_batch.config.sources import InputConfig, OnBadFile
from memagent_batch.data.documents.formats.byte_lines import open_lines
from memagent_batch.data.documents.formats.columnar import open_grouped, present_columns
from memagent_batch.data.documents.formats.formats import GROUPED, Format
from memagent_batch.data.documents.formats.records import ColumnKind, InputColumn, Presence
from memagent_batch.data.documents.indexing import present_in_shard, shard_keys
from memagent_batch.data.documents.shards import Shard
from memagent_batch.data.documents.where import Condition
from memagent_batch.data.ingest.tables import DOCUMENTS
from memagent_batch.data.store.columns import TIMESTAMP
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError, InputUnreachableError

WHERE_PREFIX = "where:"
"""Goes before the names of columns that `documents` holds for `input.where` alone."""
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


def find_columns(
    shards: Sequence[Shard], *, place: Location, settings: InputConfig, where: Condition | None, table: pa.Schema | None
) -> tuple[StoredColumn, ...]:
    """The columns to carry and those of the condition, with their types.

    Args:
        shards: The files that are read. The types are those of the first file that has the column.
        place: A place on the file system of the files.
        settings: Which columns are carried.
        where: The condition on rows.
        table: The schema of `documents` if there is one: what it has keeps its type.

    Raises:
        InputError: a file can't be opened.
    """
    wanted = settings.carried
    if not wanted and where is None:
        return ()
    names: dict[str, pa.DataType | None] = dict.fromkeys(wanted)
    conditioned: dict[str, pa.DataType | None] = {}
    keep_bad = settings.on_bad_file == OnBadFile.RECORD
    found = _types_of_files(shards, place=place, names=[*wanted], where=where, keep_bad=keep_bad)
    for types_of_file in islice(found, MAX_TYPED_FILES):
        for name, type_ in types_of_file.items():
            is_condition, name = name.startswith(WHERE_PREFIX), name.removeprefix(WHERE_PREFIX)
            target = conditioned if is_condition else names
            target[name] = target.get(name) or type_
        if None not in names.values() and None not in conditioned.values():
            break
    columns = [(name, wanted[name], type_) for name, type_ in names.items()]
    columns += [(name, WHERE_PREFIX + name, type_) for name, type_ in conditioned.items()]
    kept = {field.name: field.type for field in table or ()}
    return tuple(
        StoredColumn(name=name, stored=stored, type=kept.get(stored) or type_ or pa.string())
        for name, stored, type_ in columns
    )


def _types_of_files(
    shards: Sequence[Shard], *, place: Location, names: Sequence[str], where: Condition | None, keep_bad: bool
) -> Iterator[Mapping[str, pa.DataType | None]]:
    """The types of columns in one file after another, of each format first one; None where nothing tells."""
    first = {shard.format: shard for shard in reversed(shards)}.values()
    for shard in [*first, *(shard for shard in shards if shard.format in GROUPED)]:
        types_of = _grouped_types if shard.format in GROUPED else _line_types
        try:
            yield types_of(shard, place.at(shard.paths[0]), names=names, where=where)
        except InputUnreachableError:
            raise
        except InputError:
            if not keep_bad:
                raise


def _line_types(
    shard: Shard, location: Location, *, names: Sequence[str], where: Condition | None
) -> Mapping[str, pa.DataType | None]:
    found = _json_types(location) if shard.format is Format.JSONL else dict.fromkeys(names, pa.string())
    keys = shard_keys(location, shard=shard)
    of_keys = {name: pa.int64() if name in (shard.number_keys or ()) else pa.string() for name in keys}
    conditioned = [] if where is None else where.columns_among(keys)
    return {
        **{name: of_keys.get(name) or found.get(name) for name in names},
        **{WHERE_PREFIX + name: of_keys[name] for name in conditioned},
    }


def _grouped_types(
    shard: Shard, location: Location, *, names: Sequence[str], where: Condition | None
) -> Mapping[str, pa.DataType | None]:
    keys = shard_keys(location, shard=shard)
    with open_grouped(location) as file:
        there = shard.table_columns or [*file.schema.names, *keys]
        conditioned = [] if where is None else where.columns_among(there)
        found: dict[str, pa.DataType | None] = {}
        for prefix, each in (("", names), (WHERE_PREFIX, conditioned)):
            wanted = [InputColumn(name=name, kind=ColumnKind.TYPED, presence=Presence.OPTIONAL) for name in each]
            present = present_columns(
                file.schema, columns=present_in_shard(wanted, location, shard=shard), where=location.uri
            )
            for column in present:
                found[prefix + column.name] = _found_type(column, file.schema, keys, numbers=shard.number_keys or ())
        return found


def _found_type(
    column: InputColumn, schema: pa.Schema, keys: Mapping[str, pa.Scalar], *, numbers: Any
) -> pa.DataType | None:
    if column.name in keys:
        return pa.int64() if column.name in numbers else storable_type(keys[column.name].type)
    if column.stored_as is None:
        return None
    return storable_type(schema.field(column.stored_as).type)


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

"""Opens what documents are read from: a table of a lake, or files."""

import time
from functools import lru_cache
from typing import TYPE_CHECKING

from memagent_batch.config.storage import Options
from memagent_batch.data.documents.lake.delta import delta_place, list_delta
from memagent_batch.data.documents.lake.iceberg import (
    iceberg_place,
    list_iceberg,
    load_iceberg,
    open_iceberg,
)
from memagent_batch.data.documents.lake.table import LakeKind, LakeTable, TableName, table_name
from memagent_batch.data.documents.listing import is_delta_folder, usable_file_system
from memagent_batch.data.store.errors import input_errors
from memagent_batch.data.store.location import Location

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable

_REOPENED_SECONDS = 300
"""Longest time that a process goes on with what a catalog said: credentials that it hands out expire."""


def documents_place(uri: str, options: Options) -> Location:
    """The place of documents, be they files or a table of a lake.

    Raises:
        InputError: a table can't be opened.
    """
    name = table_name(uri)
    if name is None:
        return Location(uri=uri, storage_options=options)
    if name.kind is LakeKind.DELTA:
        return delta_place(name, options)
    return iceberg_place(name, _loaded_iceberg(name, _this_interval()), options)


def find_table(documents: Location) -> LakeTable | None:
    """The table that the documents are, in the version that was asked for; None where they are files.

    Raises:
        InputError: it can't be opened; says why.
    """
    name = table_name(documents.uri)
    if name is None:
        with input_errors(documents.uri), usable_file_system(documents):
            if not is_delta_folder(documents):
                return None
        name = TableName(kind=LakeKind.DELTA, place=documents.uri)
    if name.kind is LakeKind.DELTA:
        return list_delta(name, documents)
    return list_iceberg(name, open_iceberg(name), documents)


@lru_cache(maxsize=8)
def _loaded_iceberg(name: TableName, _interval: int) -> "IcebergTable":
    return load_iceberg(name)


def _this_interval() -> int:
    return int(time.monotonic() / _REOPENED_SECONDS)

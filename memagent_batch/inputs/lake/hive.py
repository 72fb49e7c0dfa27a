"""Hive partitions: folders such as `year=2026`, whose keys are columns of the files below them."""

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import replace
from urllib.parse import unquote

import pyarrow as pa

from memagent_batch.inputs.formats.columnar import plain_value
from memagent_batch.inputs.formats.records import Absent, Column

_NULL = "__HIVE_DEFAULT_PARTITION__"


def partition_values(path: str, *, root: str) -> Mapping[str, pa.Scalar]:
    """The keys in the folders of a file below `root`, as texts; those of the last folder if a key is there twice."""
    if "=" not in path:
        return {}
    root = root.rstrip("/")
    below = path.removeprefix(root) if path == root or path.startswith(f"{root}/") else path
    keys = (folder.partition("=") for folder in posixpath.dirname(below).split("/"))
    return {
        unquote(key): pa.scalar(None if value == _NULL else unquote(value), pa.string())
        for key, is_key, value in keys
        if is_key and key
    }


def with_partition(columns: Sequence[Column], values: Mapping[str, pa.Scalar]) -> list[Column]:
    """The columns, with those that are keys of the folders, whatever the file itself has under their names."""
    return [
        replace(column, absent=Absent(value=plain_value(values[column.name])), is_partition=True)
        if column.name in values
        else column
        for column in columns
    ]

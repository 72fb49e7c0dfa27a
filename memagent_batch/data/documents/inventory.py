"""A listing that lies in Parquet files, such as S3 Inventory writes: path, size and ETag of each file of the documents.

A folder with such a listing is not listed itself.
"""

import json
import re
from collections.abc import Iterator
from itertools import repeat
from typing import Any

from memagent_batch.data.documents.listing import list_files
from memagent_batch.data.store.errors import input_errors
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.parquet import open_parquet
from memagent_batch.errors import InputError

_COLUMN_NAMES = {"path": ("path", "key"), "size": ("size",), "etag": ("etag", "e_tag")}
"""Columns of an inventory, each with the names that it may have: ours, and that of S3 Inventory."""
_OPTIONAL = ("etag", "bucket", "is_latest", "is_delete_marker")
_LISTED_ROWS = 65_536


def read_inventory(folder: Location, *, inventory: Location) -> Iterator[tuple[str, int, str | None]]:
    """Path, size and version of each file below a folder, as an inventory lists them.

    The inventory is a Parquet file, a folder or glob of such files, or `manifest.json` of S3 Inventory. A path is one
    below the folder, or a whole one; with a column `bucket`, a key in it. The version is made as that of a listing of
    S3 is, so that a run may take the one or the other.

    Raises:
        InputError: the inventory can't be read, or lacks a column.
    """
    root = folder.path.rstrip("/") + "/"
    for place in _parquet_files(inventory):
        with input_errors(place.uri), open_parquet(place) as file:
            columns = _stored_columns(file.schema_arrow.names, where=place.uri)
            for batch in file.iter_batches(_LISTED_ROWS, columns=[*columns.values()], use_threads=False):
                rows = {name: batch[stored].to_pylist() for name, stored in columns.items()}
                for path, size, etag, bucket, is_latest, is_gone in zip(
                    rows["path"],
                    rows["size"],
                    *(rows.get(name, repeat(None, batch.num_rows)) for name in _OPTIONAL),
                    strict=True,
                ):
                    whole = _whole_path(path, bucket=bucket, folder=folder, root=root)
                    if whole.startswith(root) and not whole.endswith("/") and is_latest is not False and not is_gone:
                        yield whole, size or 0, None if etag is None else f'{size} "{etag.strip(chr(34))}"'


def _whole_path(path: str, *, bucket: str | None, folder: Location, root: str) -> str:
    if bucket is not None:
        return f"{bucket}/{path}"
    if "://" in path or (folder.is_local and path.startswith("/")):
        return str(folder.fs._strip_protocol(path))
    return path if path.startswith(root) else root + path


def _stored_columns(there: list[str], *, where: str) -> dict[str, str]:
    """The columns of a file by our names for them."""
    found = {name: name for name in _OPTIONAL if name in there}
    for name, names in _COLUMN_NAMES.items():
        stored = next((each for each in names if each in there), None)
        if stored is not None:
            found[name] = stored
        elif name not in _OPTIONAL:
            raise InputError(
                f"input.inventory: {where} has no column {' or '.join(names)}; it has {', '.join(there)}: write path, "
                "size and etag of each file"
            )
    return found


def _parquet_files(inventory: Location) -> list[Location]:
    if not inventory.path.endswith(".json"):
        return [inventory.at(file.path) for file in list_files(inventory)]
    with input_errors(inventory.uri):
        manifest: Any = json.loads(inventory.read_bytes())
        if manifest.get("fileFormat") != "Parquet":
            raise InputError(f"input.inventory: {inventory} is not of an S3 Inventory in Parquet; let S3 write that")
        bucket = re.sub(r"^arn:[^:]*:s3:::", "", manifest["destinationBucket"])
        return [inventory.at(f"{bucket}/{file['key']}") for file in manifest["files"]]

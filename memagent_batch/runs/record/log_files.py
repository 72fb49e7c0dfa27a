"""Which files of the turn log the tables of a run rest on, and what is in them: `runs/RUN_ID/log.parquet`.

Files of the log never change, so that a hash is taken once: by the run that closes first after the file was written.
Each run keeps the whole list, so that it stands without the runs before it.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from itertools import chain

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.errors import OutputError
from memagent_batch.files.columns import column
from memagent_batch.files.errors import FILE_ERRORS, storage_errors, table_errors
from memagent_batch.files.location import Location
from memagent_batch.files.parquet import parquet_bytes
from memagent_batch.log.index import TurnIndex
from memagent_batch.log.writer import CLOSINGS_FOLDER, OUTCOMES_FOLDER, TURNS_FOLDER
from memagent_batch.logs import EventKind
from memagent_batch.runs.record.hashes import file_hashes

log = logging.getLogger(__name__)

LOG_FILES = "log.parquet"
"""Name of the list in the record of a run."""
LOG_TABLES = (TURNS_FOLDER, OUTCOMES_FOLDER, CLOSINGS_FOLDER)
"""Folders of the turn log that tables follow from."""
LOG_NAME = re.compile(rf"({'|'.join(LOG_TABLES)})/[^/\\:]+\.parquet")
"""Names of their files."""

LOG_FILE_LIST = pa.schema(
    [
        column("file", pa.string(), "name of a file of the turn log below the output"),
        column("sha256", pa.string(), "SHA-256 of its bytes, hex"),
    ]
)
"""One row for each file of the turn log that was there when the run planned its tables."""


def list_log(output: Location) -> Iterator[str]:
    """Names of the files of the turn log.

    Raises:
        StorageError: it can't be listed.
    """
    for folder in LOG_TABLES:
        start = len((output / folder).path) - len(folder)
        yield from (path[start:] for path in (output / folder).files() if path.endswith(".parquet"))


def used_files(output: Location, index: TurnIndex) -> set[str]:
    """Names of the log files that an index was made of, as far as it names them."""
    start = len((output / TURNS_FOLDER).path) - len(TURNS_FOLDER)
    of_turns = chain.from_iterable(index.turn_files.values())
    ended = (each.file for each in index.outcomes.values())
    closed = (each.file for readings in index.closings.values() for each in readings.values())
    return {path[start:] for path in chain(of_turns, ended, closed)}


def hash_log(output: Location, names: Iterable[str], known: Mapping[str, str]) -> dict[str, str]:
    """SHA-256 of files of the turn log, by name; `known` ones are not read again.

    Raises:
        StorageError: one can't be read.
    """
    names = sorted(set(names))
    found = file_hashes(output, [name for name in names if name not in known], in_blocks=False)
    hashes = {**known, **{name: value for name, value in found if value is not None}}
    return {name: hashes[name] for name in names if name in hashes}


def write_log_files(place: Location, hashes: Mapping[str, str]) -> None:
    """Writes the list."""
    columns = {"file": list(hashes), "sha256": list(hashes.values())}
    place.write_bytes(parquet_bytes(pa.table(columns, schema=LOG_FILE_LIST)))


def read_log_list(place: Location) -> dict[str, str]:
    """The list, by name; empty where there is none.

    Raises:
        OutputError: it can't be read, or names other files.
        StorageError: the same, for a cause of its store.
    """
    with storage_errors(place.uri, of=FILE_ERRORS):
        try:
            data = place.read_bytes()
        except FileNotFoundError:
            return {}
    return _parsed(data, uri=place.uri)


def known_hashes(place: Location, recorded: str | None) -> dict[str, str]:
    """The list of an earlier run; empty where its hash is not the one that the run's manifest recorded.

    Raises:
        StorageError: it can't be read.
    """
    with storage_errors(place.uri, of=FILE_ERRORS):
        try:
            data = place.read_bytes()
        except FileNotFoundError:
            data = b""
    if recorded is not None and sha256(data).hexdigest() == recorded:
        with suppress(OutputError):
            return _parsed(data, uri=place.uri)
    if recorded is not None:
        message = f"{place} is gone or was changed since its run closed; the whole turn log is hashed again"
        log.warning(message, extra={"event": EventKind.RECORD_UNREADABLE})
    return {}


def _parsed(data: bytes, *, uri: str) -> dict[str, str]:
    with table_errors(uri, remedy="restore it"):
        table = pq.read_table(pa.BufferReader(data), use_threads=False)
        hashes = dict(zip(table["file"].to_pylist(), table["sha256"].to_pylist(), strict=True))
    if strange := [name for name in hashes if not LOG_NAME.fullmatch(str(name))]:
        raise OutputError(f"{uri} names {strange[0]!r}, which is no file of the turn log; restore it")
    return hashes

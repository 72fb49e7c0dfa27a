"""Fetches the texts of indexed documents where they are read: one after another, or some small files at once."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter

import pyarrow as pa

from memagent_batch.config.sources import InputConfig
from memagent_batch.documents.converted import part_text
from memagent_batch.documents.document_index import ROWS_COLUMN
from memagent_batch.documents.formats.formats import READERS, Format
from memagent_batch.documents.formats.records import InputColumn, Place, Record
from memagent_batch.documents.indexing import TEXT_THREADS, shown_columns, text_column, why_unreadable
from memagent_batch.documents.lake.table import partition_values, stored_columns, with_partition
from memagent_batch.documents.lake.tables import partitions_in_table, table_columns
from memagent_batch.documents.rows import RowText, joined_hash, joined_text, row_text
from memagent_batch.documents.shards import into_batches
from memagent_batch.domain.addresses import text_hash
from memagent_batch.domain.texts.locators import LocatedRow
from memagent_batch.errors import DocumentError, InputError, TextUnavailableError
from memagent_batch.store.location import Location

_WINDOW_BYTES = 1024 * 1024
"""Text of the files that are read at once, about, bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedText:
    """The text of one row of an index, or why it can't be had."""

    row: int
    """Row in the table that was given, from 0."""
    text: str | None = None
    rows: tuple[LocatedRow, ...] = ()
    """Where the rows stand in the text of a document of many rows, with their places in the source."""
    error: DocumentError | TextUnavailableError | None = None
    """What went wrong, with the text or with fetching it; None where the text is there."""


def fetch_texts(table: pa.Table, *, documents: Location, settings: InputConfig) -> Iterator[FetchedText]:
    """Streams the texts of the rows of an index, each row exactly once, in the order in which the files hold them.

    Each row group is read once, and one batch of it is held; of a store, some small text files are read at once. What
    can't be read is an error of its rows only: a DocumentError where the index has it, else a TextUnavailableError,
    since the text could be read then. Place and settings are those of the index; of a table the place at its version.
    """
    errors = table["error"].to_pylist()
    yield from (
        FetchedText(row=row, error=DocumentError(error)) for row, error in enumerate(errors) if error is not None
    )
    places = [found for found in _fetched_places(table) if errors[found[0]] is None]
    unfinished: dict[int, _Unfinished] = {}
    if settings.order_columns:
        unfinished = {row: _Unfinished(list(found)) for row, found in groupby(places, key=itemgetter(0))}
    hashes, files = table["document_hash"].to_pylist(), _wanted_files(places, documents=documents)
    read = partial(_fetch_file, documents=documents, settings=settings)
    for file, record in _fetch_files(files, sizes=table["num_bytes"].to_pylist(), read=read):
        for row in file.rows[record.place]:
            if row not in unfinished:
                yield _fetched(record, row=row, document_hash=hashes[row], path=file.place.uri)
            elif unfinished[row].add(file, record, settings=settings):
                yield unfinished.pop(row).finished(row=row, document_hash=hashes[row])


_RowPlace = tuple[int, str, str, Place]
"""A row of the table that was given; path, format and place of its text, or of a row of its text."""


def _fetched_places(table: pa.Table) -> Iterator[_RowPlace]:
    """Where the texts of an index lie; of a document of many rows all its rows, in order."""
    for row, found in enumerate(table.select(["path", "format", "start", "stop", ROWS_COLUMN]).to_pylist()):
        rows = found[ROWS_COLUMN]
        if rows is None:
            yield row, found["path"], found["format"], Place(start=found["start"], stop=found["stop"])
            continue
        for file, start, stop in zip(rows["files"], rows["starts"], rows["stops"], strict=True):
            yield row, rows["paths"][file], rows["formats"][file], Place(start=start, stop=stop)


def _wanted_files(places: Iterable[_RowPlace], *, documents: Location) -> list["_Wanted"]:
    wanted: dict[tuple[str, str], dict[Place, list[int]]] = {}
    for row, path, format_, place in places:
        wanted.setdefault((path, format_), {}).setdefault(place, []).append(row)
    return [
        _Wanted(place=documents.at(path), format=Format(of), rows=rows) for (path, of), rows in sorted(wanted.items())
    ]


class _Unfinished:
    """A document of many rows while some are missing."""

    def __init__(self, places: Sequence[_RowPlace]) -> None:
        self._numbers = {(path, place): number for number, (_, path, _, place) in enumerate(places)}
        self._rows: dict[int, RowText] = {}
        self._left = len(places)
        self._reason = ""

    def add(self, file: "_Wanted", record: Record, *, settings: InputConfig) -> bool:
        """Takes a row; returns whether it was the last one."""
        text, *shown = record.values or (None,)
        text = part_text(text, settings=settings)
        if record.error is None and isinstance(text, str):
            row = row_text(text, shown, settings=settings)
            self._rows[self._numbers[file.place.path, record.place]] = row
        else:
            self._reason = f"{file.place.uri}: {_why_unread(record)}"
        self._left -= 1
        return not self._left

    def finished(self, *, row: int, document_hash: str) -> FetchedText:
        """The text of all rows, if it is as it was indexed."""
        rows = [self._rows[number] for number in sorted(self._rows)]
        if not self._reason and joined_hash([each.hash() for each in rows]) == document_hash:
            text, located = joined_text(rows)
            return FetchedText(row=row, text=text, rows=located)
        return _unavailable(row=row, path=next(iter(self._numbers))[0], reason=self._reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What is wanted of a file."""

    place: Location
    format: Format
    rows: dict[Place, list[int]]
    """Rows of the table that was given, by their place in the file."""


def _fetch_files(
    files: Sequence[_Wanted], *, sizes: Sequence[int], read: Callable[[_Wanted], Iterator[Record]]
) -> Iterator[tuple[_Wanted, Record]]:
    with ThreadPoolExecutor(TEXT_THREADS) as threads:
        windows = into_batches(files, size=partial(_window_bytes, sizes=sizes), max_size=_WINDOW_BYTES)
        for window in windows:  # one file, or text files of a store that are small together
            if len(window) == 1:
                yield from ((window[0], record) for record in read(window[0]))
                continue
            fetched = threads.map(lambda file: list(read(file)), window)
            for file, records in zip(window, fetched, strict=True):
                yield from ((file, record) for record in records)


def _window_bytes(file: _Wanted, *, sizes: Sequence[int]) -> int:
    """What a file takes of a window; more than all of it, if it is read alone."""
    is_alone = file.place.is_local or file.format is not Format.TEXT
    return _WINDOW_BYTES + 1 if is_alone else max(sizes[row] for rows in file.rows.values() for row in rows)


def _fetch_file(file: _Wanted, *, documents: Location, settings: InputConfig) -> Iterator[Record]:
    """The records at all places; those that can't be read any more have an error."""
    left = set(file.rows)
    gone = InputError("its row is gone")
    try:
        columns = _text_columns(file, documents=documents, settings=settings)
        for record in READERS[file.format].fetch(file.place, columns=columns, places=sorted(file.rows)):
            left.remove(record.place)
            yield record
    except InputError as error:
        gone = error
    for place in sorted(left):
        yield Record(place=place, where=file.place.uri, values=(), error=gone)


def _text_columns(file: _Wanted, *, documents: Location, settings: InputConfig) -> list[InputColumn]:
    """The columns of a text: the text's own, and those that its row shows."""
    shown = shown_columns(settings)
    columns = [text_column(settings), *shown]
    if file.format is not Format.TABLE:
        return with_partition(columns, partition_values(file.place.path, root=documents.path)) if shown else columns
    values = partitions_in_table(documents).get(file.place.path, {}) if shown else {}
    return stored_columns(columns, table=table_columns(documents), values=values, where=documents.uri)


def _why_unread(record: Record) -> str:
    if record.error is not None:
        return str(record.error)
    return "" if isinstance(record.values[0], str) else why_unreadable(record.values[0])


def _fetched(record: Record, *, row: int, document_hash: str, path: str) -> FetchedText:
    reason = _why_unread(record)
    if not reason and text_hash(str(record.values[0])) == document_hash:
        return FetchedText(row=row, text=str(record.values[0]))
    return _unavailable(row=row, path=path, reason=reason)


def _unavailable(*, row: int, path: str, reason: str) -> FetchedText:
    why = f" ({reason})" if reason else ""
    error = TextUnavailableError(
        f"{path}: the text can't be fetched, or changed since the plan was made{why}; the next run reads it"
    )
    return FetchedText(row=row, error=error)

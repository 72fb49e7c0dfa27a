"""Fetches the texts of indexed documents where they are read: one after another, or some small files at once."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from memagent_batch.config import InputConfig
from memagent_batch.domain.addresses import text_hash
from memagent_batch.errors import DocumentError, InputError, TextUnavailableError
from memagent_batch.files.location import Location
from memagent_batch.inputs.documents import TEXT_THREADS
from memagent_batch.inputs.formats import READERS, Format
from memagent_batch.inputs.records import Column, Kind, Place, Presence, Unreadable, Value

_WINDOW_BYTES = 1024 * 1024
"""Text of the files that are read at once, about, bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedText:
    """The text of one row of an index, or why it can't be had."""

    row: int
    """Row in the table that was given, from 0."""
    text: str | None = None
    """The text; None on error."""
    error: DocumentError | TextUnavailableError | None = None
    """What went wrong, with the text or with fetching it; None where the text is there."""


def fetch_texts(table: pa.Table, *, documents: Location, settings: InputConfig) -> Iterator[FetchedText]:
    """Streams the texts of the rows of an index, each row exactly once, in the order in which the files hold them.

    Each row group is read once, and one batch of it is held; of a store, some small text files are read at once. What
    can't be read is an error of its rows only: a DocumentError where the index has it, else a TextUnavailableError,
    since the text could be read then.

    Args:
        table: Rows of `INDEX_SCHEMA`; the columns document_hash, path, format, start, stop, num_bytes and error are
            used.
        documents: The documents, as they were indexed: its file system holds the paths.
        settings: Where the texts stand in the files; as they were for the index.
    """
    wanted: dict[tuple[str, str], dict[Place, list[int]]] = {}
    columns = table.select(["path", "format", "start", "stop", "error"]).to_pylist()
    sizes = table["num_bytes"].to_pylist()
    for row, values in enumerate(columns):
        if values["error"] is not None:
            yield FetchedText(row=row, error=DocumentError(values["error"]))
            continue
        places = wanted.setdefault((values["path"], values["format"]), {})
        places.setdefault(Place(start=values["start"], stop=values["stop"]), []).append(row)
    hashes = table["document_hash"].to_pylist()
    files = [
        _Wanted(place=documents.at(path), format=Format(of), rows=rows) for (path, of), rows in sorted(wanted.items())
    ]
    for file, place, value in _fetch_files(files, sizes=sizes, settings=settings):
        for row in file.rows[place]:
            yield _fetched(value, row=row, document_hash=hashes[row], path=file.place.uri)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What is wanted of a file."""

    place: Location
    """The file."""
    format: Format
    """Its format."""
    rows: dict[Place, list[int]]
    """Rows of the table that was given, by their place in the file."""


def _fetch_files(
    files: Sequence[_Wanted], *, sizes: Sequence[int], settings: InputConfig
) -> Iterator[tuple[_Wanted, Place, Value]]:
    with ThreadPoolExecutor(TEXT_THREADS) as threads:
        for window in _windows(files, sizes=sizes):
            if len(window) == 1:
                yield from ((window[0], place, value) for place, value in _fetch_file(window[0], settings=settings))
                continue
            texts = threads.map(lambda file: list(_fetch_file(file, settings=settings)), window)
            for file, found in zip(window, texts, strict=True):
                yield from ((file, place, value) for place, value in found)


def _windows(files: Sequence[_Wanted], *, sizes: Sequence[int]) -> Iterator[list[_Wanted]]:
    """Files to read at once: one, or text files of a store that are small together."""
    window: list[_Wanted] = []
    num_bytes = 0
    for file in files:
        size = max(sizes[row] for rows in file.rows.values() for row in rows)
        alone = file.place.is_local or file.format is not Format.TEXT
        if window and (alone or num_bytes + size > _WINDOW_BYTES):
            yield window
            window, num_bytes = [], 0
        window.append(file)
        num_bytes += _WINDOW_BYTES if alone else size
    if window:
        yield window


def _fetch_file(file: _Wanted, *, settings: InputConfig) -> Iterator[tuple[Place, Value]]:
    """Values at all `places`; those of a file that can't be read any more are `Unreadable`."""
    column = Column(name=settings.text_column, kind=Kind.DOCUMENT, presence=Presence.SOME)
    left = set(file.rows)
    reason = "its row is gone"
    try:
        for place, value in READERS[file.format].fetch(file.place, column=column, places=sorted(file.rows)):
            left.remove(place)
            yield place, value
    except InputError as error:
        reason = str(error)
    for place in sorted(left):
        yield place, Unreadable(reason=reason)


def _fetched(value: Value, *, row: int, document_hash: str, path: str) -> FetchedText:
    if isinstance(value, str) and text_hash(value) == document_hash:
        return FetchedText(row=row, text=value)
    reason = f" ({value.reason})" if isinstance(value, Unreadable) else ""
    error = TextUnavailableError(
        f"{path}: the text can't be fetched, or changed since the plan was made{reason}; the next run reads it"
    )
    return FetchedText(row=row, error=error)

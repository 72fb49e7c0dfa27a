"""The sources of the documents: which files there are, and which of them the settings take. Opens none of them."""

import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from fsspec.utils import glob_translate

from memagent_batch.config.sources import InputConfig, OnBadFile, Trust
from memagent_batch.data.documents.data_files import DataFile
from memagent_batch.data.documents.formats.formats import (
    GROUPED,
    UNKNOWN_REMEDY,
    Format,
    format_ending,
    format_of,
    is_data_file,
    is_named_text,
)
from memagent_batch.data.documents.inventory import read_inventory
from memagent_batch.data.documents.lake.table import (
    LakeFile,
    LakeTable,
    TableColumns,
    at_version,
    partition_values,
    table_name,
)
from memagent_batch.data.documents.lake.tables import find_table
from memagent_batch.data.documents.listing import (
    HIDDEN_NAME,
    WEB_SCHEMES,
    InputFile,
    Listing,
    list_places,
    source_name,
)
from memagent_batch.data.documents.scope import is_in_slice
from memagent_batch.data.documents.where import Condition, files_that_may_match, key_columns, matching_rows, parse_where
from memagent_batch.data.ingest.readers.converter import ending_of
from memagent_batch.data.ingest.readers.kinds import ENDINGS, PLAIN, TABLE_ENDINGS, FileKind
from memagent_batch.data.store.database import open_database, query_to_disk
from memagent_batch.data.store.errors import input_errors
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError
from memagent_batch.loop.texts.shares import quantity

Item = TypeVar("Item")
LISTED = pa.schema(
    [
        pa.field("path", pa.large_string(), nullable=False),
        pa.field("source", pa.large_string(), nullable=False),
        pa.field("version", pa.large_string()),
        pa.field("num_bytes", pa.int64(), nullable=False),
        pa.field("format", pa.string()),
        pa.field("left_out", pa.large_string()),
    ]
)
"""Sources as they are now: the path on their file system, and the name in the table `sources`. `version` is null if
only the content tells whether a source has changed, `format` is null for document files, and `left_out` says why one of
these can't be taken."""
_COLUMNED = frozenset({Format.PARQUET, Format.JSONL, Format.CSV, Format.TSV, Format.ARROW})
"""Formats of many documents a file; a text file beside such a file is more likely a note than a document."""
_BY_ENDING = ("auto", "files")
"""Settings with which the ending of a data file says its format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePlace:
    """Where the sources are, and what is known of all of them."""

    uri: str
    """A place on their file system; a table of a lake at the version that is read."""
    root: str
    """Their folder on the file system, up to its slash."""
    number_keys: frozenset[str] | None = None
    """Keys of folders that are numbers in all files, if sources are filtered."""
    lake_columns: TableColumns = field(default_factory=dict)
    """The columns of the table of a lake that the sources belong to."""

    def data_file(
        self,
        row: Mapping[str, Any],
        documents: Location,
        *,
        lake_file: LakeFile | None = None,
        groups: tuple[int, int] | None = None,
    ) -> DataFile:
        """Returns what is known of a source before it is opened.

        Args:
            row: Path, source, num_bytes and format, as in `LISTED`.
            documents: The location of `uri`.
            lake_file: What its table says of it.
            groups: Row groups to read; by default all.
        """
        return DataFile(
            location=documents.at(row["path"]),
            format=Format(row["format"]),
            name=row["source"],
            num_bytes=row["num_bytes"],
            groups=groups,
            keys=lake_file.values if lake_file else partition_values(row["path"], root=self.root),
            number_keys=self.number_keys,
            lake_file=lake_file,
            lake_columns=self.lake_columns,
            lake_uri=self.uri,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceListing:
    """What there is to ingest."""

    sources: pa.Table
    """`LISTED`, in a temporary file: data files by format and path, document files by path."""
    place: SourcePlace
    reads_files: bool = False
    """Whether each source is a document by its kind, not a file of rows."""
    lake_files: Mapping[str, LakeFile] = field(default_factory=dict)
    """What the table of a lake says of its files, by path."""
    left_out: tuple[str, ...] = ()
    """Names of files that are not read: text files beside data files, or hidden ones beside document files."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Version of a table of a lake, or commit of each data set of the hub, by the place as the user names it."""


def list_sources(
    places: Sequence[Location], *, settings: InputConfig, named_endings: Collection[str] = ()
) -> SourceListing:
    """Lists the sources.

    Args:
        places: Files, folders (read with all below them) or globs, all on one file system; or one table of a lake.
            Hidden files, and names that start with `_`, are left out of folders and globs.
        settings: Format of the files, their filter, and where they are listed.
        named_endings: Endings of files for which the user named a converter.

    Raises:
        InputError: there is no source, or one that can't be taken; or the places are on several file systems, or one
            of several is a table.
    """
    where = None if settings.where is None else parse_where(settings.where)
    table = _find_table(places)
    if table is not None:
        return _table_sources(table, places[0], where=where, settings=settings)
    pins = {place.uri: pinned for place in places if (pinned := _pinned(place)) is not None}
    documents = [pins[place.uri][0] if place.uri in pins else place for place in places]
    inventory = settings.inventory and Location(uri=settings.inventory, storage_options=documents[0].storage_options)
    read = partial(read_inventory, inventory=inventory) if inventory else None
    files, hidden = _without_hidden(list_places(documents, keep_left_out=True, inventory=read), documents)
    select = _select_documents if _reads_documents(files, settings, named_endings=named_endings) else _select_data
    selected = select(files, documents, where=where, settings=settings)
    _require_some(selected.tables, settings=settings)
    commits = {uri: commit for uri, (_, commit) in pins.items()}
    reads_files = select is _select_documents
    return SourceListing(
        sources=_listed(selected.tables, root=files.root, commits=commits, trust=settings.trust),
        place=SourcePlace(uri=documents[0].uri, root=files.root, number_keys=selected.number_keys),
        reads_files=reads_files,
        left_out=hidden if reads_files else selected.left_out,
        versions=commits,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Selected:
    """The files that the settings take."""

    tables: list[pa.Table]
    """`LISTED_FILES` and `format`."""
    left_out: tuple[str, ...] = ()
    number_keys: frozenset[str] | None = None


def _find_table(documents: Sequence[Location]) -> LakeTable | None:
    if len(documents) == 1:
        return find_table(documents[0])
    named = next((place for place in documents if table_name(place.uri)), None)
    if named is not None:
        raise InputError(f"documents: {named} is a table among several places; read each table in its own run")
    return None


def _table_sources(
    table: LakeTable, documents: Location, *, where: Condition | None, settings: InputConfig
) -> SourceListing:
    if settings.inventory:
        raise InputError(f"input.inventory: {documents} is a table, which lists its own files; leave it out")
    rows = None if where is None else files_that_may_match([file.values for file in table.files], where)
    files = table.files if rows is None else tuple(table.files[row] for row in rows)
    _require_some(files, settings=settings)
    root = f"{table.location.path.rstrip('/')}/"
    columns = {
        "path": [file.path for file in files],
        "source": [source_name(file.path, root=root) for file in files],
        "version": [file.fingerprint() for file in files],
        "num_bytes": [file.size_bytes for file in files],
        "format": [Format.TABLE.value] * len(files),
        "left_out": [None] * len(files),
    }
    return SourceListing(
        sources=pa.table(columns, schema=LISTED),
        place=SourcePlace(uri=at_version(documents.uri, table.version), root=root, lake_columns=table.columns),
        lake_files={file.path: file for file in files},
        versions={table.uri: table.version},
    )


def _without_hidden(files: Listing, documents: Sequence[Location]) -> tuple[Listing, tuple[str, ...]]:
    is_hidden = pc.fill_null(pc.equal(files.files["left_out"], HIDDEN_NAME), False)
    if not pc.any(is_hidden, min_count=0).as_py():
        return files, ()
    hidden = tuple(file.name for file in files.filtered(is_hidden))
    others = files.filtered(pc.invert(is_hidden))
    if not others:
        raise InputError(
            f"{', '.join(map(str, documents))} holds no files: {quantity(len(hidden), 'name')} left out, which "
            "start with ., _ or ~$; rename them"
        )
    return others, hidden


def _reads_documents(files: Listing, settings: InputConfig, *, named_endings: Collection[str]) -> bool:
    """Whether each file is a document.

    With `auto` it is where there are document files such as PDF and no data files; with `files` unless all of them are
    data files that no converter reads.
    """
    if settings.format not in _BY_ENDING:
        return False
    endings = {format_ending(file.path) for file in files if file.left_out is None}
    if settings.format == "files":
        tables = TABLE_ENDINGS - {*named_endings}
        return not endings or not all(ending and f".{ending.lower().split('.')[1]}" in tables for ending in endings)
    kinds = {
        FileKind.TEXT if is_named_text(f"x{ending}") else ENDINGS.get(ending_of(f"x{ending}"), FileKind.TEXT)
        for ending in endings
    }
    return not any(is_data_file(f"x{ending}") for ending in endings) and not kinds <= PLAIN


def _select_documents(
    files: Listing, _: Sequence[Location], *, where: Condition | None, settings: InputConfig
) -> _Selected:
    """Selects document files by condition and slice. Those that can't be taken have the reason."""
    numbers = None
    if where is not None:
        numbers = _number_keys([*_folder_keys(files).values()])
        files = _filtered_by_keys(files, where=where, numbers=numbers)
    if settings.slice:
        files = files.filtered(_mask(files, lambda file: is_in_slice(settings, file.name)))
    return _Selected(tables=[_with_format(files, None)] if files else [], number_keys=numbers)


def _select_data(
    files: Listing, documents: Sequence[Location], *, where: Condition | None, settings: InputConfig
) -> _Selected:
    """Selects data files by condition, and text files by slice too; leaves out text files beside data files."""
    refused = next((reason for reason in files.files["left_out"].drop_null().to_pylist()), None)
    if refused is not None:
        raise InputError(refused)
    numbers = None
    if where is not None:
        folders = _folder_keys(files)
        keys = [*folders.values()]
        numbers = _number_keys(keys)
        files = _of_folders(files, [*folders], files_that_may_match(keys, where))
        _require_some(files, settings=settings)
    by_format = _by_format(files, documents[0], settings=settings)
    left_out: tuple[str, ...] = ()
    texts = by_format.get(Format.TEXT)
    if texts is not None and settings.format in _BY_ENDING and _COLUMNED & by_format.keys():
        is_named = _mask(texts, lambda file: _is_named(file, documents))
        left_out = tuple(file.name for file in texts.filtered(pc.invert(is_named)))
        by_format[Format.TEXT] = texts = texts.filtered(is_named)
    if where is not None:
        filtered = partial(_filtered_by_keys, where=where, numbers=numbers)
        by_format = {each: found if each in GROUPED else filtered(found) for each, found in by_format.items() if found}
    if settings.slice and Format.TEXT in by_format:
        texts = by_format[Format.TEXT]
        by_format[Format.TEXT] = texts.filtered(_mask(texts, lambda file: is_in_slice(settings, file.name)))
    tables = [_with_format(found, each) for each, found in sorted(by_format.items()) if found]
    return _Selected(tables=tables, left_out=left_out, number_keys=numbers)


def _require_some(files: Sized, *, settings: InputConfig) -> None:
    if not files:
        filtered = f" for which input.where can be true: {settings.where}" if settings.where else ""
        part = f" in slice {settings.slice}: divide the documents into fewer slices" if settings.slice else ""
        raise InputError(f"documents: there is no file{filtered}{part}")


def _mask(files: Listing, test: Callable[[InputFile], bool]) -> pa.ChunkedArray:
    return pa.chunked_array([[test(file) for file in files]], pa.bool_())


def _with_format(files: Listing, format_: Format | None) -> pa.Table:
    return files.files.append_column("format", pa.repeat(pa.scalar(format_ and format_.value, pa.string()), len(files)))


def _folder_keys(files: Listing) -> dict[str, Mapping[str, pa.Scalar]]:
    """What the names of each folder say, such as `year=2026`."""
    first_files = {posixpath.dirname(file.path): file.path for file in files}
    return {folder: partition_values(path, root=files.root) for folder, path in first_files.items()}


def _number_keys(keys: Sequence[Mapping[str, pa.Scalar]]) -> frozenset[str]:
    return frozenset(each.name for each in key_columns(keys).schema if pa.types.is_integer(each.type))


def _of_folders(files: Listing, folders: Sequence[str], rows: npt.NDArray[np.int64]) -> Listing:
    """The files in some of the folders, by the numbers of these."""
    taken = {folders[row] for row in rows}
    return files.filtered(_mask(files, lambda file: posixpath.dirname(file.path) in taken))


def _filtered_by_keys(files: Listing, *, where: Condition, numbers: Collection[str] | None) -> Listing:
    """The files that a filter takes by the keys in their folders: of formats whose rows can't be filtered."""
    keys = _folder_keys(files)
    columns = key_columns([*keys.values()], numbers=numbers)
    shared = [name for name in columns.schema.names if all(name in each for each in keys.values())]
    try:
        return _of_folders(files, [*keys], matching_rows(columns.select(shared), where))
    except InputError as error:
        raise InputError(
            f"{error}. Rows are filtered in Parquet and Arrow files and in tables, other files, such as "
            f"{next(iter(files)).path}, only by the keys in their folders (year=2026), below the place that "
            "`documents` names"
        ) from error


def _is_named(file: InputFile, documents: Iterable[Location]) -> bool:
    """Whether one of the places names the text file, by its path or by a pattern with its ending."""
    named = (place.path for place in documents if is_named_text(place.path))
    return any(path == file.path or re.fullmatch(glob_translate(path), file.path) for path in named)


def _by_format(files: Listing, documents: Location, *, settings: InputConfig) -> dict[Format, Listing]:
    by_ending: dict[str, Format] = {}
    formats: list[Format] = []
    for file in files:
        ending = format_ending(file.path) if settings.format in _BY_ENDING else ""
        if ending not in by_ending:
            by_ending[ending] = _format(file, documents, settings=settings)
        formats.append(by_ending[ending])
    if len(set(formats)) == 1:
        return {formats[0]: files}
    of_files = pa.chunked_array([formats], pa.string())
    return {format_: files.filtered(pc.equal(of_files, format_.value)) for format_ in dict.fromkeys(formats)}


def _format(file: InputFile, documents: Location, *, settings: InputConfig) -> Format:
    if settings.format not in _BY_ENDING:
        return Format(settings.format)
    try:
        return format_of(file.path, where=documents.at(file.path).uri, remedy=UNKNOWN_REMEDY)
    except InputError:
        if settings.on_bad_file == OnBadFile.FAIL:
            raise
        return Format.UNKNOWN


def _listed(tables: Sequence[pa.Table], *, root: str, commits: Mapping[str, str], trust: Trust) -> pa.Table:
    """`LISTED`; files of the hub have its commits as their version."""
    version = "null" if trust is Trust.CONTENT else "$commit" if commits else "version"
    parameters = {"commit": " ".join(sorted(commits.values()))} if version == "$commit" else {}
    sql = f"""
        select path, substr(path, $start) as source, {version} as version, size_bytes as num_bytes, format, left_out
        from listed
    """
    with open_database({"listed": pa.concat_tables(tables)}) as database:
        listed = query_to_disk(database, sql, schema=LISTED, start=len(root) + 1, **parameters)
    if not root.startswith(WEB_SCHEMES):
        return listed
    names = [source_name(path, root=root) for path in listed["path"].to_pylist()]
    return listed.set_column(1, LISTED.field(1), pa.array(names, pa.large_string()))


def into_batches(
    items: Iterable[Item], *, size: Callable[[Item], int], max_size: int, max_items: int | None = None
) -> Iterator[list[Item]]:
    """The items in batches, in their order; one that is larger than a batch is a batch alone."""
    batch, total = list[Item](), 0
    for item in items:
        if batch and (len(batch) == max_items or total + size(item) > max_size):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size(item)
    if batch:
        yield batch


def _pinned(place: Location) -> tuple[Location, str] | None:
    """A place of the Hugging Face hub at the commit that its branch stands for now, and the commit; None elsewhere.

    So a branch that moves on changes nothing in a run.
    """
    if not place.uri.startswith("hf://"):
        return None
    with input_errors(place.uri):
        found = place.fs.resolve_path(place.path)
        if not hasattr(found, "repo_id"):
            return None  # a bucket has no commits
        commit = place.fs._api.repo_info(found.repo_id, revision=found.revision, repo_type=found.repo_type).sha
    kind = "" if found.repo_type == "model" else f"{found.repo_type}s/"
    path = f"{kind}{found.repo_id}@{commit}/{found.path_in_repo}".rstrip("/")
    return Location(uri=f"hf://{path}", storage_options=place.storage_options), commit

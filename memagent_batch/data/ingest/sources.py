"""The sources of the documents, and which of them ingest has to open: compared with the table `sources`."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memagent_batch.config.sources import InputConfig, Trust
from memagent_batch.data.documents.formats.formats import Format, format_ending, is_data_file
from memagent_batch.data.documents.lake.table import table_name
from memagent_batch.data.documents.listing import (
    WEB_SCHEMES,
    InputFile,
    Listing,
    is_delta_folder,
    source_name,
    usable_file_system,
)
from memagent_batch.data.documents.shards import (
    FoundShards,
    ListedDocuments,
    Shard,
    cut_listing,
    find_shards,
    list_documents,
    pack_paths,
    select_files,
)
from memagent_batch.data.documents.where import parse_where
from memagent_batch.data.ingest.readers.converter import ending_of
from memagent_batch.data.ingest.readers.kinds import ENDINGS, PLAIN, TABLE_ENDINGS, FileKind
from memagent_batch.data.ingest.row_tasks import rows_reader
from memagent_batch.data.ingest.tables import SOURCES_TABLE
from memagent_batch.data.store.database import open_database, query_to_disk, run_query
from memagent_batch.data.store.delta import OutputTable
from memagent_batch.data.store.errors import input_errors
from memagent_batch.data.store.location import Location

LISTED = pa.schema(
    [
        pa.field("source", pa.large_string(), nullable=False),
        pa.field("version", pa.large_string()),
        pa.field("num_bytes", pa.int64(), nullable=False),
    ]
)
"""Sources as they are now; `version` is null if only their content tells whether they have changed."""
KNOWN = pa.schema(
    [
        pa.field("source", pa.large_string(), nullable=False),
        pa.field("version", pa.large_string()),
        pa.field("content_hash", pa.string()),
    ]
)
"""Sources of the last ingest whose documents are what would be read of them today, if their content is the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceListing:
    """What there is to ingest."""

    sources: pa.Table
    """`LISTED`. With data files, a row for each path of each shard, in this order; else one for each of `files`."""
    shards: tuple[Shard, ...] = ()
    """Data files: their rows are documents."""
    files: Listing | None = None
    """Document files: each is a document."""
    numbers: frozenset[str] | None = None
    """See `Shard.number_keys`."""
    left_out: tuple[str, ...] = ()
    """Names of files that are not read: text files beside data files, or hidden ones beside document files."""
    versions: Mapping[str, str]
    """Version of a table of a lake, or commit of each data set of the hub, by the place as the user names it."""
    columns: str = ""
    """The columns of a table of a lake, as its files are read by them; they may change while a file stays."""


def list_sources(
    places: Sequence[Location], *, settings: InputConfig, named_endings: Collection[str] = ()
) -> SourceListing:
    """Lists the sources; opens none of them.

    `named_endings`: endings of files for which the user named a converter.

    Raises:
        InputError: there is none, or one that can't be taken; names it.
    """
    listed = None if _are_tables(places) else list_documents(places, settings=settings)
    if listed is None:
        shards = find_shards(*places, settings=settings)
    elif _reads_document_files(listed.files, settings, named_endings=named_endings):
        return _files_listing(listed, settings=settings)
    else:
        shards = cut_listing(listed, settings=settings)
    return SourceListing(
        sources=_listed_shards(shards),
        shards=tuple(shards.shards),
        numbers=next((shard.number_keys for shard in shards.shards), None),
        left_out=shards.left_out,
        versions=shards.versions,
        columns=repr(sorted(shards.table.columns.items())) if shards.table else "",
    )


def _are_tables(places: Sequence[Location]) -> bool:
    """Whether a place is a table of a lake, named as one or by its folder."""
    return any(table_name(place.uri) for place in places) or (len(places) == 1 and _is_delta(places[0]))


def _is_delta(place: Location) -> bool:
    with input_errors(place.uri), usable_file_system(place):
        return is_delta_folder(place)


def _reads_document_files(files: Listing, settings: InputConfig, *, named_endings: Collection[str]) -> bool:
    """Whether each file is a document.

    With `auto` it is where there are document files such as PDF and no data files; with `files` unless all of them are
    data files that no converter reads.
    """
    if settings.format == "auto":
        return has_document_files(files)
    endings = {format_ending(file.path).lower() for file in files if file.left_out is None}
    tables = TABLE_ENDINGS - {*named_endings}
    are_tables = bool(endings) and all(ending and f".{ending.split('.')[1]}" in tables for ending in endings)
    return settings.format == "files" and not are_tables


def has_document_files(files: Listing) -> bool:
    """Whether a listing holds document files such as PDF, and no data files."""
    endings = {ending_of(file.path) for file in files if file.left_out is None}
    is_data = any(is_data_file(f"x{ending}") for ending in {format_ending(file.path) for file in files})
    return not is_data and any(ENDINGS.get(ending, FileKind.TEXT) not in PLAIN for ending in endings)


def _files_listing(listed: ListedDocuments, *, settings: InputConfig) -> SourceListing:
    files, hidden, numbers = select_files(listed, settings=settings)
    return SourceListing(
        sources=_listed_files(files, settings=settings),
        files=files,
        numbers=numbers,
        left_out=hidden,
        versions=listed.commits,
    )


def _listed_files(listing: Listing, *, settings: InputConfig) -> pa.Table:
    version = "null" if settings.trust is Trust.CONTENT else "version"
    sql = f"select substr(path, $start) as source, {version} as version, size_bytes as num_bytes from listed"
    with open_database({"listed": listing.files}) as database:
        listed = query_to_disk(database, sql, schema=LISTED, start=len(listing.root) + 1)
    return _named(listed, root=listing.root)


def _listed_shards(found: FoundShards) -> pa.Table:
    sql = "select substr(path, $start) as source, version, num_bytes from listed"
    root = found.shards[0].root
    with open_database({"listed": found.files}) as database:
        listed = query_to_disk(database, sql, schema=LISTED, start=len(root) + 1)
    return _named(listed, root=root)


def _named(listed: pa.Table, *, root: str) -> pa.Table:
    """The listed sources with their names, which show nothing of a web address's query."""
    if not root.startswith(WEB_SCHEMES):
        return listed
    names = [source_name(root + path, root=root) for path in listed["source"].to_pylist()]
    return listed.set_column(0, LISTED.field(0), pa.array(names, pa.large_string()))


def scope_of(settings: InputConfig) -> str | None:
    """The part of the documents that a job covers, as `sources.scope` has it; None for all."""
    where = None if settings.where is None else f"where {parse_where(settings.where).spaced}"
    part = None if settings.slice is None else f"slice {settings.slice}"
    return "; ".join(filter(None, (where, part))) or None


def settings_hash(
    settings: InputConfig, *, numbers: frozenset[str] | None, reads_files: bool, others: Mapping[str, Any]
) -> str:
    """The hash of what decides which documents a source gives, beside its content, its readers and the scope."""
    excluded = {"where", "slice", "inventory", "trust", "carry_columns", "carry"}
    decisive = {
        **settings.model_dump(mode="json", exclude=excluded),
        **({"format": "files"} if reads_files else {}),
        "carried": sorted(settings.carried.items()),
        "numbers": sorted(numbers or ()),
        **others,
    }
    return sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:16]


IS_REWRITTEN = """
other.scope is distinct from s.scope and other.ingested_at > s.ingested_at
and (other.settings_hash <> s.settings_hash or other.version is distinct from s.version)
and not coalesce(
    regexp_replace(other.scope, 'slice [0-9]+/', 'slice ') = regexp_replace(s.scope, 'slice [0-9]+/', 'slice '), false
)
"""
"""Whether another job has written documents of a source otherwise since. `s` and `other` are the rows of two jobs for
one source in `sources`. Different slices of the same division have no document in common.
"""
_KNOWN_SOURCES = f"""
select source, version, content_hash
from (select *, regexp_extract(lower(source), '[.][a-z0-9]{{1,10}}$') as ending from sources) as s
where scope is not distinct from $scope and settings_hash = $settings_hash
    and list_has_all($readers, string_split(reader, '; '))
    and (
        not list_contains($endings, ending)
        or list_contains(string_split(reader, '; '), $ending_readers[list_position($endings, ending)])
    )
    and not exists (
        from sources as other
        where other.source = s.source and {IS_REWRITTEN}
    )
    and not ($retry_failed and (status = 'failed' or list_contains([loss.kind for loss in losses], 'failed')))
"""
"""Sources that this scope has read as they are asked for now, and whose documents no other scope has written since."""
_UNCHANGED = """
select row
from (select source, version, row_number() over () - 1 as row from listed) semi join known using (source, version)
"""
_GONE = """
select distinct source from sources anti join listed using (source)
where $scope is null or scope is not distinct from $scope
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceChanges:
    """What differs between a listing and the table `sources`."""

    is_changed: npt.NDArray[np.bool_]
    """Whether each listed source is new or has changed, or nothing tells."""
    known: pa.Table
    """`KNOWN`."""
    gone: pa.Table
    """Column `source`: sources that are not listed any more."""


def compare_sources(
    output: Location,
    listing: SourceListing,
    *,
    scope: str | None,
    settings_hash: str,
    readers: Sequence[str],
    own_endings: Mapping[str, str],
    retry_failed: bool,
) -> SourceChanges:
    """Compares a listing with the table `sources` of an output.

    Args:
        output: Where the table is.
        listing: The sources as they are now.
        scope: The part of the documents that the job covers.
        settings_hash: Hash of what decides which documents a source gives.
        readers: Names of readers with their versions, as they are now.
        own_endings: Endings for which the user named a reader, with that reader.
        retry_failed: Whether sources count as changed of which something could not be read.
    """
    table = OutputTable(output=output, name=SOURCES_TABLE)
    num_listed = listing.sources.num_rows
    if not table.exists():
        nothing = pa.table({"source": pa.array([], pa.large_string())})
        return SourceChanges(is_changed=np.ones(num_listed, bool), known=KNOWN.empty_table(), gone=nothing)
    with open_database({"sources": table.dataset(), "listed": listing.sources}) as database:
        known = query_to_disk(
            database,
            _KNOWN_SOURCES,
            schema=KNOWN,
            scope=scope,
            settings_hash=settings_hash,
            readers=[*readers],
            endings=[*own_endings],
            ending_readers=[*own_endings.values()],
            retry_failed=retry_failed,
        )
        gone = query_to_disk(database, _GONE, schema=pa.schema([pa.field("source", pa.large_string())]), scope=scope)
    rows = run_query(_UNCHANGED, {"listed": listing.sources, "known": known})["row"].to_numpy()
    is_changed = np.ones(num_listed, bool)
    is_changed[rows] = False
    return SourceChanges(is_changed=is_changed, known=known, gone=gone)


def changed_shards(listing: SourceListing, is_changed: npt.NDArray[np.bool_]) -> Iterator[Shard]:
    """The shards with the changed files alone."""
    start = 0
    for shard in listing.shards if is_changed.any() else ():
        stop = start + len(shard.paths)
        flags = is_changed[start:stop]
        if flags.all():
            yield shard
        elif flags.any():
            share = float(flags.mean())
            paths = compress(shard.paths, flags)
            yield replace(shard, packed_paths=pack_paths(paths), size_bytes=int(shard.size_bytes * share))
        start = stop


def changed_files(listing: SourceListing, is_changed: npt.NDArray[np.bool_]) -> Iterator[InputFile]:
    """The document files that are new or have changed."""
    if listing.files is not None:
        yield from compress(listing.files, is_changed)


def readers_of_rows() -> list[str]:
    """The readers of data files, with their versions."""
    return [rows_reader(format_) for format_ in Format]

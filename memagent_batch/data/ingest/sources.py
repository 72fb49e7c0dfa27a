"""Which sources ingest has to open: the listing compared with the table `sources`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memagent_batch.config.sources import InputConfig
from memagent_batch.data.documents.source_listing import SourceListing
from memagent_batch.data.documents.where import parse_where
from memagent_batch.data.ingest.tables import SOURCES_TABLE
from memagent_batch.data.store.database import open_database, query_to_disk, run_query
from memagent_batch.data.store.delta import OutputTable
from memagent_batch.data.store.location import Location

KNOWN = pa.schema(
    [
        pa.field("source", pa.large_string(), nullable=False),
        pa.field("version", pa.large_string()),
        pa.field("content_hash", pa.string()),
    ]
)
"""Sources of the last ingest whose documents are what would be read of them today, if their content is the same."""


def scope_of(settings: InputConfig) -> str | None:
    """The part of the documents that a job covers, as `sources.scope` has it; None for all."""
    where = None if settings.where is None else f"where {parse_where(settings.where).spaced}"
    part = None if settings.slice is None else f"slice {settings.slice}"
    return "; ".join(filter(None, (where, part))) or None


def settings_hash(settings: InputConfig, listing: SourceListing, *, others: Mapping[str, Any]) -> str:
    """The hash of what decides which documents a source gives, beside its content, its readers and the scope."""
    excluded = {"where", "slice", "inventory", "trust", "carry_columns", "carry"}
    decisive = {
        **settings.model_dump(mode="json", exclude=excluded),
        **({"format": "files"} if listing.reads_files else {}),
        "carried": sorted(settings.carried.items()),
        "numbers": sorted(listing.place.number_keys or ()),
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

"""The sources of a job, and which of them an ingest has to read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.config.sources import SourceConfig
from memagent_batch.data.documents.formats.formats import Format
from memagent_batch.data.documents.lake.table import table_name
from memagent_batch.data.documents.listing import usable_file_system
from memagent_batch.data.documents.source_listing import SourceListing, list_sources
from memagent_batch.data.ingest.columns import require_carried
from memagent_batch.data.ingest.file_tasks import choose_converters
from memagent_batch.data.ingest.files import KINDS_READER, ChosenConverter, endings_reader
from memagent_batch.data.ingest.row_tasks import rows_reader
from memagent_batch.data.ingest.sources import SourceChanges, compare_sources, scope_of, settings_hash
from memagent_batch.data.ingest.tables import DOCUMENTS_TABLE
from memagent_batch.data.store.delta import OutputTable
from memagent_batch.data.store.location import Location
from memagent_batch.masking import mask_url
from memagent_batch.run.wiring import make_documents


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSources:
    """The sources of a job, and those that have to be read."""

    config: SourceConfig
    output: Location
    """The place of the tables. Where the documents are an output themselves, that output."""
    is_in_place: bool = False
    """Whether the documents are an output themselves, which is used as it is."""
    listing: SourceListing | None = None
    changes: SourceChanges | None = None
    scope: str | None = None
    settings_hash: str = ""
    converters: Mapping[str, ChosenConverter]

    @property
    def num_changed(self) -> int:
        """Sources to read."""
        return 0 if self.changes is None else int(self.changes.is_changed.sum())

    @property
    def num_sources(self) -> int:
        """All sources."""
        return 0 if self.listing is None else self.listing.sources.num_rows

    @property
    def reads_files(self) -> bool:
        """Whether each source is a document file, not a data file."""
        return self.listing is not None and self.listing.reads_files

    @property
    def changed_bytes(self) -> int:
        """Size of the sources to read, bytes."""
        if self.listing is None or self.changes is None:
            return 0
        sizes = self.listing.sources["num_bytes"].filter(pa.array(self.changes.is_changed))
        return int(pc.sum(sizes, min_count=0).as_py())


def find_sources(config: SourceConfig, output: Location, *, retry_failed: bool = False) -> FoundSources:
    """Lists the sources and compares them with the table `sources` of an output; opens none of them.

    Raises:
        UsageError: the sources or a setting can't be used; names it.
    """
    require_carried(config.input)
    places = make_documents(config)
    converters: dict[str, ChosenConverter] = {}
    if _is_output(config, places):
        return FoundSources(config=config, output=places[0], is_in_place=True, converters=converters)
    listing = list_sources(places, settings=config.input, named_endings=config.ingest.converters)
    readers, decisive = [rows_reader(format_) for format_ in Format], dict[str, Any]()
    if listing.reads_files:
        converters = choose_converters(config.ingest)
        readers = [KINDS_READER, endings_reader(converters), *(each.reader for each in converters.values())]
        decisive = {
            "file_mib": config.ingest.file_mib,
            "output_mib": config.ingest.output_mib,
        }
    if listing.place.lake_columns:  # they may change while a file stays
        decisive["columns"] = repr(sorted(listing.place.lake_columns.items()))
    scope = scope_of(config.input)
    decided = settings_hash(config.input, listing, others=decisive)
    changes = compare_sources(
        output,
        listing,
        scope=scope,
        settings_hash=decided,
        readers=readers,
        own_endings={kind: each.reader for kind, each in converters.items() if kind.startswith(".")},
        retry_failed=retry_failed,
    )
    return FoundSources(
        config=config,
        output=output,
        listing=listing,
        changes=changes,
        scope=scope,
        settings_hash=decided,
        converters=converters,
    )


def _is_output(config: SourceConfig, places: Sequence[Location]) -> bool:
    """Whether `documents` names the output of another run instead of files."""
    if len(places) != 1 or table_name(config.documents[0]) or any(mark in config.documents[0] for mark in ("*", "::")):
        return False
    if places[0].uri.startswith(("http://", "https://", "hf://")):
        return False
    with usable_file_system(places[0]):
        return OutputTable(output=places[0], name=DOCUMENTS_TABLE).exists()


def sources_place(config: SourceConfig) -> str:
    """Where the sources are, without secrets, as the table `sources` keeps it."""
    places = make_documents(config)
    return " ".join(mask_url(str(place.fs.unstrip_protocol(place.path))) for place in places)

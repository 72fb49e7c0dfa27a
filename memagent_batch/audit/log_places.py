"""Where the log keeps what it has of each document: in which of some files. Holds hashes and names, no texts."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.files.errors import storage_errors, table_errors
from memagent_batch.files.location import Location
from memagent_batch.files.parquet import read_parquet
from memagent_batch.log.files import LOG_THREADS
from memagent_batch.log.writer import CLOSINGS_FOLDER, OUTCOMES_FOLDER, TURNS_FOLDER

_HASH, _VERSION = "document_hash", "held_from"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlaces:
    """Files of the log by document hash."""

    files: dict[str, dict[str, list[str]]]
    """By folder of the log and document hash."""
    versions: dict[str, set[str]]
    """Earlier versions of a document that turns were taken from, by its hash."""

    def of(self, folder: str, document_hash: str | None) -> list[str]:
        """Names of the files in a folder that have rows of a document, and of those that its turns were taken from."""
        hashes = [document_hash or "", *sorted(self.versions.get(document_hash or "", ()))]
        by_hash = self.files[folder]
        return sorted({name for each in hashes for name in by_hash.get(each, ())})


def find_places(output: Location, names: Collection[str], *, document_hashes: Iterable[str]) -> LogPlaces:
    """Reads the hashes of documents in files of the log, one after another.

    Args:
        output: The output.
        names: The files, below the output.
        document_hashes: The documents.

    Raises:
        OutputError: a file can't be read.
        StorageError: the same, for a cause of its store.
    """
    wanted = pa.array(sorted(set(document_hashes)), pa.string())
    files: dict[str, dict[str, list[str]]] = {name: {} for name in (TURNS_FOLDER, OUTCOMES_FOLDER, CLOSINGS_FOLDER)}
    versions: dict[str, set[str]] = defaultdict(set)
    ordered = sorted(names)
    with ThreadPoolExecutor(LOG_THREADS) as threads:
        for name, pairs in zip(ordered, threads.map(partial(_pairs, output), ordered), strict=True):
            by_hash = files[name.rpartition("/")[0]]
            for document_hash, version in pairs:
                found = by_hash.setdefault(document_hash, [])
                if not found or found[-1] != name:
                    found.append(name)
                if version is not None:
                    versions[document_hash].add(version)
    kept = set(wanted.to_pylist()) | {version for each in wanted.to_pylist() for version in versions.get(each, ())}
    return LogPlaces(
        files={folder: {each: by_hash[each] for each in kept & by_hash.keys()} for folder, by_hash in files.items()},
        versions=versions,
    )


def _pairs(output: Location, name: str) -> Sequence[tuple[str, str | None]]:
    """The documents of a file, with the versions that their turns were taken from."""
    place = output / name
    with storage_errors(place.uri), table_errors(f"log file {place}", remedy="restore it", of_store=False):
        table = read_parquet(place, columns=[_HASH, _VERSION])
    if _VERSION not in table.schema.names:  # files of earlier versions, and of other folders than that of turns
        return [(each, None) for each in pc.unique(table[_HASH]).to_pylist()]
    return list(dict.fromkeys(zip(table[_HASH].to_pylist(), table[_VERSION].to_pylist(), strict=True)))

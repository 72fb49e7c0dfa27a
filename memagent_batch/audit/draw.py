"""Draws turns of a run by permanent random numbers: anyone draws the same ones of the same log."""

import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from memagent_batch.domain.addresses import ReadingAddress
from memagent_batch.files.errors import storage_errors, table_errors
from memagent_batch.files.location import Location
from memagent_batch.files.parquet import read_parquet
from memagent_batch.log.writer import TURNS_FOLDER

COLUMNS = ("document_hash", "question_hash", "sample", "reader_fingerprint", "path")
"""What names a turn."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class DrawnTurn:
    """A turn of the log, asked of the engine by some run."""

    document_hash: str
    question_hash: str
    sample: int
    reader_fingerprint: str
    path: str

    @property
    def address(self) -> ReadingAddress:
        """Where the log keeps it."""
        return ReadingAddress(
            document_hash=self.document_hash,
            question_hash=self.question_hash,
            sample=self.sample,
            reader_fingerprint=self.reader_fingerprint,
        )

    def number(self, seed: int) -> str:
        """Its permanent random number, hex."""
        address = [self.document_hash, self.question_hash, str(self.sample), self.reader_fingerprint, self.path]
        return sha256("|".join([str(seed), *address]).encode()).hexdigest()


def draw_turns(
    output: Location,
    names: Iterable[str],
    *,
    num: int,
    seed: int,
    document_hashes: Collection[str],
    fingerprints: Collection[str],
) -> Sequence[DrawnTurn]:
    """The turns with the smallest numbers; holds no more than these and one file's names.

    Args:
        output: The output.
        names: Files of the log, below the output.
        num: How many.
        seed: Another seed draws others.
        document_hashes: The documents of the run.
        fingerprints: Of the reader, and of what is asked after its answers.

    Raises:
        OutputError: a file can't be read.
        StorageError: the same, for a cause of its store.
    """
    drawn: dict[DrawnTurn, str] = {}
    for turns in _asked_turns(output, names, document_hashes=document_hashes, fingerprints=fingerprints):
        drawn |= {turn: turn.number(seed) for turn in turns}
        drawn = dict(heapq.nsmallest(num, drawn.items(), key=lambda item: item[1]))
    return list(drawn)


def _asked_turns(
    output: Location, names: Iterable[str], *, document_hashes: Collection[str], fingerprints: Collection[str]
) -> Iterator[set[DrawnTurn]]:
    """The turns that an engine was asked, file by file."""
    for name in sorted(name for name in names if name.startswith(f"{TURNS_FOLDER}/")):
        place = output / name
        with storage_errors(place.uri), table_errors(f"log file {place}", remedy="restore it", of_store=False):
            rows = read_parquet(place, columns=[*COLUMNS, "held_from"]).to_pylist()
        yield {
            DrawnTurn(**{column: row[column] for column in COLUMNS})
            for row in rows
            if row["document_hash"] in document_hashes and row["reader_fingerprint"] in fingerprints and _is_asked(row)
        }


def _is_asked(row: dict[str, Any]) -> bool:
    """Whether the engine was asked, and the turn not taken from an earlier version of its document."""
    return row.get("held_from") is None

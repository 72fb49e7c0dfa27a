"""What the turn log holds of a document before an actor reads it: its turns, and how its readings ended."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Self

from memagent_batch.domain.readings import Status
from memagent_batch.files.location import Location
from memagent_batch.log.index import ReadingKey, TurnIndex, read_outcomes, read_turns
from memagent_batch.log.schemas import OutcomeRow
from memagent_batch.reading.documents import PlannedDocument
from memagent_batch.reading.turns import LoggedTurns


class LookUp(StrEnum):
    """Where a reader looks for what the log holds of a document."""

    PLANNED = "planned"
    """In the files that the plan names; readings that have ended were left out by it."""
    ALL = "all"
    """In the whole log; no reading that has ended is read again."""
    ALL_BUT_FAILED = "all_but_failed"
    """The same, but readings that failed are read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldReadings:
    """Finds turns and outcomes by document; holds names of files, never texts."""

    output: Location | None
    """Where the log is; None where nothing is kept."""
    reader_fingerprint: str
    """Whose readings."""
    turn_files: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Turn files by document hash, beside those that a planned document names."""
    outcome_files: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Outcome files by document hash."""
    takes_failed: bool = True
    """Whether a reading that failed counts as one that has ended."""

    @classmethod
    def of_index(cls, index: TurnIndex, *, output: Location, takes_failed: bool) -> Self:
        """What a log holds by its index."""
        turn_files: dict[str, set[str]] = defaultdict(set)
        for (document_hash, _), files in index.turn_files.items():
            turn_files[document_hash].update(files)
        outcome_files: dict[str, set[str]] = defaultdict(set)
        for (document_hash, _, _), outcome in index.outcomes.items():
            outcome_files[document_hash].add(outcome.file)
        return cls(
            output=output,
            reader_fingerprint=index.reader_fingerprint,
            turn_files={name: sorted(files) for name, files in turn_files.items()},
            outcome_files={name: sorted(files) for name, files in outcome_files.items()},
            takes_failed=takes_failed,
        )

    async def turns(self, document: PlannedDocument) -> LoggedTurns:
        """Its turns by reading and path."""
        files = sorted({*document.turn_files, *self.turn_files.get(document.document_hash, ())})
        if not files or self.output is None:
            return {}
        read = partial(read_turns, reader_fingerprint=self.reader_fingerprint, document_hashes=[document.document_hash])
        return await asyncio.to_thread(read, self.output, files)

    async def outcomes(self, document: PlannedDocument) -> Mapping[ReadingKey, OutcomeRow]:
        """How its readings ended; none where a plan has left those out."""
        files = self.outcome_files.get(document.document_hash, ())
        if not files or self.output is None:
            return {}
        hashes = [document.document_hash]
        read = partial(read_outcomes, reader_fingerprint=self.reader_fingerprint, document_hashes=hashes)
        outcomes = await asyncio.to_thread(read, self.output, files)
        return {key: row for key, row in outcomes.items() if self.takes_failed or row["status"] != Status.FAILED}

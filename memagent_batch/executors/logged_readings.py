"""What the turn log holds of a document before an actor reads it: its turns, and how its readings ended."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import Self

from memagent_batch.domain.readings import Status
from memagent_batch.reading.documents import PlannedDocument
from memagent_batch.reading.turns import LoggedTurns
from memagent_batch.store.location import Location
from memagent_batch.store.turn_log.index import CurrentOutcome, ReadingKey, TurnIndex, read_follow_ups, read_outcomes
from memagent_batch.store.turn_log.rows import FollowUpRow
from memagent_batch.store.turn_log.turns import read_turns_of


class LookUp(StrEnum):
    """Where a reader looks for what the log holds of a document."""

    PLANNED = "planned"
    """In the files that the plan names; readings that have ended were left out by it."""
    ALL = "all"
    """In the whole log; no reading that has ended is read again."""
    ALL_BUT_FAILED = "all_but_failed"
    """The same, but readings that failed are read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedReadings:
    """Finds turns and outcomes by document; holds names of files, never texts."""

    output: Location | None
    """Where the log is; None where nothing is kept."""
    fingerprint: str
    turn_files: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Turn files by document hash, beside those that a planned document names."""
    outcome_files: Mapping[str, Sequence[str]] = field(default_factory=dict)
    follow_up_files: Mapping[str, Sequence[str]] = field(default_factory=dict)
    follow_up_turns: Sequence[str] = ()
    """Fingerprints under which the log keeps follow-up questions."""
    follow_up_readings: Sequence[str] = ()
    """Fingerprints under which it keeps what they brought."""
    takes_failed: bool = True
    """Whether a reading that failed counts as one that has ended, and a follow-up question as one that was asked."""

    @classmethod
    def of_index(
        cls, index: TurnIndex, *, output: Location, takes_failed: bool, follow_up_turns: Sequence[str] = ()
    ) -> Self:
        """What a log holds by its index."""
        turn_files: dict[str, set[str]] = defaultdict(set)
        for key in index.turn_files:
            turn_files[key[0]].update(index.files_of(key))
        outcome_files: dict[str, set[str]] = defaultdict(set)
        for (document_hash, _, _), outcome in index.outcomes.items():
            outcome_files[document_hash].add(outcome.file)
        follow_up_files: dict[str, set[str]] = defaultdict(set)
        for closed in index.follow_up_readings.values():
            for (document_hash, _, _), follow_ups in closed.items():
                follow_up_files[document_hash].add(follow_ups.file)
        return cls(
            output=output,
            fingerprint=index.fingerprint,
            turn_files={name: sorted(files) for name, files in turn_files.items()},
            outcome_files={name: sorted(files) for name, files in outcome_files.items()},
            follow_up_files={name: sorted(files) for name, files in follow_up_files.items()},
            follow_up_turns=follow_up_turns,
            follow_up_readings=sorted(index.follow_up_readings),
            takes_failed=takes_failed,
        )

    def joined(self, other: "LoggedReadings") -> Self:
        """With the files of another look into the same log."""
        return replace(
            self,
            turn_files=_joined(self.turn_files, other.turn_files),
            outcome_files=_joined(self.outcome_files, other.outcome_files),
            follow_up_files=_joined(self.follow_up_files, other.follow_up_files),
            follow_up_readings=sorted({*self.follow_up_readings, *other.follow_up_readings}),
        )

    async def turns(
        self, document: PlannedDocument, *, ended_by: Mapping[ReadingKey, str] = MappingProxyType({})
    ) -> Mapping[str, LoggedTurns]:
        """Its turns by fingerprint, reading and path, and those of its last versions.

        `ended_by`: run and writer that ended readings, so that these are replayed as they were read.
        """
        files = sorted({*document.turn_files, *self.turn_files.get(document.document_hash, ())})
        fingerprints = [self.fingerprint, *self.follow_up_turns]
        if not files or self.output is None:
            return {fingerprint: {} for fingerprint in fingerprints}
        hashes = [document.document_hash, *document.last_hashes]
        ends = {(self.fingerprint, key): line for key, line in ended_by.items()}
        read = partial(read_turns_of, fingerprints=fingerprints, document_hashes=hashes, ended_by=ends)
        return await asyncio.to_thread(read, self.output, files)

    async def closed(self, document: PlannedDocument) -> Mapping[str, Mapping[ReadingKey, FollowUpRow]]:
        """What its follow-up questions brought, by fingerprint and reading; nothing where a plan has left that out."""
        files = self.follow_up_files.get(document.document_hash, ())
        if not files or self.output is None:
            return {}
        read = partial(read_follow_ups, fingerprints=self.follow_up_readings, document_hashes=[document.document_hash])
        found = await asyncio.to_thread(read, self.output, files)
        return {
            name: {key: row for key, row in rows.items() if self.takes_failed or not row["is_failed"]}
            for name, rows in found.items()
        }

    async def outcomes(self, document: PlannedDocument) -> Mapping[ReadingKey, CurrentOutcome]:
        """How its readings ended; none where a plan has left those out."""
        files = self.outcome_files.get(document.document_hash, ())
        if not files or self.output is None:
            return {}
        hashes = [document.document_hash]
        read = partial(read_outcomes, fingerprint=self.fingerprint, document_hashes=hashes)
        outcomes = await asyncio.to_thread(read, self.output, files)
        return {key: row for key, row in outcomes.items() if self.takes_failed or row["status"] != Status.FAILED}


def _joined(first: Mapping[str, Sequence[str]], second: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
    return {**first, **{key: sorted({*files, *first.get(key, ())}) for key, files in second.items()}}

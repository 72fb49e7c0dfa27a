"""The typed values that a past run had, from the log of closings."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from memagent_batch.log.files import ReadingKey
from memagent_batch.log.index import LoggedOutcome, read_closings, scan_closings
from memagent_batch.log.question_list import CLOSING_FINGERPRINT
from memagent_batch.log.schemas import ClosingRow
from memagent_batch.runs.history.history import PastRun

ClosedPlace = tuple[str, ReadingKey]
"""Where a log has what was asked after an answer: fingerprint and reading."""
COLUMNS = ("value", "value_status")
"""Columns of `CLOSING_LOG` that say what a value is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenValue:
    """What `answers` shows of the value of a reading; empty where there is none."""

    value: str | None = None
    """The value as JSON."""
    value_status: str | None = None
    """What became of it."""


NO_VALUE = GivenValue()


class PastValues:
    """What was asked after the answers of a finished run, and the values that it brought up to that run."""

    def __init__(self, run: PastRun) -> None:
        """Takes the run; nothing of its log is read."""
        self._run = run
        has_closings = CLOSING_FINGERPRINT in run.questions.schema.names
        self.fingerprints: list[str | None] = (
            run.questions[CLOSING_FINGERPRINT].to_pylist() if has_closings else [None] * run.questions.num_rows
        )
        """The fingerprint of what closes the readings of each question; None if nothing does."""
        self._files: Mapping[str, Mapping[ReadingKey, LoggedOutcome]] = {}

    def index(self, fingerprints: Collection[str]) -> None:
        """Finds the log files that hold what was asked under these fingerprints."""
        if fingerprints:
            self._files = scan_closings(self._run.output, fingerprints=fingerprints, until=self._run.run_id)

    def closed_since(self, run_id: str) -> set[str]:
        """Hashes of documents with readings that were closed after that run, and up to this one."""
        every = {each for each in self.fingerprints if each}
        if not every:
            return set()
        found = scan_closings(self._run.output, fingerprints=every, after=run_id, until=self._run.run_id)
        return {key[0] for keys in found.values() for key in keys}

    def values(self, places: Iterable[ClosedPlace]) -> dict[ClosedPlace, GivenValue]:
        """The values at these places, where the log has what was asked there."""
        files: dict[str, list[ReadingKey]] = defaultdict(list)
        wanted: set[str] = set()
        for fingerprint, key in places:
            logged = self._files.get(fingerprint, {}).get(key)
            if logged is not None:
                files[logged.file].append(key)
                wanted.add(fingerprint)
        hashes = sorted({key[0] for keys in files.values() for key in keys})
        found = read_closings(
            self._run.output, sorted(files), fingerprints=wanted, document_hashes=hashes, columns=COLUMNS
        )
        return {(fingerprint, key): _given(row) for fingerprint, rows in found.items() for key, row in rows.items()}


def _given(row: ClosingRow) -> GivenValue:
    return GivenValue(value=row["value"], value_status=row["value_status"])

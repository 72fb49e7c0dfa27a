"""A finished run, for a program: its tables, its manifest, and what differs from another one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Self

import pyarrow as pa

from memagent_batch.apps.pages.readings import doubt_of, stream_readings
from memagent_batch.config.storage import Options, StorageOptions
from memagent_batch.data.store.errors import output_errors
from memagent_batch.data.store.location import Location, absolute
from memagent_batch.errors import OutputError
from memagent_batch.run.accepted_unread import accepted_reason
from memagent_batch.run.comparison import DIFFERENCES, compare_runs
from memagent_batch.run.history import PastRun, find_run, finished_runs, open_run
from memagent_batch.run.tables import (
    ANSWERS,
    ANSWERS_TABLE,
    EVIDENCE,
    EVIDENCE_TABLE,
    LATEST,
    MEMORIES_TABLE,
    READING_COLUMNS,
    RESULTS_TABLE,
)

DOUBTS = pa.schema([*(ANSWERS.field(name) for name in READING_COLUMNS), pa.field("doubt", pa.string())])
"""Readings that need a look, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run whose counts have closed. Its tables can be read for `record.keep_days`."""

    output: str
    """Where it wrote: a folder or URI."""
    run_id: str
    manifest: Mapping[str, Any] = field(repr=False)
    """What it closed with: counts, changes, settings, versions."""
    storage_options: StorageOptions = field(default_factory=StorageOptions, repr=False)

    @classmethod
    def at(cls, output: str | PathLike[str], run_id: str = LATEST, *, storage_options: Options | None = None) -> Self:
        """A finished run of an output: by its id, `latest`, or `previous`.

        Raises:
            OutputError: there is no such run, or the output can't be reached.
        """
        options = StorageOptions(storage_options)
        place = Location(uri=absolute(output), storage_options=options)
        past = find_run(place, run_id)
        return cls(output=place.uri, run_id=past.run_id, manifest=past.manifest, storage_options=options)

    def answers(self) -> pa.Table:
        """The table `answers`: one row for each reading that was asked for.

        Raises:
            OutputError: files of that version were vacuumed.
        """
        return self._past().read(ANSWERS_TABLE)

    def memories(self) -> pa.Table:
        """The table `memories`: one row for each turn.

        Raises:
            OutputError: files of that version were vacuumed.
        """
        return self._past().read(MEMORIES_TABLE)

    def evidence(self) -> pa.Table:
        """The table `evidence`: the sentences that answers rest on; without rows where `follow_ups.evidence` was off.

        Raises:
            OutputError: files of that version were vacuumed.
        """
        past = self._past()
        has_evidence = EVIDENCE_TABLE in past.manifest["table_versions"]
        return past.read(EVIDENCE_TABLE) if has_evidence else EVIDENCE.empty_table()

    def doubts(self) -> pa.Table:
        """The readings that a person should look at, each with the reason as pages say it in the column `doubt`.

        Answers that have changed since the run before are not among them, nor does it know of sign-offs.

        Raises:
            OutputError: files of that version were vacuumed.
        """
        past, rows = self._past(), []
        for reading in stream_readings(past, with_turns=False):
            is_accepted = accepted_reason(reading.answer, past.manifest) is not None
            if doubt := doubt_of(reading.answer, reading.evidence, is_accepted=is_accepted):
                rows.append({**reading.answer, "doubt": doubt})
        return pa.Table.from_pylist(rows, schema=DOUBTS)

    def results(self) -> pa.Table:
        """The table `results`: one row for each document, one typed column for each question.

        Raises:
            OutputError: no question asked for a type, or files of that version were vacuumed.
        """
        return self._past().read(RESULTS_TABLE)

    def diff(self, before: "Run | None" = None) -> pa.Table:
        """The readings in which this run differs from an earlier one, as `memagent diff` shows them.

        Args:
            before: The other run, of this output or of another; by default the finished run before this one.

        Raises:
            OutputError: there is no run before this one, or table files of one of them are gone.
        """
        if before is not None:
            earlier = before._past()
        else:
            with output_errors(self.output):
                runs = finished_runs(self._place)
            if runs[0] == self.run_id:
                raise OutputError(
                    f"output: run {self.run_id} is the first one at {self.output}; give a run to compare with"
                )
            earlier = open_run(self._place, runs[runs.index(self.run_id) - 1])
        return pa.concat_tables([DIFFERENCES.empty_table(), *compare_runs(earlier, self._past())])

    @property
    def _place(self) -> Location:
        return Location(uri=self.output, storage_options=self.storage_options)

    def _past(self) -> PastRun:
        with output_errors(self.output):
            return open_run(self._place, self.run_id)

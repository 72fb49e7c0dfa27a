"""What the second reader of a run has read, and which of its answers stand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.domain.escalation import Doubt
from memagent_batch.domain.readings import Status
from memagent_batch.files.location import Location
from memagent_batch.log.index import LoggedOutcome, TurnIndex
from memagent_batch.runs.bounds import Spent
from memagent_batch.runs.escalation.doubtful import has_ended, reading_keys
from memagent_batch.runs.planning.plan import Plan
from memagent_batch.runs.planning.work import Work
from memagent_batch.runs.tables.part_report import PartReport
from memagent_batch.runs.tables.table_files import read_tables

_KEPT_COLUMNS = ("document_id", "question_id", "sample", "escalation_error")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondLook:
    """What the second reader has read."""

    plan: Plan
    """All readings, as it takes them."""
    index: TurnIndex
    """What the log holds of them."""
    doubtful: Mapping[Work, Doubt]
    """Those that are doubtful, which alone it reads."""
    not_read: pa.Table
    """Those that could not be read now, as rows of `OUTCOME_LOG`."""
    spent: Spent
    """What the turns of both readers have taken in this run."""

    def answered(self) -> dict[Work, LoggedOutcome]:
        """How the readings ended that it answered; see `first_kept`."""
        unread = reading_keys(self.not_read)
        found = {}
        for reading in self.plan.addressed():
            is_read = reading.work in self.doubtful and has_ended(reading, self.index, is_unread=reading.key in unread)
            if is_read and self.index.outcomes[reading.key].status == Status.OK:
                found[reading.work] = self.index.outcomes[reading.key]
        return found


def first_kept(output: Location, reports: Sequence[PartReport]) -> frozenset[tuple[str, str, int]]:
    """Doubtful readings whose first answer stands in the tables, by document_id, question_id and sample."""
    found: set[tuple[str, str, int]] = set()
    for report in reports:
        if report["escalated"]:
            rows = read_tables(output, [report["answers_file"]], columns=_KEPT_COLUMNS)
            rows = rows.filter(pc.is_valid(rows["escalation_error"]))
            found.update(zip(*(rows[name].to_pylist() for name in _KEPT_COLUMNS[:3]), strict=True))
    return frozenset(found)

"""`memagent diff`: the answers in which two finished runs differ. Reads records and logs."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from memagent_batch.cli.screen import cut
from memagent_batch.cli.settings import OutputCommand
from memagent_batch.pages.readings import causes_of, values_of_both
from memagent_batch.runs.comparison import AnswerChange, DifferenceRow, compare_runs
from memagent_batch.runs.history import LATEST, PREVIOUS, PastRun, find_run

TEXT_WIDTH = 200
"""Characters of an answer or question on the screen; --json has all of it."""
SHOWN_ITEMS = 200
"""Changed answers, new documents and documents that are gone on the screen, each; --json has all of them."""
TITLES = {AnswerChange.CHANGED: "CHANGED ANSWERS", AnswerChange.ADDED: "NEW", AnswerChange.REMOVED: "GONE"}


class Diff(OutputCommand):
    """Shows the answers in which two finished runs differ: how many, then each changed answer, old and new, with the
    reason, then new documents and those that are gone. A question is the same by its question_id, a document by its
    document_id. --json has all rows, with both memories.
    """

    command = "memagent diff"
    examples = ("memagent diff out/", "memagent diff out-before/ out-after/ --json")
    words = ("output", "other")

    other: str | None = None
    """A second output: its latest run is compared with the latest one of the first."""
    before: str | None = None
    """Run of the first output: RUN_ID, latest or previous (default: previous; latest if there is a second output)."""
    after: str = LATEST
    """Run that it is compared with: RUN_ID, latest or previous."""
    document: str | None = None
    """Only readings of this document_id."""
    question: str | None = None
    """Only readings of this question_id."""
    as_json: bool = Field(default=False, alias="json")
    """Print each row as a JSON object on its own line."""

    def run(self) -> None:
        before = find_run(self.location, self.before or (LATEST if self.other else PREVIOUS))
        after = find_run(self.locate(self.other or self.output), self.after)
        counts: Counter[str] = Counter()
        tables = self._chosen(compare_runs(before, after), counts)
        rows = (row for table in tables for row in table.to_pylist())
        if self.as_json:
            for row in rows:
                print(json.dumps(row, ensure_ascii=False))
            return
        shown = _shown(rows)
        print("\n".join([*_summary_lines(before, after, counts), *shown]))

    def _chosen(self, tables: Iterable[pa.Table], counts: Counter[str]) -> Iterator[pa.Table]:
        """The rows that are asked for; counts them by their change."""
        for table in tables:
            for name, value in (("document_id", self.document), ("question_id", self.question)):
                if value is not None:
                    table = table.filter(pc.equal(table[name], value))
            counts.update(table["change"].to_pylist())
            yield table


def _shown(rows: Iterable[DifferenceRow]) -> list[str]:
    """What the screen shows of the rows: changed answers one by one, others by document."""
    counts: Counter[AnswerChange] = Counter()
    sections: dict[AnswerChange, list[str]] = {change: [] for change in TITLES}
    last: dict[AnswerChange, str] = {}
    for row in rows:
        change, document_id = AnswerChange(row["change"]), row["document_id"]
        if change != AnswerChange.CHANGED and last.get(change) == document_id:
            continue
        last[change] = document_id
        counts[change] += 1
        if counts[change] <= SHOWN_ITEMS:
            sections[change] += _item_lines(row, change)
    lines = []
    for change, title in TITLES.items():
        more = counts[change] - SHOWN_ITEMS
        lines += ["", title, *sections[change]] if counts[change] else []
        lines += [f"  and {more:,} more: --json shows them"] if more > 0 else []
    return lines


def _item_lines(row: DifferenceRow, change: AnswerChange) -> list[str]:
    name, why = cut(row["document_id"], TEXT_WIDTH), causes_of(change, row["why"])
    if change != AnswerChange.CHANGED:
        return [f"  {name}: {why}"]
    sample = f" (sample {row['sample']})" if row["sample"] else ""
    question = cut(row["question_after"] or row["question_id"], TEXT_WIDTH)
    values = values_of_both(row) or (None, None)
    before = values[0] or _answer_of(row["status_before"], row["answer_before"], error=row["error_message_before"])
    after = values[1] or _answer_of(row["status_after"], row["answer_after"], error=row["error_message_after"])
    return [
        f"  {name}: {question}{sample}",
        f"    before: {cut(before, TEXT_WIDTH)}",
        f"    now:    {cut(after, TEXT_WIDTH)}",
        f"    {why}",
    ]


def _answer_of(status: str | None, answer: str | None, *, error: str | None) -> str:
    """The answer of one run in a few words."""
    if status is None:
        return "(not asked)"
    if status == "not_read":
        return "(not read)"
    if answer is None:
        return f"({status}, no answer)" if error is None else f"({error})"
    return answer


def _summary_lines(before: PastRun, after: PastRun, counts: Counter[str]) -> list[str]:
    asked_before, asked_after = (run.manifest["counts"]["asked"] for run in (before, after))
    return [
        f"{counts[AnswerChange.CHANGED]:,} answers changed, {counts[AnswerChange.ADDED]:,} are new, "
        f"{counts[AnswerChange.REMOVED]:,} are gone; "
        f"{asked_before:,} were asked for before, {asked_after:,} now",
        f"run {after.run_id}, compared with {before.run_id}",
    ]

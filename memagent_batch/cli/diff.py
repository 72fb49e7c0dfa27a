"""`memagent diff`: the answers in which two finished runs differ, with both memories. Reads records and logs."""

import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import Field

from memagent_batch.cli.screen import cut
from memagent_batch.cli.settings import OutputCommand
from memagent_batch.errors import SettingsError
from memagent_batch.pages.readings import values_of_both
from memagent_batch.runs.comparison import DIFFERENCES, AnswerChange, DifferenceRow, compare_runs
from memagent_batch.runs.history import LATEST, PREVIOUS, PastRun, find_run

WIDTHS = {"document": 28, "question": 16, "why": 30, "before": 32, "after": 32}
"""Characters of each column on the screen."""
TEXT_WIDTH = 120
"""Characters of a question or memory on the screen; --json and --to have all of it."""


class Diff(OutputCommand):
    """Shows the answers in which two finished runs differ: rows whose answer, value, status or presence
    differs, why, and both memories. A question is the same by its question_id, a document by its document_id.
    """

    command = "memagent diff"
    examples = ("memagent diff out/", "memagent diff out-before/ out-after/ --to changes.parquet")
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
    to: str | None = None
    """Write the rows to this file, which ends in .parquet, and print only how many."""

    def run(self) -> None:
        if self.to and not self.to.endswith(".parquet"):
            raise SettingsError(f"--to: {self.to} does not end in .parquet, the one format that is written; rename it")
        before = find_run(self.location, self.before or (LATEST if self.other else PREVIOUS))
        after = find_run(self.locate(self.other or self.output), self.after)
        counts: Counter[str] = Counter()
        tables = self._chosen(compare_runs(before, after), counts)
        rows = (row for table in tables for row in table.to_pylist())
        if self.to:
            self.locate(self.to).write_bytes(_parquet(tables))
        elif self.as_json:
            for row in rows:
                print(json.dumps(row, ensure_ascii=False))
            return
        else:
            print(_cells_line({name: name for name in WIDTHS}))
            for row in rows:
                print("\n".join(_row_lines(row)))
        summary = _change_summary(before, after, counts)
        print(json.dumps(summary) if self.as_json else _summary_sentence(summary))

    def _chosen(self, tables: Iterable[pa.Table], counts: Counter[str]) -> Iterator[pa.Table]:
        """The rows that are asked for; counts them by their change."""
        for table in tables:
            for name, value in (("document_id", self.document), ("question_id", self.question)):
                if value is not None:
                    table = table.filter(pc.equal(table[name], value))
            counts.update(table["change"].to_pylist())
            yield table


def _parquet(tables: Iterable[pa.Table]) -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, DIFFERENCES, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table)
    return sink.getvalue()


def _row_lines(row: DifferenceRow) -> Iterator[str]:
    """A row of `DIFFERENCES` for the screen: one line of cells, and its texts below."""
    yield _cells_line(
        {
            "document": row["document_id"],
            "question": f"{row['question_id']} #{row['sample']}" if row["sample"] else row["question_id"],
            "why": f"{row['change']}: {', '.join(row['why'])}",
            "before": _answer_of(row["status_before"], row["answer_before"], error=row["error_message_before"]),
            "after": _answer_of(row["status_after"], row["answer_after"], error=row["error_message_after"]),
        }
    )
    questions, values = (row["question_before"], row["question_after"]), values_of_both(row)
    texts = {
        "value": values and tuple(value or "(none)" for value in values),
        "question": questions if questions[0] != questions[1] else None,
        "memory": (row["memory_before"], row["memory_after"]),
    }
    for name, pair in texts.items():
        for when, text in zip(("before", "after"), pair or (), strict=False):
            if text:
                yield f"    {name} {when}: {cut(text, TEXT_WIDTH)}"


def _cells_line(cells: dict[str, str]) -> str:
    return " ".join(f"{cut(cells[name], width):<{width}}" for name, width in WIDTHS.items()).rstrip()


def _answer_of(status: str | None, answer: str | None, *, error: str | None) -> str:
    """The answer of one run in a few words."""
    if status is None:
        return "(not asked)"
    if status == "not_read":
        return "(not read)"
    if answer is None:
        return f"({status}, no answer)" if error is None else f"({error})"
    return answer


def _change_summary(before: PastRun, after: PastRun, counts: Counter[str]) -> dict[str, str | int]:
    return {
        "before": before.run_id,
        "after": after.run_id,
        "asked_before": before.manifest["counts"]["asked"],
        "asked_after": after.manifest["counts"]["asked"],
        **{change.value: counts[change] for change in AnswerChange},
    }


def _summary_sentence(summary: dict[str, str | int]) -> str:
    return (
        f"{summary['before']} -> {summary['after']}: {summary['changed']} changed, {summary['added']} added, "
        f"{summary['removed']} removed, of {summary['asked_before']} -> {summary['asked_after']} readings"
    )

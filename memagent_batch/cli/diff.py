"""`memagent diff`: the answers in which two finished runs differ. Reads records and tables."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import pyarrow as pa
from pydantic import Field

from memagent_batch.apps.pages.readings import causes_of, values_of_both
from memagent_batch.cli.screen import cut
from memagent_batch.cli.settings import OutputsCommand
from memagent_batch.data.store.errors import output_errors
from memagent_batch.data.store.location import Location
from memagent_batch.errors import SettingsError
from memagent_batch.loop.texts.shares import quantity
from memagent_batch.run.comparison import AnswerChange, Cause, DifferenceRow, changed_documents, compare_runs
from memagent_batch.run.history import PREVIOUS, PastRun, find_run, read_manifest
from memagent_batch.run.tables import LATEST

TEXT_WIDTH = 200
"""Characters of an answer or question on the screen; --json has all of it."""
SHOWN_ITEMS = 200
"""Changed answers, new documents, those that are gone, and changed texts on the screen, each."""
UNSEEN_TITLE = "CHANGED TEXTS WITH THE SAME ANSWERS"
TITLES = {AnswerChange.CHANGED: "CHANGED ANSWERS", AnswerChange.ADDED: "NEW", AnswerChange.REMOVED: "GONE"}


class Diff(OutputsCommand):
    """Shows how the answers of two finished runs differ, by the ids of documents and questions. With two outputs, the
    latest run of each is compared.
    """

    command = "memagent diff"
    examples = ("memagent diff out/", "memagent diff out-before/ out-after/ --json")

    before: str | None = None
    """Run of the first output: RUN_ID, latest or previous (default: previous, or latest if there is a second
    output)."""
    after: str = LATEST
    """Run to compare it with: RUN_ID, latest or previous."""
    as_json: bool = Field(default=False, alias="json")
    """Print each row as a JSON object on its own line, with both memories."""

    def run(self) -> None:
        of_slice: dict[str, list[Location]] = defaultdict(list)
        for output in self.locations:
            of_slice[_slice_of(output)].append(output)
        pairs = [self._pair(outputs) for outputs in of_slice.values()]
        counts: Counter[str] = Counter()
        differences = chain.from_iterable(compare_runs(before, after) for before, after in pairs)
        rows = (row for table in _counted(differences, counts) for row in table.to_pylist())
        if self.as_json:
            for row in rows:
                print(json.dumps(row, ensure_ascii=False))
            return
        shown, others = _shown(rows)
        texts = chain.from_iterable(changed_documents(before, after) for before, after in pairs)
        unseen = [f"  {cut(name, TEXT_WIDTH)}" for name in texts if name not in others]
        if unseen:
            more = [f"  and {len(unseen) - SHOWN_ITEMS:,} more"] if len(unseen) > SHOWN_ITEMS else []
            shown += ["", UNSEEN_TITLE, *unseen[:SHOWN_ITEMS], *more]
        print("\n".join([*_summary_lines(pairs, counts), *shown]))

    def _pair(self, outputs: Sequence[Location]) -> tuple[PastRun, PastRun]:
        """The runs that are compared of one output, or of two of the same documents."""
        if len(outputs) > 2:
            raise SettingsError(f"OUTPUT: {', '.join(map(str, outputs))} are of the same documents; name two of them")
        before = find_run(outputs[0], self.before or (LATEST if len(outputs) > 1 else PREVIOUS))
        return before, find_run(outputs[-1], self.after)


def _counted(tables: Iterable[pa.Table], counts: Counter[str]) -> Iterator[pa.Table]:
    for table in tables:
        counts.update(table["change"].to_pylist())
        yield table


def _shown(rows: Iterable[DifferenceRow]) -> tuple[list[str], set[str]]:
    """What the screen shows of the rows: changed answers and those to new questions one by one, others by document.

    Returns the documents with changed answers, too.
    """
    counts: Counter[AnswerChange] = Counter()
    sections: dict[AnswerChange, list[str]] = {change: [] for change in TITLES}
    last: dict[AnswerChange, str] = {}
    others: set[str] = set()
    for row in rows:
        change, document_id = AnswerChange(row["change"]), row["document_id"]
        others |= {document_id} if change == AnswerChange.CHANGED else set()
        if not _is_shown_alone(row) and last.get(change) == document_id:
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
    return lines, others


def _is_shown_alone(row: DifferenceRow) -> bool:
    is_new_question = row["change"] == AnswerChange.ADDED and row["why"] == [Cause.QUESTION]
    return row["change"] == AnswerChange.CHANGED or is_new_question


def _item_lines(row: DifferenceRow, change: AnswerChange) -> list[str]:
    name, why = cut(row["document_id"], TEXT_WIDTH), causes_of(change, row["why"])
    if not _is_shown_alone(row):
        return [f"  {name}: {why}"]
    sample = f", sample {row['sample']}" if row["sample"] else ""
    question = cut(row["question_after"] or row["question_id"], TEXT_WIDTH)
    values = values_of_both(row) or (None, None)
    before = values[0] or _answer_of(row["status_before"], row["answer_before"], error=row["error_message_before"])
    after = values[1] or _answer_of(row["status_after"], row["answer_after"], error=row["error_message_after"])
    return [
        f"  {name}: {question} ({row['question_id']}{sample})",
        *([f"    before: {cut(before, TEXT_WIDTH)}"] if change == AnswerChange.CHANGED else []),
        f"    now:    {cut(after, TEXT_WIDTH)}",
        f"    {why}",
    ]


def _answer_of(status: str | None, answer: str | None, *, error: str | None) -> str:
    if status is None:
        return "(not asked)"
    if status == "not_read":
        return "(not read)"
    if answer is None:
        return f"({status}, no answer)" if error is None else f"({error})"
    return answer


def _slice_of(output: Location) -> str:
    """The slice of the documents that an output is of; empty for all of them."""
    with output_errors(output.uri):
        manifest = read_manifest(output)
    return (manifest["settings"]["input"].get("slice") if manifest else None) or ""


def _summary_lines(pairs: Sequence[tuple[PastRun, PastRun]], counts: Counter[str]) -> Iterator[str]:
    asked_before, asked_after = (sum(pair[side].manifest["counts"]["asked"] for pair in pairs) for side in (0, 1))
    yield (
        f"{quantity(counts[AnswerChange.CHANGED], 'answer')} changed, {counts[AnswerChange.ADDED]:,} new, "
        f"{counts[AnswerChange.REMOVED]:,} gone; "
        f"{asked_before:,} asked for before, {asked_after:,} now"
    )
    yield from (f"run {after.run_id}, compared with {before.run_id}" for before, after in pairs)

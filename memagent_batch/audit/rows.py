"""Projects the tables of the last run again from its log, part by part, and compares them with what is there."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.audit.files import FileReport, Finding, FindingKind, Unchecked
from memagent_batch.domain.readings import Status
from memagent_batch.errors import OutputError
from memagent_batch.runs.document_texts import DocumentTexts
from memagent_batch.runs.history import PastRun
from memagent_batch.runs.manifest import MANIFEST_FILE, PartReport
from memagent_batch.runs.projection import PartTables, Projection, project
from memagent_batch.runs.reading_state import rows_of, with_log_files
from memagent_batch.runs.record import record_file
from memagent_batch.runs.tables import READING_COLUMNS, read_tables
from memagent_batch.store.turn_log.index import LogIndex, scan_log
from memagent_batch.store.turn_log.question_list import with_asked
from memagent_batch.store.turn_log.rows import OUTCOME_LOG, EndedTurns, OutcomeRow

SHOWN_ROWS = 5
"""Rows of a file that are named; the others are counted."""
Key = tuple[Any, ...]

KEYS = {
    "answers_file": READING_COLUMNS,
    "memories_file": (*READING_COLUMNS, "turn"),
    "evidence_file": (*READING_COLUMNS, "how", "rank"),
    "results_file": ("document_id",),
}
"""Columns that name a row, by the field of a part that names its file."""
OF_UNREADABLE = ("run_id", "finished_at")
"""Columns of a reading whose document can't be read: the log has nothing of it, and the run itself says when."""
OF_TEXT = ("locator",)
"""Columns of a turn that say where its chunk stood in the document's source."""
OUTCOME_COLUMNS = [name for name in OUTCOME_LOG.names if name not in EndedTurns.__annotations__]
"""Columns that `answers` has of an outcome."""
HiddenColumns = tuple[Sequence[str], Sequence[str]]
"""Columns, and the documents for which they are not compared."""


def row_differences(expected: pa.Table, actual: pa.Table, *, keys: Sequence[str]) -> list[str]:
    """What is other in a table than it should be, one line each."""
    lines = list(_other_columns(expected, actual))
    shared = [name for name in expected.schema.names if name in actual.schema.names]
    expected, actual = (table.select(shared).combine_chunks() for table in (expected, actual))
    is_same = expected.num_rows == actual.num_rows and all(
        one.equals(other) for one, other in zip(expected.columns, actual.columns, strict=True)
    )
    if is_same or not set(keys) <= set(shared):
        return lines
    rows = list(_other_rows(expected.to_pylist(), actual.to_pylist(), keys))
    shown = rows[:SHOWN_ROWS]
    return [*lines, *shown, *([f"and {len(rows) - len(shown):,} more"] if len(rows) > len(shown) else [])]


def _other_columns(expected: pa.Table, actual: pa.Table) -> Iterator[str]:
    there, wanted = ({field.name: field.type for field in table.schema} for table in (actual, expected))
    for name in wanted.keys() - there.keys():
        yield f"it has no column {name!r}"
    for name in there.keys() - wanted.keys():
        yield f"it has a column {name!r} that no row should have"
    for name in wanted.keys() & there.keys():
        if wanted[name] != there[name]:
            yield f"its column {name!r} is {there[name]}, not {wanted[name]}"


def _other_rows(expected: Sequence[Mapping[str, Any]], actual: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> Any:
    wanted = {_row_key(row, keys): row for row in expected}
    there = {_row_key(row, keys): row for row in actual}
    twice = [key for key, count in Counter(_row_key(row, keys) for row in actual).items() if count > 1]
    yield from (f"{_row_name(key, keys)}: its row is there twice" for key in twice)
    yield from (f"{_row_name(key, keys)}: its row is not there" for key in wanted if key not in there)
    yield from (f"{_row_name(key, keys)}: its row does not follow from the log" for key in there if key not in wanted)
    is_moved = True
    for key, row in wanted.items():
        other = [name for name in row if key in there and not _is_same(row[name], there[key][name])]
        if other:
            is_moved = False
            verb = "is" if len(other) == 1 else "are"
            yield f"{_row_name(key, keys)}: {', '.join(other)} {verb} not what the log says"
    if is_moved and not twice and wanted.keys() == there.keys() and list(wanted) != list(there):
        yield "its rows are in another order"


def _is_same(one: Any, other: Any) -> bool:
    return bool(one == other) or (one != one and other != other)


def _row_key(row: Mapping[str, Any], keys: Sequence[str]) -> Key:
    return tuple(row[name] for name in keys)


def _row_name(key: Key, keys: Sequence[str]) -> str:
    values = (repr(value) if isinstance(value, str) else str(value) for value in key)
    return ", ".join(f"{name} {value}" for name, value in zip(keys, values, strict=True))


@dataclass(slots=True, kw_only=True)
class RowCheck:
    """Compares the tables of a run with its log. Mutable: notes the documents that it has seen."""

    past: PastRun
    projection: Projection
    log: Collection[str]
    """Files of the log that they rest on, below the output."""
    texts: DocumentTexts | None
    """Texts of the documents, for evidence; None where they are not to be had."""
    wrong: Collection[str] = ()
    """Files that are not as they were recorded: what follows from that in other files is not reported."""
    num_rows: int = 0
    _num_without_text: int = 0
    """Documents whose texts could not be compared."""

    def reports(self) -> Iterator[FileReport]:
        """What does not follow from the log."""
        plan = with_log_files(self.past.plan, self.past.questions, self._index())
        rows = {name: row for row, name in enumerate(self.past.plan["document_id"].to_pylist())}
        seen: set[int] = set()
        is_whole = not any(self._is_wrong(part) for part in self.past.manifest["parts"])
        for part in self.past.manifest["parts"]:
            try:
                documents = self._documents(part, rows)
            except OutputError as error:
                is_whole = False
                if not self._is_wrong(part):
                    yield Finding(kind=FindingKind.ROWS, where=part["answers_file"], what=str(error))
                continue
            reports = [
                *_twice(part, documents, seen),
                *self._of_part(part, documents, rows=rows, plan=plan),
            ]
            seen.update(documents)
            yield from (each for each in reports if self._is_own(each, part))
        if is_whole:  # else nobody knows what the damaged part had
            yield from self._unseen(seen)
        if self._num_without_text:
            why = "their texts are gone or have changed, can't be fetched now, or could not be when the run wrote it"
            yield Unchecked(what=f"evidence and locators of {self._num_without_text:,} documents", why=why)

    def _of_part(
        self, part: PartReport, documents: Sequence[int], *, rows: Mapping[str, int], plan: pa.Table
    ) -> Iterator[FileReport]:
        planned = self._part(documents, plan)
        gone: list[str] = []
        if self._needs_texts:  # documents whose texts are not there
            is_gone = pc.and_(pc.is_null(planned["path"]), pc.is_null(planned["error"]))
            gone = planned.filter(is_gone)["document_id"].to_pylist()
        there = sorted(set(documents) - {rows[name] for name in gone})
        readable = self._part(there, plan) if gone else planned
        yield from self._compared(part, planned, readable=readable, gone=gone)

    def _is_own(self, report: FileReport, part: PartReport) -> bool:
        """Whether a report is not a mere consequence of what is wrong with another file of its part."""
        return isinstance(report, Unchecked) or report.where in self.wrong or not self._is_wrong(part)

    def _is_wrong(self, part: PartReport) -> bool:
        return any(part[name] in self.wrong for name in KEYS)  # type: ignore[literal-required]

    def _documents(self, part: PartReport, rows: Mapping[str, int]) -> list[int]:
        files = [name for name in (part["answers_file"], part["results_file"]) if name]
        tables = [_valid(read_tables(self.past.output, [name]), columns=["document_id"]) for name in files]
        named = [table["document_id"].to_pylist() for table in tables]
        return sorted({rows[name] for names in named for name in names if name in rows})

    def _index(self) -> LogIndex:
        follow_up_readings = self.projection.follow_up_readings
        return scan_log(
            self.past.output,
            fingerprint=self.projection.fingerprint,
            follow_up_readings=list(follow_up_readings),
            follow_up_turns=sorted({turns for of_kind in follow_up_readings.values() for turns in of_kind}),
            among={(self.past.output / name).path for name in self.log},
        )

    def _part(self, documents: Sequence[int], plan: pa.Table) -> pa.Table:
        """The part of the plan, with its log files, as `plan_parts` makes it."""
        part = rows_of(plan, np.asarray(documents, np.int64))
        if self.texts is not None:
            found = self.texts.places(part["document_id"].to_pylist())
            for name in found.schema.names:
                if name not in part.schema.names:
                    part = part.append_column(name, found[name])
        return with_asked(part, self.past.questions).combine_chunks()

    def _compared(
        self, part: PartReport, planned: pa.Table, *, readable: pa.Table, gone: Sequence[str]
    ) -> Iterator[FileReport]:
        """What is other in the files of a part; `readable` is it without documents whose texts are `gone`."""
        try:
            answers = _valid(read_tables(self.past.output, [part["answers_file"]]), columns=OUTCOME_COLUMNS)
            made = self._projected(planned, answers, readable=readable)
        except OutputError as error:
            yield Finding(kind=FindingKind.ROWS, where=part["answers_file"], what=str(error))
            return
        more = len(made.missing) - SHOWN_ROWS
        lines = [f"{missing}: the log holds no outcome" for missing in made.missing[:SHOWN_ROWS]]
        for what in [*lines, *([f"and {more:,} more readings without an outcome"] if more > 0 else [])]:
            yield Finding(kind=FindingKind.ROWS, where=part["answers_file"], what=what)
        names = planned["document_id"].to_pylist()
        if self._needs_texts and (part["key"] is None or not made.is_whole):  # a text could not be fetched then, or now
            gone = names
        self._num_without_text += len(gone)
        unreadable: list[str] = planned.filter(pc.is_valid(planned["error"]))["document_id"].to_pylist()
        located = names if gone or self.texts is None else []
        hidden = {"answers_file": (OF_UNREADABLE, unreadable), "memories_file": (OF_TEXT, located)}
        yield from self._of_tables(part, made, gone=gone, hidden=hidden)

    @property
    def _needs_texts(self) -> bool:
        """Whether rows say something that only the documents know, and these are to be had."""
        return self.texts is not None and (self.projection.has_evidence or self.projection.input.locator is not None)

    def _of_tables(
        self, part: PartReport, made: PartTables, *, gone: Sequence[str], hidden: Mapping[str, HiddenColumns]
    ) -> Iterator[FileReport]:
        tables = {
            "answers_file": made.answers,
            "memories_file": made.memories,
            "evidence_file": made.evidence,
            "results_file": made.results,
        }
        for field, expected in tables.items():
            name: str | None = part[field]  # type: ignore[literal-required]
            is_asked = self.projection.has_evidence if field == "evidence_file" else expected is not None
            if is_asked != (name is not None):
                where = name or record_file(self.past.run_id, MANIFEST_FILE)
                what = f"the run asked for no such table: {name}" if name else f"a part of the tables has no {field!r}"
                yield Finding(kind=FindingKind.ROWS, where=where, what=what)
            if name is None or expected is None:
                continue
            own = hidden.get(field, ((), ()))
            for line in self._differences(name, expected, keys=KEYS[field], hidden=own, gone=gone):
                yield Finding(kind=FindingKind.ROWS, where=name, what=line)

    def _differences(
        self, name: str, expected: pa.Table, *, keys: Sequence[str], hidden: HiddenColumns, gone: Sequence[str]
    ) -> list[str]:
        try:
            actual = _valid(read_tables(self.past.output, [name]), columns=())
        except OutputError as error:
            return [] if name in self.wrong else [str(error)]
        if "how" in keys:
            expected, actual = _of_others(expected, gone), _of_others(actual, gone)
        self.num_rows += actual.num_rows
        return row_differences(_masked(expected, hidden), _masked(actual, hidden), keys=keys)

    def _projected(self, planned: pa.Table, answers: pa.Table, *, readable: pa.Table) -> PartTables:
        """The rows of a part; evidence of documents whose texts are there."""
        not_read = answers.filter(pc.equal(answers["status"], Status.NOT_READ))  # no log has their outcomes
        rows: list[OutcomeRow] = not_read.select(OUTCOME_COLUMNS).to_pylist()
        if readable is planned:
            return project(planned, projection=self.projection, not_read=rows)
        plain = project(planned, projection=replace(self.projection, documents=None), not_read=rows)
        with_texts = project(readable, projection=self.projection)
        return replace(plain, evidence=with_texts.evidence, is_whole=with_texts.is_whole)

    def _unseen(self, seen: set[int]) -> Iterator[FileReport]:
        """Documents without a row in any table, though something was asked of them."""
        lengths = pc.list_value_length(self.past.plan["readings"]).to_pylist()
        if unseen := [row for row, length in enumerate(lengths) if length and row not in seen]:
            first = self.past.plan["document_id"][unseen[0]].as_py()
            what = f"{len(unseen):,} documents have no row in `answers`, the first is {first!r}"
            yield Finding(kind=FindingKind.ROWS, where="answers", what=what)


def _twice(part: PartReport, documents: Sequence[int], seen: set[int]) -> Iterator[FileReport]:
    if both := seen.intersection(documents):
        what = f"{len(both):,} documents have rows in another file of `answers` too"
        yield Finding(kind=FindingKind.ROWS, where=part["answers_file"], what=what)


def _masked(table: pa.Table, hidden: HiddenColumns) -> pa.Table:
    """The table with null in the columns that can't be known of readings of some documents."""
    columns, document_ids = hidden
    if not document_ids or not set(columns) <= set(table.schema.names):
        return table
    of_them = pc.is_in(table["document_id"], pa.array(document_ids, table["document_id"].type))
    for name in columns:
        place = table.schema.get_field_index(name)
        field = table.schema.field(place).with_nullable(True)
        table = table.set_column(place, field, pc.if_else(of_them, pa.scalar(None, field.type), table[name]))
    return table


def _of_others(table: pa.Table, document_ids: Sequence[str]) -> pa.Table:
    names = table["document_id"]
    return table.filter(pc.invert(pc.is_in(names, pa.array(document_ids, names.type)))) if document_ids else table


def _valid(table: pa.Table, *, columns: Collection[str]) -> pa.Table:
    """The table, if it has these columns, and no value outside its buffers."""
    if missing := sorted(set(columns) - set(table.schema.names)):
        raise OutputError(f"it is another table: it has no column {missing[0]!r}")
    try:
        table.validate(full=True)
    except pa.ArrowException as error:
        raise OutputError(f"it is damaged: {error}") from error
    return table

"""The readings of a finished run, one after another: row of `answers`, turns of the memory, evidence.

Also an answer in the few words in which a person reads it, and which answers are other ones than in the run before.
Numbers have the digits that are stored and no separators, since one may be a code. Unit `1` stands for none.
"""

import difflib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from heapq import merge
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds

from memagent_batch.data.documents.document_index import SOURCE_UNREAD, UNREAD_SOURCE
from memagent_batch.data.store.errors import table_errors
from memagent_batch.data.store.turn_log.index import Row
from memagent_batch.errors import OutputError
from memagent_batch.loop.follow_ups.answer_types import AnswerType
from memagent_batch.loop.follow_ups.doubts import Doubt
from memagent_batch.loop.follow_ups.prompts import Support
from memagent_batch.loop.follow_ups.values import ValueStatus
from memagent_batch.loop.texts.figures import numbers_in, states_date, states_number
from memagent_batch.loop.texts.shares import percent
from memagent_batch.loop.texts.words import folded_words
from memagent_batch.run.comparison import AnswerChange, Cause, DifferenceRow, compare_runs
from memagent_batch.run.evidence import Alignment, How
from memagent_batch.run.history import GONE_REMEDY, PastRun, open_run
from memagent_batch.run.tables import (
    ANSWERS_TABLE,
    EVIDENCE_TABLE,
    MEMORIES_TABLE,
    READING_COLUMNS,
    ReadingIds,
    reading_ids,
)
from memagent_batch.types import Status

TRACE_COLUMNS = (
    *("turn", "kind", "writes", "chunk_index", "token_start", "token_end", "char_start", "char_end"),
    *("locator", "memory", "changed", "num_tokens", "finish_reason"),
)
BATCH_ROWS = 256
"""Rows that are read at once."""
LIKENESS = 0.5
"""How alike an id must be to be suggested, 0 to 1."""
SUGGESTED_IDS = 3
NO_UNIT = "1"
"""The unit of a number that has none."""
TIME_UNITS = frozenset({"seconds", "minutes", "hours", "days", "weeks", "months", "years"})
"""Units of questions that lose their plural beside one."""
NOT_STATED_OUTCOME, INVALID, NO_ANSWER, NOT_READ_OUTCOME = "not stated", "invalid", "no answer", "not read"
ANSWERED = "answered"
OUTCOMES = (ANSWERED, NOT_STATED_OUTCOME, NO_ANSWER, INVALID, "failed", NOT_READ_OUTCOME)
"""What becomes of a reading, as `outcome_of` says it."""
NEEDS = (
    "it was signed off before, and its text or answer has changed",
    Doubt.REFUSED.value,
    "the answer's words are nowhere in the document",
    Doubt.ANSWER.value,
    *("the evidence contradicts the answer", "the evidence says too little"),
    Doubt.EVIDENCE.value,
    *("reading it failed", "not all of its source was read"),
    *("no valid answer", "the evidence says a part of the answer", "another answer than before"),
)
"""Why a reading needs a look, the most pressing first."""
COPIED_WORDS = 5
"""Longest answer, words, that a document can be expected to hold as it is: a longer one is prose."""
WRITTEN_OTHERWISE = re.compile(r"\W?\s?[\d.,:/-]+\s?%?")
"""A bare number or date, which the document may write in another way."""
_COPIED_TYPES = frozenset({None, AnswerType.TEXT, AnswerType.NUMBER, AnswerType.DATE})
_WITHOUT_VALUE: Mapping[str | None, str] = {
    ValueStatus.NOT_STATED: NOT_STATED_OUTCOME,
    ValueStatus.NOT_READ: NOT_READ_OUTCOME,
    ValueStatus.INVALID: INVALID,
}
_CAUSES: Mapping[str, str] = {
    Cause.DOCUMENT: "the text of the document changed",
    Cause.QUESTION: "the question changed",
    Cause.LIMIT: "one of the runs left it out, by its limit or condition",
    Cause.SAMPLE: "the runs took another number of samples",
    Cause.READER: "another model, prompt or policy read it",
    Cause.ENDPOINT: "the endpoint had another server, or other weights under the same name",
    Cause.EXTRACTION: "answers are taken out of responses in another way",
    Cause.TYPE: "the question asks for another type",
    Cause.FOLLOW_UPS: "other follow-up questions were asked",
    Cause.SAME_INPUTS: "nothing else changed: it was read again",
}
KEPT_CHARACTERS = 300
"""Of an earlier answer, characters that are held; `memagent diff` shows all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReading:
    """What a run kept of one reading."""

    answer: Row
    turns: list[Row]
    """Its rows of `memories`, in the order of reading; none where it failed before the first turn."""
    evidence: list[Row]
    """Its rows of `evidence`; none where the run asked for no evidence."""

    @property
    def document_id(self) -> str:
        """The document."""
        return str(self.answer["document_id"])

    @property
    def question_id(self) -> str:
        """The question."""
        return str(self.answer["question_id"])

    @property
    def key(self) -> ReadingIds:
        """Document, question and sample."""
        return reading_ids(self.answer)


def stream_readings(past: PastRun, *, with_turns: bool = True) -> Iterator[RunReading]:
    """All readings of a run; those of a document follow each other. Holds the turns of one reading at a time.

    Without turns, `memories` is not read.

    Raises:
        OutputError: a table file is gone or can't be read; names it. Or a table holds rows of readings which the
            answers don't have at their place.
    """
    answers = rows_by_stem(past, ANSWERS_TABLE)
    memories = rows_by_stem(past, MEMORIES_TABLE, columns=(*READING_COLUMNS, *TRACE_COLUMNS)) if with_turns else {}
    has_evidence = EVIDENCE_TABLE in past.manifest["table_versions"]
    sentences = rows_by_stem(past, EVIDENCE_TABLE) if has_evidence else {}
    for stem in sorted(answers):
        turns, evidence = (_ReadingRows(chain.from_iterable(rows.get(stem, ()))) for rows in (memories, sentences))
        for answer in merge(*answers[stem], key=itemgetter("document_id")):
            key = reading_ids(answer)
            yield RunReading(answer=answer, turns=turns.take(key), evidence=evidence.take(key))
        for name, rows in ((MEMORIES_TABLE, turns), (EVIDENCE_TABLE, evidence)):
            if rows.next is not None:
                raise OutputError(
                    f"{past.table(name).place} holds rows of {rows.next[0]} where `answers` has none; run the same "
                    "command again, which writes the tables again"
                )


class _ReadingRows:
    """Rows of a table, reading by reading."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._groups = groupby(rows, key=reading_ids)
        self.next = next(self._groups, None)
        """The next reading, with its rows."""

    def take(self, key: ReadingIds) -> list[Row]:
        """The rows of this reading, where they are next."""
        if self.next is None or self.next[0] != key:
            return []
        rows = [*self.next[1]]
        self.next = next(self._groups, None)
        return rows


def rows_by_stem(past: PastRun, name: str, *, columns: Collection[str] | None = None) -> dict[str, list[Iterator[Row]]]:
    """The rows of each file of a table, which are read as they are asked for, by the stem of the file's name.

    Files of one stem have the rows of the same documents, in each table in the same order.

    Raises:
        OutputError: the run has no such table. The iterators raise it if their file is gone or can't be read.
    """
    dataset, folder = past.dataset(name), past.table(name).place
    names = [name for name in dataset.schema.names if columns is None or name in columns]

    def rows_of(file: ds.Fragment) -> Iterator[Row]:
        with table_errors((folder / file.path).uri, remedy=GONE_REMEDY):
            for batch in file.to_batches(
                schema=dataset.schema, columns=names, batch_size=BATCH_ROWS, batch_readahead=1, use_threads=False
            ):
                yield from batch.to_pylist()

    stems: dict[str, list[Iterator[Row]]] = defaultdict(list)
    for file in dataset.get_fragments():
        stems[file.path.rpartition("-")[0]].append(rows_of(file))
    return stems


def find_readings(past: PastRun, *, document_id: str, question_id: str | None) -> list[RunReading]:
    """The readings of a document, of one question or of all; at least one.

    Raises:
        OutputError: the run has no such document or question; names near ids.
    """
    is_wanted = pc.field("document_id") == document_id
    answers, turns, evidence = (
        dataset.to_table(filter=is_wanted).to_pylist()
        for dataset in (past.dataset(ANSWERS_TABLE), past.dataset(MEMORIES_TABLE), past.evidence())
    )
    if not answers:
        near = _nearest(document_id, set(document_ids(past)))
        raise OutputError(f"DOCUMENT: the run at {past.output} has no document {document_id!r}; {near}")
    found = [row for row in answers if question_id in {None, row["question_id"]}]
    if not found:
        raise OutputError(
            f"QUESTION: the run asked no question {question_id!r} of document {document_id!r}; "
            f"{_nearest(str(question_id), {row['question_id'] for row in answers})}"
        )
    return [
        RunReading(
            answer=answer,
            turns=[row for row in turns if reading_ids(row) == reading_ids(answer)],
            evidence=[row for row in evidence if reading_ids(row) == reading_ids(answer)],
        )
        for answer in found
    ]


def document_ids(past: PastRun) -> list[str]:
    """The ids of all documents of a run, sorted.

    Raises:
        OutputError: a table file is gone or can't be read; names it.
    """
    ids = set[str]()
    for batch in past.dataset(ANSWERS_TABLE).to_batches(columns=["document_id"]):
        ids.update(pc.unique(batch["document_id"]).to_pylist())
    return sorted(ids)


def _nearest(name: str, names: set[str]) -> str:
    close = difflib.get_close_matches(name, sorted(names), n=SUGGESTED_IDS, cutoff=LIKENESS)
    near = [other for other in close if name in other] or close
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    some = ", ".join(map(repr, sorted(names)[:SUGGESTED_IDS]))
    return f"it has {some}{f' and {len(names) - SUGGESTED_IDS:,} more' if len(names) > SUGGESTED_IDS else ''}"


def shown_value(row: Row) -> str:
    """The value of a row of `answers` as text; of a question without a type, the answer.

    A reading without an answer shows its status instead.
    """
    if row["status"] != Status.OK:
        return _status_words(row)
    status, unit = row["value_status"], row["value_unit"]
    words = _value_words(status, row["value"])
    if words is None:
        return NO_ANSWER if row["answer"] is None else str(row["answer"])
    if part := part_shown(row):
        return f"{words}: {part}"
    if status != ValueStatus.OK or not unit or unit == NO_UNIT:
        return words
    return f"{words} {unit.removesuffix('s') if words == '1' and unit in TIME_UNITS else unit}"


def said_words(row: Row) -> str:
    """What a row of `answers` says in words: its answer; if that has no valid value, why; of a failed one its error."""
    if row["status"] != Status.OK:
        return row["error_message"] or ""
    problem = row.get("follow_up_error") if outcome_of(row) == INVALID else None
    return ": ".join(filter(None, (row["answer"], problem)))


def outcome_of(row: Row) -> str:
    """What a reader filters answers by: one of `OUTCOMES`."""
    if row["status"] != Status.OK:
        return _status_words(row)
    if row["answer_type"] and row["value_status"] is None and row.get("follow_up_error"):
        return INVALID  # its value could not be asked for
    return _WITHOUT_VALUE.get(row["value_status"]) or (NO_ANSWER if row["answer"] is None else ANSWERED)


def need_of(row: Row, evidence: Sequence[Row], *, is_changed: bool, is_accepted: bool, was_signed: bool = False) -> int:
    """Why a person should look at a reading: a place in `NEEDS`, or behind them all if nothing asks for it.

    Args:
        row: a row of `answers`.
        evidence: its rows of `evidence`.
        is_changed: whether the run before has another answer.
        is_accepted: whether the run accepts that not all of the source was read.
        was_signed: whether a sign-off is open again.
    """
    outcome, support, is_ok = outcome_of(row), row["support"], row["status"] == Status.OK
    is_unread = row["value_status"] == ValueStatus.NOT_READ and part_shown(row) is None
    doubt = row.get("value_doubt")
    asked = (
        was_signed,
        doubt == Doubt.REFUSED,
        _is_nowhere(row, evidence),
        doubt == Doubt.ANSWER,
        support == Support.CONTRADICTED,
        support == Support.NOT_ENOUGH,
        doubt == Doubt.EVIDENCE,
        not is_ok and not is_unread,
        is_unread and not is_accepted,
        outcome in {INVALID, NO_ANSWER},
        support == Support.PARTLY,
        is_changed,
    )
    return [*asked, True].index(True)


def doubt_of(row: Row, evidence: Sequence[Row], *, is_accepted: bool = False) -> str | None:
    """Why a person should look at a reading, whatever was before: one of `NEEDS`; None if nothing asks for it."""
    return [*NEEDS, None][need_of(row, evidence, is_changed=False, is_accepted=is_accepted)]


def causes_of(change: AnswerChange, why: Iterable[str]) -> str:
    """Why an answer is another one, new or gone, in words."""
    other = {AnswerChange.ADDED: "is new", AnswerChange.REMOVED: "is gone"}.get(change)
    words = [
        f"the {each} {other}" if other and each in {Cause.DOCUMENT, Cause.QUESTION} else _CAUSES[each] for each in why
    ]
    return ", ".join(words)


def values_of_both(row: DifferenceRow) -> tuple[str | None, str | None] | None:
    """The values of both runs in words, the earlier first; None where they are equal, and for one that is missing."""
    before, after = ((row["value_status_before"], row["value_before"]), (row["value_status_after"], row["value_after"]))
    return None if before == after else (_value_words(*before), _value_words(*after))


def unread_of(row: Row) -> str | None:
    """What was not read of the source of a row of `answers`, where the row does not fail by it; None if all was."""
    unread: str | None = row.get(SOURCE_UNREAD)
    return None if row["error_type"] == UNREAD_SOURCE else unread


def part_shown(row: Row) -> str | None:
    """How little of the text the model was shown, if a row of `answers` is `not_read` for that alone; else None."""
    share, is_unread = row.get("coverage"), row["value_status"] == ValueStatus.NOT_READ
    if not is_unread or share is None or share == 1 or row.get(SOURCE_UNREAD) is not None:
        return None
    return f"the model was shown {percent(share)} of the text"


def _is_nowhere(row: Row, evidence: Sequence[Row]) -> bool:
    """Whether the document holds no string of a short answer, by its rows of `evidence`.

    Words that all stand in the sentences that the model pointed at are there, in another order; so is a number or date
    that these write otherwise.
    """
    answer = (row["answer"] or "").strip()
    aligned = {each["alignment"] for each in evidence if each["how"] == How.ALIGNED}
    is_copied = row["answer_type"] in _COPIED_TYPES and len(answer.split()) <= COPIED_WORDS
    if not is_copied or aligned != {Alignment.NONE}:
        return False
    chosen = "\n".join(each["text"] or "" for each in evidence if each["how"] == How.CHOSEN)
    if row["answer_type"] == AnswerType.DATE and row["value"] is not None:
        return not states_date(chosen, date.fromisoformat(json.loads(row["value"])))
    if WRITTEN_OTHERWISE.fullmatch(answer):
        return not all(any(states_number(chosen, value) for value in each.values) for each in numbers_in(answer))
    return not Counter(folded_words(answer)) <= Counter(folded_words(chosen))


def _status_words(row: Row) -> str:
    return NOT_READ_OUTCOME if row["value_status"] == ValueStatus.NOT_READ else str(row["status"]).replace("_", " ")


def _value_words(status: str | None, value: str | None) -> str | None:
    """What a run has for a value, by its columns `value_status` and `value`; None where it has none."""
    if status == ValueStatus.OK and value is not None:
        return _plain_words(json.loads(value))
    return _WITHOUT_VALUE.get(status)


def run_time(run_id: str) -> str:
    """When a run began, by its id; the id itself where it does not say."""
    found = re.match(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)", run_id)
    return "{}-{}-{} {}:{} UTC".format(*found.groups()) if found else run_id


def _plain_words(value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case str():
            return value
        case int():
            return str(value)
        case float():
            return repr(value).removesuffix(".0")  # the shortest digits that are this number
        case list() if all(isinstance(each, str) for each in value):
            return ", ".join(value) or "none"
        case _:
            return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """How an answer differs from that of the run before."""

    kind: AnswerChange
    why: str
    before: str | None
    """The earlier answer, its beginning; None if there was none."""
    value_before: str | None = None
    """The earlier value, its beginning; None if there was none, or where it is the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChanges:
    """What a run changed."""

    since: str | None
    readings: Mapping[ReadingIds, Change] = field(default_factory=dict)
    """Readings of the later run that are new, or have another answer, value or status."""
    num_removed: int = 0
    """Readings that only the earlier run asked for."""
    removed: Sequence[str] = ()
    """Documents that only the earlier run had, sorted."""
    problem: str | None = None
    """Why the runs can't be compared; None where they were."""

    @property
    def is_known(self) -> bool:
        """Whether it is known of each answer if it changed."""
        return self.since is not None and self.problem is None


def changes_of(past: PastRun) -> RunChanges:
    """Compares a run with the finished run before it."""
    since = past.manifest["changes"]["since"]
    if since is None:
        return RunChanges(since=None)
    readings: dict[ReadingIds, Change] = {}
    num_removed, removed = 0, set[str]()
    try:
        for table in compare_runs(open_run(past.output, since), past):
            for row in table.to_pylist():
                if row["change"] == AnswerChange.REMOVED:
                    num_removed += 1
                    if Cause.DOCUMENT in row["why"]:
                        removed.add(row["document_id"])
                    continue
                before = row["answer_before"] or row["error_message_before"] or row["status_before"]
                value, _ = values_of_both(row) or (None, None)
                readings[reading_ids(row)] = Change(
                    kind=AnswerChange(row["change"]),
                    why=causes_of(AnswerChange(row["change"]), row["why"]),
                    before=before and before[:KEPT_CHARACTERS],
                    value_before=value and value[:KEPT_CHARACTERS],
                )
    except OutputError as error:
        return RunChanges(since=since, problem=str(error))
    return RunChanges(since=since, readings=readings, num_removed=num_removed, removed=sorted(removed))

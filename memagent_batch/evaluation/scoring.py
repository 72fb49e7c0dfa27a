"""Answers to scores: one row for each reading that a suite asks for, and what the cells come to. None is left out."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.documents.formats.columnar import open_grouped
from memagent_batch.documents.listing import list_files
from memagent_batch.documents.questions import value_type_of
from memagent_batch.domain.follow_ups.values import (
    TypedValue,
    ValueStatus,
    says_not_stated,
    values_equal,
    written_value,
)
from memagent_batch.domain.readings import Status
from memagent_batch.domain.scores import TEXT_METRICS, Metric, ScoredOn, score, scored_on
from memagent_batch.errors import InputError
from memagent_batch.evaluation.statistics import mean_interval
from memagent_batch.evaluation.suite import ANSWER_COLUMNS, SCORES, STATUS_MISSING, GoldSpanRow, Suite
from memagent_batch.runs.evidence import How
from memagent_batch.runs.manifest import MANIFEST_FILE, RUN_FILE, require_manifest
from memagent_batch.runs.tables import ANSWERS_FOLDER, EVIDENCE_FOLDER, read_table_columns, table_locations
from memagent_batch.store.errors import input_errors
from memagent_batch.store.location import Location
from memagent_batch.store.turn_log.index import Row

ALL_TASKS = "all tasks"
"""Stands for the task where a summary takes all of them together."""
COSTS = ("num_turns", "num_prompt_tokens", "num_cached_prompt_tokens", "num_completion_tokens", "engine_seconds")
"""Columns of an answer that say what it cost."""
MEANS = ("num_prompt_tokens", "num_completion_tokens", "engine_seconds")
"""Of these, columns whose means a summary has."""
REQUIRED_COLUMNS = ("document_id", "question_id", "answer")
"""Columns without which nothing can be scored. Of the others, a table that lacks them has the values in `ABSENT`."""
ABSENT = {"sample": 0, "status": Status.OK.value} | dict.fromkeys(
    field.name for field in ANSWER_COLUMNS if field.nullable
)
"""What a missing column stands for; 0 where it is not named here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSummary:
    """What a variant reached in one cell."""

    variant: str
    task: str
    """Name of the task; `ALL_TASKS` where they are taken together."""
    length_tokens: int | None
    """Length of the documents that was asked for, tokens; None where none was, or where lengths are taken together."""
    n: int
    """Readings that the suite asks for: the denominator, whatever became of them."""
    score: float
    """Mean score, from 0 to 1."""
    low: float
    """Lower end of the 95 % interval; readings of one document are not counted as independent."""
    high: float
    num_failed: int
    """Readings that failed; each scores 0."""
    num_unanswered: int
    """Readings that ended without anything to score; each scores 0."""
    num_missing: int
    """Readings without a row among the answers; each scores 0."""
    mean_prompt_tokens: float | None
    """Prompt tokens of all turns of a reading, over those that have a row; None where none has, as of both others."""
    mean_completion_tokens: float | None
    mean_engine_seconds: float | None
    """Time inside the engine, summed over the turns of a reading."""


Span = tuple[int, int]
"""First code point of a place in a document, and the one after its last."""
EvidenceSpans = Mapping[tuple[str, str, int], Sequence[Span]]
"""Spans of the evidence by reading; a reading without any is left out."""
SPAN_COLUMNS = ["document_id", "question_id", "sample", "char_start", "char_end"]
"""Columns of `evidence` that are scored, beside `how`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRun:
    """An answers table against a suite."""

    scores: pa.Table
    """`SCORES`: one row for each reading that the suite asks for."""
    num_unmatched: int
    """Rows of answers to questions that the suite does not ask; they are in no score."""


def score_run(answers: Location, *, suite: Suite, variant: str) -> ScoredRun:
    """Scores an answers table; a question was read as often as the one that was read most.

    Raises:
        InputError: the answers can't be read, or are of another suite.
    """
    table = read_answers(answers)
    samples = 1 + max(table["sample"].to_pylist())
    questions = suite.questions_of(table)
    scores = score_answers(questions, table, variant=variant, samples=samples, evidence=read_evidence(answers))
    num_known = sum(status != STATUS_MISSING for status in scores["status"].to_pylist())
    return ScoredRun(scores=scores, num_unmatched=table.num_rows - num_known)


def score_answers(
    questions: pa.Table,
    answers: pa.Table,
    *,
    variant: str,
    samples: int,
    evidence: EvidenceSpans = MappingProxyType({}),
) -> pa.Table:
    """A table of `SCORES`: each question of the suite in its order, each of its samples.

    Raises:
        InputError: a reading has two rows, or most of the rows are of questions that are not in the suite.
    """
    answered = _by_reading(answers)
    asked = questions.to_pylist()
    require_same_suite(asked, answered)
    has_values = answers["value_status"].null_count < answers.num_rows
    rows = []
    for question in asked:
        for sample in range(samples):
            key = (question["document_id"], question["question_id"], sample)
            answer = answered.get(key)
            ended = answer if answer and answer["status"] == Status.OK else {}
            follow_ups = follow_up_scores(question, ended, evidence=evidence.get(key, ()), has_values=has_values)
            rows.append(_score_row(question, answer, sample=sample, follow_ups=follow_ups))
    return pa.Table.from_pylist([{**row, "variant": variant} for row in rows], schema=SCORES)


def require_same_suite(asked: Sequence[Row], answered: dict[tuple[str, str, int], Row]) -> None:
    """Refuses answers if more than half of them belong to no question of the suite.

    Raises:
        InputError: names one of them, and one that the suite asks.
    """
    known = {(row["document_id"], row["question_id"]) for row in asked}
    unmatched = [key for key in answered if key[:2] not in known]
    if 2 * len(unmatched) > len(answered):
        raise InputError(
            f"these are answers of another suite: {len(unmatched)} of {len(answered)} belong to no question of this "
            f"one (document_id {unmatched[0][0]!r}, question_id {unmatched[0][1]!r}; this one asks document_id "
            f"{asked[0]['document_id']!r}, question_id {asked[0]['question_id']!r}); give the suite that was read"
        )


def summarise(scores: pa.Table, *, by: Collection[str] = ("task", "length_tokens")) -> list[CellSummary]:
    """The cells of a table of `SCORES`: variants in their order, tasks by name, lengths from short to long.

    Args:
        scores: What is summarised.
        by: Columns that make a cell beside the variant: task, length_tokens, both, or none.
    """
    cells: dict[tuple[str, str, int | None], list[Row]] = defaultdict(list)
    for row in scores.drop_columns(["answer", "references"]).to_pylist():
        task = row["task"] if "task" in by else ALL_TASKS
        cells[row["variant"], task, row["length_tokens"] if "length_tokens" in by else None].append(row)
    variants = list(dict.fromkeys(scores["variant"].to_pylist()))
    ordered = sorted(cells, key=lambda cell: (variants.index(cell[0]), cell[1], cell[2] is None, cell[2] or 0))
    return [_cell_summary(cell, cells[cell]) for cell in ordered]


def by_document(rows: Sequence[Row], values: Sequence[float]) -> list[list[float]]:
    """The values of some rows, those of one document together."""
    groups: dict[str, list[float]] = defaultdict(list)
    for row, value in zip(rows, values, strict=True):
        groups[row["document_id"]].append(value)
    return list(groups.values())


def _by_reading(answers: pa.Table) -> dict[tuple[str, str, int], Row]:
    rows: dict[tuple[str, str, int], Row] = {}
    for row in answers.to_pylist():
        key = (row["document_id"], row["question_id"], row["sample"])
        if key in rows:
            raise InputError(
                f"the answers have two rows of document_id {key[0]!r}, question_id {key[1]!r}, sample {key[2]}; take "
                "one away, or number them in a column `sample` from 0"
            )
        rows[key] = row
    return rows


def _score_row(question: Row, answer: Row | None, *, sample: int, follow_ups: Row) -> Row:
    ended = answer if answer and answer["status"] == Status.OK else {}
    texts = {name: text if (text := ended.get(name)) and text.strip() else None for name in ("answer", "response")}
    metrics = {
        metric.value: score(metric, texts[scored_on(metric, **texts)], question["references"])
        for metric in TEXT_METRICS
    }
    metric = Metric(question["metric"])
    basis = ScoredOn.VALUE if metric is Metric.VALUE else scored_on(metric, **texts)
    costs = dict.fromkeys(COSTS, 0) if answer is None else {name: answer[name] for name in COSTS}
    kept = {name: value for name, value in question.items() if name in SCORES.names}
    return {
        **kept,
        **metrics,
        **costs,
        **follow_ups,
        "sample": sample,
        "score": float(bool(follow_ups["value_right"])) if metric is Metric.VALUE else metrics[metric.value],
        "scored_on": basis.value,
        "status": answer["status"] if answer else STATUS_MISSING,
        "answered": (texts | {"value": follow_ups["value_status"]})[basis] is not None,
        "answer": texts["answer"],
        "num_document_tokens": answer and answer["num_document_tokens"],
    }


def _cell_summary(cell: tuple[str, str, int | None], rows: Sequence[Row]) -> CellSummary:
    interval = mean_interval(by_document(rows, [row["score"] for row in rows]))
    states = [row["status"] for row in rows]
    known = [row for row in rows if row["status"] != STATUS_MISSING]
    return CellSummary(
        variant=cell[0],
        task=cell[1],
        length_tokens=cell[2],
        n=len(rows),
        score=fmean(row["score"] for row in rows),
        low=interval.low,
        high=interval.high,
        num_failed=states.count(Status.FAILED),
        num_unanswered=sum(row["status"] == Status.OK and not row["answered"] for row in rows),
        num_missing=states.count(STATUS_MISSING),
        **{f"mean_{name.removeprefix('num_')}": fmean(row[name] for row in known) if known else None for name in MEANS},
    )


def read_answers(location: Location) -> pa.Table:
    """A table of `ANSWER_COLUMNS`.

    Args:
        location: Parquet or Arrow files (a file, folder or glob) with the columns document_id, question_id and answer;
            or the output of a run that has finished.

    Readings that were not read are left out, as ones that the table has no row of.

    Raises:
        InputError: a file or column can't be read, or the run has not finished.
    """
    table = pa.concat_tables([_read_answer_file(place) for place in _answer_files(location)])
    known = {status.value for status in Status}
    for status in table["status"].unique().to_pylist():
        if status not in known:
            raise InputError(
                f"{location.uri}: column 'status' says {status!r}; write ok or failed, or leave the column out"
            )
    table = table.filter(pc.not_equal(table["status"], Status.NOT_READ.value))
    if not table.num_rows:
        raise InputError(f"{location.uri} holds no answers; is it the table that was meant?")
    return table


def read_evidence(location: Location) -> EvidenceSpans:
    """The evidence of a run's readings; none where the location is not a run, or a run without.

    Raises:
        InputError: a file can't be read.
    """
    with input_errors(location.uri):
        is_run = location.is_folder() and (location / MANIFEST_FILE).exists()
    has_evidence = is_run and EVIDENCE_FOLDER in require_manifest(location)["files"]
    places = table_locations(location, EVIDENCE_FOLDER) if has_evidence else []
    return evidence_spans(read_table_columns(place, ["how", *SPAN_COLUMNS]) for place in places)


def _answer_files(location: Location) -> list[Location]:
    """The files of `answers` where the location is a run's output; else all files of the location."""
    with input_errors(location.uri):
        is_run = location.is_folder() and (location / RUN_FILE).exists()
        if not is_run:
            return [location.at(file.path) for file in list_files(location)]
        if not (location / MANIFEST_FILE).exists():
            raise InputError(
                f"{location.uri} is the output of a run that has not finished (no {MANIFEST_FILE}); run the same "
                "command again, and score it then"
            )
    return table_locations(location, ANSWERS_FOLDER)


def _read_answer_file(place: Location) -> pa.Table:
    with open_grouped(place) as file:
        there = file.schema.names
        missing = [name for name in REQUIRED_COLUMNS if name not in there]
        if missing:
            raise InputError(
                f"{place.uri} has no column {missing[0]!r}; its columns: {', '.join(there) or 'none'}; "
                "an answers table has document_id, question_id and answer"
            )
        names = [name for name in ANSWER_COLUMNS.names if name in there]
        groups = (file.batches(group, names=names) for group in range(len(file.group_bytes)))
        batches = [batch.select(names) for group in groups for batch in group]
        schema = pa.schema([file.schema.field(name) for name in names])
    return _as_answers(pa.Table.from_batches(batches, schema=schema), path=place.uri)


def _as_answers(table: pa.Table, *, path: str) -> pa.Table:
    columns = []
    for field in ANSWER_COLUMNS:
        if field.name not in table.schema.names:
            columns.append(pa.array([ABSENT.get(field.name, 0)] * table.num_rows, field.type))
            continue
        try:
            column = table[field.name].cast(field.type)
        except pa.ArrowException as error:
            raise InputError(f"{path}: column {field.name!r} can't be read as {field.type}: {error}") from error
        if column.null_count and not field.nullable:
            raise InputError(f"{path}: column {field.name!r} has {column.null_count} nulls; give every row a value")
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=ANSWER_COLUMNS)


def evidence_spans(tables: Iterable[pa.Table]) -> EvidenceSpans:
    """The evidence in the files of a table `evidence`: the chosen sentences, not what was looked for of the answer."""
    spans: dict[tuple[str, str, int], list[Span]] = {}
    for table in tables:
        chosen = table.filter(pc.and_(pc.equal(table["how"], How.CHOSEN.value), pc.is_valid(table["char_start"])))
        for row in chosen.select(SPAN_COLUMNS).to_pylist():
            key = (row["document_id"], row["question_id"], row["sample"])
            spans.setdefault(key, []).append((row["char_start"], row["char_end"]))
    return spans


def follow_up_scores(question: Row, answer: Row, *, evidence: Sequence[Span], has_values: bool) -> Row:
    """Scores of what was asked after one answer.

    Args:
        question: A row of `SUITE_QUESTIONS`.
        answer: A row of `ANSWER_COLUMNS` of a reading that ended; empty for another one.
        evidence: Its evidence.
        has_values: Whether any row of the answers has a value; where none has, answers are read as values.
    """
    value, references = _value_and_references(question, answer, has_values=has_values)
    is_right = (
        None if references is None else value is not None and any(values_equal(value, each) for each in references)
    )
    if value is not None:
        abstained = value.status is ValueStatus.NOT_STATED
    else:
        abstained = references is None and says_not_stated(answer.get("answer") or "")
    num_evidence = answer.get("num_evidence")
    return {
        "value": None if value is None else value.value,
        "value_status": None if value is None else value.status.value,
        "confidence": answer.get("confidence"),
        "value_right": is_right,
        "reference_value": references[0].value if references else None,
        "is_absent": question["is_absent"],
        "abstained": abstained,
        "num_evidence": num_evidence,
        **_evidence_scores(evidence, gold=None if num_evidence is None else question["gold_spans"]),
    }


def _value_and_references(
    question: Row, answer: Row, *, has_values: bool
) -> tuple[TypedValue | None, list[TypedValue] | None]:
    """The value of a reading, and the right ones; None if there is none, or none was asked for."""
    value_type = value_type_of(question)
    if value_type is None:
        return None, None
    references = [written_value(reference, value_type) for reference in question["references"]]
    if has_values:
        status = answer.get("value_status")
        value = TypedValue(status=ValueStatus(status), value=answer["value"]) if status else None
        return value, references
    return (written_value(answer["answer"], value_type) if answer.get("answer") else None), references


def _evidence_scores(evidence: Sequence[Span], *, gold: Sequence[GoldSpanRow] | None) -> Row:
    """The four columns of evidence, by overlap; null if it was not asked for, or no right sentence is known."""
    if not gold:
        return dict.fromkeys(("evidence_precision", "evidence_recall", "evidence_f1", "evidence_hit"))
    right = [(span["char_start"], span["char_end"]) for span in gold]
    met = sum(any(_overlap(span, other) for other in evidence) for span in right)
    precision = sum(any(_overlap(span, other) for other in right) for span in evidence) / max(len(evidence), 1)
    recall = met / len(right)
    return {
        "evidence_precision": precision,
        "evidence_recall": recall,
        "evidence_f1": 2 * precision * recall / (precision + recall) if met else 0.0,
        "evidence_hit": met > 0,
    }


def _overlap(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]

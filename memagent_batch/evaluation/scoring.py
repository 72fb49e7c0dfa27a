"""Answers to scores: one row for each reading that a suite asks for, and what the cells come to. None is left out."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

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
from memagent_batch.evaluation.statistics import mean_interval
from memagent_batch.evaluation.suite import ANSWER_COLUMNS, SCORES, STATUS_MISSING, GoldSpanRow
from memagent_batch.runs.evidence import How
from memagent_batch.runs.manifest import require_manifest
from memagent_batch.runs.tables import (
    ANSWERS_FOLDER,
    EVIDENCE_FOLDER,
    ReadingIds,
    read_table_columns,
    reading_ids,
    table_locations,
)
from memagent_batch.store.location import Location
from memagent_batch.store.turn_log.index import Row

ALL_TASKS = "all tasks"
"""Stands for the task where a summary takes all of them together."""
COSTS = ("num_turns", "num_prompt_tokens", "num_cached_prompt_tokens", "num_completion_tokens", "engine_seconds")
"""Columns of an answer that say what it cost."""
MEANS = ("num_prompt_tokens", "num_completion_tokens", "engine_seconds")
"""Of these, columns whose means a summary has."""


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
EvidenceSpans = Mapping[ReadingIds, Sequence[Span]]
"""Spans of the evidence by reading; a reading without any is left out."""
SPAN_COLUMNS = ["document_id", "question_id", "sample", "char_start", "char_end"]
"""Columns of `evidence` that are scored, beside `how`."""


def score_answers(
    questions: pa.Table,
    answers: pa.Table,
    *,
    variant: str,
    samples: int,
    evidence: EvidenceSpans = MappingProxyType({}),
) -> pa.Table:
    """A table of `SCORES`: each question of the suite in its order, each of its samples."""
    answered = {reading_ids(row): row for row in answers.to_pylist()}
    rows = []
    for question in questions.to_pylist():
        for sample in range(samples):
            key = (question["document_id"], question["question_id"], sample)
            answer = answered.get(key)
            ended = answer if answer and answer["status"] == Status.OK else {}
            follow_ups = follow_up_scores(question, ended, evidence=evidence.get(key, ()))
            rows.append(_score_row(question, answer, sample=sample, follow_ups=follow_ups))
    return pa.Table.from_pylist([{**row, "variant": variant} for row in rows], schema=SCORES)


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


def read_answers(output: Location) -> pa.Table:
    """The answers of a finished run, a table of `ANSWER_COLUMNS`; readings that were not read are left out.

    Raises:
        OutputError: no run has finished there, or a file can't be read.
    """
    tables = [read_table_columns(place, ANSWER_COLUMNS.names) for place in table_locations(output, ANSWERS_FOLDER)]
    table = pa.concat_tables(tables).select(ANSWER_COLUMNS.names).cast(ANSWER_COLUMNS)
    return table.filter(pc.not_equal(table["status"], Status.NOT_READ.value))


def read_evidence(output: Location) -> EvidenceSpans:
    """The evidence of a run's readings; none where it asked for none.

    Raises:
        OutputError: a file can't be read.
    """
    has_evidence = EVIDENCE_FOLDER in require_manifest(output)["files"]
    places = table_locations(output, EVIDENCE_FOLDER) if has_evidence else []
    return evidence_spans(read_table_columns(place, ["how", *SPAN_COLUMNS]) for place in places)


def evidence_spans(tables: Iterable[pa.Table]) -> EvidenceSpans:
    """The evidence in the files of a table `evidence`: the chosen sentences, not what was looked for of the answer."""
    spans: dict[ReadingIds, list[Span]] = {}
    for table in tables:
        chosen = table.filter(pc.and_(pc.equal(table["how"], How.CHOSEN.value), pc.is_valid(table["char_start"])))
        for row in chosen.select(SPAN_COLUMNS).to_pylist():
            spans.setdefault(reading_ids(row), []).append((row["char_start"], row["char_end"]))
    return spans


def follow_up_scores(question: Row, answer: Row, *, evidence: Sequence[Span]) -> Row:
    """Scores of what was asked after one answer.

    Args:
        question: A row of `SUITE_QUESTIONS`.
        answer: A row of `ANSWER_COLUMNS` of a reading that ended; empty for another one.
        evidence: Its evidence.
    """
    value, references = _value_and_references(question, answer)
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


def _value_and_references(question: Row, answer: Row) -> tuple[TypedValue | None, list[TypedValue] | None]:
    """The value of a reading, and the right ones; None if there is none, or none was asked for."""
    value_type = value_type_of(question)
    if value_type is None:
        return None, None
    references = [written_value(reference, value_type) for reference in question["references"]]
    status = answer.get("value_status")
    return (TypedValue(status=ValueStatus(status), value=answer["value"]) if status else None), references


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

"""Answers to scores: one row for each reading that a suite asks for, and what the cells come to. None is left out."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

import pyarrow as pa

from memagent_batch.domain.readings import Status
from memagent_batch.domain.scoring.intervals import mean_interval
from memagent_batch.domain.scoring.scores import TEXT_METRICS, Metric, ScoredText, ScoreOn, score, scored_text
from memagent_batch.errors import InputError
from memagent_batch.evaluation.answer_tables import read_answers, read_evidence
from memagent_batch.evaluation.closing_scores import ClosingScoresRow, EvidenceSpans, closing_scores
from memagent_batch.evaluation.suites.conversion import read_any_questions
from memagent_batch.evaluation.suites.foreign import ForeignFormat
from memagent_batch.evaluation.suites.schemas import SCORES, STATUS_MISSING
from memagent_batch.files.location import Location
from memagent_batch.log.index import Row

ALL_TASKS = "all tasks"
"""Stands for the task where a summary takes all of them together."""

COSTS = ("num_turns", "num_prompt_tokens", "num_cached_prompt_tokens", "num_completion_tokens", "engine_seconds")
"""Columns of an answer that say what it cost."""


class Grouping(StrEnum):
    """What makes a cell of a summary, beside the variant."""

    TASK_AND_LENGTH = "task_and_length"
    """Each task at each length."""
    LENGTH = "length"
    """Each length, all tasks together."""
    VARIANT = "variant"
    """Nothing else: one cell for each variant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSummary:
    """What a variant reached in one cell."""

    variant: str
    """What was evaluated."""
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
    """Upper end."""
    num_failed: int
    """Readings that failed; each scores 0."""
    num_unanswered: int
    """Readings that ended without anything to score; each scores 0."""
    num_missing: int
    """Readings without a row among the answers; each scores 0."""
    mean_turns: float | None
    """Turns of a reading, over those that have a row; None where none has, as in the four means that follow."""
    mean_prompt_tokens: float | None
    """Prompt tokens of all turns of a reading."""
    mean_cached_prompt_tokens: float | None
    """Of these, held by the prefix cache."""
    mean_completion_tokens: float | None
    """Completion tokens of all turns of a reading."""
    mean_engine_seconds: float | None
    """Time inside the engine, summed over the turns of a reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRun:
    """An answers table against a suite."""

    scores: pa.Table
    """`SCORES`: one row for each reading that the suite asks for."""
    num_strangers: int
    """Rows of answers to questions that the suite does not ask; they are in no score."""


def score_run(
    answers: Location,
    *,
    suite: Location,
    foreign_format: ForeignFormat | None,
    variant: str,
    score_on: ScoreOn = ScoreOn.METRIC,
) -> ScoredRun:
    """Scores an answers table; a question was read as often as the one that was read most.

    Args:
        answers: Output of a run, or Parquet or Arrow files.
        suite: Folder of a suite, or files of a foreign one.
        foreign_format: The format of the suite; detected from its records if None.
        variant: Name of what is scored.
        score_on: Which text of a reading is scored.

    Raises:
        InputError: suite or answers can't be read, or do not belong together.
    """
    questions = read_any_questions(suite, foreign_format=foreign_format)
    table = read_answers(answers)
    samples = 1 + max(table["sample"].to_pylist())
    if score_on is ScoreOn.RESPONSE and table["response"].null_count == table.num_rows:
        raise InputError(f"{answers.uri} has no responses to score; add a column `response`, or score on `answer`")
    scores = score_answers(
        questions, table, variant=variant, samples=samples, score_on=score_on, evidence=read_evidence(answers)
    )
    num_known = sum(status != STATUS_MISSING for status in scores["status"].to_pylist())
    return ScoredRun(scores=scores, num_strangers=table.num_rows - num_known)


def score_answers(
    questions: pa.Table,
    answers: pa.Table,
    *,
    variant: str,
    samples: int,
    score_on: ScoreOn = ScoreOn.METRIC,
    evidence: EvidenceSpans = MappingProxyType({}),
) -> pa.Table:
    """A table of `SCORES`: each question of the suite in its order, each of its samples.

    Args:
        questions: A table of `SUITE_QUESTIONS`.
        answers: A table of `ANSWER_COLUMNS`; rows that the suite does not ask for are left out.
        variant: Name for the column `variant`.
        samples: Readings of each question; one without a row is `missing`.
        score_on: Which text of a reading is scored.
        evidence: Evidence of the readings.

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
            closing = closing_scores(question, ended, evidence=evidence.get(key, ()), has_values=has_values)
            rows.append(_score_row(question, answer, sample=sample, score_on=score_on, closing=closing))
    return pa.Table.from_pylist([{**row, "variant": variant} for row in rows], schema=SCORES)


def require_same_suite(asked: Sequence[Row], answered: dict[tuple[str, str, int], Row]) -> None:
    """Refuses answers if more than half of them belong to no question of the suite.

    Raises:
        InputError: names one of them, and one that the suite asks.
    """
    known = {(row["document_id"], row["question_id"]) for row in asked}
    strangers = [key for key in answered if key[:2] not in known]
    if 2 * len(strangers) > len(answered):
        raise InputError(
            f"these are answers of another suite: {len(strangers)} of {len(answered)} belong to no question of this "
            f"one (document_id {strangers[0][0]!r}, question_id {strangers[0][1]!r}; this one asks document_id "
            f"{asked[0]['document_id']!r}, question_id {asked[0]['question_id']!r}); give the suite that was read"
        )


def summarise(scores: pa.Table, *, grouping: Grouping = Grouping.TASK_AND_LENGTH) -> list[CellSummary]:
    """The cells of a table of `SCORES`: variants in their order, tasks by name, lengths from short to long."""
    cells: dict[tuple[str, str, int | None], list[Row]] = defaultdict(list)
    for row in scores.drop_columns(["answer", "references"]).to_pylist():
        cells[_cell_summary(row, grouping)].append(row)
    variants = list(dict.fromkeys(scores["variant"].to_pylist()))
    ordered = sorted(cells, key=lambda cell: (variants.index(cell[0]), cell[1], cell[2] is None, cell[2] or 0))
    return [_variant_summary(cell, cells[cell]) for cell in ordered]


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


def _score_row(question: Row, answer: Row | None, *, sample: int, score_on: ScoreOn, closing: ClosingScoresRow) -> Row:
    ended = answer if answer and answer["status"] == Status.OK else {}
    texts = {name: text if (text := ended.get(name)) and text.strip() else None for name in ("answer", "response")}
    scored = {metric: scored_text(metric, **texts, score_on=score_on) for metric in TEXT_METRICS}
    metrics = {metric.value: score(metric, scored[metric].text, question["references"]) for metric in TEXT_METRICS}
    metric = Metric(question["metric"])
    own = scored[metric] if metric in scored else ScoredText(basis=ScoreOn.VALUE, text=closing["value_status"])
    costs = dict.fromkeys(COSTS, 0) if answer is None else {name: answer[name] for name in COSTS}
    kept = {name: value for name, value in question.items() if name in SCORES.names}
    return {
        **kept,
        **metrics,
        **costs,
        **closing,
        "sample": sample,
        "score": float(bool(closing["value_right"])) if metric is Metric.VALUE else metrics[metric.value],
        "scored_on": own.basis.value,
        "status": answer["status"] if answer else STATUS_MISSING,
        "answered": own.text is not None,
        "answer": texts["answer"],
        "num_document_tokens": answer and answer["num_document_tokens"],
    }


def _cell_summary(row: Row, grouping: Grouping) -> tuple[str, str, int | None]:
    match grouping:
        case Grouping.TASK_AND_LENGTH:
            return row["variant"], row["task"], row["length_tokens"]
        case Grouping.LENGTH:
            return row["variant"], ALL_TASKS, row["length_tokens"]
        case Grouping.VARIANT:
            return row["variant"], ALL_TASKS, None


def _variant_summary(cell: tuple[str, str, int | None], rows: Sequence[Row]) -> CellSummary:
    interval = mean_interval(by_document(rows, [row["score"] for row in rows]))
    states = [row["status"] for row in rows]
    means = dict(_mean_costs([row for row in rows if row["status"] != STATUS_MISSING]))
    return CellSummary(
        variant=cell[0],
        task=cell[1],
        length_tokens=cell[2],
        n=len(rows),
        score=math.fsum(row["score"] for row in rows) / len(rows),
        low=interval.low,
        high=interval.high,
        num_failed=states.count(Status.FAILED),
        num_unanswered=sum(row["status"] == Status.OK and not row["answered"] for row in rows),
        num_missing=states.count(STATUS_MISSING),
        mean_turns=means["num_turns"],
        mean_prompt_tokens=means["num_prompt_tokens"],
        mean_cached_prompt_tokens=means["num_cached_prompt_tokens"],
        mean_completion_tokens=means["num_completion_tokens"],
        mean_engine_seconds=means["engine_seconds"],
    )


def _mean_costs(rows: Sequence[Row]) -> Iterator[tuple[str, float | None]]:
    for name in COSTS:
        yield name, math.fsum(row[name] for row in rows) / len(rows) if rows else None

"""Answers to scores: one row for each reading that a suite asks for. None is left out."""

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.apps.evaluation.suite import SUITE_QUESTIONS
from memagent_batch.data.documents.questions import value_type_of
from memagent_batch.data.store.columns import column
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.index import Row
from memagent_batch.loop.follow_ups.values import (
    UNSTATED,
    TypedValue,
    ValueStatus,
    says_not_stated,
    values_equal,
    written_value,
)
from memagent_batch.loop.scores import TEXT_METRICS, Metric, ScoredOn, score, scored_on
from memagent_batch.run.evidence import How
from memagent_batch.run.history import find_run
from memagent_batch.run.tables import ANSWERS, ANSWERS_TABLE, READING_COLUMNS, ReadingIds, reading_ids
from memagent_batch.types import Status

STATUS_MISSING = "missing"
"""Status of a reading that the suite asks for and that the answers have no row of."""
COSTS = ("num_turns", "num_prompt_tokens", "num_cached_prompt_tokens", "num_completion_tokens", "engine_seconds")
"""What a reading took, as an answers table says it."""
VALUES = ("value", "value_status", "confidence")
"""What it says of the typed value."""
_SCORED = (*READING_COLUMNS, "status", "answer", "response", *VALUES, "num_evidence", "num_document_tokens", *COSTS)
ANSWER_COLUMNS = pa.schema(map(ANSWERS.field, _SCORED))
"""What of an answers table is scored."""
EVIDENCE_SCORES = {
    "evidence_precision": (
        "share of these that overlap a sentence that supports the answer; null if that is not known or there is none"
    ),
    "evidence_recall": "share of the sentences that support the answer that evidence overlaps",
    "evidence_f1": "harmonic mean of both",
}
_nullable = partial(column, nullable=True)
SCORES = pa.schema(
    [
        column("variant", pa.string(), "what was evaluated: a policy, a model, or both"),
        *map(ANSWERS.field, READING_COLUMNS),
        *map(SUITE_QUESTIONS.field, ("task", "length_tokens", "depth", "metric")),
        column("score", pa.float64(), "the task's own metric; 0 if there is nothing to score"),
        column("scored_on", pa.string(), "what `score` is of: response, answer or value"),
        *[column(metric.value, pa.float64(), f"metric {metric.value}") for metric in TEXT_METRICS],
        column("status", pa.string(), "ok or failed; missing where the answers have no row of it"),
        column("answered", pa.bool_(), "whether there was anything to score: an answer, or a response"),
        ANSWERS.field("answer"),
        *map(SUITE_QUESTIONS.field, ("references", "answer_type")),
        *map(ANSWERS.field, VALUES),
        _nullable("value_right", pa.bool_(), "whether the typed value equals a reference; null without a type"),
        _nullable("reference_value", pa.string(), "the first reference as a typed value, as JSON; null for not stated"),
        SUITE_QUESTIONS.field("is_absent"),
        column(
            "abstained", pa.bool_(), "whether the value, or the answer of a question without a type, is `not stated`"
        ),
        ANSWERS.field("num_evidence"),
        *[_nullable(name, pa.float64(), meaning) for name, meaning in EVIDENCE_SCORES.items()],
        _nullable("evidence_hit", pa.bool_(), "whether any evidence overlaps a sentence that supports the answer"),
        *map(ANSWERS.field, ("num_document_tokens", *COSTS)),
    ]
)
"""One row for each reading that the suite asks for."""
Span = tuple[int, int]
"""First code point of a place in a document, and the one after its last."""
EvidenceSpans = Mapping[ReadingIds, Sequence[Span]]
"""Spans of the evidence by reading; a reading without any is left out."""
SPAN_COLUMNS = ["document_id", "question_id", "sample", "char_start", "char_end"]
"""Columns of `evidence` that are scored, beside `how`."""


def read_answers(output: Location) -> pa.Table:
    """The answers of a finished run, a table of `ANSWER_COLUMNS`; readings that were not read are left out.

    Raises:
        OutputError: no run has finished there, or a file can't be read.
    """
    table = find_run(output).dataset(ANSWERS_TABLE).to_table(columns=ANSWER_COLUMNS.names).cast(ANSWER_COLUMNS)
    return table.filter(pc.not_equal(table["status"], Status.NOT_READ.value))


def read_evidence(output: Location) -> EvidenceSpans:
    """The evidence of a run's readings; none where it asked for none.

    Raises:
        OutputError: a file can't be read.
    """
    return evidence_spans(find_run(output).evidence().to_table(columns=["how", *SPAN_COLUMNS]))


def evidence_spans(evidence: pa.Table) -> EvidenceSpans:
    """The spans of rows of `evidence`: the chosen sentences, not what was looked for of the answer."""
    spans: dict[ReadingIds, list[Span]] = {}
    chosen = evidence.filter((pc.field("how") == How.CHOSEN.value) & pc.field("char_start").is_valid())
    for row in chosen.select(SPAN_COLUMNS).to_pylist():
        spans.setdefault(reading_ids(row), []).append((row["char_start"], row["char_end"]))
    return spans


def score_answers(
    questions: pa.Table,
    answers: pa.Table,
    *,
    variant: str,
    samples: int,
    evidence: EvidenceSpans = MappingProxyType({}),
) -> pa.Table:
    """Makes a table of `SCORES`: each question of the suite in its order, each of its samples."""
    answered = {reading_ids(row): row for row in answers.to_pylist()}
    rows = []
    for question in questions.to_pylist():
        for sample in range(samples):
            key = (question["document_id"], question["question_id"], sample)
            row = _score_row(question, answered.get(key), evidence=evidence.get(key, ()))
            rows.append({**row, "variant": variant, "sample": sample})
    return pa.Table.from_pylist(rows, schema=SCORES)


def _score_row(question: Row, answer: Row | None, *, evidence: Sequence[Span]) -> Row:
    ended = answer if answer and answer["status"] == Status.OK else {}
    follow_ups = _follow_up_scores(question, ended, evidence=evidence)
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
        "score": float(bool(follow_ups["value_right"])) if metric is Metric.VALUE else metrics[metric.value],
        "scored_on": basis.value,
        "status": answer["status"] if answer else STATUS_MISSING,
        "answered": (texts | {"value": follow_ups["value_status"]})[basis] is not None,
        "answer": texts["answer"],
        "num_document_tokens": answer and answer["num_document_tokens"],
    }


def _follow_up_scores(question: Row, answer: Row, *, evidence: Sequence[Span]) -> Row:
    """Scores of what was asked after one answer, a row of `ANSWER_COLUMNS`; empty where the reading did not end."""
    value, references = None, None
    if (value_type := value_type_of(question)) is not None:
        references = [written_value(reference, value_type) for reference in question["references"]]
        if status := answer.get("value_status"):
            value = TypedValue(status=ValueStatus(status), value=answer["value"])
    if value is not None:
        abstained = value.status in UNSTATED
    else:
        abstained = references is None and says_not_stated(answer.get("answer") or "")
    num_evidence = answer.get("num_evidence")
    return {
        "value": value and value.value,
        "value_status": value and value.status.value,
        "confidence": answer.get("confidence"),
        "value_right": None if references is None else any(value and values_equal(value, each) for each in references),
        "reference_value": references[0].value if references else None,
        "is_absent": question["is_absent"],
        "abstained": abstained,
        "num_evidence": num_evidence,
        **_evidence_scores(evidence, gold=None if num_evidence is None else question["gold_spans"]),
    }


def _evidence_scores(evidence: Sequence[Span], *, gold: Sequence[Row] | None) -> Row:
    """The four columns of evidence, by overlap; null if it was not asked for, or no right sentence is known."""
    if not gold:
        return dict.fromkeys((*EVIDENCE_SCORES, "evidence_hit"))
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

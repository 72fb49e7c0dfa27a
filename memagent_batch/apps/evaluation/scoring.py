"""Answers to scores: one row for each reading that a suite asks for. None is left out."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.apps.evaluation.suite import ANSWER_COLUMNS, COSTS, SCORES, STATUS_MISSING, GoldSpanRow
from memagent_batch.data.documents.questions import value_type_of
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
from memagent_batch.run.tables import ANSWERS_TABLE, ReadingIds, reading_ids
from memagent_batch.types import Status

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
    return evidence_spans([find_run(output).evidence().to_table(columns=["how", *SPAN_COLUMNS])])


def evidence_spans(tables: Iterable[pa.Table]) -> EvidenceSpans:
    """The evidence in the files of a table `evidence`: the chosen sentences, not what was looked for of the answer."""
    spans: dict[ReadingIds, list[Span]] = {}
    for table in tables:
        chosen = table.filter(pc.and_(pc.equal(table["how"], How.CHOSEN.value), pc.is_valid(table["char_start"])))
        for row in chosen.select(SPAN_COLUMNS).to_pylist():
            spans.setdefault(reading_ids(row), []).append((row["char_start"], row["char_end"]))
    return spans


def follow_up_scores(question: Row, answer: Row, *, evidence: Sequence[Span]) -> Row:
    """Scores of what was asked after one answer, a row of `ANSWER_COLUMNS`; empty where the reading did not end."""
    value, references = _value_and_references(question, answer)
    is_right = (
        None if references is None else value is not None and any(values_equal(value, each) for each in references)
    )
    if value is not None:
        abstained = value.status in UNSTATED
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

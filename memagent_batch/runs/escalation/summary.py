"""How many readings were doubtful, why, and what became of them: in a part of the tables, and in the manifest."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import pyarrow as pa

from memagent_batch.config.escalation import TargetConfig
from memagent_batch.domain.closing.answer_types import AnswerType
from memagent_batch.domain.readings import Status
from memagent_batch.runs.escalation.second_reader import SecondReader
from memagent_batch.runs.manifest import LearntTarget, SecondLookCounts, SecondLookSummary
from memagent_batch.runs.rows.looks import Look
from memagent_batch.runs.tables.part_report import EscalatedRow, PartReport


def escalated_rows(looks: Sequence[Look]) -> list[EscalatedRow]:
    """The readings of a part that were doubtful, by reason."""
    doubtful: dict[str, list[Look]] = defaultdict(list)
    for look in looks:
        because = look.answer["escalated_because"]
        if because is not None:
            doubtful[because].append(look)
    return [_escalated(because, doubtful[because]) for because in sorted(doubtful)]


def _escalated(because: str, looks: Sequence[Look]) -> EscalatedRow:
    statuses = [look.second_status for look in looks]
    return {
        "because": because,
        "num_readings": len(looks),
        "num_answered": statuses.count(Status.OK),
        "num_failed": statuses.count(Status.FAILED),
        "num_not_read": statuses.count(Status.NOT_READ),
        "num_to_review": sum(bool(look.answer["needs_review"]) for look in looks),
    }


def sum_up_second_look(
    reader: SecondReader | None, reports: Sequence[PartReport], *, asked: int, target: LearntTarget | None = None
) -> SecondLookSummary:
    """What the manifest says of a second reader, or of what a person must look at, by the reports of the parts."""
    rows = [row for report in reports for row in report["escalated"]]
    because: Counter[str] = Counter()
    for row in rows:
        because[row["because"]] += row["num_readings"]
    counts: SecondLookCounts = {
        "escalated": because.total(),
        "answered": sum(row["num_answered"] for row in rows),
        "failed": sum(row["num_failed"] for row in rows),
        "not_read": sum(row["num_not_read"] for row in rows),
        "needs_review": sum(row["num_to_review"] for row in rows),
    }
    summary: SecondLookSummary = {
        "reader_fingerprint": reader.identity.fingerprint if reader else None,
        "reader": reader.identity.parts if reader else None,
        "extraction": reader.agent.extraction.value if reader else None,
        "counts": counts,
        "share": round(because.total() / asked, 6) if asked else 0.0,
        "because": dict(sorted(because.items())),
    }
    return {**summary, "target": target} if target else summary


def learnt_target(
    target: TargetConfig | None, thresholds: Mapping[str, float], *, questions: pa.Table
) -> LearntTarget | None:
    """What the manifest says of a target; None where there is none.

    Args:
        target: The target.
        thresholds: What it went by, by question hash.
        questions: The questions that were asked, with `question_id`, `question_hash` and `answer_type`.
    """
    if target is None:
        return None
    asked = questions.select(["question_id", "question_hash", "answer_type"]).to_pylist()
    up_to = {
        row["question_id"]: thresholds[row["question_hash"]]
        for row in asked
        if row["answer_type"] == AnswerType.BOOL and row["question_hash"] in thresholds
    }
    return {"recall": target.recall, "delta": target.delta, "up_to": up_to}

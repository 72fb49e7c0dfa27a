"""How many readings were doubtful, why, and what became of them: in a part of the tables, and in the manifest."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from memagent_batch.domain.readings import Status
from memagent_batch.runs.escalation.second_reader import SecondReader
from memagent_batch.runs.manifest import SecondLookSummary
from memagent_batch.runs.rows.looks import Look
from memagent_batch.runs.schemas import EscalatedRow, PartReport


def escalated_rows(looks: Sequence[Look]) -> list[EscalatedRow]:
    """The readings of a part that were doubtful, by reason."""
    ends: dict[str, list[Status]] = defaultdict(list)
    for look in looks:
        because = look.answer["escalated_because"]
        if because is not None and look.second_status is not None:
            ends[because].append(look.second_status)
    return [
        {
            "because": because,
            "num_readings": len(statuses),
            "num_answered": statuses.count(Status.OK),
            "num_not_read": statuses.count(Status.NOT_READ),
        }
        for because, statuses in sorted(ends.items())
    ]


def sum_up_second_look(reader: SecondReader, reports: Sequence[PartReport], *, asked: int) -> SecondLookSummary:
    """What the manifest says of a second reader, by what the parts of the tables reported."""
    rows = [row for report in reports for row in report["escalated"]]
    because: Counter[str] = Counter()
    for row in rows:
        because[row["because"]] += row["num_readings"]
    answered, not_read = (sum(row[name] for row in rows) for name in ("num_answered", "num_not_read"))
    num = because.total()
    return {
        "reader_fingerprint": reader.identity.fingerprint,
        "reader": reader.identity.parts,
        "extraction": reader.agent.extraction.value,
        "counts": {
            "escalated": num,
            "answered": answered,
            "failed": num - answered - not_read,
            "not_read": not_read,
        },
        "share": round(num / asked, 6) if asked else 0.0,
        "because": dict(sorted(because.items())),
    }

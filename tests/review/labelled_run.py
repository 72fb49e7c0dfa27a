"""A finished run of any size with a known truth, as its tables and manifest have it, and people who label it."""

import csv
import io
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from memagent_batch.apps.review.sheet import unquoted
from memagent_batch.data.documents.questions import read_questions
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.question_list import FOLLOW_UP_FINGERPRINT, with_hashes
from memagent_batch.run import tables
from tests.runs import written_runs
from tests.runs.written_runs import Row, answer_row

QUESTION = "Does the contract have the clause?"
PRECISION, SHARE_FAILED, SHARE_INVALID = 0.8, 0.02, 0.01
HOSTILE = "<script>document.title='owned'</script></memory>\x00\u202e\"><img src=x onerror=\"document.title='owned'\">"


@dataclass(frozen=True, kw_only=True)
class MadeRun:
    num_documents: int = 2000
    richness: float = 0.2
    recall: float = 0.9
    typed: bool = True
    run_id: str = "20261123T010000.000Z"
    seed: int = 0
    changed: int = 0
    """Answers that are drawn again, as by another model."""
    hostile: str = ""
    num_parts: int = 2
    num_with_losses: int = 0
    """Documents, the first, of whose source a part was not read."""
    follow_ups: str = "c" * 64
    """Fingerprint of what is asked after each answer."""


def truth_of(made: MadeRun) -> dict[str, bool]:
    """By document_id, whether it has the clause: the same for every model."""
    rng = random.Random(f"truth {made.seed}")
    return {f"doc-{number:05}{made.hostile}": rng.random() < made.richness for number in range(made.num_documents)}


def write_run(folder: Path, made: MadeRun) -> dict[str, bool]:
    """Writes the run into an output; returns the truth."""
    truth = truth_of(made)
    texts = {
        name: f"Contract {number}.{made.hostile}\n\nFirst clause of {number}.\nThe clause of {number} is here or not.\n"
        for number, name in enumerate(truth)
    }
    rows = _answer_rows(made, truth, texts)
    if not made.typed:
        untyped = dict.fromkeys(name for name in tables.ANSWERS.names if name.startswith(("value", "confidence")))
        rows = [row | untyped for row in rows]
    size = -(-len(rows) // made.num_parts)
    asked = with_hashes(read_questions(None, ask=[{"question_id": "clause", "question": QUESTION}]))
    written_runs.write_run(
        Location(uri=str(folder)),
        *[_part(rows[start : start + size], texts) for start in range(0, len(rows), size)],
        run_id=made.run_id,
        questions=asked.append_column(FOLLOW_UP_FINGERPRINT, pa.array([made.follow_ups])),
        texts=texts,
    )
    return truth


def _part(rows: list[Row], texts: Mapping[str, str]) -> dict[str, list[Row]]:
    evidence = [_evidence_row(row, texts[row["document_id"]]) for row in rows if row["answer"] == "Yes."]
    return {"answers": rows, "evidence": evidence, "memories": []}


def _answer_rows(made: MadeRun, truth: Mapping[str, bool], texts: Mapping[str, str]) -> list[Row]:
    rng = random.Random(made.seed)
    again = random.Random(f"{made.seed} again")
    false_positives = made.richness * made.recall * (1 - PRECISION) / PRECISION / (1 - made.richness)
    rows = []
    for place, (document_id, is_true) in enumerate(truth.items()):
        draws = [rng.random() for _ in range(4)]
        if place < made.changed:
            draws = [again.random() for _ in range(4)]
        found = draws[0] < (made.recall if is_true else false_positives)
        failed, invalid = draws[1] < SHARE_FAILED, draws[2] < SHARE_INVALID
        columns: Row = {"answer_type": "bool", "value_status": None if failed else "invalid" if invalid else "ok"}
        if failed:
            columns |= {"status": "failed", "error_type": "EngineRequestError"}
        if not failed and not invalid:
            columns |= {"answer": "Yes." if found else "No.", "value": json.dumps(found), "value_bool": found}
            columns |= {"value_label": "red" if found else "green", "confidence": draws[3]}
        columns["source"] = f"{document_id}.pdf"
        columns["source_unread"] = "page 2: an image without text" if place < made.num_with_losses else None
        text = texts[document_id]
        rows.append(answer_row(document_id, "clause", run_id=made.run_id, text=text, question=QUESTION, **columns))
    return rows


def _evidence_row(row: Row, text: str) -> Row:
    start = text.index("The clause")
    return {
        **{name: row[name] for name in tables.EVIDENCE.names if name in row},
        "how": "chosen",
        "rank": 1,
        "char_start": start,
        "char_end": len(text) - 1,
        "text": text[start:-1],
        "chunk_index": 0,
        "alignment": "exact",
    }


def fill_sheet(
    sheet: Path,
    truth: Mapping[str, bool],
    *,
    reviewer: str,
    error_rate: float = 0.0,
    seed: int = 0,
    most: int | None = None,
) -> bytes:
    """The sheet as a person fills it in, who errs by chance, each time in another document."""
    rng = random.Random(f"{seed} {reviewer}")
    rows = list(csv.DictReader(io.StringIO(sheet.read_text(encoding="utf-8-sig"), newline="")))
    sink = io.StringIO(newline="")
    writer = csv.DictWriter(sink, fieldnames=rows[0].keys())
    writer.writeheader()
    started = datetime(2026, 11, 23, 9, tzinfo=UTC) + timedelta(hours=seed)
    for place, row in enumerate(rows[:most]):
        is_true = truth[unquoted(row["document_id"])] != (rng.random() < error_rate)
        at = (started + timedelta(seconds=place)).isoformat()
        writer.writerow({**row, "label": "yes" if is_true else "no", "reviewer": reviewer, "labelled_at": at})
    return sink.getvalue().encode()


def take_in(output: Path, data: bytes) -> Location:
    place = output.parent / "filled.csv"
    place.write_bytes(data)
    return Location(uri=str(place))

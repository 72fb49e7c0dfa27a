"""A finished run of any size with a known truth, as its tables and manifest have it, and people who label it."""

import csv
import io
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.documents.converted import SOURCE_COLUMNS
from memagent_batch.documents.questions import read_questions
from memagent_batch.domain.addresses import text_hash
from memagent_batch.review.sheet import unquoted
from memagent_batch.runs.manifest import FORMAT
from memagent_batch.runs.tables import ANSWERS, EVIDENCE
from memagent_batch.store.location import Location
from memagent_batch.store.turn_log.question_list import FOLLOW_UP_FINGERPRINT, with_hashes, write_asked
from tests.runs.written_documents import Form, write_documents

QUESTION = "Does the contract have the clause?"
FINGERPRINT = "f" * 64
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
    """Documents, the first, of whose source a part was not read; with some, all are converted ones."""
    form: Form = Form.ROWS
    follow_ups: str = "c" * 64
    """Fingerprint of what is asked after each answer."""


def truth_of(made: MadeRun) -> dict[str, bool]:
    """By document_id, whether it has the clause: the same for every model."""
    rng = random.Random(f"truth {made.seed}")
    return {f"doc-{number:05}{made.hostile}": rng.random() < made.richness for number in range(made.num_documents)}


def write_run(folder: Path, made: MadeRun) -> dict[str, bool]:
    truth = truth_of(made)
    documents = folder.parent / "documents"
    texts = [
        f"Contract {number}.{made.hostile}\n\nFirst clause of {number}.\nThe clause of {number} is here, or is not.\n"
        for number in range(made.num_documents)
    ]
    of_id = dict(zip(truth, texts, strict=True))
    written = write_documents(documents, of_id, form=made.form, file="documents.parquet")
    rows = [row | {"document_hash": written.hashes[row["document_id"]]} for row in _answer_rows(made, truth)]
    if not made.typed:
        untyped = dict.fromkeys(name for name in ANSWERS.names if name.startswith(("value", "confidence")))
        rows = [row | untyped for row in rows]
    if made.num_with_losses:
        for place, row in enumerate(rows):
            row |= {"source": f"{row['document_id']}.pdf", "source_read": 1.0, "source_unread": None}
            row |= {"source_unread": "page 2: an image without text"} if place < made.num_with_losses else {}
    schema = pa.schema([*ANSWERS, *SOURCE_COLUMNS]) if made.num_with_losses else ANSWERS
    evidence = [_evidence_row(row, text) for row, text in zip(rows, texts, strict=True) if row["answer"] == "Yes."]
    files: dict[str, list[str]] = {"answers": [], "evidence": ["evidence/part-0.parquet"]}
    (folder / "answers").mkdir(parents=True, exist_ok=True)
    (folder / "evidence").mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(evidence, schema=EVIDENCE), folder / "evidence" / "part-0.parquet")
    size = -(-len(rows) // made.num_parts)
    for part in range(made.num_parts):
        table = pa.Table.from_pylist(rows[part * size : (part + 1) * size], schema=schema)
        name = f"answers/part-{part}-{made.run_id}.parquet"
        pq.write_table(table, folder / name)
        files["answers"].append(name)
    settings = {"input": {"text_column": "text", **written.input}, "documents": [str(documents)]}
    tables = {**written.tables}
    made_by = {"run_id": made.run_id, "fingerprint": FINGERPRINT}
    manifest = {"format": FORMAT, **made_by, "files": files, "settings": settings, "tables": tables, "parts": []}
    asked = with_hashes(read_questions(None, ask=[{"question_id": "clause", "question": QUESTION}]))
    asked = asked.append_column(FOLLOW_UP_FINGERPRINT, pa.array([made.follow_ups]))
    write_asked(Location(uri=str(folder)), asked, run_id=made.run_id)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return truth


def _answer_rows(made: MadeRun, truth: Mapping[str, bool]) -> list[dict[str, Any]]:
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
        answered = not failed and not invalid
        value_label = "red" if found else "green"
        rows.append(
            {
                "run_id": made.run_id,
                "document_id": document_id,
                "question_id": "clause",
                "sample": 0,
                "question": QUESTION,
                "status": "failed" if failed else "ok",
                "answer": ("Yes." if found else "No.") if answered else None,
                "memory_truncations": 0,
                "num_turns": 1,
                "num_replayed_turns": 0,
                "num_prompt_tokens": 1,
                "num_cached_prompt_tokens": 0,
                "num_completion_tokens": 1,
                "engine_seconds": 0.0,
                "finished_at": datetime(2026, 11, 23, 1, tzinfo=UTC),
                "question_hash": text_hash(QUESTION),
                "fingerprint": FINGERPRINT,
                "model": "tiny",
                "error_type": "EngineRequestError" if failed else None,
                "answer_type": "bool",
                "value": json.dumps(found) if answered else None,
                "value_bool": found if answered else None,
                "value_label": value_label if answered else None,
                "value_status": None if failed else "invalid" if invalid else "ok",
                "confidence": draws[3] if answered else None,
            }
        )
    return rows


def _evidence_row(row: Mapping[str, Any], text: str) -> dict[str, Any]:
    start = text.index("The clause")
    return {
        **{name: row[name] for name in EVIDENCE.names if name in row},
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

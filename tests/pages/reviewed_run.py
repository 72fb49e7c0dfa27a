"""A finished scan of contracts with typed values, evidence and a night before it, written by hand with its schemas."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa

from memagent_batch.cli.settings import job_of
from memagent_batch.data.documents.questions import QUESTION_SCHEMA
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.question_list import with_hashes
from memagent_batch.run.manifest import public_settings
from tests.runs.written_runs import Row, answer_row, write_run

LAST_NIGHT, TONIGHT = "20261121T010000.000Z.aaaa", "20261122T010000.000Z.bbbb"
CHUNK_CHARS = 2_400
NO_MODEL = "no model: these answers are made up"
PARTIES = (
    "Nordhafen Logistik",
    "Calder & Voss",
    "Ostrava Metals",
    "Lindqvist Energi",
    "Marisol Foods",
    "Tarn Valley Rail",
)
PROSE = (
    "Each party shall keep records of the services in the form that Schedule {n} describes.",
    "Notices under this clause are given in writing and take effect on receipt.",
    "The supplier shall replace any part that fails inspection within {n} working days.",
    "Nothing in this section limits the rights of the customer under Schedule {n}.",
    "The parties meet every quarter to review performance against the service levels.",
    "Invoices are payable within {n} days of receipt, without set-off or deduction.",
    "Personnel who enter the customer's premises shall follow its safety rules at all times.",
    "A waiver of any breach is not a waiver of a later breach of the same kind.",
    "Title to the goods passes on delivery; risk passes when they leave the supplier's dock.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    question_id: str
    question: str
    answer_type: str | None
    unit: str | None = None
    labels: Sequence[str] | None = None


LAWS = ("Germany", "England and Wales", "Delaware", "France")
QUESTIONS = (
    Asked(question_id="governing-law", question="Which law governs the contract?", answer_type="label", labels=LAWS),
    Asked(question_id="liability-cap", question="Is the supplier's liability capped?", answer_type="bool"),
    Asked(question_id="notice-period", question="How long is the notice period?", answer_type="number", unit="days"),
    Asked(question_id="end-date", question="When does the contract end?", answer_type="date"),
    Asked(question_id="signatory", question="Who signs for the supplier?", answer_type=None),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    num_documents: int = 12
    questions: Sequence[Asked] = QUESTIONS
    paragraphs: int = 60
    has_night_before: bool = True
    hostile: str = ""
    """Stands in every id, question, answer, memory and sentence."""
    notice_days: Sequence[int] = (30, 45, 60, 90, 180)
    """Notice periods; each contract has one of them."""
    failed: frozenset[int] = field(default_factory=lambda: frozenset({7}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    sentence: str
    answer: str
    value: str
    columns: Row


def write_scan(folder: Path, scan: Scan) -> Location:
    rng = random.Random(3)
    output = Location(uri=str(folder / "scan"))
    texts: dict[str, str] = {}
    tables: dict[str, list[Row]] = {"answers": [], "memories": [], "evidence": []}
    for number in range(scan.num_documents):
        document_id = f"{PARTIES[number % len(PARTIES)]} {2020 + number // len(PARTIES)}/{number:03d}{scan.hostile}"
        clauses = [_clause(rng, asked, scan) for asked in scan.questions]
        texts[document_id] = text = _contract(rng, document_id, clauses, scan)
        for place, (asked, clause) in enumerate(zip(scan.questions, clauses, strict=True)):
            is_failed = number in scan.failed and place == len(scan.questions) - 1
            key = _key(document_id, text, asked, scan)
            answer = _answer(rng, key, text, asked, clause, scan, is_failed=is_failed)
            tables["answers"].append(answer)
            if not is_failed:
                tables["memories"] += _turns(key, text, clause)
                tables["evidence"] += _evidence(key, text, clause)
    _write_nights(output, tables, texts, scan)
    return output


def _key(document_id: str, text: str, asked: Asked, scan: Scan) -> Row:
    question = asked.question + scan.hostile
    return answer_row(document_id, asked.question_id + scan.hostile, run_id=TONIGHT, text=text, question=question)


def _clause(rng: random.Random, asked: Asked, scan: Scan) -> Clause | None:
    """What a contract says; None where it does not say."""
    if rng.random() < 0.12 and asked.answer_type is not None:
        return None
    days, day = rng.choice(scan.notice_days), date(2027, 1, 31) + timedelta(days=rng.randrange(1500))
    law = rng.choice(LAWS)
    is_capped = rng.random() < 0.7
    name = rng.choice(("Ines Carvalho", "Tom Ashworth", "Jana Nováková", "Mei-Ling Zhou", "Sigrid Aas"))
    cap = "is limited to the fees paid in the last twelve months" if is_capped else "is unlimited"
    said: dict[str, tuple[str, str, str, Row]] = {
        "governing-law": (
            f"This agreement is governed by the laws of {law}.",
            f"The laws of {law}.",
            f'"{law}"',
            {"value_label": law},
        ),
        "liability-cap": (
            f"The supplier's total liability {cap}.",
            f"Its liability {cap}.",
            str(is_capped).lower(),
            {"value_bool": is_capped},
        ),
        "notice-period": (
            f"Either party may end this agreement on {days} days' notice.",
            f"{days} days",
            f"{days}",
            {"value_number": float(days)},
        ),
        "end-date": (
            f"Unless ended earlier, this agreement runs until {day:%d %B %Y}.",
            f"{day:%d %B %Y}",
            f'"{day}"',
            {},
        ),
        "signatory": (f"Signed for the supplier by {name}, managing director.", name, "", {}),
    }
    sentence, answer, value, columns = said[asked.question_id]
    return Clause(sentence=sentence + scan.hostile, answer=answer + scan.hostile, value=value, columns=columns)


def _contract(rng: random.Random, title: str, clauses: Sequence[Clause | None], scan: Scan) -> str:
    paragraphs = [
        " ".join(rng.choice(PROSE).format(n=rng.randrange(2, 30)) for _ in range(rng.randrange(3, 7)))
        for _ in range(scan.paragraphs)
    ]
    for clause in clauses:
        if clause is not None:
            place = rng.randrange(len(paragraphs))
            paragraphs[place] = f"{paragraphs[place]} {clause.sentence} {rng.choice(PROSE).format(n=4)}"
    return f"FRAMEWORK AGREEMENT — {title}\r\n\r\n" + "\n\n".join(
        f"{number}. {paragraph}" for number, paragraph in enumerate(paragraphs, start=1)
    )


def _answer(
    rng: random.Random, key: Row, text: str, asked: Asked, clause: Clause | None, scan: Scan, *, is_failed: bool
) -> Row:
    turns = len(range(0, len(text), CHUNK_CHARS)) + 1
    row = key | {
        "model": NO_MODEL,
        "num_document_tokens": len(text) // 4,
        "num_chunks": turns - 1,
        "num_turns": turns,
        "num_prompt_tokens": len(text) // 4 + 900 * turns,
        "num_completion_tokens": 40 * turns,
        "engine_seconds": 1.5,
        "answer_type": asked.answer_type,
        "value_unit": asked.unit,
    }
    if is_failed:
        error = {
            "error_type": "EngineRequestError",
            "error_message": f"turn 3: the engine refused the request{scan.hostile}",
        }
        return row | {"status": "failed", "num_turns": 3, **error}
    said = clause.answer if clause else "The contract does not say."
    row |= {
        "status": "ok",
        "answer": said,
        "response": f"The notes settle it. \\boxed{{{said}}}",
        "memory": _memory(clause),
    }
    confidence = round(min(0.9995, max(0.31, rng.gauss(0.93, 0.13))), 4)
    row |= {"coverage": 1.0, "num_evidence": 1 if clause else 0}
    if asked.answer_type is not None:
        row |= {"value_status": "ok" if clause else "not_stated", "confidence": confidence}
    if asked.answer_type in {"number", "date"}:
        row["confidence"] = None
    if clause:
        support = "supported" if confidence > 0.8 else rng.choice(("partly", "not enough", "contradicted"))
        row |= {"value": clause.value or None, **clause.columns, "support": support, "support_probability": confidence}
    return row


def _memory(clause: Clause | None) -> str:
    return f"Noted so far: {clause.sentence}" if clause else "Nothing on the question yet."


def _turns(key: Row, text: str, clause: Clause | None) -> Iterator[Row]:
    found = text.find(clause.sentence) if clause else len(text)
    was_noted = False
    for number, start in enumerate([*range(0, len(text), CHUNK_CHARS), None]):
        is_answer = start is None
        end = None if start is None else min(start + CHUNK_CHARS, len(text))
        is_noted = end is None or found < end
        noted = _memory(clause if is_noted else None)
        yield {
            **key,
            "turn": number,
            "kind": "answer" if is_answer else "update",
            "writes": None if is_answer else "memory",
            "chunk_index": None if is_answer else number,
            "token_start": None if start is None else start // 4,
            "token_end": None if end is None else end // 4,
            "char_start": start,
            "char_end": end,
            "memory": noted,
            "changed": not is_answer and (number == 0 or is_noted != was_noted),
            "num_tokens": 31,
            "finish_reason": "stop",
        }
        was_noted = is_noted


def _evidence(key: Row, text: str, clause: Clause | None) -> Iterator[Row]:
    if clause is None:
        return
    start = text.index(clause.sentence)
    base = {**key, "rank": 1, "locator": None, "alignment": "exact"}
    span = {"char_start": start, "char_end": start + len(clause.sentence), "text": clause.sentence}
    yield {**base, "how": "chosen", **span, "chunk_index": start // CHUNK_CHARS, "quote": None}
    quote = clause.answer.removesuffix(".")
    place = text.find(quote, start, start + len(clause.sentence))
    found = {"char_start": place, "char_end": place + len(quote), "text": quote} if place >= 0 else {}
    nowhere = {"char_start": None, "char_end": None, "text": None, "alignment": "none"}
    yield {**base, "how": "aligned", "chunk_index": None, "quote": quote, **(found or nowhere)}


def _write_nights(output: Location, tables: dict[str, list[Row]], texts: dict[str, str], scan: Scan) -> None:
    """Tonight's run and, if there is one, that of the night before.

    In the night before, every ninth answer was another one, and every eleventh was not asked for.
    """
    rows = [{**asdict(asked), "question_id": asked.question_id + scan.hostile} for asked in scan.questions]
    rows = [row | {"question": row["question"] + scan.hostile} for row in rows]
    questions = with_hashes(pa.Table.from_pylist(rows, schema=QUESTION_SCHEMA))
    job = job_of(documents="contracts", questions="contracts.csv", output=output.uri)
    settings = public_settings(job) | {"model": NO_MODEL}
    if scan.has_night_before:
        answers = [*filter(None, map(_answer_before, *zip(*enumerate(tables["answers"]), strict=True)))]
        write_run(
            output,
            tables | {"answers": answers},
            run_id=LAST_NIGHT,
            questions=questions,
            texts=texts,
            settings=settings,
        )
    write_run(output, tables, run_id=TONIGHT, questions=questions, texts=texts, settings=settings)


def _answer_before(number: int, row: Row) -> Row | None:
    """The row of the night before; None if the reading was not asked for."""
    if number % 11 == 5:
        return None
    if number % 9 == 4 and row["status"] == "ok":
        return row | {"response": "\\boxed{It was another answer.}", "answer": "It was another answer."}
    return row

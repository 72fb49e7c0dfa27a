"""Readings that nobody made: their turns, ends, plan and tables, as large as those of a real run."""

import random
from datetime import UTC, datetime

import pyarrow as pa

from memagent_batch.config.job import TableFormat
from memagent_batch.domain.addresses import ReadingAddress, text_hash
from memagent_batch.domain.answers import Extraction
from memagent_batch.domain.readings import Status
from memagent_batch.domain.turns import Completion, FinishReason, Prompt
from memagent_batch.files.location import Location
from memagent_batch.inputs.document_index import INDEX_SCHEMA
from memagent_batch.inputs.questions import QUESTION_SCHEMA
from memagent_batch.log.schemas import ResultRow
from memagent_batch.runs.planning.plan import Plan
from memagent_batch.runs.rows.projection import Projection

FINGERPRINT = text_hash("a reader")

QUESTION = "What colour is the sky?"

PROMPT_TOKENS = 1000

COMPLETION_TOKENS = 200

NUM_COMPLETIONS = 2000

CHUNK_BYTES = 20_000
"""Text of one turn: a chunk of 5,000 tokens."""

PROMPT_IDS = list(range(PROMPT_TOKENS))


def synthetic_plan(num_readings: int, reading_turns: int) -> Plan:
    rows = [
        {
            "document_id": f"d{number}",
            "document_hash": document_hash(number),
            "path": "documents.parquet",
            "format": "parquet",
            "start": 0,
            "stop": number,
            "num_bytes": CHUNK_BYTES * (reading_turns - 1),
        }
        for number in range(num_readings)
    ]
    question = {"question_id": "q", "document_id": None, "question": QUESTION, "references": None}
    questions = pa.Table.from_pylist([question], schema=QUESTION_SCHEMA)
    return Plan(pa.Table.from_pylist(rows, schema=INDEX_SCHEMA), questions, samples=1)


def synthetic_projection(place: Location) -> Projection:
    return Projection(
        output=place,
        run_id="r",
        reader_fingerprint=FINGERPRINT,
        model="none",
        first_memory="",
        keep_word="",
        extraction=Extraction.RAW,
        table_format=TableFormat.PARQUET,
    )


def document_hash(number: int) -> str:
    return text_hash(str(number))


def address_of(number: int) -> ReadingAddress:
    return ReadingAddress(
        document_hash=document_hash(number),
        question_hash=text_hash(QUESTION),
        sample=0,
        reader_fingerprint=FINGERPRINT,
    )


def prompt_of(turn: int, reading_turns: int) -> Prompt:
    is_last = turn == reading_turns - 1
    return Prompt(
        path="answer" if is_last else f"update/{turn}",
        kind="answer" if is_last else "update",
        token_ids=PROMPT_IDS,
        max_tokens=COMPLETION_TOKENS,
    )


def make_completions(rng: random.Random) -> list[Completion]:
    """Many different ones: what repeats would shrink in the file as no model's words do."""
    return [completion_of([rng.randrange(50_000) for _ in range(COMPLETION_TOKENS)]) for _ in range(NUM_COMPLETIONS)]


def completion_of(token_ids: list[int]) -> Completion:
    text = " ".join(f"{token:x}" for token in token_ids)
    return Completion(token_ids=token_ids, text=text, finish_reason=FinishReason.STOP, num_prompt_tokens=PROMPT_TOKENS)


def result_of(reading_turns: int) -> ResultRow:
    now = datetime.now(UTC)
    return {
        "memory_truncations": 0,
        "num_document_tokens": None,
        "num_chunks": None,
        "num_replayed_turns": 0,
        "num_prompt_tokens": 0,
        "num_cached_prompt_tokens": 0,
        "num_completion_tokens": 0,
        "num_markers": None,
        "engine_seconds": 0,
        "error_type": None,
        "error_message": None,
        "status": Status.OK,
        "response": "blue",
        "memory": "the sky is blue",
        "finish_reason": FinishReason.STOP,
        "num_turns": reading_turns,
        "started_at": now,
        "finished_at": now,
        "model": "none",
    }

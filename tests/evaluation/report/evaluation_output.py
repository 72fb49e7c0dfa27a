"""An evaluation's output as `evaluate run` writes it, of any size, with readings that went wrong in known ways."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.evaluation.record import EVALUATION_FORMAT
from memagent_batch.evaluation.scoring import EvidenceSpans, score_answers
from memagent_batch.evaluation.suite import ANSWER_COLUMNS, SUITE_QUESTIONS
from memagent_batch.runs.manifest import FORMAT
from memagent_batch.runs.tables import ANSWERS, MEMORIES

Row = dict[str, Any]
NOISE = "the harbour office keeps a register of vessels, berths, tolls and pilots " * 7


@dataclass(frozen=True, kw_only=True)
class Made:
    """What is put into an output."""

    variants: Sequence[str] = ("overwrite",)
    tasks: Sequence[str] = ("niah_single_1",)
    lengths: Sequence[int | None] = (4096,)
    per_cell: int = 8
    share_right: Callable[[int, int, int], float] = lambda variant, task, length: 0.75
    """Part of the readings that are right, by the places of variant, task and length."""
    outcomes: Sequence[str] = ("lost", "never", "misread", "failed", "unanswered")
    """What becomes of the others, in turn."""
    with_depth: bool = True
    typed: bool = False
    """Whether labels and evidence were asked for; every fourth question is not answered by its document."""
    chunk_tokens: int = 1024
    hostile: str = ""
    """Stands in memory, answer, response, ids and names."""


def write_evaluation(folder: Path, made: Made) -> Path:
    """Writes the output and returns its folder."""
    variants = []
    for place, name in enumerate(made.variants):
        readings = list(_readings(made, place))
        answers = [row for reading in readings for row in reading.answer_rows()]
        memories = [row for reading in readings for row in reading.memory_rows()]
        run = folder / "runs" / f"variant-{place}"
        for table, rows, schema in (("answers", answers, ANSWERS), ("memories", memories, MEMORIES)):
            (run / table).mkdir(parents=True)
            pq.write_table(
                pa.Table.from_pylist(rows, schema=schema), run / table / "part-0.parquet", row_group_size=500
            )
        files = {table: [f"{table}/part-0.parquet"] for table in ("answers", "memories")}
        (run / "manifest.json").write_text(json.dumps({"format": FORMAT, "files": files}))
        (folder / "scores").mkdir(exist_ok=True)
        scores = score_answers(
            pa.Table.from_pylist([reading.question_row() for reading in readings], schema=SUITE_QUESTIONS),
            pa.Table.from_pylist(answers, schema=ANSWER_COLUMNS),
            variant=name,
            samples=1,
            evidence=_evidence(readings),
        )
        pq.write_table(scores, folder / "scores" / f"variant-{place}.parquet")
        variants.append(
            {
                "name": name,
                "run": f"runs/variant-{place}",
                "scores": f"scores/variant-{place}.parquet",
                "model": "models/tiny",
                "policy": "overwrite",
                "seconds": 312.5 + 100 * place,
                "fingerprint": f"{place:064x}",
                "finished_at": "2026-11-21T04:31:00+00:00",
                "suite_sha256": "of an older version",
            }
        )
    suite = "s3://suites/ruler" + made.hostile
    record = {"format": EVALUATION_FORMAT, "suite": suite, "variants": variants}
    (folder / "evaluation.json").write_text(json.dumps(record))
    return folder


def _readings(made: Made, place: int) -> Iterator["_Reading"]:
    wrong = 0
    for task_place, task in enumerate(made.tasks):
        for length_place, length in enumerate(made.lengths):
            num_right = round(made.per_cell * made.share_right(place, task_place, length_place))
            for number in range(made.per_cell):
                is_right = number < num_right
                outcome = "right" if is_right else made.outcomes[wrong % len(made.outcomes)]
                wrong += not is_right
                yield _Reading(made=made, task=task, length=length, number=number, outcome=outcome)


def _evidence(readings: Sequence["_Reading"]) -> EvidenceSpans:
    """One sentence of each reading; the right one where the answer is right."""
    return {
        (reading.key["document_id"], reading.key["question_id"], 0): [
            (0, 10) if reading.outcome == "right" else (20, 30)
        ]
        for reading in readings
    }


@dataclass(frozen=True, kw_only=True)
class _Reading:
    made: Made
    task: str
    length: int | None
    number: int
    outcome: str

    @property
    def key(self) -> Row:
        name = f"{self.task}-{self.length}-{self.number}{self.made.hostile}"
        return {"document_id": name, "question_id": f"q-{name}", "sample": 0}

    @property
    def reference(self) -> str:
        return f"{4_000_000 + 7919 * self.number}"

    @property
    def num_tokens(self) -> int:
        return self.length or 3000

    @property
    def num_turns(self) -> int:
        return -(-self.num_tokens // self.made.chunk_tokens) + 1

    @property
    def answer(self) -> str | None:
        if self.outcome in {"failed", "missing", "unanswered"}:
            return None
        return self.reference if self.outcome == "right" else f"7218843{self.made.hostile}"

    @property
    def is_absent(self) -> bool:
        return self.made.typed and self.number % 4 == 3

    def question_row(self) -> Row:
        """A row of `SUITE_QUESTIONS`."""
        label = {"answer_type": "label", "labels": ["open", "closed"], "not_stated": True, "metric": "value"}
        typed = label | {"references": ["not stated"] if self.is_absent else ["open"]}
        return {
            "document_id": self.key["document_id"],
            "question_id": self.key["question_id"],
            "question": "Who?",
            "references": [self.reference],
            "task": self.task,
            "length_tokens": self.length,
            "depth": (self.number + 0.5) / self.made.per_cell if self.made.with_depth else None,
            "metric": "em",
            "is_absent": self.is_absent,
            "gold_spans": [] if self.is_absent else [{"char_start": 0, "char_end": 10}],
            **(typed if self.made.typed else {}),
        }

    def _value(self) -> Row:
        """Columns of a typed value, if one was asked for."""
        if not self.made.typed:
            return {}
        is_right = self.outcome == "right"
        if is_right and self.is_absent:
            return {"value_status": "not_stated", "num_evidence": 0}
        return {"value": '"open"' if is_right else '"closed"', "value_status": "ok", "num_evidence": 1}

    def answer_rows(self) -> Iterator[Row]:
        if self.outcome == "missing":
            return
        failed = self.outcome == "failed"
        response = f"The code is \\boxed{{{self.answer}}}" if self.answer else "The memory does not say."
        yield {
            **self.key,
            **self._value(),
            "num_document_tokens": None if failed else self.num_tokens,
            "num_turns": self.num_turns,
            "num_prompt_tokens": self.num_tokens + 380 * self.num_turns,
            "num_cached_prompt_tokens": 60 * self.num_turns,
            "num_completion_tokens": 120 * self.num_turns,
            "engine_seconds": 0.021 * self.num_turns,
            "run_id": "r",
            "question": f"What is the special magic number for quiet-harbour-{self.number}?{self.made.hostile}",
            "status": "failed" if failed else "ok",
            "answer": self.answer,
            "response": None if failed else response + self.made.hostile,
            "memory": None,
            "memory_truncations": 0,
            "num_replayed_turns": 0,
            "finished_at": datetime(2026, 11, 21, 4, 31, tzinfo=UTC),
            "question_hash": "h",
            "fingerprint": "f",
            "model": "tiny",
            "error_type": "EngineRequestError" if failed else None,
            "error_message": "the engine refused the request; look at its log" if failed else None,
        }

    def memory_rows(self) -> Iterator[Row]:
        if self.outcome in {"right", "missing", "failed"}:
            return
        memory, updates = "No previous memory", self.num_turns - 1
        for turn in range(self.num_turns):
            before = memory
            if turn < updates:
                memory = self._written(turn, updates, memory)
            start = min(turn, updates - 1) * self.made.chunk_tokens
            span = {"token_start": start, "token_end": min(start + self.made.chunk_tokens, self.num_tokens)}
            span |= {"char_start": span["token_start"] * 4, "char_end": span["token_end"] * 4}
            yield {
                **self.key,
                **(span | {"chunk_index": turn} if turn < updates else {}),
                "run_id": "r",
                "turn": turn,
                "kind": "update" if turn < updates else "answer",
                "memory": memory,
                "changed": memory != before,
                "num_tokens": 120,
                "finish_reason": "length" if turn == 1 else "stop",
                "document_hash": "d",
                "question_hash": "h",
                "fingerprint": "f",
            }

    def _written(self, turn: int, updates: int, memory: str) -> str:
        """The needle comes in at a quarter, where it is noted at all, and is overwritten at three quarters."""
        is_noted = self.outcome in {"lost", "misread"}
        if turn == 0:
            return f"Notes so far: {NOISE}.{self.made.hostile}"
        if is_noted and turn == updates // 4:
            return f"{memory} The number for quiet-harbour-{self.number} is {self.reference}."
        if self.outcome == "lost" and turn == 3 * updates // 4:
            return memory.replace(self.reference, "7218843")
        if turn % 9 == 5:
            return memory.replace("tolls", f"tolls of {turn}", 1)
        return memory

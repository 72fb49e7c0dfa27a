"""`memories` shows the turns that the standing reading had, whatever another attempt wrote at other paths."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from memagent_batch.config.job import LogConfig
from memagent_batch.domain.addresses import ReadingAddress, text_hash
from memagent_batch.domain.readings import Status
from memagent_batch.domain.turns import Completion, FinishReason, Prompt, Writes
from memagent_batch.files.location import Location
from memagent_batch.inputs.document_index import INDEX_SCHEMA
from memagent_batch.inputs.questions import read_questions
from memagent_batch.log.index import scan_log
from memagent_batch.log.writer import TurnLogWriter
from memagent_batch.runs.parts import plan_parts
from memagent_batch.runs.plan import Plan
from memagent_batch.runs.projection import project
from tests.runs.projections import projection_at

FIRST, SECOND = "20260101T000000.000Z.aaaa", "20260101T000001.000Z.aaaa"


class Attempts:
    """Runs that read one document for one question."""

    def __init__(self, folder: Path) -> None:
        self.output = Location(uri=str(folder))
        place = {"path": "p", "format": "text", "start": 0, "stop": 5, "num_bytes": 5}
        documents = [{"document_id": "a", "document_hash": text_hash("a"), **place}]
        index = pa.Table.from_pylist(documents, schema=INDEX_SCHEMA)
        self.plan = Plan(index, read_questions(None, ask=["why?"]), samples=1)

    async def write(
        self,
        run_id: str,
        paths: dict[str, int | None],
        *,
        ends: Status | None = None,
        num_turns: int = 0,
    ) -> None:
        """Logs turns with their numbers, and the end of the reading."""
        writer = TurnLogWriter(self.output, run_id=run_id, writer_id="w", settings=LogConfig(flush_seconds=0.01))
        (asked,) = self.plan.asked.hashed.to_pylist()
        for path, number in paths.items():
            kind = path.split("/")[0]
            writes = None if kind == "answer" else Writes.MEMORY if kind == "merge" else Writes.NOTE
            prompt = Prompt(path=path, kind=kind, token_ids=(1,), max_tokens=4, writes=writes, number=number)
            completion = Completion(token_ids=(7,), text=f"{path} of {run_id}", finish_reason=FinishReason.STOP)
            writer.record_turn(address_of(asked["question_hash"]), prompt, completion)
        if ends is not None:
            await writer.record_outcome(address_of(asked["question_hash"]), outcome_of(ends, num_turns=num_turns))
        await writer.close()

    def memories(self) -> list[str]:
        """What the rows of `memories` show: the path and the run of each turn that wrote, and `answer`."""
        (part,) = plan_parts(self.plan, scan_log(self.output, reader_fingerprint="f"))
        tables = project(part, projection=projection_at(self.output))
        rows = tables.memories.to_pylist()
        return [row["kind"] if row["kind"] == "answer" else row["memory"] for row in rows]


def address_of(question_hash: str) -> ReadingAddress:
    return ReadingAddress(document_hash=text_hash("a"), question_hash=question_hash, sample=0, reader_fingerprint="f")


def outcome_of(status: Status, *, num_turns: int) -> Any:
    counts = ("num_replayed_turns", "num_prompt_tokens", "num_cached_prompt_tokens", "num_completion_tokens")
    now = datetime.now(UTC)
    row = {"status": status, "response": "42", "num_turns": num_turns, "engine_seconds": 0.1, "model": "m"}
    return {**dict.fromkeys((*counts, "memory_truncations"), 0), **row, "started_at": now, "finished_at": now}


MERGED_ONCE: dict[str, int | None] = {"read/1/0": 0, "read/1/1": 1, "merge/1/0/0": 2}


async def test_memories_leave_out_turns_that_only_a_superseded_attempt_asked(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path)
    await attempts.write(FIRST, {**MERGED_ONCE, "merge/2/0/0": 3, "merge/2/1/0": 4})
    await attempts.write(SECOND, {**MERGED_ONCE, "answer": 3}, ends=Status.OK, num_turns=4)
    assert attempts.memories() == [*(f"{path} of {SECOND}" for path in MERGED_ONCE), "answer"]


async def test_memories_of_a_reading_that_went_on_from_the_log_have_the_turns_of_both_runs(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path)
    await attempts.write(FIRST, {"read/1/1": 0, "read/1/0": 1})  # a policy of one's own may number them as they come
    await attempts.write(SECOND, {"merge/1/0/0": 1, "answer": 3}, ends=Status.OK, num_turns=4)
    shown = [f"read/1/0 of {FIRST}", f"read/1/1 of {FIRST}", f"merge/1/0/0 of {SECOND}", "answer"]
    assert sorted(attempts.memories()) == sorted(shown)


async def test_memories_of_a_failed_reading_leave_out_the_turns_of_a_later_try_that_was_killed(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path)
    await attempts.write(FIRST, {"read/1/0": 0, "read/1/1": 2}, ends=Status.FAILED, num_turns=2)
    await attempts.write(SECOND, {"read/1/2": 1, "merge/1/0/0": 3})
    assert attempts.memories() == [f"read/1/0 of {FIRST}", f"read/1/1 of {FIRST}"]


async def test_memories_of_turns_without_numbers_are_all_there(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path)
    await attempts.write(FIRST, dict.fromkeys(MERGED_ONCE), ends=Status.OK, num_turns=2)
    assert len(attempts.memories()) == len(MERGED_ONCE)

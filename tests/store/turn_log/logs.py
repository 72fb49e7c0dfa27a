"""Turn logs of several runs and writers, written by hand."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memagent_batch.config.job import LogConfig
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.index import LogIndex, read_outcomes, scan_log
from memagent_batch.data.store.turn_log.turns import read_turns
from memagent_batch.data.store.turn_log.writer import TurnLogWriter
from memagent_batch.loop.addresses import ReadingAddress
from memagent_batch.types import Completion, FinishReason, Prompt, Status

FLUSHES = 4
RUNS = ("20260101T120000.000Z.aaaa", "20260101T120000.001Z.bbbb", "20260101T120000.002Z.cccc")


def written(folder: Path, *, run_ids: tuple[str, ...] = RUNS[:1], writers: str = "ab") -> Location:
    """A log of some flushes: each has a turn and the outcome of another document."""
    output = Location(uri=str(folder))
    for run_id in run_ids:
        for writer_id in writers:
            asyncio.run(write(output, run_id=run_id, writer_id=writer_id))
    return output


def outcome_row(status: Status = Status.OK, **columns: Any) -> Any:
    """A row of the log of outcomes: zeros, nulls, and these columns."""
    counts = ("num_turns", "num_replayed_turns", "num_prompt_tokens", "num_cached_prompt_tokens")
    zeros = dict.fromkeys((*counts, "num_completion_tokens", "memory_truncations"), 0)
    return {"status": status, **zeros, "engine_seconds": 0.5, "finished_at": datetime.now(UTC), "model": "m", **columns}


async def write(output: Location, *, run_id: str, writer_id: str) -> None:
    writer = TurnLogWriter(
        output, run_id=run_id, writer_id=writer_id, settings=LogConfig(flush_seconds=0.001, outage_seconds=0)
    )
    for number in range(FLUSHES):
        name = f"{run_id} {writer_id} {number}"
        address = ReadingAddress(document_hash=name, question_hash="q", sample=0, fingerprint="f")
        prompt = Prompt(path="update/0", kind="update", token_ids=(1, 2), max_tokens=4)
        completion = Completion(token_ids=(7,), text=f"turn of {name}", finish_reason=FinishReason.STOP)
        writer.record_turn(address, prompt, completion, document_id=f"id of {name}")
        await writer.record_outcome(address, outcome_row(response=f"answer of {name}"))
    await writer.flush()


def held(output: Location) -> dict[str, Any]:
    """All that the log says: turns and answers by document, and the numbers of turns by run."""
    index = scan_log(output, fingerprint="f")
    hashes, files = index.turns["document_hash"].to_pylist(), sorted({*index.turns["file"].to_pylist()})
    turns = read_turns(output, files, fingerprints=["f"], document_hashes=hashes)["f"]
    outcomes = read_outcomes(output, {*index.outcomes["file"].to_pylist()}, fingerprint="f")
    return {
        "turns": {key[0]: {path: row["text"] for path, row in rows.by_path().items()} for key, rows in turns.items()},
        "answers": {key[0]: row["response"] for key, row in outcomes.items()},
        "num_turns": num_turns(index),
    }


def num_turns(index: LogIndex) -> dict[str, int]:
    sums = index.turns.group_by("run_id").aggregate([("num_turns", "sum")]).to_pylist()
    return {row["run_id"]: row["num_turns_sum"] for row in sums}


def rows_of(index: LogIndex) -> list[list[dict[str, Any]]]:
    order = [("document_hash", "ascending"), ("run_id", "ascending")]
    return [table.sort_by(order).to_pylist() for table in (index.outcomes, index.closed, index.turns)]


def small_files(output: Location) -> list[str]:
    return [path for path in output.files() if "to" not in path.rpartition("/")[2]]

"""Turn logs of several runs and writers, written by hand."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memagent_batch.config.job import LogConfig
from memagent_batch.domain.addresses import ReadingAddress
from memagent_batch.domain.turns import Completion, FinishReason, Prompt
from memagent_batch.store.location import Location
from memagent_batch.store.turn_log.index import read_outcomes, scan_log
from memagent_batch.store.turn_log.turns import read_turns
from memagent_batch.store.turn_log.writer import TurnLogWriter

FLUSHES = 4
RUNS = ("20260101T120000.000Z.aaaa", "20260101T120000.001Z.bbbb", "20260101T120000.002Z.cccc")


def written(folder: Path, *, run_ids: tuple[str, ...] = RUNS[:1], writers: str = "ab") -> Location:
    """A log of some flushes: each has a turn and the outcome of another document."""
    output = Location(uri=str(folder))
    for run_id in run_ids:
        for writer_id in writers:
            asyncio.run(write(output, run_id=run_id, writer_id=writer_id))
    return output


async def write(output: Location, *, run_id: str, writer_id: str) -> None:
    zeros = ["memory_truncations", "num_turns", "num_replayed_turns", "num_prompt_tokens", "num_completion_tokens"]
    ended: Any = {"status": "ok", **dict.fromkeys(zeros, 0), "num_cached_prompt_tokens": 0, "engine_seconds": 0.5}
    writer = TurnLogWriter(
        output, run_id=run_id, writer_id=writer_id, settings=LogConfig(flush_seconds=0.001, outage_seconds=0)
    )
    for number in range(FLUSHES):
        name = f"{run_id} {writer_id} {number}"
        address = ReadingAddress(document_hash=name, question_hash="q", sample=0, fingerprint="f")
        prompt = Prompt(path="update/0", kind="update", token_ids=(1, 2), max_tokens=4)
        writer.record_turn(
            address, prompt, Completion(token_ids=(7,), text=f"turn of {name}", finish_reason=FinishReason.STOP)
        )
        outcome = ended | {"response": f"answer of {name}", "finished_at": datetime.now(UTC), "model": "m"}
        await writer.record_outcome(address, outcome)
    await writer.close()


def held(output: Location) -> dict[str, Any]:
    """All that the log says: turns and answers by document, and the numbers of turns by run."""
    index = scan_log(output, fingerprint="f")
    hashes = [document_hash for document_hash, _ in index.turn_files]
    files = sorted({file for of_key in index.turn_files.values() for file in of_key})
    turns = read_turns(output, files, fingerprint="f", document_hashes=hashes)
    outcomes = read_outcomes(output, {each.file for each in index.outcomes.values()}, fingerprint="f")
    return {
        "turns": {key[0]: {path: row["text"] for path, row in rows.items()} for key, rows in turns.items()},
        "answers": {key[0]: row["response"] for key, row in outcomes.items()},
        "run_turns": index.run_turns,
    }


def small_files(output: Location) -> list[str]:
    return [path for path in output.files() if "to" not in path.rpartition("/")[2]]

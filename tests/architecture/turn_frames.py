"""Prints which functions stand between a policy that asks for a turn and the engine that answers it, a line each.

`metrics.py` runs this in a process of its own. It drives the objects of the actor without Ray; where those change,
`read_a_document` is what changes here.
"""

import asyncio
import logging
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

RUN_ID = "20260101T000000.000Z.0000"


class AskedError(Exception):
    """What the engine answers; its traceback is the way of a turn."""


class RaisingEngine:
    """Engine that answers no turn."""

    async def start(self) -> None:
        """Nothing to start."""

    async def complete(self, prompt: Any, *, seed: int) -> Any:
        """Raises, so that the stack shows who asked."""
        raise AskedError(f"{prompt.path}, seed {seed}")

    async def stop(self) -> None:
        """Nothing to stop."""


class AskingPolicy:
    """Policy that asks for one turn and keeps the traceback of its failure."""

    kind = "asking"

    def __init__(self) -> None:
        self.functions: list[str] = []
        """Functions from `read` to the engine, by file and name."""

    async def read(self, chunks: Any, question: Any, *, prompts: Any, generate: Any) -> Any:
        """One turn."""
        from memagent_batch.domain.turns import Prompt, TurnKind

        try:
            return await generate(Prompt(path="answer", kind=TurnKind.ANSWER, token_ids=[1], max_tokens=1))
        except AskedError as error:
            frames = traceback.extract_tb(error.__traceback__)
            self.functions = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
            raise


class SilentBoard:
    """Stands for the handle of the actor that counts progress."""

    def __getattr__(self, name: str) -> "SilentMethod":
        return SilentMethod(answers=name != "is_leaving")


class SilentMethod:
    """Stands for an actor's method."""

    def __init__(self, *, answers: bool) -> None:
        self._answers = answers

    def remote(self, *_: Any) -> "asyncio.Future[Any]":
        """Ends at once, unless it never does."""
        ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._answers:
            ended.set_result({"turns": 0})
        return ended


def read_a_document(folder: Path, *, policy: Any, engine: Any) -> None:
    """Reads one document with the objects that an actor makes."""
    import pyarrow as pa

    from memagent_batch.ray_data import reader
    from memagent_batch.ray_data.tokenise import tokenise
    from memagent_batch.settings import Settings
    from memagent_batch.storage.asked import write_asked
    from memagent_batch.storage.documents import index_shard
    from memagent_batch.storage.location import Location
    from memagent_batch.storage.plan import Plan
    from memagent_batch.storage.questions import read_questions
    from memagent_batch.storage.shards import list_shards
    from memagent_batch.storage.turn_index import scan_log
    from memagent_batch.wiring import identify_reader, make_output

    (folder / "document.txt").write_text("some words", encoding="utf-8")
    knobs: dict[str, Any] = {"documents": str(folder), "output": f"{folder}-run", "engine": "simulated"}
    budgets = {"chunk_tokens": 512, "question_tokens": 64, "memory_tokens": 64, "answer_tokens": 64}
    settings = Settings(ask=("Who?",), window_tokens=2048, policy=budgets, log={"flush_seconds": 0.01}, **knobs)
    shards = list_shards(Location(uri=str(folder)), settings=settings.input)
    tables = [table for shard in shards for table in index_shard(shard, settings=settings.input, storage_options={})]
    plan = Plan(pa.concat_tables(tables), read_questions(None, ask=settings.ask), samples=1)
    output, fingerprint = make_output(settings), identify_reader(settings).fingerprint
    write_asked(output, plan.hashed_questions(), run_id=RUN_ID)
    task = reader.ReaderTask(settings=settings, run_id=RUN_ID, reader_fingerprint=fingerprint, board=SilentBoard())
    pending = plan.pending(scan_log(output, reader_fingerprint=fingerprint), retry_failed=False)
    (document,) = [row for bundle in pending for row in tokenise(bundle, settings=settings)]

    async def read() -> None:
        with patch.multiple(reader, make_policy=lambda _: policy, make_engine=lambda _: engine):
            await reader.Reader(task)(document)

    asyncio.run(read())


def functions_between() -> Sequence[str]:
    """Functions on the stack between `AskingPolicy.read` and `RaisingEngine.complete`.

    Raises:
        RuntimeError: the policy never asked the engine.
    """
    policy = AskingPolicy()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "documents").mkdir()
        read_a_document(Path(folder) / "documents", policy=policy, engine=RaisingEngine())
    if not policy.functions:
        raise RuntimeError("the reading never came to the engine")
    return policy.functions[1:-1]


if __name__ == "__main__":
    logging.disable()
    sys.stdout.write("\n".join(functions_between()))

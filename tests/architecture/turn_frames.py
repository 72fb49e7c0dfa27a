"""Prints which functions stand between a policy that asks for a turn and the engine that answers it, a line each.

`metrics.py` runs this in a process of its own, with the objects that an actor uses: turns with a log, and an engine
that raises.
"""

import asyncio
import logging
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memagent_batch.config.job import LogConfig
from memagent_batch.domain.addresses import ReadingAddress
from memagent_batch.domain.turns import Completion, Prompt
from memagent_batch.files.location import Location
from memagent_batch.log.writer import TurnLogWriter
from memagent_batch.reading.suspects import Suspects
from memagent_batch.reading.turns import Journal, ReadingTurns

ADDRESS = ReadingAddress(document_hash="d", question_hash="q", sample=0, reader_fingerprint="r")


class AskedError(Exception):
    """What the engine answers; its traceback is the way of a turn."""


class RaisingEngine:
    """Engine that answers no turn."""

    async def start(self) -> None:
        """Nothing to start."""

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        """Raises, so that the stack shows who asked."""
        raise AskedError(f"{prompt.path}, seed {seed}")

    async def stop(self) -> None:
        """Nothing to stop."""


async def ask(turns: Any) -> list[str]:
    """Asks for one turn, as a policy does; returns the functions on the stack, by file and name."""
    try:
        await turns(Prompt(path="answer", kind="answer", token_ids=[1], max_tokens=1))
    except AskedError as error:
        frames = traceback.extract_tb(error.__traceback__)
        return [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    raise RuntimeError("the turn never came to the engine")


async def functions_between(folder: Path) -> Sequence[str]:
    """Functions on the stack between the policy and `RaisingEngine.complete`."""
    output = Location(uri=str(folder))
    log = TurnLogWriter(output, run_id="run", writer_id="writer", settings=LogConfig())
    journal = Journal(log=log, suspects=Suspects(output=output, run_id="run"))
    turns = ReadingTurns(engine=RaisingEngine(), address=ADDRESS, seed=0, journal=journal)
    return (await ask(turns))[1:-1]


if __name__ == "__main__":
    logging.disable()
    with tempfile.TemporaryDirectory() as place:
        sys.stdout.write("\n".join(asyncio.run(functions_between(Path(place)))))

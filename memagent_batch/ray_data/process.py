"""The process that a reader is in: the driver's own, or that of an actor of Ray."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from memagent_batch.engines.engine import Engine

LAST_STOP_SECONDS = 20.0
"""Longest wait for the end of an engine's processes: vLLM asks them to leave, and kills them after 5 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderProcess:
    """The driver's own process, which lives on when an engine dies; see `ray_process` for that of an actor."""

    is_replacement: bool = False
    """Whether an earlier reader of the same documents has gone."""
    writer: str = ""
    """What begins the names of the log files of this reader and of those that it replaces."""

    def on_sigterm(self, leave: Callable[[], None]) -> None:
        """Calls `leave` at SIGTERM; the driver's process has a way of its own to leave."""

    async def end(self, engine: Engine) -> None:
        """Stops an engine that has died, and what can't live without it."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(engine.stop(), LAST_STOP_SECONDS)

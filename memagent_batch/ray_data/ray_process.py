"""The process of an actor of Ray, which ends with its engine. Ray starts another one with the same documents."""

import os
import signal
import threading
from collections.abc import Callable

import ray

from memagent_batch.engines.engine import Engine
from memagent_batch.ray_data.process import LAST_STOP_SECONDS, ReaderProcess


class ActorProcess(ReaderProcess):
    """That of an actor."""

    __slots__ = ()

    def on_sigterm(self, leave: Callable[[], None]) -> None:
        """Calls `leave` when the process gets SIGTERM, as when its node is taken away."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, lambda number, frame: leave())

    async def end(self, engine: Engine) -> None:
        """Stops the engine and the process."""
        threading.Timer(LAST_STOP_SECONDS, os._exit, args=(1,)).start()
        try:
            await engine.stop()  # one that hangs guards itself no more, and would outlive this process
        finally:
            os._exit(1)


def this_process() -> ReaderProcess:
    """That of this actor; the driver's own outside actors.

    Ray gives a restarted actor the documents that it had, so of the run's files it needs those of this actor alone:
    with a thousand actors beside it, the others' files are too many to look through.
    """
    context = ray.get_runtime_context() if ray.is_initialized() else None
    if context is None or context.get_actor_id() is None:
        return ReaderProcess()
    return ActorProcess(
        is_replacement=bool(context.was_current_actor_reconstructed), writer=f"{context.get_actor_id()}-"
    )

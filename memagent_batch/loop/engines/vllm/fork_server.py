"""A process that imports vLLM while this one does, and from which its engine process is forked.

By itself vLLM spawns that process once it is imported here, and then imports it there again: some 10 s each on CPU.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import context, forkserver
from types import ModuleType
from typing import Any

from memagent_batch.loop.engines.vllm import orphan_guard

PRELOADED = ["vllm.v1.engine.core", "vllm.v1.worker.cpu_worker"]
"""What an engine process on CPU imports; nothing that starts a thread, which a forked process would lack."""


class EngineForkServer:
    """The server of one engine. It ends with this process, and with `stop`."""

    def __init__(self) -> None:
        """Starts it, with the environment of this moment; returns at once."""
        self._server: Any = forkserver.ForkServer()
        self._server.set_forkserver_preload(PRELOADED)
        self._server.ensure_running()

    @contextmanager
    def used_by(self, engine_module: ModuleType) -> Iterator[None]:
        """What vLLM starts in the block is forked from the server.

        Args:
            engine_module: `vllm.v1.engine.utils`, which starts the engine process as `get_mp_context` says.
        """
        before = engine_module.get_mp_context, forkserver.connect_to_new_process
        engine_module.get_mp_context = _EngineContext  # type: ignore[attr-defined]
        forkserver.connect_to_new_process = self._server.connect_to_new_process
        try:
            yield
        finally:
            engine_module.get_mp_context, forkserver.connect_to_new_process = before  # type: ignore[attr-defined]

    def stop(self) -> None:
        """Ends the server; its engine has ended, or ends now: the orphan guard of its process sees to that."""
        os.kill(self._server._forkserver_pid, signal.SIGKILL)
        self._server._stop()


class _EngineProcess(context.ForkServerProcess):
    """An engine process: it has the environment of the process that starts it, as if it were spawned."""

    def start(self) -> None:
        self._environment = dict(os.environ)
        super().start()

    def run(self) -> None:
        # Only what differs: where all of the environment is written again, vLLM can't set the title of its process.
        os.environ.update(self._environment.items() - os.environ.items())
        orphan_guard.install()  # vLLM, which loads it while it is imported, was imported by the server
        super().run()


class _EngineContext(context.ForkServerContext):
    Process = _EngineProcess

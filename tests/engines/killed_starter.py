"""A process that is killed the moment its engine process is there; it says the pid of that process first."""

import asyncio
import os
import signal
import sys
from multiprocessing import context

from memagent_batch.loop.engines.vllm.engine import VllmEngine
from tests.engine_context import context_of

start_process = context.ForkServerProcess.start


def start_and_die(process: context.ForkServerProcess) -> None:
    start_process(process)
    print(process.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    context.ForkServerProcess.start = start_and_die  # type: ignore[assignment, method-assign]
    engine = VllmEngine(enforce_eager=True, cpu_kv_cache_gib=1).open(context_of(sys.argv[1], window_tokens=1024))
    asyncio.run(engine.start())

"""A process that starts a child as vLLM starts its own, guarded or not, and says the child's pid when it is ready."""

import logging
import multiprocessing
import os
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

from memagent_batch.loop.engines.vllm import orphan_guard


def child(ready: Connection) -> None:
    orphan_guard.install()
    try:
        raise ValueError("no memory for the cache")
    except ValueError:
        logging.getLogger("vllm.v1.engine.core").exception("EngineCore failed to start.")
    ready.send(os.getpid())
    time.sleep(60)


def main(failure_file: Path, *, guarded: bool) -> None:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    with orphan_guard.environment(orphan_guard.guarded(failure_file) if guarded else {}):
        context.Process(target=child, args=(sender,)).start()
    print(receiver.recv(), flush=True)
    time.sleep(60)


if __name__ == "__main__":
    main(Path(sys.argv[1]), guarded=sys.argv[2] == "guarded")

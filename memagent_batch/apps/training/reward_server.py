"""What the process of a user's reward function runs: imports the function, then answers one response after another.

It is started as a script and imports nothing but the standard library before the user's module. It speaks JSON over one
socket, since stdout is the user's. It has its own process group, which it ends when the process that started it
is gone, even by `kill -9`: a thread looks, so that a function that hangs ends too.
"""

import importlib
import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypedDict

PARENT_SECONDS = 0.5
"""Time between two looks at the parent; polled, because Linux's parent-death signal fires when the *thread* that
started the process ends, which says nothing about the parent."""
MAX_ERROR_CHARACTERS = 2000


class Reply(TypedDict, total=False):
    """What comes of a message: a reward, why there is none, or nothing where the function is imported."""

    reward: float
    error: str


def main() -> None:
    """Serves the socket and the parent that the arguments name."""
    connection, parent = Connection(int(sys.argv[1])), int(sys.argv[2])
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    try:
        serve(connection)
    except (EOFError, OSError):  # the process that asks has closed the socket, or is gone
        end()


def serve(connection: Connection) -> None:
    """Imports the function of the first message, answers the others with it, and says what came of each of them."""
    reward: Callable[..., Any] | None = None
    while True:
        message = json.loads(connection.recv_bytes())
        try:
            if reward is None:
                sys.path[:] = message["sys_path"]
                reward, reply = imported(message["reward"]), Reply()
            else:
                reply = Reply(reward=rewarded(reward, message["response"], message["references"]))
        except BaseException as error:  # noqa: BLE001 - the boundary to the user's code; the reply says what it raised
            reply = Reply(error=error_line(error))
        connection.send_bytes(json.dumps(reply).encode())


def imported(path: str) -> Callable[..., Any]:
    """The function that `package.module:function` names.

    Raises:
        TypeError: it names no function.
    """
    module, _, name = path.partition(":")
    reward = getattr(importlib.import_module(module), name)
    if not callable(reward):
        raise TypeError(f"{name} is not a function")
    return reward  # type: ignore[no-any-return]


def rewarded(reward: Callable[..., Any], response: str, references: list[str]) -> float:
    """The reward of one response, a finite number; raises what the function does, and if it returns another thing."""
    returned = reward(response, references)
    if isinstance(returned, str | bytes) or not hasattr(returned, "__float__"):
        raise TypeError(f"the reward must be a number, not {type(returned).__name__}")
    number = float(returned)
    if not math.isfinite(number):
        raise ValueError(f"the reward must be finite, not {number}")
    return number


def error_line(error: BaseException) -> str:
    """An error of the user's code in one line."""
    if isinstance(error, SystemExit):
        return f"it calls exit({error.code})"
    return " ".join(f"{type(error).__name__}: {error}".split())[:MAX_ERROR_CHARACTERS]


def end() -> None:
    """Ends this process at once, with all that the user's code started in its group."""
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    end()


if __name__ == "__main__":
    main()

"""vLLM's own OpenAI-compatible server, which datatrove asks."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_SECONDS = 600.0
"""Longest wait for the server; compiling, where its settings ask for it, takes minutes."""
STOP_SECONDS = 10.0
"""Longest wait for its end before it is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmServer:
    """A server that runs."""

    url: str
    model: str

    def forget(self) -> None:
        """Empties its prefix cache, so that no run profits from the prompts of another.

        Raises:
            RuntimeError: it did not.
        """
        request = urllib.request.Request(f"{self.url}/reset_prefix_cache", method="POST")
        with urllib.request.urlopen(request, timeout=60) as response:
            if not json.load(response)["success"]:
                raise RuntimeError("vLLM's server did not empty its prefix cache")


@contextmanager
def vllm_server(arguments: Mapping[str, Any], *, environment: Mapping[str, str], log: Path) -> Iterator[VllmServer]:
    """Starts a server and ends it with all its processes; `model` is among the engine arguments.

    It is `python -m vllm.entrypoints.openai.api_server`; the `vllm` command of the CPU wheel does not run.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
        *("--host", "127.0.0.1", "--port", str(port), "--disable-uvicorn-access-log"),
        *_flags(arguments),
    ]
    variables = {"VLLM_NO_USAGE_STATS": "1", "VLLM_SERVER_DEV_MODE": "1"}  # the latter for `forget`
    env = {**os.environ, **variables, **environment}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=env, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(f"{url}/health", process, log=log)
        yield VllmServer(url=url, model=str(arguments["model"]))
    finally:
        process.terminate()
        try:
            process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its own session: nothing else is in the group
            process.wait()


def _wait(url: str, process: "subprocess.Popen[bytes]", *, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), urllib.request.urlopen(url, timeout=5):  # it raises for any status but those of success
            return
        time.sleep(0.1)
    raise RuntimeError(f"vLLM's server did not start: {log.read_text(errors='replace')[-3000:]}")


def _flags(arguments: Mapping[str, Any]) -> list[str]:
    flags: list[str] = []
    for name, value in arguments.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            flags += [f"--{flag}", json.dumps(value) if isinstance(value, dict) else str(value)]
    return flags

"""vLLM's own OpenAI-compatible server, which the peers that send text share."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

START_SECONDS = 600.0
"""Longest wait for the server; compiling, where its settings ask for it, takes minutes."""
STOP_SECONDS = 10.0
"""Longest wait for its end before it is killed."""


class VllmServer:
    """`python -m vllm.entrypoints.openai.api_server`; the `vllm` command of the CPU wheel does not run."""

    def __init__(self, *, arguments: Mapping[str, Any], environment: Mapping[str, str], log: Path) -> None:
        """Nothing runs yet; `model` is among the engine arguments."""
        self.model = str(arguments["model"])
        self.start_seconds = 0.0
        """From its start to its first healthy response."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self._arguments = dict(arguments)
        self._environment = dict(environment)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Starts it and waits until it serves."""
        began = time.monotonic()
        command = [
            *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
            *("--host", "127.0.0.1", "--port", str(self._port), "--disable-uvicorn-access-log"),
            *_flags(self._arguments),
        ]
        variables = {"VLLM_NO_USAGE_STATS": "1", "VLLM_SERVER_DEV_MODE": "1"}  # the latter for `forget`
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                env=os.environ | variables | self._environment,
                start_new_session=True,
            )
        try:
            self._wait(self._process)
        except BaseException:
            self._stop()
            raise
        self.start_seconds = time.monotonic() - began
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends it with all its processes."""
        self._stop()

    @property
    def url(self) -> str:
        """Address up to the port."""
        return f"http://127.0.0.1:{self._port}"

    def forget(self) -> None:
        """Empties its prefix cache, so that no run profits from the prompts of another.

        Raises:
            RuntimeError: it did not.
        """
        request = urllib.request.Request(f"{self.url}/reset_prefix_cache", method="POST")
        with urllib.request.urlopen(request, timeout=60) as response:
            if not json.load(response)["success"]:
                raise RuntimeError("vLLM's server did not empty its prefix cache")

    def _wait(self, process: "subprocess.Popen[bytes]") -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self._is_healthy():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"vLLM's server did not start: {self._log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.1)

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its own session: nothing else is in the group
            process.wait()


def _flags(arguments: Mapping[str, Any]) -> list[str]:
    """Engine arguments as the server's command line takes them."""
    flags: list[str] = []
    for name, value in arguments.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            flags += [f"--{flag}", json.dumps(value) if isinstance(value, dict) else str(value)]
    return flags

"""A real HTTP server on loopback that answers by script, in the order of the requests."""

import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    delay_seconds: float = 0.0
    """Time before the answer."""
    reset: bool = False
    """Cut the connection instead."""
    trickle_seconds: float = 0.0
    """Pause between the bytes of the body."""


PROBED = {
    "text": "a",
    "message": {"content": "a"},
    "token_ids": [5],
    "logprobs": {"token_logprobs": [-0.5]},
    "finish_reason": "length",
}
"""What answers a request for next to nothing, through either API."""
PROBE_BUDGETS = (1, 16)
"""Budgets of such requests, tokens."""
THERE = Reply(body=json.dumps({"choices": [PROBED]}).encode())
"""The answer to a probe."""


@dataclass(slots=True, kw_only=True)
class Script:
    base_url: str
    replies: list[Reply]
    """Taken from the front; the last one stays."""
    probes: list[Reply] = field(default_factory=lambda: [THERE])
    """Replies to requests for one token, such as the one at the engine's start; taken as `replies` are."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    """Bodies of the POST requests for more than one token."""
    probed: list[dict[str, Any]] = field(default_factory=list)
    """Bodies of those for one token."""
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    answer: Callable[[dict[str, Any]], Reply] | None = None
    """Replies to the body of a request for more than one token, in place of `replies`."""
    answers_probes: bool = False
    """Whether `answer` replies to requests for one token too."""
    is_away: Callable[[], bool] = lambda: False
    """Whether the next request of any kind is rejected with a 503."""
    version: Reply = field(default_factory=lambda: Reply(status=404))
    """The answer to `GET /version`, beside the API."""
    models: Reply = field(default_factory=lambda: Reply(body=json.dumps({"data": [{"id": "tiny"}]}).encode()))


@contextmanager
def scripted_server(*replies: Reply, port: int = 0, tls: ssl.SSLContext | None = None) -> Iterator[Script]:
    """Serves until the block ends; from then on its connections are cut, and new ones refused."""
    server = _Server(("127.0.0.1", port), _Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    server.is_gone = False  # type: ignore[attr-defined]
    script = Script(base_url=f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}/v1", replies=list(replies))
    server.script = script  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield script
    finally:
        server.is_gone = True  # type: ignore[attr-defined]
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # more than any test opens at a time; what is above is reset


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.script.headers.append(dict(self.headers))
        self.script.paths.append(self.path)
        self._reply(self.script.version if self.path == "/version" else self.script.models)

    def do_POST(self) -> None:
        script = self.script
        script.headers.append(dict(self.headers))
        script.paths.append(self.path)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        is_probe = body.get("max_tokens", body.get("max_completion_tokens")) in PROBE_BUDGETS
        (script.probed if is_probe else script.requests).append(body)
        if script.answer and (script.answers_probes or not is_probe):
            self._reply(script.answer(body))
            return
        replies = script.probes if is_probe else script.replies
        self._reply(replies.pop(0) if len(replies) > 1 else replies[0])

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing to the test's output."""

    @property
    def script(self) -> Script:
        script: Script = self.server.script  # type: ignore[attr-defined]
        return script

    def _reply(self, reply: Reply) -> None:
        reply = Reply(status=503) if self.script.is_away() else reply
        time.sleep(reply.delay_seconds)
        if reply.reset or self.server.is_gone:  # type: ignore[attr-defined]
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            self.close_connection = True
            self.connection.close()
            return
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        for part in (
            [reply.body] if not reply.trickle_seconds else [reply.body[i : i + 1] for i in range(len(reply.body))]
        ):
            self.wfile.write(part)
            time.sleep(reply.trickle_seconds)

"""A real HTTP server on loopback that answers by script, in the order of the requests."""

import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER that makes a close a reset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the server does with one request."""

    status: int = 200
    """HTTP status."""
    body: bytes = b""
    """Sent as it is."""
    headers: dict[str, str] = field(default_factory=dict)
    """Further headers."""
    delay_seconds: float = 0.0
    """Time before the answer."""
    reset: bool = False
    """Cut the connection instead."""


@dataclass(slots=True, kw_only=True)
class Script:
    """The replies that are left, and the requests that came."""

    base_url: str
    """Address up to /v1."""
    replies: list[Reply]
    """Taken from the front; the last one stays."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    """Bodies of the POST requests."""
    headers: list[dict[str, str]] = field(default_factory=list)
    """Headers of all requests."""
    models: Reply = field(default_factory=lambda: Reply(body=json.dumps({"data": [{"id": "tiny"}]}).encode()))
    """Answer to GET /models."""


@contextmanager
def scripted_server(*replies: Reply) -> Iterator[Script]:
    """Serves until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    script = Script(base_url=f"http://127.0.0.1:{server.server_port}/v1", replies=list(replies))
    server.script = script  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.script.headers.append(dict(self.headers))
        self._reply(self.script.models)

    def do_POST(self) -> None:
        script = self.script
        script.headers.append(dict(self.headers))
        script.requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._reply(script.replies.pop(0) if len(script.replies) > 1 else script.replies[0])

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing to the test's output."""

    @property
    def script(self) -> Script:
        script: Script = self.server.script  # type: ignore[attr-defined]
        return script

    def _reply(self, reply: Reply) -> None:
        time.sleep(reply.delay_seconds)
        if reply.reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            self.close_connection = True
            self.connection.close()
            return
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)

"""An HTTP proxy on loopback that fails as stores and endpoints do: errors, throttling, resets, silence, lost answers.

It stands before a real S3 API or an endpoint. What it does is set from outside at any time: which faults, for what
share of requests.
"""

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

RESET_ON_CLOSE = struct.pack("ii", 1, 0)
SLOW_SECONDS = 0.5
SILENT_SECONDS = 60.0
"""Time for which a silent request gets no byte; clients give up before."""


class RequestFault(StrEnum):
    INTERNAL_ERROR = "500"
    UNAVAILABLE = "503"
    """The store asks to slow down."""
    THROTTLED = "429"
    """The same, as other stores report it."""
    UNAUTHORIZED = "401"
    """The key is no longer good."""
    RESET = "reset"
    """The connection is cut before the store gets the request."""
    LOST_ANSWER = "lost answer"
    """The store carries the request out; the connection is cut before its response."""
    SILENT = "time-out"
    """No answer for longer than a client waits."""
    SLOW = "slow"


STATUS_LINES = {
    RequestFault.INTERNAL_ERROR: ("500 Internal Server Error", "InternalError"),
    RequestFault.UNAVAILABLE: ("503 Slow Down", "SlowDown"),
    RequestFault.THROTTLED: ("429 Too Many Requests", "SlowDown"),
    RequestFault.UNAUTHORIZED: ("401 Unauthorized", "InvalidKey"),
}


@dataclass(slots=True, kw_only=True)
class FaultProxy:
    """Serves in its own thread while the block lasts."""

    upstream: str
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    faults: tuple[RequestFault, ...] = ()
    rate: float = 0.0
    """Share of requests that it happens to, 0 to 1."""
    port: int = 0
    """Where it listens."""
    struck: Counter[RequestFault] = field(default_factory=Counter)

    _server: asyncio.Server | None = None
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._loop.run_until_complete(self._open())
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        if self._thread is not None:
            self._thread.join()

    def strike(self, *faults: RequestFault, rate: float) -> None:
        """From now on, this share of requests meets one of these."""
        self.faults, self.rate = faults, rate

    def refuse(self) -> None:
        """From now on nothing listens at the port: every connection is refused."""
        self._loop.call_soon_threadsafe(self._close)

    def listen(self) -> None:
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()

    async def _open(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    def _close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            request = await _read_request(reader, writer)
            fault = self.rng.choice(self.faults) if self.faults and self.rng.random() < self.rate else None
            if fault is not None:
                self.struck[fault] += 1
            await self._answer(fault, request, writer)
        writer.close()

    async def _answer(self, fault: RequestFault | None, request: bytes, writer: asyncio.StreamWriter) -> None:
        if fault in STATUS_LINES:
            status, code = STATUS_LINES[fault]
            body = f"<Error><Code>{code}</Code><Message>{status}</Message></Error>".encode()
            if request.startswith(b"HEAD"):
                body = b""
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
            )
            await writer.drain()
        elif fault == RequestFault.SILENT:
            await asyncio.sleep(SILENT_SECONDS)
        elif fault == RequestFault.RESET:
            _reset(writer)
        else:
            response = await self._ask(request)
            if fault == RequestFault.LOST_ANSWER:
                _reset(writer)
                return
            await asyncio.sleep(SLOW_SECONDS if fault == RequestFault.SLOW else 0)
            writer.write(response)
            await writer.drain()

    async def _ask(self, request: bytes) -> bytes:
        place = urlsplit(self.upstream)
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        writer.write(request)
        await writer.drain()
        response = await reader.read(-1)
        writer.close()
        return response


async def _read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """One request whole, to be forwarded over a connection that ends with its answer."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    if "expect" in headers:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await writer.drain()
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = await _read_chunks(reader)
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    kept = [line for line in lines if not line.lower().startswith(("expect:", "connection:"))]
    return "\r\n".join([*kept, "Connection: close", "", ""]).encode("latin-1") + body


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while not body.endswith(b"0\r\n\r\n"):
        size = await reader.readuntil(b"\r\n")
        body += size + await reader.readexactly(int(size.split(b";")[0], 16) + 2)
    return body


def _reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    writer.transport.abort()

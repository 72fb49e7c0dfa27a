"""A server on loopback in a thread of its own, which can close its port and open it again."""

import asyncio
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self


@dataclass(slots=True, kw_only=True)
class LoopbackServer(ABC):
    """Serves while the block lasts."""

    port: int = 0
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _server: asyncio.Server | None = None
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Its address, without a path."""
        return f"http://127.0.0.1:{self.port}"

    @abstractmethod
    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers the requests of one connection, which is closed afterwards."""

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

    def close_port(self, *, cut: bool) -> None:
        """Refuses new connections from now on; with `cut` it also ends those that are open."""
        self._loop.call_soon_threadsafe(self._close, cut)

    def listen(self) -> None:
        """Serves again, at the same port."""
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()

    async def _open(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    def _close(self, cut: bool) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._writers if cut else ():
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        await self.serve(reader, writer)
        self._writers.discard(writer)
        writer.close()

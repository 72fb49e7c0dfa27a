"""A server on loopback in a thread of its own, which can close its port and open it again."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self


class LoopbackServer:
    """Serves while the block lasts."""

    def __init__(self, serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> None:
        """Takes what is done with each connection."""
        self.port = 0
        self._serve = serve
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        """Begins to serve."""
        self._loop.run_until_complete(self._open())
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Serves no more."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def refuse(self, *, cut: bool) -> None:
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
        try:
            await self._serve(reader, writer)
        finally:
            self._writers.discard(writer)
            writer.close()

"""An OpenAI-compatible endpoint on loopback that completes every prompt with the same words.

It takes token-id prompts at `/v1/completions`, as `vllm serve` does. A fault proxy may stand before it.
"""

import asyncio
import contextlib
import json
import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from memagent_batch.engines.tokenizer import Tokenizer
from memagent_batch.wiring import TINY_MODEL

MODEL = "loopback"
"""Name under which it serves."""
COMPLETION = r"The answer is \boxed{17}."


@dataclass(slots=True, kw_only=True)
class LoopbackEndpoint:
    """Serves in a thread of its own while the block lasts."""

    turn_seconds: float = 0.0
    """Time before each completion."""
    num_completions: int = 0
    """Completions so far."""
    port: int = 0
    """Where it listens."""
    _token_ids: list[int] = field(default_factory=list)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Its address, without `/v1`."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        """Begins to serve."""
        self._token_ids = Tokenizer(str(TINY_MODEL)).encode(COMPLETION)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Serves no more."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        if self._thread is not None:
            self._thread.join()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Requests of one connection, one after another, until the client leaves."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                body = await reader.readexactly(_content_length(head))
                reply = json.dumps(await self._reply(head, body)).encode()
                writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(reply)}\r\n\r\n".encode() + reply)
                await writer.drain()
                if "connection: close" in head.lower():
                    break
        writer.close()

    async def _reply(self, head: str, body: bytes) -> dict[str, Any]:
        if head.startswith("GET"):
            return {"data": [{"id": MODEL}]}
        request = json.loads(body)
        await asyncio.sleep(self.turn_seconds)
        self.num_completions += 1
        token_ids = self._token_ids[: request["max_tokens"]]
        is_whole = len(token_ids) == len(self._token_ids)
        choice = {
            "text": COMPLETION,
            "token_ids": token_ids,
            "finish_reason": "stop" if is_whole else "length",
        }
        return {"choices": [choice], "usage": {"prompt_tokens": len(request["prompt"])}}


def _content_length(head: str) -> int:
    """Size of the body that a request's head announces, bytes."""
    for line in head.lower().split("\r\n"):
        if line.startswith("content-length:"):
            return int(line.removeprefix("content-length:"))
    return 0

"""An OpenAI-compatible endpoint on loopback that completes every prompt with the same words.

It takes token-id prompts at `/v1/completions`, as `vllm serve` does. It can go away and come back; for faults of single
requests, a fault proxy may stand before it.
"""

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from typing import Any

from memagent_batch.tokens.tokenizer import Tokenizer
from memagent_batch.wiring import TINY_MODEL
from tests.faults.loopback.server import LoopbackServer

MODEL = "loopback"
"""Name under which it serves."""
COMPLETION = r"The answer is \boxed{17}."


@dataclass(slots=True, kw_only=True)
class LoopbackEndpoint(LoopbackServer):
    """Serves in a thread of its own while the block lasts."""

    turn_seconds: float = 0.0
    completion: str = COMPLETION
    num_completions: int = 0
    num_refused: int = 0
    """Requests answered 503 while it was away."""
    _token_ids: list[int] = field(init=False)
    _is_away: bool = False

    def __post_init__(self) -> None:
        self._token_ids = Tokenizer(str(TINY_MODEL)).encode(self.completion)

    def answer_503(self) -> None:
        """Goes away behind a gateway: every request is answered 503 until it comes back."""
        self._is_away = True

    def refuse(self) -> None:
        """Goes away: cuts all connections, and refuses new ones until it comes back."""
        self._is_away = True
        self.close_port(cut=True)

    def come_back(self) -> None:
        """Serves again, at the same port."""
        self.listen()
        self._is_away = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Requests of one connection, one after another, until the client leaves."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                body = await reader.readexactly(_content_length(head))
                status, reply = await self._reply(head, body)
                writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(reply)}\r\n\r\n".encode() + reply)
                await writer.drain()
                if "connection: close" in head.lower():
                    break

    async def _reply(self, head: str, body: bytes) -> tuple[str, bytes]:
        if self._is_away:
            self.num_refused += 1
            return "503 Service Unavailable", b"no healthy upstream"
        return "200 OK", json.dumps(await self._payload(head, body)).encode()

    async def _payload(self, head: str, body: bytes) -> dict[str, Any]:
        if head.startswith("GET"):
            return {"data": [{"id": MODEL}]}
        request = json.loads(body)
        await asyncio.sleep(self.turn_seconds)
        self.num_completions += 1
        token_ids = self._token_ids[: request["max_tokens"]]
        is_whole = len(token_ids) == len(self._token_ids)
        choice = {
            "text": self.completion,
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

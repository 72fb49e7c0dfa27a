"""Peer: an asyncio client against vLLM's server. All documents at once, one semaphore over their requests."""

import argparse
import asyncio
from functools import partial

import aiohttp

from benchmarks.peer_loop import Clock, PeerResult, Work, read, run_as_command

SHIPPED_CONCURRENCY = 256
"""Default of concurrent requests: as many as the server takes into one step."""
KEEP_SECONDS = 2.0
"""How long a connection is kept for the next request; the server closes an idle one after 5 s."""


def run(work: Work, options: argparse.Namespace) -> PeerResult:
    """Reads every document."""
    return asyncio.run(_read_all(work, options))


async def _read_all(work: Work, options: argparse.Namespace) -> PeerResult:
    clock, slots = Clock(), asyncio.Semaphore(options.concurrency or SHIPPED_CONCURRENCY)
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_SECONDS)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:
        ask = partial(clock.time, partial(_complete, session, slots, url=options.url, model=options.model))
        responses = await asyncio.gather(*[read(document, work, ask=ask) for document in work.documents])
    return clock.result({document.question_id: text for document, text in zip(work.documents, responses, strict=True)})


async def _complete(
    session: aiohttp.ClientSession, slots: asyncio.Semaphore, message: str, max_tokens: int, *, url: str, model: str
) -> str:
    messages = [{"role": "user", "content": message}]
    body = {"model": model, "messages": messages, "max_tokens": max_tokens, "temperature": 0.0}
    async with slots, session.post(f"{url}/v1/chat/completions", json=body) as response:
        response.raise_for_status()
        payload = await response.json()
    text: str = payload["choices"][0]["message"]["content"] or ""
    return text


if __name__ == "__main__":
    run_as_command(__doc__, run)

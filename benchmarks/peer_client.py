"""Peer: an asyncio client against vLLM's server. All documents at once, one semaphore over their requests."""

import asyncio
from functools import partial

import aiohttp

from benchmarks.peer_loop import Clock, PeerResult, Work, load_work, peer_options, read, save

SHIPPED_CONCURRENCY = 256
"""Default of concurrent requests: as many as the server takes into one step."""
KEEP_SECONDS = 2.0
"""How long a connection is kept for the next request; the server closes an idle one after 5 s."""


async def run(work: Work, *, url: str, model: str, concurrency: int) -> PeerResult:
    """Reads every document."""
    clock, slots = Clock(), asyncio.Semaphore(concurrency)
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_SECONDS)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:
        ask = partial(clock.time, partial(_complete, session, slots, url=url, model=model))
        responses = await asyncio.gather(*[read(document, work, ask=ask) for document in work.documents])
    names = [document.question_id for document in work.documents]
    return PeerResult(
        seconds=clock.ended - clock.began,
        num_turns=clock.num_turns,
        responses=dict(zip(names, responses, strict=True)),
    )


async def _complete(
    session: aiohttp.ClientSession, slots: asyncio.Semaphore, message: str, max_tokens: int, *, url: str, model: str
) -> str:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": message}],
        "max_tokens": max_tokens,
        "temperature": 0.0,
    }
    async with slots, session.post(f"{url}/v1/chat/completions", json=body) as response:
        response.raise_for_status()
        payload = await response.json()
    text: str = payload["choices"][0]["message"]["content"] or ""
    return text


def main() -> None:
    options = peer_options(__doc__)
    result = run(
        load_work(options.work),
        url=options.url,
        model=options.model,
        concurrency=options.concurrency or SHIPPED_CONCURRENCY,
    )
    save(asyncio.run(result), options.output)


if __name__ == "__main__":
    main()

"""Peer: a script as people write it, with OpenAI's asynchronous client and all readings at once.

Its arguments are two files of JSON: the work, as `benchmarks.peers` makes it, and the result.
"""

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI

from benchmarks.peer_datatrove import read

TIMEOUT_SECONDS = 3600.0
"""For one turn: all wait in the server's queue from the start."""


async def run(work: Mapping[str, Any]) -> dict[str, Any]:
    """Reads every document; its readings are tasks of one event loop."""
    times: list[float] = []
    limit = asyncio.Semaphore(work["in_flight"] or len(work["documents"]))
    async with AsyncOpenAI(base_url=f"{work['url']}/v1", api_key="none", timeout=TIMEOUT_SECONDS) as client:

        async def ask(message: str, max_tokens: int) -> str:
            times.append(time.time())
            reply = await client.chat.completions.create(
                model=work["model"],
                messages=[{"role": "user", "content": message}],
                max_tokens=max_tokens,
                temperature=0.0,
            )
            times.append(time.time())
            return reply.choices[0].message.content or ""

        async def respond(document: Mapping[str, Any]) -> tuple[str, str]:
            async with limit:
                return document["question_id"], await read(document, work, ask=ask)

        responses = dict(await asyncio.gather(*map(respond, work["documents"])))
    return {"seconds": max(times) - min(times), "num_turns": len(times) // 2, "responses": responses}


if __name__ == "__main__":
    work_file, result_file = map(Path, sys.argv[1:])
    result_file.write_text(json.dumps(asyncio.run(run(json.loads(work_file.read_text())))))

"""A process of its own that runs vLLM until it is killed. Says `ready` when the engine has answered once."""

import asyncio
import sys

from memagent_batch.domain.turns import Prompt
from memagent_batch.engines.vllm.engine import VllmEngine
from tests.engine_context import context_of


async def serve(model: str) -> None:
    engine = VllmEngine(cpu_kv_cache_gib=1, max_num_seqs=8).open(context_of(model))
    await engine.start()
    while True:
        await engine.complete(Prompt(path="answer", kind="answer", token_ids=[5] * 500, max_tokens=64), seed=0)
        print("ready", flush=True)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))

"""What a request costs the engine `openai`: CPU of this process, and wall time over that of the answers alone.

A server in a process of its own answers each request after a second.
"""

import argparse
import asyncio
import multiprocessing
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

from aiohttp import web

from memagent_batch.config.agent import SamplingConfig
from memagent_batch.domain.turns import Prompt
from memagent_batch.engines.engine import EngineContext
from memagent_batch.engines.openai.engine import OpenAIEngine
from memagent_batch.models.shipped import TINY_MODEL
from memagent_batch.tokens.tokenizer import load_tokenizer

ANSWER_SECONDS = 1.0
ANSWER = {"choices": [{"text": "noted", "token_ids": [5], "finish_reason": "stop"}]}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--in-flight", type=int, nargs="+", default=[16, 64, 256], help="default: 16 64 256")
    parser.add_argument("--rounds", type=int, default=3, help="requests one after another (default: 3)")
    parser.add_argument("--prompt-tokens", type=int, default=6000, help="tokens of each prompt (default: 6000)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    here, there = multiprocessing.Pipe()
    server = multiprocessing.Process(target=_serve, args=(there,), daemon=True)
    server.start()
    try:
        base_url = f"http://127.0.0.1:{here.recv()}/v1"
        for in_flight in arguments.in_flight:
            cpu, wall = asyncio.run(_ask(base_url, in_flight, arguments.rounds, arguments.prompt_tokens))
            yield {
                "in_flight": in_flight,
                "cpu_ms_a_request": round(1000 * cpu / (arguments.rounds * in_flight), 2),
                "wall_over_ideal": round(wall / (arguments.rounds * ANSWER_SECONDS), 2),
            }
    finally:
        server.terminate()
        server.join()


async def _ask(base_url: str, in_flight: int, rounds: int, prompt_tokens: int) -> tuple[float, float]:
    """CPU and wall time of rounds of requests, after one that opens the connections."""
    context = EngineContext(
        model="tiny",
        tokenizer=None,
        window_tokens=2 * prompt_tokens,
        sampling=SamplingConfig(),
        load_tokenizer=lambda: load_tokenizer(str(TINY_MODEL)),
    )
    engine = OpenAIEngine(base_url=base_url).open(context)
    prompt = Prompt(path="update/0", kind="update", token_ids=[7] * prompt_tokens, max_tokens=64)
    await engine.start()
    await asyncio.gather(*(engine.complete(prompt, seed=0) for _ in range(in_flight)))
    cpu, wall = time.process_time(), time.monotonic()
    for _ in range(rounds):
        await asyncio.gather(*(engine.complete(prompt, seed=0) for _ in range(in_flight)))
    took = time.process_time() - cpu, time.monotonic() - wall
    await engine.stop()
    return took


def _serve(port: Connection) -> None:
    """Answers every prompt; sends its port first."""
    asyncio.run(_answer(port))


async def _answer(port: Connection) -> None:
    async def complete(request: web.Request) -> web.Response:
        await request.read()
        await asyncio.sleep(ANSWER_SECONDS)
        return web.json_response(ANSWER)

    app = web.Application(client_max_size=1 << 24)
    app.router.add_post("/v1/completions", complete)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port.send(runner.addresses[0][1])
    await asyncio.Event().wait()

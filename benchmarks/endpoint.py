"""CPU time of a request to an endpoint, and how well requests run side by side.

Engine `openai` asks a server in another process, on loopback, that answers each request after a set time. `cpu` is all
that this process does for a request: body, transport, checks of the response. `wall_over_ideal` is the time of all
requests over that of a client that costs nothing.
"""

import argparse
import asyncio
import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from aiohttp import web
from pydantic_core import from_json, to_json

from benchmarks.harness import spread
from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.engines import OpenAIConfig
from memagent_batch.domain.turns import Prompt
from memagent_batch.engines.engine import Engine
from memagent_batch.wiring import make_engine

PROMPT_TOKENS = 6000
COMPLETION_TOKENS = 256
WAVES = 4
"""Requests of each place, one after the other."""
VOCABULARY = 1000
"""Token ids lie below this."""


def add_options(parser: argparse.ArgumentParser) -> None:
    places = [16, 64, 128, 256]
    parser.add_argument("--in-flight", type=int, nargs="+", default=places, help="(default: 16 to 256)")
    parser.add_argument("--seconds", type=float, default=0.5, help="time of an answer (default: 0.5)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each (default: 3)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with _server(arguments.seconds) as base_url:
        agent = AgentConfig(engine="openai", model="tiny", openai=OpenAIConfig(base_url=base_url))
        for in_flight in arguments.in_flight:
            runs = [asyncio.run(_run(make_engine(agent), in_flight)) for _ in range(arguments.runs)]
            ideal = WAVES * arguments.seconds
            yield {
                "in_flight": in_flight,
                "requests": in_flight * WAVES,
                "runs": arguments.runs,
                **spread("cpu_milliseconds_a_request", [cpu / in_flight / WAVES * 1000 for cpu, _ in runs], digits=2),
                **spread("wall_over_ideal", [wall / ideal for _, wall in runs], digits=2),
            }


async def _run(engine: Engine, in_flight: int) -> tuple[float, float]:
    """Seconds of CPU and of wall time, without the engine's start."""
    draw = random.Random(in_flight)
    prompts = [
        Prompt(
            path=f"update/{place}",
            kind="update",
            token_ids=draw.choices(range(VOCABULARY), k=PROMPT_TOKENS),
            max_tokens=COMPLETION_TOKENS,
        )
        for place in range(in_flight)
    ]
    await engine.start()
    await asyncio.gather(*(_ask(engine, prompt) for prompt in prompts))  # more are sent at a time with each answer
    cpu, wall = time.process_time(), time.monotonic()
    await asyncio.gather(*(_ask(engine, prompt) for prompt in prompts))
    figures = time.process_time() - cpu, time.monotonic() - wall
    await engine.stop()
    return figures


async def _ask(engine: Engine, prompt: Prompt) -> None:
    for _ in range(WAVES):
        await engine.complete(prompt, seed=0)


@contextmanager
def _server(seconds: float) -> Iterator[str]:
    """The server, and its address up to /v1."""
    context = get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there, seconds), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{here.recv()}/v1"
    finally:
        process.terminate()
        process.join()


def _serve(connection: Connection, seconds: float) -> None:
    async def models(request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "tiny"}]})

    async def complete(request: web.Request) -> web.Response:
        body = from_json(await request.read())
        await asyncio.sleep(seconds)
        token_ids = body["prompt"][: body["max_tokens"]]
        choice = {"text": "word " * len(token_ids), "token_ids": token_ids, "finish_reason": "length"}
        usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": len(token_ids)}
        return web.Response(body=to_json({"choices": [choice], "usage": usage}), content_type="application/json")

    app = web.Application(client_max_size=2**30)
    app.add_routes([web.get("/v1/models", models), web.post("/v1/completions", complete)])
    listener = socket.create_server(("127.0.0.1", 0))
    connection.send(listener.getsockname()[1])
    web.run_app(app, sock=listener, backlog=4096, print=None, access_log=None, handle_signals=False)

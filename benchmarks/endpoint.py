"""A job at an endpoint that answers so many requests at a time, each after the same time.

    python -m benchmarks endpoint                                            # a slow server with one place
    python -m benchmarks endpoint --places 256 --documents 5000 --timeout 600

`job` is all of a job from its start, `engine` as many requests through the engine alone. `given_up` requests had waited
for `timeout` in the server's queue. The server needs `ideal_seconds` for the requests that it answers if all its places
are always taken. `busy_seconds` is the time from its first request to its last answer. `cpu_ms` is the time of a
processor that is taken for a request.
"""

import argparse
import asyncio
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from aiohttp import web
from pydantic_core import from_json

from memagent_batch.cli.settings import job_of
from memagent_batch.config.job import JobConfig
from memagent_batch.run.flows.answer import answer
from memagent_batch.run.wiring import make_engine, make_tokenizer
from memagent_batch.types import Prompt

TEXT = "The committee read the report, took note of it, and went on to the next item of its list. "


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--places", type=int, default=1, help="requests that are answered at a time (default: 1)")
    parser.add_argument("--documents", type=int, default=60, help="(default: 60)")
    parser.add_argument("--seconds", type=float, default=1.0, help="time of an answer (default: 1)")
    parser.add_argument("--timeout", type=float, default=10.0, help="openai.timeout_seconds (default: 10)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with (
        tempfile.TemporaryDirectory() as folder,
        _server(arguments.seconds, places=arguments.places) as (base_url, counts),
    ):
        documents = Path(folder) / "documents"
        documents.mkdir()
        for number in range(arguments.documents):
            (documents / f"{number}.txt").write_text(f"Minutes {number}. " + TEXT * 10)
        job = job_of(
            executor="local",
            documents=str(documents),
            ask=("What did the committee read?",),
            output=f"{folder}/run",
            engine="openai",
            model="slow",
            tokenizer="tiny",
            openai={"api": "chat", "base_url": base_url, "timeout_seconds": arguments.timeout},
            pool={"readings_in_flight": max(64, 2 * arguments.places)},
        )
        for what, ask in (("job", lambda: _read(job)), ("engine", lambda: _complete(job, 2 * arguments.documents))):
            yield {"what": what, "places": arguments.places, **_timed(ask, counts, arguments)}


def _timed(
    ask: Callable[[], dict[str, int]], counts: Callable[[], Any], arguments: argparse.Namespace
) -> dict[str, Any]:
    counts()
    began, cpu_began = time.monotonic(), time.process_time()
    about = ask()
    seconds, cpu_seconds = time.monotonic() - began, time.process_time() - cpu_began
    answered, given_up, busy_seconds = counts()
    ideal_seconds = answered * arguments.seconds / arguments.places
    return {
        **about,
        "requests": answered + given_up,
        "given_up": given_up,
        "seconds": round(seconds, 1),
        "busy_seconds": round(busy_seconds, 1),
        "ideal_seconds": round(ideal_seconds, 1),
        "ratio": round(seconds / ideal_seconds, 2),
        "busy_ratio": round(busy_seconds / ideal_seconds, 2),
        "cpu_ms": round(1000 * cpu_seconds / (answered + given_up), 2),
    }


def _read(job: JobConfig) -> dict[str, int]:
    counts = answer(job)["counts"]
    return {"readings": counts["asked"], "ok": counts["ok"]}


def _complete(job: JobConfig, num_prompts: int) -> dict[str, int]:
    """Sends as many prompts through the engine alone."""
    asyncio.run(_complete_all(job, num_prompts))
    return {}


async def _complete_all(job: JobConfig, num_prompts: int) -> None:
    engine = make_engine(job.agent)
    await engine.start()
    tokens, places = make_tokenizer(job.agent).encode(TEXT * 10), asyncio.Semaphore(job.pool.readings_in_flight)

    async def complete(number: int) -> None:
        async with places:
            await engine.complete(Prompt(path="answer", kind="answer", token_ids=tokens, max_tokens=64), seed=number)

    await asyncio.gather(*map(complete, range(num_prompts)))
    await engine.stop()


@contextmanager
def _server(seconds: float, *, places: int) -> Iterator[tuple[str, Any]]:
    """The server's address up to /v1, and a function that returns what it has done since the last call.

    That is how many requests it has answered and lost, and the seconds from the first request to the last answer.
    """
    context = get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there, seconds, places), daemon=True)
    process.start()

    def counts() -> Any:
        here.send(None)
        return here.recv()

    try:
        yield f"http://127.0.0.1:{here.recv()}/v1", counts
    finally:
        process.terminate()
        process.join()


def _serve(connection: Connection, seconds: float, places: int) -> None:
    counts, times = {"answered": 0, "lost": 0}, list[float]()

    async def complete(request: web.Request) -> web.Response:
        body = from_json(await request.read())
        times.append(time.monotonic())
        try:
            async with place:
                await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            counts["lost"] += 1
            raise
        counts["answered"] += 1
        times.append(time.monotonic())
        message = {"role": "assistant", "content": "\\boxed{the report}"}
        usage = {"prompt_tokens": len(body["messages"][0]["content"]) // 4, "completion_tokens": 4}
        return web.json_response({"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage})

    async def report(app: web.Application) -> None:
        loop = asyncio.get_running_loop()

        def send() -> None:
            connection.recv()
            seconds = times[-1] - times[0] if times else 0.0
            connection.send((counts["answered"], counts["lost"], seconds))
            counts.update(answered=0, lost=0)
            times.clear()

        loop.add_reader(connection.fileno(), send)

    place = asyncio.Semaphore(places)
    app = web.Application(client_max_size=2**30)
    app.add_routes([web.post("/v1/chat/completions", complete)])
    app.on_startup.append(report)
    listener = socket.create_server(("127.0.0.1", 0))
    connection.send(listener.getsockname()[1])
    web.run_app(app, sock=listener, print=None, access_log=None, handle_signals=False, handler_cancellation=True)

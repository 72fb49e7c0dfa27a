"""A chat server on loopback that also has the Files and Batches API, with the ways in which batches end."""

import asyncio
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from aiohttp import web

from tests.engines.misbehaving_server import completion, honest_text, is_of_reading, shown
from tests.engines.scripted_server import PROBE_BUDGETS


class Ending(StrEnum):
    """How a batch ends."""

    COMPLETED = "completed"
    EXPIRED = "expired"
    """After half of its requests."""
    CANCELLED = "cancelled"
    """After half of its requests."""
    FAILED = "failed"
    """Before its first request, since its file is refused."""
    OVER_LIMIT = "over limit"
    """Before its first request, since too many tokens of other batches wait."""
    SERVER_ERRORS = "server errors"
    """Complete, with a 500 for one request in three."""
    REFUSALS = "refusals"
    """Complete, with a 400 for one request in three."""
    FORGOTTEN = "forgotten"
    """The endpoint knows it no more."""


def text_of(body: dict[str, Any]) -> str:
    """What the model writes: from the text that it is shown; a section without news costs the word."""
    text = shown(body)
    if "Which sentences does the answer rest on?" in text:
        return json.dumps({"value": "1"})
    if "<notes>" in text:
        return honest_text(body, text=f"{text}</section>")
    if "none, or the note:" not in text:
        return honest_text(body)
    section, _, rest = text.partition("</section>")
    note, memory = honest_text(body, text=f"{section} {rest}"), rest.partition("<memory>")[2]
    return "none" if "Nothing" in note or note in memory else note


@dataclass(slots=True, kw_only=True)
class BatchServer:
    base_url: str = ""
    endings: list[Ending] = field(default_factory=list)
    """Of the next batches; those after them are completed."""
    batch_seconds: float = 0.0
    """Time that a batch takes."""
    hides_answers: bool = False
    """Whether a batch is made, and then the connection is cut."""
    on_batch: Callable[[int], None] = lambda number: None
    """Called with the number of each batch, from 1, when it is made and before that is answered."""
    is_away: Callable[[], bool] = lambda: False
    """Whether the next request of any kind gets a 503."""
    files: dict[str, bytes] = field(default_factory=dict)
    batches: dict[str, dict[str, Any]] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)
    """Requests of each batch."""
    paid: Counter[str] = field(default_factory=Counter)
    """How often each request of a batch was answered, by its body."""
    num_single: int = 0
    """Requests of readings outside batches."""
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    def application(self) -> web.Application:
        app = web.Application(client_max_size=1 << 30, middlewares=[self._away])
        app.add_routes(
            [
                web.get("/v1/models", self._models),
                web.post("/v1/chat/completions", self._complete),
                web.post("/v1/files", self._upload),
                web.get("/v1/files/{id}/content", self._content),
                web.delete("/v1/files/{id}", self._delete),
                web.post("/v1/batches", self._create),
                web.get("/v1/batches", self._list),
                web.get("/v1/batches/{id}", self._get),
            ]
        )
        return app

    @web.middleware
    async def _away(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if self.is_away():
            raise web.HTTPServiceUnavailable
        response: web.StreamResponse = await handler(request)
        return response

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "tiny"}]})

    async def _complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        budget = body.get("max_tokens", body.get("max_completion_tokens"))
        self.num_single += is_of_reading(body) and budget not in PROBE_BUDGETS
        status, answer = answer_to(body)
        return web.json_response(answer, status=status)

    async def _upload(self, request: web.Request) -> web.Response:
        form = await request.post()
        assert form["purpose"] == "batch"
        file = form["file"]
        assert isinstance(file, web.FileField)
        return web.json_response({"id": self._add_file(file.file.read()), "object": "file"})

    async def _content(self, request: web.Request) -> web.Response:
        file = self.files.get(request.match_info["id"])
        if file is None:
            raise web.HTTPNotFound
        return web.Response(body=file)

    async def _delete(self, request: web.Request) -> web.Response:
        del self.files[request.match_info["id"]]
        return web.json_response({"deleted": True})

    async def _create(self, request: web.Request) -> web.Response:
        body = await request.json()
        assert body["endpoint"] == "/v1/chat/completions"
        lines = [json.loads(line) for line in self.files[body["input_file_id"]].splitlines()]
        assert len({line["custom_id"] for line in lines}) == len(lines)
        batch = {"id": f"batch_{len(self.batches)}", "status": "in_progress", "input_file_id": body["input_file_id"]}
        self.batches[batch["id"]] = batch
        self.sizes.append(len(lines))
        ends = time.monotonic() + self.batch_seconds
        batch["end"] = (ends, self.endings.pop(0) if self.endings else Ending.COMPLETED, lines)
        await asyncio.to_thread(self.on_batch, len(self.batches))
        if self.hides_answers:
            self.hides_answers = False
            assert request.transport is not None
            request.transport.abort()
        return web.json_response(self._shown(batch))

    async def _list(self, request: web.Request) -> web.Response:
        latest = [*self.batches.values()][::-1]
        after = [each["id"] for each in latest].index(request.query["after"]) + 1 if "after" in request.query else 0
        page = latest[after : after + int(request.query["limit"])]
        has_more = after + len(page) < len(latest)
        return web.json_response({"data": list(map(self._shown, page)), "has_more": has_more})

    async def _get(self, request: web.Request) -> web.Response:
        batch = self.batches.get(request.match_info["id"])
        if batch is None or batch["status"] == Ending.FORGOTTEN:
            raise web.HTTPNotFound
        return web.json_response(self._shown(batch))

    def _shown(self, batch: dict[str, Any]) -> dict[str, Any]:
        if "end" in batch and time.monotonic() >= batch["end"][0]:
            _, ending, lines = batch.pop("end")
            self._end(batch, ending, lines)
        return {name: value for name, value in batch.items() if name != "end"}

    def _end(self, batch: dict[str, Any], ending: Ending, lines: list[dict[str, Any]]) -> None:
        if ending in (Ending.FAILED, Ending.OVER_LIMIT):
            code = "token_limit_exceeded" if ending is Ending.OVER_LIMIT else "model_not_found"
            errors = {"object": "list", "data": [{"code": code, "message": f"the reason is {code}", "line": 1}]}
            batch |= {"status": "failed", "errors": errors}
            return
        self.rng.shuffle(lines)
        is_cut = ending in (Ending.EXPIRED, Ending.CANCELLED)
        num_done = 0 if ending is Ending.FORGOTTEN else len(lines) // 2 if is_cut else len(lines)
        written: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
        for number, line in enumerate(lines):
            about = {"id": f"line_{number}", "custom_id": line["custom_id"]}
            if number >= num_done:
                error = {"code": f"batch_{ending}", "message": "This request could not be executed."}
                written[False].append({**about, "response": None, "error": error})
                continue
            status, body = answer_to(line["body"])
            if number % 3 == 0 and ending in (Ending.SERVER_ERRORS, Ending.REFUSALS):
                status, body = 500 if ending is Ending.SERVER_ERRORS else 400, {"error": {"message": "not this one"}}
            self.paid[json.dumps(line["body"], sort_keys=True)] += status == 200
            response = {"status_code": status, "request_id": "r", "body": body}
            written[status == 200].append({**about, "response": response, "error": None})
        for name, each in (("output_file_id", written[True]), ("error_file_id", written[False])):
            if each:
                batch[name] = self._add_file(b"".join(json.dumps(line).encode() + b"\n" for line in each))
        is_status = is_cut or ending is Ending.FORGOTTEN
        batch["status"] = str(ending) if is_status else "completed"

    def _add_file(self, content: bytes) -> str:
        name = f"file-{self.rng.randrange(10**9)}"
        self.files[name] = content
        return name


def answer_to(body: dict[str, Any]) -> tuple[int, Any]:
    """Status and body of the answer to a request."""
    reply = completion(text_of(body), body)
    return reply.status, json.loads(reply.body)


@contextmanager
def batch_server(**settings: Any) -> Iterator[BatchServer]:
    """Serves in a thread until the block ends."""
    server, loop = BatchServer(**settings), asyncio.new_event_loop()
    runner = web.AppRunner(server.application(), access_log=None)

    async def start() -> None:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

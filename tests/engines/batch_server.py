"""A server on loopback with OpenAI's API of chats and batches and Anthropic's, and the ways in which batches end."""

import asyncio
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
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
    """Complete, with a 500, or an `api_error`, for one request in three."""
    REFUSALS = "refusals"
    """Complete, with a 400, or an `invalid_request_error`, for one request in three."""
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


@dataclass(kw_only=True)
class BatchServer:
    base_url: str = ""
    endings: list[Ending] = field(default_factory=list)
    """Of the next batches; those after them are completed."""
    batch_seconds: float = 0.0
    """Time that a batch takes."""
    hides_answers: bool = False
    """Whether a batch is made, and then the connection is cut."""
    num_turned_away: int = 0
    """Batches that are refused next, with a 429."""
    most_at_a_time: int = 1_000
    """Batches that may go on at a time; more are refused with a 429."""
    on_turned_away: Callable[[], object] = lambda: None
    """Called when one is."""
    num_broken_results: int = 0
    """Times that results are sent next by half, which may end in a broken line."""
    num_not_made: int = 0
    """Batches that are not made next, with a 503."""
    num_refused: int = 0
    """Batches that are refused next, with a 400."""
    reads: Counter[str] = field(default_factory=Counter)
    """How often the results of each batch of Anthropic were read."""
    num_lost_results: int = 0
    """Results of the next batch that are counted and never sent."""
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
                web.post("/v1/messages", self._message),
                web.post("/v1/messages/batches", self._create_messages),
                web.get("/v1/messages/batches", self._list_messages),
                web.get("/v1/messages/batches/{id}", self._get_messages),
                web.get("/v1/messages/batches/{id}/results", self._results),
                web.delete("/v1/messages/batches/{id}", self._delete_messages),
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
        return self._shown_results(file)

    async def _delete(self, request: web.Request) -> web.Response:
        del self.files[request.match_info["id"]]
        return web.json_response({"deleted": True})

    async def _create(self, request: web.Request) -> web.Response:
        body = await request.json()
        assert body["endpoint"] in ("/v1/chat/completions", "/v1/completions")
        lines = [json.loads(line) for line in self.files[body["input_file_id"]].splitlines()]
        requests = {line["custom_id"]: line["body"] for line in lines}
        assert len(requests) == len(lines)
        batch = {"status": "in_progress", "input_file_id": body["input_file_id"]}
        await self._add_batch(request, batch, requests)
        return web.json_response(self._shown(batch))

    async def _add_batch(self, request: web.Request, batch: dict[str, Any], requests: dict[str, Any]) -> None:
        """Makes a batch, unless its request is turned away, and cuts the connection if that is wanted."""
        num_going_on = sum("end" in each and time.monotonic() < each["end"][0] for each in self.batches.values())
        if self.num_turned_away or num_going_on >= self.most_at_a_time:
            self.num_turned_away = max(0, self.num_turned_away - 1)
            self.on_turned_away()
            raise web.HTTPTooManyRequests
        if self.num_not_made:
            self.num_not_made -= 1
            raise web.HTTPServiceUnavailable
        if self.num_refused:
            self.num_refused -= 1
            raise web.HTTPBadRequest
        batch["id"] = f"batch_{len(self.sizes)}"
        self.batches[batch["id"]] = batch
        self.sizes.append(len(requests))
        ends = time.monotonic() + self.batch_seconds
        batch["end"] = (ends, self.endings.pop(0) if self.endings else Ending.COMPLETED, requests)
        await asyncio.to_thread(self.on_batch, len(self.sizes))
        if self.hides_answers:
            self.hides_answers = False
            assert request.transport is not None
            request.transport.abort()

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
            _, ending, requests = batch.pop("end")
            self._end(batch, ending, requests)
        return {name: value for name, value in batch.items() if name != "end"}

    def _end(self, batch: dict[str, Any], ending: Ending, requests: dict[str, Any]) -> None:
        if ending in (Ending.FAILED, Ending.OVER_LIMIT):
            code = "token_limit_exceeded" if ending is Ending.OVER_LIMIT else "model_not_found"
            errors = {"object": "list", "data": [{"code": code, "message": f"the reason is {code}", "line": 1}]}
            batch |= {"status": "failed", "errors": errors}
            return
        written: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
        for custom_id, status, body in self._answers(ending, requests, answer_to):
            error = {"code": f"batch_{ending}", "message": "This request could not be executed."}
            response = {"status_code": status, "request_id": "r", "body": body}
            outcome = {"response": response, "error": None} if status else {"response": None, "error": error}
            written[status == 200].append({"id": f"line_{custom_id}", "custom_id": custom_id, **outcome})
        counts = {"total": len(requests), "completed": len(written[True]), "failed": len(written[False])}
        batch["request_counts"] = counts
        self._lose_results(written[True])
        for name, lines in (("output_file_id", written[True]), ("error_file_id", written[False])):
            if lines:
                batch[name] = self._add_file(_json_lines(lines))
        is_status = ending in (Ending.EXPIRED, Ending.CANCELLED, Ending.FORGOTTEN)
        batch["status"] = str(ending) if is_status else "completed"

    def _lose_results(self, lines: list[dict[str, Any]]) -> None:
        del lines[: self.num_lost_results]
        self.num_lost_results = 0

    def _answers(
        self, ending: Ending, requests: dict[str, Any], answer: Callable[[dict[str, Any]], tuple[int, Any]]
    ) -> Iterator[tuple[str, int, Any]]:
        """Yields id, status and body of the answers in any order; the status is 0 of a request that was not done."""
        shuffled = self.rng.sample([*requests.items()], len(requests))
        is_cut = ending in (Ending.EXPIRED, Ending.CANCELLED)
        num_done = 0 if ending is Ending.FORGOTTEN else len(shuffled) // 2 if is_cut else len(shuffled)
        for number, (custom_id, body) in enumerate(shuffled):
            status, answered = answer(body) if number < num_done else (0, None)
            if number % 3 == 0 and ending in (Ending.SERVER_ERRORS, Ending.REFUSALS):
                status, answered = (
                    500 if ending is Ending.SERVER_ERRORS else 400,
                    {"error": {"message": "not this one"}},
                )
            self.paid[json.dumps(body, sort_keys=True)] += status == 200
            yield custom_id, status, answered

    def _shown_results(self, lines: bytes) -> web.Response:
        if self.num_broken_results:
            self.num_broken_results -= 1
            lines = lines[: len(lines) // 2 + self.num_broken_results % 2]
        return web.Response(body=lines)

    async def _message(self, request: web.Request) -> web.Response:
        """Anthropic's API from here on."""
        _require_version(request)
        body = await request.json()
        self.num_single += is_of_reading(body) and body["max_tokens"] not in PROBE_BUDGETS
        status, answer = message_to(body)
        return web.json_response(answer, status=status)

    async def _create_messages(self, request: web.Request) -> web.Response:
        _require_version(request)
        items = (await request.json())["requests"]
        requests = {item["custom_id"]: item["params"] for item in items}
        assert len(requests) == len(items)
        created_at = datetime.now(UTC).isoformat()
        counts = {"processing": len(requests), **dict.fromkeys(("succeeded", "errored", "canceled", "expired"), 0)}
        batch: dict[str, Any] = {"processing_status": "in_progress", "created_at": created_at, "request_counts": counts}
        batch |= {"archived_at": None, "results_url": None}
        await self._add_batch(request, batch, requests)
        return web.json_response(self._shown_messages(batch))

    async def _list_messages(self, request: web.Request) -> web.Response:
        latest = [*self.batches.values()][::-1]
        after = request.query.get("after_id")
        start = [each["id"] for each in latest].index(after) + 1 if after else 0
        page = latest[start : start + int(request.query["limit"])]
        has_more = start + len(page) < len(latest)
        return web.json_response({"data": list(map(self._shown_messages, page)), "has_more": has_more})

    async def _get_messages(self, request: web.Request) -> web.Response:
        batch = self.batches.get(request.match_info["id"])
        if batch is None or ("end" in batch and batch["end"][1] is Ending.FORGOTTEN):
            raise web.HTTPNotFound
        return web.json_response(self._shown_messages(batch))

    async def _results(self, request: web.Request) -> web.Response:
        self.reads[request.match_info["id"]] += 1
        return self._shown_results(self.files[request.match_info["id"]])

    async def _delete_messages(self, request: web.Request) -> web.Response:
        name = request.match_info["id"]
        del self.batches[name], self.files[name]
        return web.json_response({"id": name, "type": "message_batch_deleted"})

    def _shown_messages(self, batch: dict[str, Any]) -> dict[str, Any]:
        if "end" in batch and time.monotonic() >= batch["end"][0] and batch["end"][1] is not Ending.FORGOTTEN:
            _, ending, requests = batch.pop("end")
            kinds = {200: "succeeded", 0: "canceled" if ending is Ending.CANCELLED else "expired"}
            lines: list[dict[str, Any]] = []
            for custom_id, status, body in self._answers(ending, requests, message_to):
                kind, result = kinds.get(status, "errored"), dict[str, Any]()
                if kind == "succeeded":
                    result = {"message": body}
                if kind == "errored":
                    error = {"type": "api_error" if status == 500 else "invalid_request_error", **body["error"]}
                    result = {"error": {"type": "error", "error": error, "request_id": "r"}}
                lines.append({"custom_id": custom_id, "result": {"type": kind, **result}})
            num_each = Counter(line["result"]["type"] for line in lines)
            batch["request_counts"] = {name: num_each[name] for name in batch["request_counts"]}
            batch |= {"processing_status": "ended", "results_url": f"http://elsewhere.invalid/{batch['id']}/results"}
            self._lose_results(lines)
            self.files[batch["id"]] = _json_lines(lines)
        return {name: value for name, value in batch.items() if name != "end"}

    def _add_file(self, content: bytes) -> str:
        name = f"file-{self.rng.randrange(10**9)}"
        self.files[name] = content
        return name


def answer_to(body: dict[str, Any]) -> tuple[int, Any]:
    """Status and body of the answer to a request."""
    reply = completion(text_of(body), body)
    return reply.status, json.loads(reply.body)


def message_to(body: dict[str, Any]) -> tuple[int, Any]:
    """Status and body of Anthropic's answer to a request."""
    unknown = body.keys() - {"model", "max_tokens", "messages", "temperature", "top_p", "top_k"}
    if unknown or {"temperature", "top_p"} <= body.keys():
        return 400, {"type": "error", "error": {"type": "invalid_request_error", "message": f"not these: {unknown}"}}
    _, chat = answer_to(body)
    content = [{"type": "text", "text": chat["choices"][0]["message"]["content"]}]
    usage = {"input_tokens": chat["usage"]["prompt_tokens"], "output_tokens": chat["usage"]["completion_tokens"]}
    about = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"]}
    return 200, {**about, "content": content, "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}


def _require_version(request: web.Request) -> None:
    assert request.headers["anthropic-version"]
    assert request.headers["x-api-key"] == "secret"
    assert "Authorization" not in request.headers


def _json_lines(values: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


@contextmanager
def batch_server(**settings: Any) -> Iterator[BatchServer]:
    """Serves in a thread until the block ends."""
    with serve_batches(BatchServer(**settings)) as server:
        yield server


@contextmanager
def serve_batches(server: BatchServer) -> Iterator[BatchServer]:
    """Serves in a thread until the block ends."""
    loop = asyncio.new_event_loop()
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

"""The engine `openai-batch` and the batches of OpenAI and Anthropic, which end in all their ways."""

import asyncio
import json
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.config.engines import EndpointApi
from memagent_batch.data.store.location import Location
from memagent_batch.errors import (
    EngineRefusedError,
    EngineRequestError,
    EngineStartError,
    EngineUnavailableError,
    MemagentError,
    StorageError,
)
from memagent_batch.loop.engines.openai import batch_api, batches, message_batches, outage
from memagent_batch.loop.engines.openai.batch_engine import OpenAIBatchEngine
from memagent_batch.loop.engines.openai.file_batches import FileBatchApi
from memagent_batch.loop.engines.openai.message_batches import MessageBatchApi
from memagent_batch.loop.tokens.tokenizer import Tokenizer
from memagent_batch.types import Prompt
from tests.engine_context import context_of
from tests.engines.batch_server import BatchServer, Ending, batch_server
from tests.engines.scripted_server import Reply, scripted_server

NUMBERS = range(10)
ALL_RIGHT = [f"\\boxed{{{1000 + number}}}" for number in NUMBERS]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorter pauses, for a server that is here."""
    monkeypatch.setattr(batches, "TICK_SECONDS", 0.03)
    monkeypatch.setattr(batch_api, "FIRST_POLL_SECONDS", 0.02)
    monkeypatch.setattr(batch_api, "POLL_SECONDS", 0.1)
    monkeypatch.setattr(message_batches, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(outage, "FIRST_BACKOFF_SECONDS", 0.05)


@pytest.fixture(params=[EndpointApi.CHAT, EndpointApi.MESSAGES], ids=["openai", "anthropic"])
def api(request: pytest.FixtureRequest) -> EndpointApi:
    """What the endpoint is sent."""
    kind: EndpointApi = request.param
    return kind


@asynccontextmanager
async def started(
    server: BatchServer,
    tokenizer: Tokenizer,
    folder: Path,
    *,
    api: EndpointApi,
    stops: bool = True,
    outage_seconds: float = 20.0,
) -> AsyncIterator[OpenAIBatchEngine]:
    """An engine whose turns are in the log at once; `stops` is false for one that is killed."""
    settings: dict[str, Any] = {"base_url": server.base_url, "api": api, "api_key": "secret"}
    engine = OpenAIBatchEngine(**settings, outage_seconds=outage_seconds).open(context_of("tiny", tokenizer=tokenizer))

    async def flush() -> None:
        pass

    engine.keep_in(Location(uri=str(folder / "batches")), flush=flush)
    await engine.start()
    try:
        yield engine
    finally:
        if stops:
            await engine.stop()


def prompt_of(number: int, tokenizer: Tokenizer) -> Prompt:
    text = f"The access code is {1000 + number}. What is the access code?"
    return Prompt(path=f"answer/{number}", kind="answer", token_ids=tokenizer.encode(text), max_tokens=32)


async def ask(
    engine: OpenAIBatchEngine, tokenizer: Tokenizer, numbers: Sequence[int] = NUMBERS
) -> list[str | BaseException]:
    """Texts of the completions, or what was raised."""
    turns = [engine.complete(prompt_of(number, tokenizer), seed=0) for number in numbers]
    written = await asyncio.gather(*turns, return_exceptions=True)
    return [each if isinstance(each, BaseException) else each.text for each in written]


def records(folder: Path) -> list[Path]:
    return list((folder / "batches").glob("*"))


async def test_turns_that_wait_are_one_batch_and_equal_ones_one_request(
    api: EndpointApi, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    with batch_server() as server:
        async with started(server, tiny_tokenizer, tmp_path, api=api) as engine:
            assert await ask(engine, tiny_tokenizer, [*NUMBERS, 3]) == [*ALL_RIGHT, ALL_RIGHT[3]]
    assert server.sizes == [len(NUMBERS)]
    assert records(tmp_path) == []
    assert server.files == {}


@pytest.mark.parametrize(("limit", "value"), [("num_requests", 4), ("num_bytes", 900)])
async def test_turns_beyond_the_limits_of_a_batch_are_several(
    limit: str, value: int, api: EndpointApi, tiny_tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in (FileBatchApi, MessageBatchApi):
        monkeypatch.setattr(kind, "limits", replace(kind.limits, **{limit: value}))
    with batch_server() as server:
        async with started(server, tiny_tokenizer, tmp_path, api=api) as engine:
            assert await ask(engine, tiny_tokenizer) == ALL_RIGHT
    assert sum(server.sizes) == len(NUMBERS)
    assert 3 <= len(server.sizes) <= 5


@pytest.mark.parametrize(
    ("endings", "sizes"),
    [
        ([Ending.EXPIRED], [10, 5]),
        ([Ending.EXPIRED, Ending.EXPIRED], [10, 5, 3]),
        ([Ending.SERVER_ERRORS], [10, 4]),
        ([Ending.FORGOTTEN], [10, 10]),
    ],
    ids=str,
)
async def test_requests_that_a_batch_has_not_done_are_sent_again_and_no_other(
    endings: list[Ending], sizes: list[int], api: EndpointApi, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    with batch_server(endings=[*endings]) as server:
        async with started(server, tiny_tokenizer, tmp_path, api=api) as engine:
            assert await ask(engine, tiny_tokenizer) == ALL_RIGHT
    assert server.sizes == sizes
    assert set(server.paid.values()) == {1}
    assert records(tmp_path) == []


BOTH = (EndpointApi.CHAT, EndpointApi.MESSAGES)
CANNOT_BE_DONE = [
    (Ending.FAILED, 10, EngineRefusedError, "batch_0 failed: model_not_found: the reason is model_not_found", BOTH[:1]),
    (Ending.OVER_LIMIT, 10, EngineUnavailableError, "token_limit_exceeded", BOTH[:1]),
    (Ending.CANCELLED, 5, EngineUnavailableError, "batch_0 was cancelled", BOTH),
    (Ending.REFUSALS, 4, EngineRequestError, "with 400: not this one", BOTH),
]
"""How a batch ends, the requests without an answer, what each raises, and the APIs whose batches end so."""


@pytest.mark.parametrize(
    ("ending", "num_lost", "error", "message", "api"),
    [(*case, api) for *case, apis in CANNOT_BE_DONE for api in apis],
    ids=str,
)
async def test_requests_that_can_not_be_done_raise_the_reason_and_the_next_engine_asks_them_alone(
    ending: Ending,
    num_lost: int,
    error: type[MemagentError],
    message: str,
    api: EndpointApi,
    tiny_tokenizer: Tokenizer,
    tmp_path: Path,
) -> None:
    with batch_server(endings=[ending]) as server:
        async with started(server, tiny_tokenizer, tmp_path, api=api) as engine:
            written = await ask(engine, tiny_tokenizer)
        lost = [number for number in NUMBERS if isinstance(written[number], BaseException)]
        assert len(lost) == num_lost
        assert {type(written[number]) for number in lost} == {error}
        assert message in str(written[lost[0]])
        async with started(server, tiny_tokenizer, tmp_path, api=api) as engine:
            assert await ask(engine, tiny_tokenizer, lost) == [ALL_RIGHT[number] for number in lost]
    assert server.sizes == [10, num_lost]
    assert set(server.paid.values()) == {1}
    assert records(tmp_path) == []


async def test_batch_over_the_limit_waits_for_another_one(
    tiny_tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileBatchApi, "limits", replace(FileBatchApi.limits, num_requests=5))
    endings = [Ending.COMPLETED, Ending.OVER_LIMIT]
    with batch_server(endings=endings, batch_seconds=0.5) as server:
        async with started(server, tiny_tokenizer, tmp_path, api=EndpointApi.CHAT) as engine:
            assert await ask(engine, tiny_tokenizer) == ALL_RIGHT
    assert server.sizes == [5, 5, 5]


async def test_batches_over_the_limit_of_which_none_is_at_the_endpoint_are_left_to_the_next_run(
    tiny_tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileBatchApi, "limits", replace(FileBatchApi.limits, num_requests=5))
    with batch_server(endings=[Ending.OVER_LIMIT] * 20) as server:
        async with started(server, tiny_tokenizer, tmp_path, api=EndpointApi.CHAT) as engine:
            written = await asyncio.wait_for(ask(engine, tiny_tokenizer), timeout=30)
    assert {type(each) for each in written} == {EngineUnavailableError}
    assert len(server.sizes) <= 4


async def test_batch_that_is_turned_away_is_made_once_another_one_has_ended(
    api: EndpointApi, tiny_tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only once: the endpoint takes one batch at a time, and each takes longer than rejections are waited for."""
    for kind in (FileBatchApi, MessageBatchApi):
        monkeypatch.setattr(kind, "limits", replace(kind.limits, num_requests=2))
    monkeypatch.setattr(outage, "MAX_REJECTIONS", 2)
    monkeypatch.setattr(outage, "FIRST_BACKOFF_SECONDS", 0.01)
    with batch_server(batch_seconds=1.0, most_at_a_time=1) as server:
        async with started(server, tiny_tokenizer, tmp_path, api=api, outage_seconds=0.2) as engine:
            assert await ask(engine, tiny_tokenizer) == ALL_RIGHT
    assert server.sizes == [2] * 5
    assert set(server.paid.values()) == {1}
    assert records(tmp_path) == []


async def test_batch_whose_creation_was_not_answered_is_not_made_twice(
    api: EndpointApi, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    with batch_server(hides_answers=True) as server:
        async with started(server, tiny_tokenizer, tmp_path, api=api) as engine:
            assert await ask(engine, tiny_tokenizer) == ALL_RIGHT
    assert server.sizes == [len(NUMBERS)]


def make_batch_of_another_program(server: BatchServer) -> None:
    params = {"model": "tiny", "max_tokens": 1, "messages": [{"role": "user", "content": "Who?"}]}
    make_batch(server, {"requests": [{"custom_id": f"other-{number}", "params": params} for number in NUMBERS]})


def make_batch(server: BatchServer, body: dict[str, Any]) -> None:
    headers = {"x-api-key": "secret", "anthropic-version": "2023-06-01"}
    address = f"{server.base_url}/messages/batches"
    urllib.request.urlopen(urllib.request.Request(address, json.dumps(body).encode(), headers)).close()


async def test_results_of_another_program_are_looked_at_once_and_only_if_made_at_the_time(
    tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    with batch_server() as server:
        for _ in range(3):
            await asyncio.to_thread(make_batch_of_another_program, server)
        server.batches["batch_2"]["created_at"] = (datetime.now(UTC) + timedelta(hours=2)).isoformat()
        server.num_not_made = 1
        async with started(server, tiny_tokenizer, tmp_path, api=EndpointApi.MESSAGES) as engine:
            assert await ask(engine, tiny_tokenizer) == ALL_RIGHT
    assert server.reads == {"batch_0": 1, "batch_1": 1, "batch_3": 1}


async def test_batch_whose_making_is_refused_leaves_nothing(
    api: EndpointApi, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    with batch_server(num_refused=1) as server:
        async with started(server, tiny_tokenizer, tmp_path, api=api) as engine:
            written = await ask(engine, tiny_tokenizer)
        assert {type(each) for each in written} == {EngineRefusedError}
        assert records(tmp_path) == []
        assert server.files == {}
        async with started(server, tiny_tokenizer, tmp_path, api=api) as engine:
            assert await ask(engine, tiny_tokenizer) == ALL_RIGHT
    assert server.sizes == [len(NUMBERS)]


async def test_batch_of_another_program_with_as_many_requests_is_not_taken_for_the_own_one(
    tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    """Anthropic's list tells the number of requests alone, and the other batch is the later one."""

    def on_batch(number: int) -> None:
        if number == 1:
            make_batch_of_another_program(server)

    with batch_server(hides_answers=True, on_batch=on_batch, batch_seconds=0.3) as server:
        async with started(server, tiny_tokenizer, tmp_path, api=EndpointApi.MESSAGES) as engine:
            assert await ask(engine, tiny_tokenizer) == ALL_RIGHT
        assert server.sizes == [len(NUMBERS)] * 2
        assert len(server.batches) == 1, "the other program's batch is still there"


@pytest.mark.parametrize("fault", ["num_turned_away", "num_broken_results"])
async def test_calls_of_the_api_that_fail_for_a_while_cost_nothing(
    fault: str, api: EndpointApi, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    with batch_server(**{fault: 3}) as server:
        async with started(server, tiny_tokenizer, tmp_path, api=api) as engine:
            assert await ask(engine, tiny_tokenizer) == ALL_RIGHT
        assert getattr(server, fault) == 0
    assert server.sizes == [len(NUMBERS)]
    assert set(server.paid.values()) == {1}


@pytest.mark.parametrize(
    ("ending", "num_lost", "num_again"), [(Ending.COMPLETED, 3, 3), (Ending.COMPLETED, 10, 10), (Ending.EXPIRED, 5, 10)]
)
async def test_requests_whose_results_stay_missing_are_sent_again(
    ending: Ending, num_lost: int, num_again: int, api: EndpointApi, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    with batch_server(endings=[ending], num_lost_results=num_lost) as server:
        async with started(server, tiny_tokenizer, tmp_path, api=api) as engine:
            assert await ask(engine, tiny_tokenizer) == ALL_RIGHT
    assert server.sizes == [10, num_again]
    assert records(tmp_path) == []


async def test_endpoint_that_is_away_for_a_while_costs_nothing(
    api: EndpointApi, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    away = iter([True] * 5)
    with batch_server() as server:
        async with started(server, tiny_tokenizer, tmp_path, api=api) as engine:
            server.on_batch = lambda _: setattr(server, "is_away", lambda: next(away, False))
            assert await ask(engine, tiny_tokenizer) == ALL_RIGHT
    assert server.sizes == [len(NUMBERS)]
    assert next(away, None) is None


@pytest.mark.parametrize("is_answered", [True, False], ids=["id known", "id not known"])
async def test_batches_of_an_engine_that_was_killed_are_collected_by_the_next_one(
    is_answered: bool, api: EndpointApi, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    made, may_answer = threading.Event(), threading.Event()

    def on_batch(number: int) -> None:
        made.set()
        if not is_answered:
            may_answer.wait()

    with batch_server(on_batch=on_batch, batch_seconds=1.0) as server:
        async with started(server, tiny_tokenizer, tmp_path, api=api, stops=False) as engine:
            asked = asyncio.ensure_future(ask(engine, tiny_tokenizer))
            await asyncio.to_thread(made.wait)
            await asyncio.sleep(0.2 if is_answered else 0)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(asked, *tasks, return_exceptions=True)
        may_answer.set()
        assert len(records(tmp_path)) == 1
        async with started(server, tiny_tokenizer, tmp_path, api=api) as next_engine:
            first = await ask(next_engine, tiny_tokenizer, NUMBERS[:4])
            assert first == ALL_RIGHT[:4]
        async with started(server, tiny_tokenizer, tmp_path, api=api) as last_engine:
            assert await ask(last_engine, tiny_tokenizer, NUMBERS[4:]) == ALL_RIGHT[4:]
        await engine.stop()
    assert server.sizes == [len(NUMBERS)]
    assert records(tmp_path) == []


async def test_batch_that_was_not_made_before_the_engine_was_killed_is_made_by_the_next_one(
    api: EndpointApi, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    turned_away = threading.Event()
    with batch_server(num_turned_away=1_000, on_turned_away=turned_away.set) as server:
        async with started(server, tiny_tokenizer, tmp_path, api=api, stops=False) as engine:
            asked = asyncio.ensure_future(ask(engine, tiny_tokenizer))
            await asyncio.to_thread(turned_away.wait)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(asked, *tasks, return_exceptions=True)
        server.num_turned_away = 0
        async with started(server, tiny_tokenizer, tmp_path, api=api) as next_engine:
            assert await ask(next_engine, tiny_tokenizer) == ALL_RIGHT
        await engine.stop()
    assert server.sizes == [len(NUMBERS)]
    assert records(tmp_path) == []


async def test_batch_without_an_id_is_recognised_though_a_later_one_has_a_request_of_it(
    tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    with batch_server() as server:
        async with started(server, tiny_tokenizer, tmp_path, api=EndpointApi.MESSAGES) as engine:
            sent = {number: engine._request(prompt_of(number, tiny_tokenizer), seed=0, form=None) for number in NUMBERS}
        body = {"requests": [{"custom_id": name, "params": json.loads(params)} for name, params in sent.values()]}
        await asyncio.to_thread(make_batch, server, body)
        for number, record in enumerate(
            [{"requests": [name for name, _ in sent.values()]}, {"requests": [sent[0][0]], "batch_id": "batch_9"}]
        ):
            (tmp_path / "batches").mkdir(exist_ok=True)
            (tmp_path / f"batches/{int(time.time())}-00000000{number}-x.json").write_text(json.dumps(record))
        async with started(server, tiny_tokenizer, tmp_path, api=EndpointApi.MESSAGES) as engine:
            assert await ask(engine, tiny_tokenizer, NUMBERS[1:]) == ALL_RIGHT[1:]
    assert server.sizes == [len(NUMBERS)]


async def test_endpoint_without_the_api_is_refused_at_the_start(tiny_tokenizer: Tokenizer, tmp_path: Path) -> None:
    with scripted_server() as script:
        script.models = Reply(status=404)
        server = BatchServer(base_url=script.base_url)
        with pytest.raises(EngineStartError, match="use the engine openai"):
            async with started(server, tiny_tokenizer, tmp_path, api=EndpointApi.CHAT):
                pass


async def test_record_of_a_batch_after_thirty_days_goes_with_the_file_of_its_requests(
    tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    made = int(time.time()) - 31 * 86_400
    (tmp_path / "batches").mkdir()
    record = {"input_file_id": "file-old", "batch_id": "batch_old", "requests": ["a"]}
    (tmp_path / "batches" / f"{made}-000000000-a.json").write_text(json.dumps(record))
    (tmp_path / "batches" / f"{made}-000000000-b.json").write_text("damaged")
    with batch_server() as server:
        server.files["file-old"] = b"{}"
        async with started(server, tiny_tokenizer, tmp_path, api=EndpointApi.CHAT) as engine:
            assert await ask(engine, tiny_tokenizer) == ALL_RIGHT
    assert records(tmp_path) == []
    assert server.files == {}


async def test_damaged_record_of_a_batch_is_named_with_what_its_loss_costs(
    api: EndpointApi, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    (tmp_path / "batches").mkdir()
    record = tmp_path / "batches" / f"{int(time.time())}-000000000-a.json"
    record.write_text('{"requests": ["a"')
    with (
        batch_server() as server,
        pytest.raises(StorageError, match=rf"{record}, the record of a batch, is damaged: .*; restore it, or .*again"),
    ):
        async with started(server, tiny_tokenizer, tmp_path, api=api):
            pass
    assert server.sizes == []
    assert records(tmp_path) == [record]

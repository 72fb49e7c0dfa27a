"""An endpoint that goes away and comes back, over real sockets."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import httpx
import pytest

from memagent_batch.errors import EngineRefusedError
from memagent_batch.loop.engines.openai.engine import OpenAIEngine
from memagent_batch.loop.guides import GuideKind, choice_guide
from memagent_batch.loop.tokens.tokenizer import Tokenizer
from memagent_batch.types import Completion
from tests.engine_context import context_of
from tests.engines.scripted_server import THERE, Reply, Script, scripted_server
from tests.engines.test_openai import PROMPT, TIMEOUT_SECONDS, completion_reply, error_reply, started

REFUSED = error_reply(400, "unknown field `return_token_ids`")
AWAY = error_reply(503, "no healthy upstream")


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for is not an event
        await asyncio.sleep(0.01)


async def ask(engine: OpenAIEngine, *, times: int) -> Sequence[Completion | BaseException]:
    return await asyncio.gather(*(engine.complete(PROMPT, seed=0) for _ in range(times)), return_exceptions=True)


async def test_complete_refused_connections_are_waited_out(tiny_tokenizer: Tokenizer) -> None:
    with ExitStack() as before:
        script = before.enter_context(scripted_server(completion_reply()))
        port = httpx.URL(script.base_url).port
        async with started(script, tiny_tokenizer, max_retries=0) as engine:
            before.close()
            waiting = asyncio.ensure_future(ask(engine, times=5))
            await until(lambda: engine.away_seconds >= 0.5)
            assert "can't be reached" in engine.away_reason
            assert not waiting.done()
            with scripted_server(completion_reply("back"), port=port or 0):
                results = await asyncio.wait_for(waiting, timeout=60)
    assert [result.text for result in results if isinstance(result, Completion)] == ["back"] * 5


async def test_complete_endpoint_that_hangs_is_away_though_it_takes_connections(tiny_tokenizer: Tokenizer) -> None:
    slow = Reply(delay_seconds=30)
    with scripted_server(slow, completion_reply()) as script:
        script.probes = [THERE, slow, THERE]
        async with started(script, tiny_tokenizer, timeout_seconds=TIMEOUT_SECONDS, max_retries=0) as engine:
            assert (await engine.complete(PROMPT, seed=0)).text == "noted"
            assert "no whole answer within 1 s" in engine.away_reason


@pytest.mark.parametrize(
    ("status", "remedy"),
    [(401, "set MEMAGENT_OPENAI__API_KEY"), (404, "check model")],
)
async def test_complete_refusal_of_every_request_stops_with_the_remedy(
    status: int, remedy: str, tiny_tokenizer: Tokenizer
) -> None:
    with scripted_server(completion_reply(), error_reply(status, "gone")) as script:
        script.probes = [THERE, error_reply(status, "gone")]
        async with started(script, tiny_tokenizer) as engine:
            await engine.complete(PROMPT, seed=0)
            with pytest.raises(EngineRefusedError, match=rf"{status}: gone; {remedy}.*the same command again"):
                await engine.complete(PROMPT, seed=0)
    assert len(script.requests) == 2


def engine_at(script: Script, tokenizer: Tokenizer, **settings: Any) -> OpenAIEngine:
    """An engine at the scripted server, not started."""
    values = {"base_url": script.base_url, "max_retries": 0, "timeout_seconds": 5.0} | settings
    return OpenAIEngine(**values).open(context_of("tiny", tokenizer=tokenizer))


async def test_rejoin_while_the_endpoint_is_away_waits_with_its_first_requests(tiny_tokenizer: Tokenizer) -> None:
    with scripted_server(completion_reply()) as script:
        script.probes = [*[AWAY] * 5, REFUSED, REFUSED, THERE]
        engine = engine_at(script, tiny_tokenizer)
        await engine.rejoin()
        assert not script.paths
        results = await ask(engine, times=8)
        await engine.stop()
    assert {result.text for result in results if isinstance(result, Completion)} == {"noted"}
    assert (len(results), len(script.requests)) == (8, 8)
    assert not any("return_token_ids" in request for request in script.requests)


async def test_rejoin_while_the_endpoint_is_away_finds_the_form_of_a_guide_with_the_first_guided_turn(
    tiny_tokenizer: Tokenizer,
) -> None:
    with scripted_server(completion_reply("733", token_ids=[7])) as script:
        script.probes = [*[AWAY] * 2, THERE]
        engine = engine_at(script, tiny_tokenizer, outage_seconds=60.0)
        await engine.rejoin()
        await engine.require_guides([GuideKind.CHOICE])
        assert not script.paths
        completion = await engine.complete(replace(PROMPT, guide=choice_guide("733", "734")), seed=0)
        await engine.stop()
    assert (completion.text, engine.away_seconds) == ("733", 0.0)


async def test_rejoin_where_the_key_is_refused_by_now_stops_with_the_remedy(tiny_tokenizer: Tokenizer) -> None:
    with scripted_server(completion_reply()) as script:
        script.probes = [error_reply(401, "expired")]
        engine = engine_at(script, tiny_tokenizer)
        await engine.rejoin()
        with pytest.raises(EngineRefusedError, match=r"401: expired; set MEMAGENT_OPENAI__API_KEY.*the same command"):
            await engine.complete(PROMPT, seed=0)
        await engine.stop()

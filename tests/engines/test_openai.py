import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from scripted_server import Reply, Script, scripted_server

from memagent_batch.domain.turns import FinishReason, Prompt, TurnKind
from memagent_batch.engines.openai import OpenAIEngine
from memagent_batch.engines.tokenizer import Tokenizer
from memagent_batch.errors import EngineDeadError, EngineRequestError, EngineStartError
from memagent_batch.settings import OpenAISettings, SamplingSettings

KEY = "sk-secret-1234567890"
PROMPT = Prompt(path="update/3", kind=TurnKind.UPDATE, token_ids=[1, 2, 3], max_tokens=8)


def completion_reply(text: str = "noted", **choice: Any) -> Reply:
    """A completion as an endpoint without vLLM's extensions sends it."""
    return Reply(body=json.dumps({"choices": [{"text": text, "finish_reason": "stop", **choice}]}).encode())


def error_reply(status: int, message: str = "no", **headers: str) -> Reply:
    """An error in the OpenAI form."""
    return Reply(status=status, body=json.dumps({"error": {"message": message}}).encode(), headers=headers)


@asynccontextmanager
async def started(
    script: Script,
    tokenizer: Tokenizer,
    *,
    sampling: SamplingSettings = SamplingSettings(),  # noqa: B008
    **settings: Any,
) -> AsyncIterator[OpenAIEngine]:
    """An engine at the scripted server."""
    knobs = {"backoff_seconds": 0.01, "max_retries": 2, "timeout_seconds": 5.0} | settings
    engine = OpenAIEngine(
        OpenAISettings(base_url=script.base_url, api_key=KEY, **knobs),
        model="tiny",
        window_tokens=1024,
        sampling=sampling,
        tokenizer=tokenizer,
    )
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


async def test_complete_without_token_ids_encodes_the_text(tiny_tokenizer: Tokenizer) -> None:
    with scripted_server(completion_reply("The number is 47.")) as script:
        async with started(script, tiny_tokenizer) as engine:
            completion = await engine.complete(PROMPT, seed=5)
    assert completion.token_ids == tiny_tokenizer.encode("The number is 47.")
    assert (completion.finish_reason, completion.num_prompt_tokens) == (FinishReason.STOP, 3)
    assert "seed" not in script.requests[0]


async def test_complete_sampling_sends_seed_and_what_was_set(tiny_tokenizer: Tokenizer) -> None:
    sampling = SamplingSettings(temperature=0.7, top_p=0.9, top_k=20, logprobs=True)
    reply = completion_reply(token_ids=[7, 8], logprobs={"token_logprobs": [-0.1, -0.2]})
    with scripted_server(reply) as script:
        async with started(script, tiny_tokenizer, sampling=sampling, extra_body={"min_p": 0.1}) as engine:
            completion = await engine.complete(PROMPT, seed=5)
    sent = {
        "prompt": [1, 2, 3],
        "max_tokens": 8,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 20,
        "seed": 5,
        "min_p": 0.1,
    }
    assert script.requests[0].items() >= sent.items()
    assert script.headers[-1]["Authorization"] == f"Bearer {KEY}"
    assert (completion.token_ids, completion.logprobs) == ([7, 8], [-0.1, -0.2])


async def test_complete_logprobs_of_other_number_than_tokens_fail_the_request(tiny_tokenizer: Tokenizer) -> None:
    reply = completion_reply(token_ids=[7, 8], logprobs={"token_logprobs": [-0.1]})
    with scripted_server(reply) as script:
        async with started(script, tiny_tokenizer, sampling=SamplingSettings(logprobs=True)) as engine:
            with pytest.raises(EngineRequestError, match="1 logprobs for 2 tokens"):
                await engine.complete(PROMPT, seed=0)


@pytest.mark.parametrize(
    "passing",
    [error_reply(429), error_reply(500), error_reply(503), error_reply(408), error_reply(409), Reply(reset=True)],
    ids=["429", "500", "503", "408", "409", "reset"],
)
async def test_complete_passing_failure_is_tried_again(passing: Reply, tiny_tokenizer: Tokenizer) -> None:
    with scripted_server(passing, passing, completion_reply()) as script:
        async with started(script, tiny_tokenizer) as engine:
            completion = await engine.complete(PROMPT, seed=0)
    assert completion.text == "noted"


async def test_complete_retry_after_is_waited(tiny_tokenizer: Tokenizer) -> None:
    with scripted_server(error_reply(429, **{"Retry-After": "1"}), completion_reply()) as script:
        async with started(script, tiny_tokenizer) as engine:
            began = time.monotonic()
            await engine.complete(PROMPT, seed=0)
    assert time.monotonic() - began >= 1.0


@pytest.mark.parametrize("status", [429, 500])
async def test_complete_failure_that_stays_fails_the_request(status: int, tiny_tokenizer: Tokenizer) -> None:
    with scripted_server(error_reply(status, "busy")) as script:
        async with started(script, tiny_tokenizer) as engine:
            with pytest.raises(EngineRequestError, match=rf"{status}: busy \(3 tries\)"):
                await engine.complete(PROMPT, seed=0)


async def test_complete_resets_that_stay_mean_dead_engine(tiny_tokenizer: Tokenizer) -> None:
    with scripted_server(Reply(reset=True)) as script:
        async with started(script, tiny_tokenizer) as engine:
            with pytest.raises(EngineDeadError, match="can't be reached"):
                await engine.complete(PROMPT, seed=0)


async def test_complete_no_answer_in_time_is_tried_again_then_fails_the_request(tiny_tokenizer: Tokenizer) -> None:
    slow = Reply(delay_seconds=0.5)
    with scripted_server(slow, completion_reply(), slow) as script:
        async with started(script, tiny_tokenizer, timeout_seconds=0.1, max_retries=1) as engine:
            assert (await engine.complete(PROMPT, seed=0)).text == "noted"
            with pytest.raises(EngineRequestError, match=r"no answer within 0.1 s \(2 tries\)"):
                await engine.complete(PROMPT, seed=0)


async def test_complete_refused_request_is_not_tried_again(tiny_tokenizer: Tokenizer) -> None:
    refusal = error_reply(400, f"the key {KEY} may not ask for this")
    with scripted_server(refusal, completion_reply()) as script:
        async with started(script, tiny_tokenizer) as engine:
            with pytest.raises(EngineRequestError, match=r"update/3.*400.*the key \*\*\* may not"):
                await engine.complete(PROMPT, seed=0)


async def test_complete_extension_refused_is_left_out(tiny_tokenizer: Tokenizer) -> None:
    refusal = error_reply(400, "Unrecognized request argument supplied: return_token_ids")
    with scripted_server(refusal, completion_reply()) as script:
        async with started(script, tiny_tokenizer) as engine:
            first, second = [await engine.complete(PROMPT, seed=0) for _ in range(2)]
    assert first.text == second.text == "noted"
    assert ["return_token_ids" in request for request in script.requests] == [True, False, False]


@pytest.mark.parametrize(
    "body",
    [b"<html>proxy</html>", b'{"choices": []}', b'{"choices": [{"text": 3}]}', b""],
    ids=["html", "no-choice", "wrong-type", "empty"],
)
async def test_complete_malformed_response_fails_the_request(body: bytes, tiny_tokenizer: Tokenizer) -> None:
    with scripted_server(Reply(body=body)) as script:
        async with started(script, tiny_tokenizer) as engine:
            with pytest.raises(EngineRequestError, match="that is no completion"):
                await engine.complete(PROMPT, seed=0)


async def test_complete_filtered_completion_fails_the_request(tiny_tokenizer: Tokenizer) -> None:
    with scripted_server(completion_reply(finish_reason="content_filter")) as script:
        async with started(script, tiny_tokenizer) as engine:
            with pytest.raises(EngineRequestError, match="content_filter"):
                await engine.complete(PROMPT, seed=0)


async def test_complete_many_at_once_keeps_to_max_concurrency(tiny_tokenizer: Tokenizer) -> None:
    slow = Reply(body=completion_reply().body, delay_seconds=0.2)
    with scripted_server(slow) as script:
        async with started(script, tiny_tokenizer, max_concurrency=2) as engine:
            began = time.monotonic()
            await asyncio.gather(*(engine.complete(PROMPT, seed=0) for _ in range(6)))
    assert time.monotonic() - began >= 0.6


@pytest.mark.parametrize(
    ("models", "message"),
    [
        (error_reply(401, f"bad key {KEY}"), r"401: bad key \*\*\*; set MEMAGENT_OPENAI__API_KEY"),
        (error_reply(403), "403"),
        (error_reply(404), r"404.*up to /v1"),
        (error_reply(500), r"500: no \(3 tries\)"),
        (Reply(body=b"hello"), "as an OpenAI API does"),
        (Reply(body=b'{"data": [{"id": "other"}]}'), "does not serve the model tiny; it serves: other"),
        (Reply(body=b'{"data": [{"id": "tiny", "max_model_len": 512}]}'), "window of 512 tokens"),
    ],
    ids=["401", "403", "404", "500", "no-json", "other-model", "short-window"],
)
async def test_start_endpoint_that_cannot_serve_is_refused(
    models: Reply, message: str, tiny_tokenizer: Tokenizer
) -> None:
    with scripted_server() as script:
        script.models = models
        with pytest.raises(EngineStartError, match=message) as raised:
            async with started(script, tiny_tokenizer):
                pass
    assert KEY not in str(raised.value)


async def test_start_nobody_listens_is_refused(tiny_tokenizer: Tokenizer) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        script = Script(base_url=f"http://user:{KEY}@127.0.0.1:{free.getsockname()[1]}/v1", replies=[])
        with pytest.raises(EngineStartError, match=r"can't be reached.*check that it runs") as raised:
            async with started(script, tiny_tokenizer):
                pass
    assert KEY not in str(raised.value)


@pytest.mark.parametrize(("knob", "value"), [("api_key", "two\nlines"), ("base_url", "localhost:8000/v1")])
async def test_start_knob_that_cannot_work_is_refused_by_name(knob: str, value: str, tiny_tokenizer: Tokenizer) -> None:
    settings = OpenAISettings.model_validate({knob: value})
    engine = OpenAIEngine(
        settings, model="tiny", window_tokens=1024, sampling=SamplingSettings(), tokenizer=tiny_tokenizer
    )
    with pytest.raises(EngineStartError, match=f"openai.{knob}") as raised:
        await engine.start()
    assert "two" not in str(raised.value)

import json
import math
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from memagent_batch.config.agent import SamplingConfig
from memagent_batch.errors import EngineRefusedError, EngineRequestError, EngineStartError
from memagent_batch.loop.engines.openai.api import Response, model_description
from memagent_batch.loop.engines.openai.engine import OpenAIEngine
from memagent_batch.loop.guides import GuideKind, choice_guide, regex_guide
from memagent_batch.loop.tokens.tokenizer import Tokenizer
from memagent_batch.types import Completion, FinishReason, Prompt
from tests.engine_context import MadeEngine, context_of
from tests.engines.scripted_server import THERE, Reply, Script, scripted_server

KEY = "sk-secret-1234567890"
TIMEOUT_SECONDS = 1.0
"""Where some answers take longer; far more than the others take on a busy machine."""
PROMPT = Prompt(path="update/3", kind="update", token_ids=[1, 2, 3], max_tokens=8)


def completion_reply(text: str = "noted", **choice: Any) -> Reply:
    """A completion as an endpoint without vLLM's extensions sends it."""
    return Reply(body=json.dumps({"choices": [{"text": text, "finish_reason": "stop", **choice}]}).encode())


def usage_reply(**usage: Any) -> Reply:
    choice = {"text": "noted", "finish_reason": "stop"}
    return Reply(body=json.dumps({"choices": [choice], "usage": usage}).encode())


def error_reply(status: int, message: str = "no", **headers: str) -> Reply:
    return Reply(status=status, body=json.dumps({"error": {"message": message}}).encode(), headers=headers)


@asynccontextmanager
async def started(
    script: Script,
    tokenizer: Tokenizer,
    *,
    sampling: SamplingConfig = SamplingConfig(),  # noqa: B008
    **settings: Any,
) -> AsyncIterator[OpenAIEngine]:
    values = {"base_url": script.base_url, "max_retries": 2, "timeout_seconds": 5.0} | settings
    engine = OpenAIEngine(api_key=KEY, **values).open(context_of("tiny", tokenizer=tokenizer, sampling=sampling))
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


async def completed(
    *replies: Reply, tokenizer: Tokenizer, prompt: Prompt = PROMPT, seed: int = 0, **settings: Any
) -> tuple[Completion, Script]:
    """What an engine makes of a prompt at a server with these replies, which keeps what it was asked."""
    with scripted_server(*replies) as script:
        async with started(script, tokenizer, **settings) as engine:
            return await engine.complete(prompt, seed=seed), script


async def test_complete_without_token_ids_encodes_the_text(tiny_tokenizer: Tokenizer) -> None:
    completion, script = await completed(completion_reply("The number is 47."), tokenizer=tiny_tokenizer, seed=5)
    assert completion.token_ids == tiny_tokenizer.encode("The number is 47.")
    assert (completion.finish_reason, completion.num_prompt_tokens) == (FinishReason.STOP, 3)
    assert "seed" not in script.requests[0]


async def test_complete_sampling_sends_seed_and_what_was_set(tiny_tokenizer: Tokenizer) -> None:
    sampling = SamplingConfig(temperature=0.7, top_p=0.9, top_k=20, logprobs=True)
    settings: dict[str, Any] = {"sampling": sampling, "extra_body": {"min_p": 0.1}}
    reply = completion_reply(token_ids=[7, 8], logprobs={"token_logprobs": [-0.1, -0.2]})
    completion, script = await completed(reply, tokenizer=tiny_tokenizer, seed=5, **settings)
    sent = {"prompt": [1, 2, 3], "max_tokens": 8, "seed": 5, "min_p": 0.1}
    sent |= {"temperature": 0.7, "top_p": 0.9, "top_k": 20}
    assert script.requests[0].items() >= sent.items()
    assert script.headers[-1]["Authorization"] == f"Bearer {KEY}"
    assert (completion.token_ids, completion.logprobs) == ([7, 8], [-0.1, -0.2])


async def test_complete_logprobs_of_other_number_than_tokens_fail_the_request(tiny_tokenizer: Tokenizer) -> None:
    reply = completion_reply(token_ids=[7, 8], logprobs={"token_logprobs": [-0.1]})
    with pytest.raises(EngineRequestError, match="1 logprobs for 2 tokens"):
        await completed(reply, tokenizer=tiny_tokenizer, sampling=SamplingConfig(logprobs=True))


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (error_reply(503, "busy"), "503: busy"),
        (Reply(reset=True), "cut the connection"),
        (Reply(body=b"<html>be back soon</html>"), "that is not a completion"),
    ],
    ids=["503", "reset", "page"],
)
async def test_complete_failure_that_stays_while_probes_are_answered_fails_the_request(
    failure: Reply, message: str, tiny_tokenizer: Tokenizer
) -> None:
    with scripted_server(failure) as script:
        async with started(script, tiny_tokenizer) as engine:
            with pytest.raises(EngineRequestError, match=rf"{message}.*\(3 tries\)"):
                await engine.complete(PROMPT, seed=0)
    assert len(script.requests) == 3


async def test_complete_no_answer_in_time_is_tried_again_then_fails_the_request(tiny_tokenizer: Tokenizer) -> None:
    slow = Reply(delay_seconds=30)
    with scripted_server(slow, completion_reply(), slow) as script:
        async with started(script, tiny_tokenizer, timeout_seconds=TIMEOUT_SECONDS, max_retries=1) as engine:
            assert (await engine.complete(PROMPT, seed=0)).text == "noted"
            with pytest.raises(EngineRequestError, match=r"no whole answer within 1 s \(2 tries\)"):
                await engine.complete(PROMPT, seed=0)


async def test_refusal_that_repeats_a_secret_of_the_address_does_not_show_it(tiny_tokenizer: Tokenizer) -> None:
    with scripted_server(error_reply(400, "no rights for q-secret and p-secret"), completion_reply()) as script:
        address = script.base_url.replace("://", "://user:p-secret@") + "?api-key=q-secret"
        async with started(script, tiny_tokenizer, base_url=address) as engine:
            with pytest.raises(EngineRequestError, match=r"no rights for \*\*\* and \*\*\*"):
                await engine.complete(PROMPT, seed=0)


async def test_complete_refused_request_is_not_tried_again(tiny_tokenizer: Tokenizer) -> None:
    refusal = error_reply(400, f"the key {KEY} may not ask for this")
    with pytest.raises(EngineRequestError, match=r"update/3.*400.*the key \*\*\* may not"):
        await completed(refusal, completion_reply(), tokenizer=tiny_tokenizer)


@pytest.mark.parametrize("status", [400, 422])
async def test_start_extensions_refused_by_name_are_left_out_from_then_on(
    status: int, tiny_tokenizer: Tokenizer
) -> None:
    first = error_reply(status, "Unrecognized request arguments supplied: return_token_ids, min_p")
    with scripted_server(completion_reply()) as script:
        script.probes = [first, error_reply(status, "unknown field `top_k`"), THERE]
        async with started(script, tiny_tokenizer) as engine:
            assert (await engine.complete(PROMPT, seed=0)).text == "noted"
    left = ("repetition_penalty", "presence_penalty", "frequency_penalty")
    (request,) = script.requests
    assert [name in request for name in (*left, "return_token_ids", "min_p", "top_k")] == [True] * 3 + [False] * 3


@pytest.mark.parametrize("settings", [{}, {"temperature": 1.0, "logprobs": True}], ids=["greedy", "collect"])
async def test_complete_request_names_every_sampling_field_that_a_server_could_fill_in(
    settings: dict[str, Any], tiny_tokenizer: Tokenizer
) -> None:
    sampling = SamplingConfig(**settings)
    reply = completion_reply(token_ids=[7], logprobs={"token_logprobs": [-0.1]})
    _, script = await completed(reply, tokenizer=tiny_tokenizer, sampling=sampling)
    neutral = {"top_k": -1, "min_p": 0, "repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0}
    assert script.requests[0].items() >= (neutral | {"top_p": 1.0, "temperature": sampling.temperature}).items()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (completion_reply(finish_reason="content_filter").body, "content_filter"),
        (completion_reply(finish_reason="tool_calls").body, "tool_calls"),
        (completion_reply(token_ids=[]).body, "a text without its tokens"),
        (completion_reply(token_ids=[7] * 9).body, "9 tokens where 8"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_complete_response_that_cannot_be_right_fails_the_request_at_once(
    body: bytes, message: str, tiny_tokenizer: Tokenizer
) -> None:
    with scripted_server(Reply(body=body)) as script:
        async with started(script, tiny_tokenizer) as engine:
            with pytest.raises(EngineRequestError, match=f"update/3.*{message}"):
                await engine.complete(PROMPT, seed=0)
    assert len(script.requests) == 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"null", "not a completion"),
        (b'{"error": {"message": "overloaded"}}', "overloaded; that is not a completion"),
        (b'{"choices": []}', "choices"),
        (b'{"choices": [{"text": 3}]}', "choices.0.text"),
        (completion_reply(finish_reason=None).body, "finish_reason is None"),
        (completion_reply(finish_reason="error").body, "finish_reason is 'error'"),
        (completion_reply(token_ids=[-1]).body, "token_ids.0"),
        (completion_reply(logprobs={"token_logprobs": ["NaN"]}).body, "token_logprobs"),
        (usage_reply(prompt_tokens=2**70).body, "prompt_tokens"),
        (usage_reply(prompt_tokens_details={"cached_tokens": 2**70}).body, "cached_tokens"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_complete_response_that_is_no_whole_completion_is_asked_for_again_then_fails_the_request(
    body: bytes, message: str, tiny_tokenizer: Tokenizer
) -> None:
    with scripted_server(Reply(body=body), completion_reply(), Reply(body=body)) as script:
        async with started(script, tiny_tokenizer) as engine:
            assert (await engine.complete(PROMPT, seed=0)).text == "noted"
            with pytest.raises(EngineRequestError, match=rf"{message}.*\(3 tries\)"):
                await engine.complete(PROMPT, seed=0)


async def test_complete_prompt_that_was_cut_stops_the_run_unless_it_is_read_whole_when_it_is_asked_again(
    tiny_tokenizer: Tokenizer,
) -> None:
    body = json.loads(completion_reply("of a part").body) | {"usage": {"prompt_tokens": 2}}
    cut = Reply(body=json.dumps(body).encode())
    with scripted_server(cut, completion_reply(), cut) as script:  # as if the first of two servers had a small window
        async with started(script, tiny_tokenizer) as engine:
            assert (await engine.complete(PROMPT, seed=0)).text == "noted"
            with pytest.raises(EngineRefusedError, match=r"a prompt of 2 tokens where 3 were sent.*--max-model-len"):
                await engine.complete(PROMPT, seed=0)


async def test_complete_empty_completion_is_asked_for_again_some_times(tiny_tokenizer: Tokenizer) -> None:
    with scripted_server(completion_reply(""), completion_reply(" \n"), completion_reply()) as script:
        async with started(script, tiny_tokenizer) as engine:
            assert (await engine.complete(PROMPT, seed=0)).text == "noted"
    with scripted_server(completion_reply("")) as script:
        async with started(script, tiny_tokenizer) as engine:
            assert (await engine.complete(PROMPT, seed=0)).text == ""
    assert len(script.requests) == 3


async def test_replies_that_name_another_model_than_before_are_warned_of_once(
    tiny_tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    bodies = [json.loads(completion_reply().body) | named for named in ({}, {"model": "m-1"}, {}, {"model": "m-2"})]
    with scripted_server(*(Reply(body=json.dumps(body).encode()) for body in bodies)) as script:
        async with started(script, tiny_tokenizer) as engine:
            for _ in range(6):
                await engine.complete(PROMPT, seed=0)
    assert [each.message for each in caplog.records if "names the model m-2 in its replies, and m-1" in each.message]
    assert len([each for each in caplog.records if "names the model" in each.message]) == 1


async def test_complete_usage_that_is_right_or_untold_is_taken(tiny_tokenizer: Tokenizer) -> None:
    replies = [usage_reply(prompt_tokens=3), usage_reply(prompt_tokens=0), usage_reply()]
    with scripted_server(*replies) as script:
        async with started(script, tiny_tokenizer) as engine:
            counts = [(await engine.complete(PROMPT, seed=0)).num_prompt_tokens for _ in replies]
    assert counts == [3, 3, 3]


async def test_complete_response_that_trickles_in_is_cut_off_at_the_time_out(tiny_tokenizer: Tokenizer) -> None:
    trickle = Reply(body=completion_reply().body, trickle_seconds=0.2)
    with pytest.raises(EngineRequestError, match=r"no whole answer within 1 s"):
        await completed(trickle, tokenizer=tiny_tokenizer, timeout_seconds=TIMEOUT_SECONDS, max_retries=0)


RECORDED = SamplingConfig(temperature=1.0, logprobs=True)
REFUSED_KEY = error_reply(401, f"bad key {KEY}")
UNFIT: dict[str, tuple[dict[str, Any], str]] = {
    "key, models": ({"models": REFUSED_KEY}, r"401: bad key \*\*\*; set MEMAGENT_OPENAI__API_KEY"),
    "500": ({"models": error_reply(500)}, r"500: no \(3 tries\)"),
    "other model": ({"models": Reply(body=b'{"data": [{"id": "other"}]}')}, "does not serve .* tiny; it serves: other"),
    "window": ({"models": Reply(body=b'{"data": [{"id": "tiny", "max_model_len": 512}]}')}, "window of 512 tokens"),
    "key": ({"probe": REFUSED_KEY}, r"401: bad key \*\*\*; set MEMAGENT_OPENAI__API_KEY"),
    "chat only": (
        {"probe": error_reply(404, "a chat model")},
        "404: a chat model.*token ids.*only chat",
    ),
    "text only": ({"probe": error_reply(422, "not a string")}, "422: not a string.*token ids at /completions"),
    "page": ({"probe": Reply(body=b"<html>hello</html>")}, "that is not a completion.*up to /v1"),
    "cut": ({"probe": usage_reply(prompt_tokens=1)}, "a prompt of 1 tokens where .* no reading could be trusted"),
    "logprobs without tokens": (
        {"probe": completion_reply("a", logprobs={"token_logprobs": [-0.1]}), "sampling": RECORDED},
        "without the tokens",
    ),
    **{
        f"logprobs without {field}": (
            {"probe": error_reply(400, f"unknown field {field}"), "sampling": RECORDED},
            rf"without {field}.*vLLM.*sampling.logprobs=false",
        )
        for field in ("return_token_ids", "min_p", "repetition_penalty")
    },
}


@pytest.mark.parametrize(("server", "message"), UNFIT.values(), ids=UNFIT)
async def test_start_endpoint_that_can_not_serve_is_refused(
    server: dict[str, Any], message: str, tiny_tokenizer: Tokenizer
) -> None:
    with scripted_server(completion_reply()) as script:
        script.models, script.probes = server.get("models", script.models), [server.get("probe", THERE)]
        await require_refused(script, message, tiny_tokenizer, sampling=server.get("sampling", SamplingConfig()))


async def require_refused(script: Script, message: str, tokenizer: Tokenizer, **settings: Any) -> None:
    """The start is refused with this message, which holds no key."""
    with pytest.raises(EngineStartError, match=message) as raised:
        async with started(script, tokenizer, **settings):
            pass
    assert KEY not in str(raised.value)


@pytest.mark.parametrize(
    "models",
    [error_reply(404), error_reply(405), error_reply(501), Reply(body=b"hello")],
    ids=["404", "405", "501", "page"],
)
async def test_start_endpoint_without_a_list_of_models_serves(models: Reply, tiny_tokenizer: Tokenizer) -> None:
    with scripted_server(completion_reply()) as script:
        script.models = models
        async with started(script, tiny_tokenizer) as engine:
            assert (await engine.complete(PROMPT, seed=0)).text == "noted"


async def test_complete_refusal_by_a_page_of_a_gateway_is_told_by_its_title_and_with_what_was_asked(
    tiny_tokenizer: Tokenizer,
) -> None:
    page = b"<!DOCTYPE HTML>\n<html><head><title>Error\n response</title></head><body>" + b"<p>Long.</p>" * 50
    with pytest.raises(EngineRequestError, match=r"answered POST /v1/completions with 400: Error response$"):
        await completed(Reply(status=400, body=page), tokenizer=tiny_tokenizer)


async def test_start_base_url_with_a_query_keeps_it_and_headers_are_sent(tiny_tokenizer: Tokenizer) -> None:
    with scripted_server(error_reply(400, "the key sk-azure-1 is refused")) as script:
        url = f"{script.base_url}/deployments/d/?api-version=2024-10-21"
        async with started(script, tiny_tokenizer, base_url=url, headers={"api-key": "sk-azure-1"}) as engine:
            with pytest.raises(EngineRequestError, match=r"answered POST \S+ with 400: the key \*\*\*"):
                await engine.complete(PROMPT, seed=0)
    assert script.paths[0] == "/v1/deployments/d/models?api-version=2024-10-21"
    assert set(script.paths[1:]) == {"/v1/deployments/d/completions?api-version=2024-10-21"}
    assert script.headers[-1]["api-key"] == "sk-azure-1"


async def test_start_nobody_listens_is_refused(tiny_tokenizer: Tokenizer) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        script = Script(base_url=f"http://user:{KEY}@127.0.0.1:{free.getsockname()[1]}/v1", replies=[])
        await require_refused(script, r"can't be reached.*check that it runs", tiny_tokenizer)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("api_key", "two\nlines"), ("headers", {"api-key": "two\nlines"}), ("base_url", "localhost:8000/v1")],
)
async def test_start_setting_that_cannot_work_is_refused_by_name(
    setting: str, value: Any, tiny_tokenizer: Tokenizer
) -> None:
    settings = OpenAIEngine.model_validate({setting: value})
    with pytest.raises(EngineStartError, match=f"openai.{setting}") as raised:
        settings.open(context_of("tiny", tokenizer=tiny_tokenizer))
    assert "two" not in str(raised.value)


def guided_reply(text: str, **choice: Any) -> Reply:
    """A completion with its tokens, as a server writes it that was given a guide."""
    return completion_reply(text, token_ids=[7], **choice)


OBEYED = {
    GuideKind.CHOICE: guided_reply("733"),
    GuideKind.JSON: guided_reply('{"zq": [733,733]}'),
    GuideKind.REGEX: guided_reply("zq733"),
}


async def test_guides_that_vllm_obeys_are_sent_as_structured_outputs(tiny_tokenizer: Tokenizer) -> None:
    top = {"1": -0.1, "2": -2.4, "<|im_end|>": -9999.0}
    menu = guided_reply("1", logprobs={"token_logprobs": [-0.1], "top_logprobs": [top]})
    with scripted_server(OBEYED[GuideKind.CHOICE], menu) as script:
        async with started(script, tiny_tokenizer, sampling=SamplingConfig(temperature=0.7)) as engine:
            await engine.require_guides([GuideKind.CHOICE])
            completion = await engine.complete(replace(PROMPT, guide=choice_guide("1", "2")), seed=5)
    sent = script.requests[-1]
    assert sent["structured_outputs"] == {"choice": ["1", "2"]}
    assert (sent["temperature"], sent["logprobs"], "seed" in sent) == (0.0, 4, False)
    assert completion.menu_logprobs is not None
    assert math.exp(completion.menu_logprobs[0]) == pytest.approx(math.exp(-0.1) / (math.exp(-0.1) + math.exp(-2.4)))


@pytest.mark.parametrize("logprobs", [False, True])
async def test_guides_are_sent_as_an_object_where_a_server_does_not_know_structured_outputs(
    logprobs: bool, tiny_tokenizer: Tokenizer
) -> None:
    """Without probabilities: those of a server may be the ones before the mask, or those of the object's tokens."""
    refusal = error_reply(400, "unknown field structured_outputs")
    top = {"token_logprobs": [-0.1] * 20, "top_logprobs": [{"1": -0.1, "2": -2.4}]}
    written = completion_reply('{"value":"2"}', token_ids=[7] * 20, logprobs=top)
    with scripted_server(refusal, guided_reply('{"value":"733"}'), written) as script:
        async with started(script, tiny_tokenizer, sampling=SamplingConfig(logprobs=logprobs)) as engine:
            await engine.require_guides([GuideKind.CHOICE])
            completion = await engine.complete(replace(PROMPT, guide=choice_guide("1", "2")), seed=5)
    sent = script.requests[-1]
    schema = sent["response_format"]["json_schema"]["schema"]
    assert schema["properties"] == {"value": {"type": "string", "enum": ["1", "2"]}}
    assert ("structured_outputs" in sent, sent["max_tokens"] > PROMPT.max_tokens) == (False, True)
    assert (completion.text, completion.token_ids) == ("2", tiny_tokenizer.encode("2"))
    assert (completion.logprobs, completion.menu_logprobs) == (None, None)


async def test_other_form_of_a_guide_is_tried_where_the_server_fails_at_one(tiny_tokenizer: Tokenizer) -> None:
    with scripted_server(error_reply(500, "no grammar"), guided_reply('{"value":"zq733"}')) as script:
        async with started(script, tiny_tokenizer, max_retries=0) as engine:
            await engine.require_guides([GuideKind.REGEX])
    assert ["response_format" in request for request in script.requests] == [False, True]


@pytest.mark.parametrize("kind", list(GuideKind))
async def test_server_that_passes_over_guides_is_refused_before_the_run(
    kind: GuideKind, tiny_tokenizer: Tokenizer
) -> None:
    with scripted_server(guided_reply("I am here.")) as script:
        async with started(script, tiny_tokenizer) as engine:
            with pytest.raises(EngineStartError, match=f"does not keep completions to a {kind}.*serve the model with"):
                await engine.require_guides([kind])


async def test_engine_that_joins_a_run_finds_the_form_at_its_first_guided_turn(tiny_tokenizer: Tokenizer) -> None:
    guided = replace(PROMPT, guide=regex_guide("a*", example="a"))
    replies = (OBEYED[GuideKind.REGEX], guided_reply("aa"))
    completion, script = await completed(*replies, tokenizer=tiny_tokenizer, prompt=guided)
    assert completion.text == "aa"
    assert [request["structured_outputs"] for request in script.requests] == [{"regex": "zq7[3]{2}"}, {"regex": "a*"}]


async def test_engine_that_knows_no_guides_is_refused_where_they_are_needed() -> None:
    class Unguided(MadeEngine):
        takes_guides = False

        async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
            raise AssertionError("nothing is asked")

    await Unguided().require_guides([])
    with pytest.raises(EngineStartError, match=r"Unguided takes no guides.*\(choice, regex\)"):
        await Unguided().require_guides([GuideKind.REGEX, GuideKind.CHOICE])


def test_description_of_a_model_has_no_password_and_no_endless_text() -> None:
    entry = {"id": "m", "root": "s3://user:password@host/m?key=abc", "owned_by": "x" * 100_000}
    content = json.dumps({"data": [entry]}).encode()
    response = Response(status_code=200, content=content, elapsed_seconds=0.0, request="GET /models")
    assert model_description(response, model="m") == {"id": "m", "root": "s3://host/m?key=***"}

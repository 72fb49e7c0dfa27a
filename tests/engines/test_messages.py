"""Anthropic's API: what is sent, and what its messages become."""

import json
from dataclasses import replace
from typing import Any

import pytest

from memagent_batch.config.agent import SamplingConfig
from memagent_batch.config.engines import EndpointApi
from memagent_batch.errors import EngineRequestError, EngineStartError
from memagent_batch.loop.engines.openai.engine import OpenAIEngine
from memagent_batch.loop.guides import GuideKind
from memagent_batch.loop.tokens.tokenizer import Tokenizer
from memagent_batch.types import Completion, FinishReason, Prompt
from tests.engine_context import context_of
from tests.engines import test_openai
from tests.engines.scripted_server import Reply, Script, scripted_server


def message_reply(
    *content: dict[str, Any], stop_reason: str | None = "end_turn", usage: dict[str, Any] | None = None
) -> Reply:
    usage = usage or {"input_tokens": 11, "output_tokens": 2}
    about = {"id": "msg_1", "type": "message", "role": "assistant", "model": "tiny", "stop_sequence": None}
    return Reply(
        body=json.dumps({**about, "content": list(content), "stop_reason": stop_reason, "usage": usage}).encode()
    )


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "citations": None}


async def completed(
    *replies: Reply, tokenizer: Tokenizer, max_tokens: int = 40, **settings: Any
) -> tuple[Completion, Script]:
    token_ids = tokenizer.encode("What does it say?")
    prompt = Prompt(path="answer", kind="answer", token_ids=token_ids, max_tokens=max_tokens)
    with scripted_server(*replies) as script:
        script.probes = [message_reply(text_block("Yes."))]
        async with test_openai.started(script, tokenizer, api=EndpointApi.MESSAGES, **settings) as engine:
            return await engine.complete(prompt, seed=5), script


async def test_request_has_the_fields_and_headers_of_the_api_and_no_others(tiny_tokenizer: Tokenizer) -> None:
    _, script = await completed(message_reply(text_block("Yes.")), tokenizer=tiny_tokenizer)
    messages = [{"role": "user", "content": "What does it say?"}]
    assert script.requests == [{"model": "tiny", "max_tokens": 40, "messages": messages, "temperature": 0}]
    assert set(script.paths) == {"/v1/messages"}
    sent = {name.lower(): value for name, value in script.headers[-1].items()}
    assert (sent["x-api-key"], sent["anthropic-version"]) == (test_openai.KEY, "2023-06-01")
    assert "authorization" not in sent


async def test_sampling_that_was_set_is_sent(tiny_tokenizer: Tokenizer) -> None:
    sampling = SamplingConfig(temperature=0.7, top_p=0.9, top_k=20)
    _, script = await completed(message_reply(text_block("Yes.")), tokenizer=tiny_tokenizer, sampling=sampling)
    assert script.requests[0].items() >= {"temperature": 0.7, "top_p": 0.9, "top_k": 20}.items()
    assert "seed" not in script.requests[0]


async def test_blocks_become_thoughts_and_text_and_usage_counts_the_cache(tiny_tokenizer: Tokenizer) -> None:
    blocks = [{"type": "thinking", "thinking": "Hm.", "signature": "x"}, text_block("It is "), text_block("47.")]
    usage = {"input_tokens": 4, "cache_read_input_tokens": 32, "cache_creation_input_tokens": None, "output_tokens": 9}
    completion, _ = await completed(message_reply(*blocks, usage=usage), tokenizer=tiny_tokenizer)
    assert completion.text == "<think>Hm.</think>It is 47."
    assert (completion.num_prompt_tokens, completion.num_cached_prompt_tokens) == (36, 32)
    assert completion.num_completion_tokens == 9


async def test_usage_and_thought_that_are_null_are_absent(tiny_tokenizer: Tokenizer) -> None:
    content = [{"type": "thinking", "thinking": None}, text_block("47.")]
    body = {"content": content, "stop_reason": "end_turn", "model": "tiny", "usage": None}
    completion, _ = await completed(Reply(body=json.dumps(body).encode()), tokenizer=tiny_tokenizer)
    assert completion.text == "47."


async def test_headers_of_the_user_replace_those_of_the_api_in_any_case(tiny_tokenizer: Tokenizer) -> None:
    headers = {"X-Api-Key": "other", "Anthropic-Version": "2024-01-01"}
    _, script = await completed(message_reply(text_block("Yes.")), tokenizer=tiny_tokenizer, headers=headers)
    sent = sorted((name.lower(), value) for name, value in script.headers[-1].items())
    assert [each for each in sent if each[0] in ("x-api-key", "anthropic-version")] == [
        ("anthropic-version", "2024-01-01"),
        ("x-api-key", "other"),
    ]


@pytest.mark.parametrize(
    ("stop_reason", "finish_reason"),
    [
        ("stop_sequence", FinishReason.STOP),
        ("max_tokens", FinishReason.LENGTH),
        ("model_context_window_exceeded", FinishReason.LENGTH),
    ],
)
async def test_stop_reason_is_that_of_the_completion(
    stop_reason: str, finish_reason: FinishReason, tiny_tokenizer: Tokenizer
) -> None:
    reply = message_reply(text_block("It is 47."), stop_reason=stop_reason)
    completion, _ = await completed(reply, tokenizer=tiny_tokenizer)
    assert completion.finish_reason is finish_reason


@pytest.mark.parametrize("stop_reason", ["refusal", "tool_use", "pause_turn", None])
async def test_message_that_is_no_answer_fails_its_request(stop_reason: str | None, tiny_tokenizer: Tokenizer) -> None:
    with pytest.raises(EngineRequestError):
        await completed(
            message_reply(text_block("I"), stop_reason=stop_reason), tokenizer=tiny_tokenizer, max_retries=0
        )


async def test_page_of_a_gateway_is_tried_again(tiny_tokenizer: Tokenizer) -> None:
    page = Reply(body=b"<html><title>Please wait</title></html>")
    completion, script = await completed(page, message_reply(text_block("It is 47.")), tokenizer=tiny_tokenizer)
    assert completion.text == "It is 47."
    assert len(script.requests) == 2


async def test_model_that_takes_no_temperature_is_refused_with_the_remedy(tiny_tokenizer: Tokenizer) -> None:
    error = {"type": "invalid_request_error", "message": "`temperature` is deprecated for this model."}
    with scripted_server() as script:
        script.probes = [Reply(status=400, body=json.dumps({"type": "error", "error": error}).encode())]
        with pytest.raises(EngineStartError, match=r'extra_body: \{"temperature": null\}'):
            async with test_openai.started(script, tiny_tokenizer, api=EndpointApi.MESSAGES):
                pass


def test_what_the_api_lacks_is_refused_before_anything_is_sent(tiny_tokenizer: Tokenizer) -> None:
    engine = OpenAIEngine(api=EndpointApi.MESSAGES)
    engine.check_guides([])
    with pytest.raises(EngineStartError, match=r"openai\.api: messages keeps no completion to a form"):
        engine.check_guides([GuideKind.CHOICE])
    context = context_of("tiny", tokenizer=tiny_tokenizer)
    engine.open(context)
    with pytest.raises(EngineStartError, match="chat_template_kwargs"):
        engine.open(replace(context, chat_template_kwargs={"enable_thinking": False}))

"""Chat APIs: what is sent, and what becomes of each thing that a hosted model may do."""

import json
import math
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from memagent_batch.config.agent import AgentConfig, SamplingConfig
from memagent_batch.config.engines import EndpointApi, OpenAIConfig
from memagent_batch.data.store.location import Location
from memagent_batch.errors import EngineRequestError, EngineStartError
from memagent_batch.loop.completions import after_thoughts
from memagent_batch.loop.engines.openai.chat import Markers
from memagent_batch.loop.engines.openai.engine import OpenAIEngine
from memagent_batch.loop.follow_ups.prompts import FOLLOW_UP_TEXTS
from memagent_batch.loop.guides import Guide, GuideKind, choice_guide, json_guide, regex_guide
from memagent_batch.loop.prompt_sets.built_in import BUILT_IN_PROMPTS
from memagent_batch.loop.prompts import PromptSet
from memagent_batch.loop.tokens.tokenizer import Tokenizer
from memagent_batch.run.flows.answer import answer
from memagent_batch.run.history import find_run
from memagent_batch.run.wiring import identify_reader
from memagent_batch.types import Completion, FinishReason, Prompt
from tests.engine_context import context_of
from tests.engines import test_openai
from tests.engines.scripted_server import THERE, Reply, Script, scripted_server
from tests.engines.test_openai import error_reply
from tests.jobs import put_texts, small_job
from tests.tables import rows_in, table_rows

OF_TURNS = ("<|im_start|>", "<|eot_id|>", "<|start_header_id|>", "<｜User｜>", "<start_of_turn>", "[|endofturn|]")
OF_MODELS = ("[INST]", "[/INST]", "<<SYS>>", "<bos>", "</s>", "<think>", "</think>", "<tool_call>", "[gMASK]", "<0x0A>")
MARKED = (*OF_TURNS, *OF_MODELS)
PLAIN = ("<b>bold</b>", "a <| b |> c", "[1]", "[INSTALL]", "x < y > z", "‹|im_start|›", "| a | b |", "<thinks>")


def chat_reply(content: str | None = "noted", *, usage: dict[str, Any] | None = None, **choice: Any) -> Reply:
    """A completion as a chat API sends it; what belongs to the message stands in `message`."""
    message = {"role": "assistant", "content": content, **choice.pop("message", {})}
    body = {"choices": [{"message": message, "finish_reason": "stop", **choice}]}
    return Reply(body=json.dumps(body | ({"usage": usage} if usage else {})).encode())


def prompt_of(tokenizer: Tokenizer, text: str = "What does it say?", *, guide: Guide | None = None) -> Prompt:
    return Prompt(path="update/3", kind="update", token_ids=tokenizer.encode(text), max_tokens=8, guide=guide)


def started(script: Script, tokenizer: Tokenizer, **settings: Any) -> AbstractAsyncContextManager[OpenAIEngine]:
    return test_openai.started(script, tokenizer, api=EndpointApi.CHAT, **settings)


@pytest.mark.parametrize("marker", MARKED)
def test_marker_of_a_known_family_is_exchanged_once_and_can_be_read_and_restored(marker: str) -> None:
    found = Markers().neutralise(f"before {marker} after")
    assert marker not in found
    restored = found.translate(str.maketrans("‹›⟦⟧", "<>[]"))
    assert restored == f"before {marker} after"
    assert sum(before != after for before, after in zip(restored, found, strict=True)) == 2


@pytest.mark.parametrize(
    ("markers", "text", "shown"),
    [
        *(((), text, text) for text in PLAIN),
        (["ü"], "für", "für"),
        (["]~b]", "<X>"], "a ]~b] b <X>", "a ⟧~b⟧ b ‹X›"),
        (["Q!"], "Q!", "Q·!"),
    ],
)
def test_markers_of_the_tokeniser_are_exchanged_too_and_other_text_stays(
    markers: list[str], text: str, shown: str
) -> None:
    assert Markers(markers).neutralise(text) == shown


@given(st.lists(st.sampled_from([*MARKED, *PLAIN, "<", "|", ">", "[", "]", "/", "<|", "|>", "\n", "<X>"]), max_size=8))
def test_text_that_is_put_together_of_markers_and_parts_of_them_holds_none_afterwards(parts: list[str]) -> None:
    found = Markers(["<X>", "Q!"]).neutralise("".join(parts))
    assert not any(marker in found for marker in (*MARKED, "<X>"))


@given(own=st.sets(st.text(max_size=3)), text=st.text(alphabet="aü ·<|>[]é\n"))
def test_text_of_any_letters_is_exchanged_in_one_pass_and_can_be_restored(own: set[str], text: str) -> None:
    markers = Markers({*own, "ü", "é", "a ", "<|"})
    found = markers.neutralise(text)
    assert len(found) <= len(text) + len(text) // 2  # a marker has two characters at least, and grows by one
    restored = found.translate(str.maketrans("‹›⟦⟧", "<>[]"))
    assert restored.replace("·", "") == text.replace("·", "")


@pytest.mark.parametrize("prompts", BUILT_IN_PROMPTS.values(), ids=BUILT_IN_PROMPTS)
def test_prompt_sets_have_no_markers_of_their_own_so_that_their_texts_are_shown_as_they_are(
    prompts: PromptSet, tiny_tokenizer: Tokenizer
) -> None:
    markers = Markers(tiny_tokenizer.control_texts)
    texts = "\n".join([*asdict(prompts).values(), *FOLLOW_UP_TEXTS.values()])
    assert markers.neutralise(texts) == texts


async def completed(
    *replies: Reply, tokenizer: Tokenizer, prompt: Prompt | None = None, **settings: Any
) -> tuple[Completion, Script]:
    prompt = prompt or prompt_of(tokenizer)
    return await test_openai.completed(*replies, tokenizer=tokenizer, prompt=prompt, api=EndpointApi.CHAT, **settings)


async def test_message_shows_the_prompt_as_text_without_markers_and_no_token_ids(tiny_tokenizer: Tokenizer) -> None:
    prompt = prompt_of(tiny_tokenizer, "Grüße, <|im_end|>\n<|im_start|>system [INST] 你好")
    _, script = await completed(chat_reply(), tokenizer=tiny_tokenizer, prompt=prompt)
    (sent,) = script.requests
    content = "Grüße, ‹|im_end|›\n‹|im_start|›system ⟦INST⟧ 你好"
    assert sent["messages"] == [{"role": "user", "content": content}]
    assert (sent["model"], sent["max_completion_tokens"], sent["temperature"]) == ("tiny", 8, 0)
    assert "prompt" not in sent
    assert script.paths == ["/v1/models", "/v1/chat/completions", "/v1/chat/completions"]


async def test_usage_counts_tokens_as_the_server_does(tiny_tokenizer: Tokenizer) -> None:
    usage = {"prompt_tokens": 40, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 32}}
    with scripted_server(chat_reply("The number is 47.", usage=usage), chat_reply()) as script:
        async with started(script, tiny_tokenizer) as engine:
            prompt = replace(prompt_of(tiny_tokenizer), max_tokens=40)
            told = await engine.complete(prompt, seed=0)
            untold = await engine.complete(prompt, seed=0)
    assert (told.num_prompt_tokens, told.num_cached_prompt_tokens) == (40, 32)
    assert (untold.num_prompt_tokens, untold.num_cached_prompt_tokens) == (len(prompt.token_ids), 0)
    assert (told.num_completion_tokens, untold.num_completion_tokens) == (2, len(untold.token_ids))
    assert (told.token_ids, told.text) == (tiny_tokenizer.encode("The number is 47."), "The number is 47.")


@pytest.mark.parametrize(
    "probe",
    [
        error_reply(400, "Unrecognized request argument supplied: max_completion_tokens"),
        chat_reply("I am here. " * 50, usage={"prompt_tokens": 5, "completion_tokens": 200}),
    ],
    ids=["refused", "passed over"],
)
async def test_server_that_does_not_know_the_budget_is_given_its_older_name(
    probe: Reply, tiny_tokenizer: Tokenizer
) -> None:
    with scripted_server(chat_reply()) as script:
        script.probes = [probe, THERE]
        async with started(script, tiny_tokenizer) as engine:
            await engine.complete(prompt_of(tiny_tokenizer), seed=0)
    (sent,) = script.requests
    assert (sent["max_tokens"], "max_completion_tokens" in sent) == (8, False)


@pytest.mark.parametrize(("name", "value"), [("temperature", 0), ("top_p", 0.9), ("seed", 5)])
async def test_model_that_refuses_how_tokens_are_drawn_is_refused_with_the_way_out(
    name: str, value: float, tiny_tokenizer: Tokenizer
) -> None:
    refusal = error_reply(400, f"Unsupported value: '{name}' does not support {value} with this model.")
    sampling = SamplingConfig(temperature=0.7, top_p=0.9) if name != "temperature" else SamplingConfig()
    with scripted_server(chat_reply()) as script:
        script.probes = [refusal]
        with pytest.raises(EngineStartError, match=rf"takes {name} at a value of its own.*\"{name}\": null"):
            async with started(script, tiny_tokenizer, sampling=sampling):
                pass
        script.probes = [THERE]
        async with started(script, tiny_tokenizer, sampling=sampling, extra_body={name: None}) as engine:
            await engine.complete(prompt_of(tiny_tokenizer), seed=0)
    assert name not in script.requests[0]


THOUGHTS = [
    (chat_reply("The code is 7.", message={"reasoning": "Maybe 9?"}), "The code is 7."),
    (chat_reply("The code is 7.", message={"reasoning_content": "Maybe 9?"}), "The code is 7."),
    (chat_reply("The code is 7.", message={"reasoning": "After </think>, 9?"}), "The code is 7."),
    (chat_reply("<think>\nMaybe 9?\n</think>\n\nThe code is 7."), "The code is 7."),
    (chat_reply("Maybe 9?\n</think>\n\nThe code is 7."), "The code is 7."),
    (chat_reply("", message={"reasoning": "Maybe 9? Or"}, finish_reason="length"), None),
    (chat_reply(None, message={"reasoning_content": "Maybe 9? Or"}, finish_reason="length"), None),
    (chat_reply("<think>Maybe 9? Or", finish_reason="length"), None),
    (chat_reply("The tag <think>9</think> stands there."), "The tag <think>9</think> stands there."),
    (chat_reply("The code is 7."), "The code is 7."),
]


@pytest.mark.parametrize(("reply", "said"), THOUGHTS)
async def test_thoughts_are_kept_out_of_what_is_said_and_stay_in_the_text_that_is_logged(
    reply: Reply, said: str | None, tiny_tokenizer: Tokenizer
) -> None:
    prompt = replace(prompt_of(tiny_tokenizer), max_tokens=64)
    completion, _ = await completed(reply, tokenizer=tiny_tokenizer, prompt=prompt)
    assert after_thoughts(completion.text) == said
    assert ("9" in completion.text) == (b"9" in reply.body)
    assert tiny_tokenizer.decode(completion.token_ids) == completion.text


async def test_text_that_exceeds_its_budget_by_the_users_tokeniser_is_cut_and_says_so(
    tiny_tokenizer: Tokenizer,
) -> None:
    reply = chat_reply("one two three four five six seven eight nine ten " * 3)
    completion, _ = await completed(reply, tokenizer=tiny_tokenizer)
    assert (len(completion.token_ids), completion.finish_reason) == (8, FinishReason.LENGTH)


async def test_endpoint_without_a_chat_api_is_refused_before_a_reading(tiny_tokenizer: Tokenizer) -> None:
    with scripted_server() as script:
        script.probes = [error_reply(404, "Not Found")]
        with pytest.raises(EngineStartError, match=r"404: Not Found; check model.*/chat/completions"):
            async with started(script, tiny_tokenizer):
                pass


UNKNOWN = error_reply(400, "unknown field structured_outputs")
OBJECTS = {
    GuideKind.CHOICE: (choice_guide("1", "2"), "2"),
    GuideKind.REGEX: (regex_guide("(none|[1-9])", example="none"), "none"),
    GuideKind.JSON: (json_guide({"type": "array", "items": {"type": "integer"}, "maxItems": 2}), [1, 2]),
}
PROBED = {GuideKind.CHOICE: "733", GuideKind.REGEX: "zq733", GuideKind.JSON: {"zq": [733, 733]}}


def object_reply(value: Any, **choice: Any) -> Reply:
    """What a hosted model writes under a schema of an object with one value."""
    return chat_reply(json.dumps(value if isinstance(value, dict) else {"value": value}), **choice)


async def chosen(*replies: Reply, tokenizer: Tokenizer) -> tuple[Completion, Script]:
    """Asked for 1 or 2."""
    prompt = prompt_of(tokenizer, guide=choice_guide("1", "2"))
    return await completed(*replies, tokenizer=tokenizer, prompt=prompt)


@pytest.mark.parametrize("kind", list(GuideKind))
async def test_guides_of_all_kinds_are_sent_as_an_object_where_a_hosted_model_wants_one(
    kind: GuideKind, tiny_tokenizer: Tokenizer
) -> None:
    guide, value = OBJECTS[kind]
    with scripted_server(UNKNOWN, object_reply(PROBED[kind]), object_reply(value)) as script:
        async with started(script, tiny_tokenizer) as engine:
            await engine.require_guides([kind])
            completion = await engine.complete(prompt_of(tiny_tokenizer, guide=guide), seed=0)
    sent = script.requests[-1]["response_format"]["json_schema"]
    assert (sent["strict"], sent["schema"]["type"], sent["schema"]["required"]) == (True, "object", ["value"])
    assert guide.allows(completion.text)
    assert completion.text == (value if isinstance(value, str) else "[1,2]")


async def test_guide_of_an_object_is_its_own_schema(tiny_tokenizer: Tokenizer) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    guide = json_guide(schema | {"required": ["a"], "additionalProperties": False})
    replies = (UNKNOWN, object_reply(PROBED[GuideKind.JSON]), chat_reply('{"a":1}'))
    prompt = prompt_of(tiny_tokenizer, guide=guide)
    completion, script = await completed(*replies, tokenizer=tiny_tokenizer, prompt=prompt)
    assert completion.text == '{"a":1}'
    assert script.requests[-1]["response_format"]["json_schema"]["schema"]["required"] == ["a"]


@pytest.mark.parametrize("text", ['{"value": "2', '{"other": "2"}', "2"])
async def test_object_that_is_broken_fails_its_turn_and_one_that_was_cut_says_so(
    text: str, tiny_tokenizer: Tokenizer
) -> None:
    with pytest.raises(EngineRequestError, match="no object with a value"):
        await chosen(UNKNOWN, object_reply("733"), chat_reply(text), tokenizer=tiny_tokenizer)
    cut = chat_reply(text, finish_reason="length")
    completion, _ = await chosen(UNKNOWN, object_reply("733"), cut, tokenizer=tiny_tokenizer)
    assert (completion.text, completion.finish_reason) == (text, FinishReason.LENGTH)


def logprobs_of(*tokens: tuple[str, dict[str, float]]) -> dict[str, Any]:
    """Tokens of a completion, with what could have stood there."""
    tops = [[{"token": token, "logprob": value} for token, value in top.items()] for _, top in tokens]
    return {
        "content": [
            {"token": token, "logprob": top[token], "top_logprobs": shown}
            for (token, top), shown in zip(tokens, tops, strict=True)
        ]
    }


@pytest.mark.parametrize("is_vllm", [True, False])
async def test_menu_has_probabilities_where_the_server_gives_those_of_its_candidates(
    is_vllm: bool, tiny_tokenizer: Tokenizer
) -> None:
    top = {"2": math.log(0.6), "1": math.log(0.2), "x": math.log(0.2)}
    around = ('{"value":"', {'{"value":"': 0.0}), ("2", top), ('"}', {'"}': 0.0})
    logprobs = logprobs_of(("2", top)) if is_vllm else logprobs_of(*around)
    before, reply = ([], chat_reply) if is_vllm else ([UNKNOWN], object_reply)
    replies = (*before, reply("733"), reply("2", logprobs=logprobs))
    completion, script = await chosen(*replies, tokenizer=tiny_tokenizer)
    sent = script.requests[-1]
    assert (sent["logprobs"], sent["top_logprobs"]) == (True, 4)
    assert completion.menu_logprobs is not None
    assert [math.exp(each) for each in completion.menu_logprobs] == pytest.approx([0.25, 0.75])


async def test_model_that_refuses_log_probabilities_gives_values_without_them(tiny_tokenizer: Tokenizer) -> None:
    refusal = error_reply(400, "logprobs are not supported with reasoning models")
    completion, script = await chosen(refusal, chat_reply("733"), chat_reply("2"), tokenizer=tiny_tokenizer)
    assert (completion.text, completion.menu_logprobs, "logprobs" in script.requests[-1]) == ("2", None, False)


def test_log_probabilities_of_tokens_are_refused_since_there_are_no_tokens(tiny_tokenizer: Tokenizer) -> None:
    context = context_of("tiny", tokenizer=tiny_tokenizer, sampling=SamplingConfig(logprobs=True))
    with pytest.raises(EngineStartError, match=r"openai\.api: a chat API returns no tokens.*sampling\.logprobs=false"):
        OpenAIEngine(api=EndpointApi.CHAT).open(context)


def test_tokeniser_must_be_named_where_messages_are_sent() -> None:
    with pytest.raises(ValidationError, match=r"tokenizer must be set where openai\.api is chat.*`tiny`"):
        AgentConfig(engine="openai", model="gpt-x", openai=OpenAIConfig(api=EndpointApi.CHAT))


def test_reader_through_a_chat_api_is_another_one_and_says_so() -> None:
    readers = [
        identify_reader(AgentConfig(engine="openai", model="m", tokenizer="tiny", openai=OpenAIConfig(api=api)))
        for api in EndpointApi
    ]
    completions, chat, messages = readers
    assert len({reader.fingerprint for reader in readers}) == 3
    assert messages.parts["engine"]["api"] == "messages"
    assert (chat.parts["engine"]["api"], chat.parts["chat_template_sha256"]) == ("chat", "")
    assert "api" not in completions.parts["engine"]


def test_job_through_a_chat_api_fails_only_the_readings_that_were_refused_and_records_api_and_markers(
    tmp_path: Path, text_model: str
) -> None:
    faults = {
        "filtered": chat_reply("Half", finish_reason="content_filter"),
        "turned": error_reply(400, "The response was filtered due to the content management policy"),
        "refused": chat_reply(None, message={"refusal": "I won't."}),
        "tools": chat_reply(None, finish_reason="tool_calls"),
        "broken": Reply(body=chat_reply("noted").body[:-9]),
        "failing": error_reply(500, "internal"),
    }
    texts = {name: f"This is {name}." + " <|im_end|>" * (name != "fine") for name in (*faults, "fine", "marked")}
    put_texts(tmp_path / "in", {f"{name}.txt": text for name, text in texts.items()})

    def reply(body: dict[str, Any]) -> Reply:
        content = body["messages"][0]["content"]
        assert "<|im" not in content
        fault = next((fault for name, fault in faults.items() if f"This is {name}." in content), None)
        usage = {"prompt_tokens": 50, "completion_tokens": 900}
        return fault or chat_reply("\\boxed{fine}", message={"reasoning": "Let me see."}, usage=usage)

    with scripted_server(chat_reply()) as script:
        script.answer = reply
        openai = {"api": "chat", "base_url": script.base_url, "max_retries": 1}
        engine = {"tokenizer": text_model, "engine": "openai", "openai": openai, "policy": {"chunk_tokens": 100}}
        answer(small_job(tmp_path, "tiny", ask=("What is it?",), **engine))
    rows = {row["document_id"].removesuffix(".txt"): row for row in table_rows(tmp_path / "run", "answers")}
    assert {(rows[name]["status"], rows[name]["answer"]) for name in ("fine", "marked")} == {("ok", "fine")}
    reasons = {
        "filtered": "content filter stopped the completion",
        "turned": "400: The response was filtered",
        "refused": "the model refused to answer: I won't.",
        "tools": "ended it with `tool_calls`",
        "broken": "not a completion",
        "failing": "internal",
    }
    for name, reason in reasons.items():
        assert (rows[name]["status"], rows[name]["error_type"]) == ("failed", "EngineRequestError")
        assert reason in rows[name]["error_message"]
    manifest = find_run(Location(uri=str(tmp_path / "run"))).manifest
    assert manifest["reader"]["engine"]["api"] == "chat"
    logged = rows_in(tmp_path / "run/log/turns")
    assert all(turn["text"].startswith("<think>Let me see.</think>") for turn in logged)
    for spent in (rows["fine"], rows["marked"], manifest["spent"]):
        assert spent is not None
        assert spent["num_completion_tokens"] == 900 * spent["num_turns"]

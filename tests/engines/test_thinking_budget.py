"""`sampling.thinking_tokens`: how long a model may think, who keeps to it, and who is refused before the run."""

import asyncio
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from memagent_batch.cli.settings import job_of
from memagent_batch.config.agent import AgentConfig, PolicyConfig, SamplingConfig
from memagent_batch.config.engines import EndpointApi, OpenAIConfig
from memagent_batch.domain.guides import Guide, choice_guide
from memagent_batch.domain.thoughts import OPENING, THOUGHT_END
from memagent_batch.domain.turns import Completion, Prompt
from memagent_batch.engines.openai.engine import OpenAIEngine
from memagent_batch.engines.vllm.engine import VllmEngine
from memagent_batch.errors import EngineStartError, SettingsError
from memagent_batch.flows.check import check
from memagent_batch.logs import EventKind
from memagent_batch.tokens.tokenizer import Tokenizer
from memagent_batch.wiring import identify_reader
from tests.conftest import THOUGHT_TAGS
from tests.engine_context import context_of
from tests.engines.scripted_server import PROBED, THERE, Reply, Script, scripted_server
from tests.engines.test_openai import error_reply
from tests.engines.test_thinking_models import HYBRID, PLAIN, SILENT, SPECIAL, save_model
from tests.engines.test_thinking_models import OPENING as OPENS_THOUGHT

BUDGET = "thinking_token_budget"
BUDGET_TOKENS = 3
THINKS = SamplingConfig(thinking_tokens=BUDGET_TOKENS)
REFUSED = error_reply(400, f"`{BUDGET}` must be a non-negative integer or -1 for unlimited.")


def agent_of(
    tokenizer: Tokenizer, *, engine: str = "openai", sampling: SamplingConfig = THINKS, **values: Any
) -> AgentConfig:
    return AgentConfig(
        model="m", tokenizer=tokenizer.model, engine=engine, sampling=sampling, window_tokens=9000, **values
    )


def test_budget_is_part_of_the_fingerprint_where_it_is_set(tmp_path: Path, text_model: str) -> None:
    tokenizer = save_model(tmp_path, text_model, template=OPENS_THOUGHT)
    unbound, bound, other = (
        identify_reader(agent_of(tokenizer, sampling=SamplingConfig(thinking_tokens=tokens))) for tokens in (None, 7, 8)
    )
    assert unbound.parts["sampling"] == {"temperature": 0.0, "logprobs": False}
    assert bound.parts["sampling"] == {"temperature": 0.0, "logprobs": False, "thinking_tokens": 7}
    assert len({unbound.fingerprint, bound.fingerprint, other.fingerprint}) == 3
    drawn = identify_reader(agent_of(tokenizer, sampling=SamplingConfig(temperature=1.0)))
    assert "thinking_tokens" not in drawn.parts["sampling"]


@pytest.mark.parametrize(
    ("template", "tags", "values", "problem"),
    [
        (
            OPENS_THOUGHT,
            SPECIAL,
            {"engine": "simulated"},
            "engine 'simulated' can't end a thought at its budget; use vllm",
        ),
        (
            OPENS_THOUGHT,
            SPECIAL,
            {"sampling": SamplingConfig(thinking_tokens=BUDGET_TOKENS, logprobs=True)},
            "no log-probabilities",
        ),
        (HYBRID, SPECIAL, {}, 'asked not to think; set chat_template_kwargs: {"enable_thinking": true}'),
        (OPENS_THOUGHT, PLAIN, {}, "has no tokens <think> and </think>"),
    ],
    ids=["engine", "logprobs", "silent", "no tags"],
)
def test_budget_that_can_not_be_kept_to_is_refused_with_the_way_out(
    template: str, tags: str, values: Mapping[str, Any], problem: str, tmp_path: Path, text_model: str
) -> None:
    tokenizer = save_model(tmp_path, text_model, template=template, tags=tags)
    with pytest.raises(SettingsError, match=r"sampling\.thinking_tokens: .*, or set it to null") as raised:
        identify_reader(agent_of(tokenizer, **values))
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        ({"memory_tokens": 9}, r"a thought of 9 tokens leaves none of policy\.memory_tokens \(9\)"),
        ({"answer_tokens": 8}, r"leaves none of policy\.answer_tokens \(8\)"),
        ({"kind": "truncate", "memory_tokens": 8, "answer_tokens": 9}, r"leaves none of policy\.answer_tokens \(9\)"),
        ({"question_tokens": 9, "memory_tokens": 10, "answer_tokens": 10}, None),
        ({"kind": "truncate", "memory_tokens": 9}, None),
    ],
)
def test_budget_that_may_use_up_the_budget_of_a_turn_is_refused(
    policy: dict[str, Any], problem: str | None, tmp_path: Path, text_model: str
) -> None:
    tokenizer, sampling = save_model(tmp_path, text_model, template=OPENS_THOUGHT), SamplingConfig(thinking_tokens=9)
    agent = agent_of(tokenizer, sampling=sampling, policy=PolicyConfig(**policy))
    if problem is None:
        assert identify_reader(agent).parts["sampling"]["thinking_tokens"] == 9
        return
    with pytest.raises(SettingsError, match=rf"sampling\.thinking_tokens: .*{problem}.*, or set it to null"):
        identify_reader(agent)


def test_model_in_this_process_that_always_thinks_is_refused_without_a_budget(tmp_path: Path, text_model: str) -> None:
    model = save_model(tmp_path, text_model, template=OPENS_THOUGHT).model
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    agent = AgentConfig(model=model, window_tokens=9000)
    with pytest.raises(SettingsError, match=r"begins each completion inside a thought.*set sampling\.thinking_tokens"):
        identify_reader(agent)
    assert identify_reader(agent.model_copy(update={"sampling": THINKS})).fingerprint


def test_model_of_an_endpoint_that_always_thinks_is_warned_of_without_a_budget(
    tmp_path: Path, text_model: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = save_model(tmp_path / "model", text_model, template=OPENS_THOUGHT).model
    (tmp_path / "documents.jsonl").write_text('{"document_id": "d", "text": "Some text."}\n', encoding="utf-8")
    for sampling in (SamplingConfig(), THINKS):
        check(
            job_of(
                documents=str(tmp_path / "documents.jsonl"),
                ask=("Who?",),
                output=str(tmp_path / "out"),
                engine="openai",
                model="m",
                tokenizer=model,
                window_tokens=9000,
                sampling=sampling,
            )
        )
    warned = [record for record in caplog.records if record.__dict__.get("event") == EventKind.THOUGHTS_UNBOUNDED]
    assert len(warned) == 1


@pytest.mark.parametrize("tag", ["<|channel|>", "[THINK]", "<seed:think>"])
def test_model_that_marks_its_thoughts_in_another_way_is_refused_unless_a_server_tells_them_apart(
    tag: str, tmp_path: Path, text_model: str
) -> None:
    tokenizer = save_model(tmp_path, text_model, template=SILENT + tag)
    agent = agent_of(tokenizer, sampling=SamplingConfig())
    with pytest.raises(SettingsError, match=rf"marks thoughts with {re.escape(tag)};.*openai\.api 'chat'"):
        identify_reader(agent)
    assert identify_reader(agent.model_copy(update={"openai": OpenAIConfig(api=EndpointApi.CHAT)})).fingerprint


def test_budget_of_a_chat_api_does_not_ask_for_the_tags_of_a_tokeniser_that_only_counts(text_model: str) -> None:
    chat = OpenAIConfig(api=EndpointApi.CHAT)
    assert (
        identify_reader(agent_of(Tokenizer(text_model), openai=chat)).parts["sampling"]["thinking_tokens"]
        == BUDGET_TOKENS
    )


async def asked(script: Script, tokenizer: Tokenizer, api: EndpointApi, *prompts: Prompt) -> None:
    """Asks an endpoint each prompt in turn, with a budget for thoughts."""
    settings = OpenAIEngine(api=api, base_url=script.base_url)
    engine = settings.open(context_of("tiny", tokenizer=tokenizer, sampling=THINKS))
    try:
        await engine.start()
        for prompt in prompts:
            await engine.complete(prompt, seed=0)
    finally:
        await engine.stop()


def prompt_of(tokenizer: Tokenizer, text: str = "What does it say?", **fields: Any) -> Prompt:
    return Prompt(path="p", kind="k", token_ids=tokenizer.encode(text), max_tokens=8, **fields)


@pytest.mark.parametrize("api", EndpointApi)
async def test_endpoint_that_knows_the_field_is_sent_it_with_every_free_turn(
    api: EndpointApi, tiny_tokenizer: Tokenizer
) -> None:
    guided = Reply(body=json.dumps({"choices": [{**PROBED, "text": "733", "message": {"content": "733"}}]}).encode())
    with scripted_server(THERE, guided) as script:
        script.probes = [THERE, REFUSED]
        prompts = prompt_of(tiny_tokenizer), prompt_of(tiny_tokenizer, guide=choice_guide("733", "734"))
        await asked(script, tiny_tokenizer, api, *prompts)
    assert [body[BUDGET] for body in script.probed] == [BUDGET_TOKENS, -2]
    assert [body.get(BUDGET) for body in script.requests] == [
        BUDGET_TOKENS,
        None,
        None,
    ]  # the second one tries the guide


@pytest.mark.parametrize(
    ("probes", "problem"),
    [
        ([THERE, THERE], f"passes over {BUDGET}; serve the model with vLLM"),
        ([error_reply(400, f"{BUDGET} is set but reasoning_config is not configured")], "--reasoning-parser"),
        ([error_reply(400, f"Unrecognized request argument supplied: {BUDGET}")], "reasoning_effort"),
    ],
    ids=["passed over", "no parser", "unknown"],
)
@pytest.mark.parametrize("api", EndpointApi)
async def test_endpoint_that_does_not_bound_thoughts_is_refused_before_a_reading(
    api: EndpointApi, probes: list[Reply], problem: str, tiny_tokenizer: Tokenizer
) -> None:
    with scripted_server() as script:
        script.probes = list(probes)
        with pytest.raises(EngineStartError, match=problem):
            await asked(script, tiny_tokenizer, api)


@pytest.mark.vllm
@pytest.mark.parametrize("api", EndpointApi)
async def test_server_of_vllm_is_taken_at_its_word_and_ends_a_thought_at_its_budget(
    api: EndpointApi, vllm_server: str, tiny_tokenizer: Tokenizer
) -> None:
    full = PreTrainedTokenizerFast.from_pretrained(tiny_tokenizer.model)
    opens, ends = full.convert_tokens_to_ids(THOUGHT_TAGS)
    token_ids = [*tiny_tokenizer.encode("Which code is in the text? The code of the harbour is 1234. " * 3), opens]
    settings = OpenAIEngine(api=api, base_url=vllm_server)
    engine = settings.open(context_of("tiny", tokenizer=tiny_tokenizer, sampling=THINKS))
    await engine.start()
    try:
        completion = await engine.complete(Prompt(path="p", kind="k", token_ids=token_ids, max_tokens=24), seed=0)
    finally:
        await engine.stop()
    if api is EndpointApi.COMPLETIONS:  # a chat API returns no tokens, and leaves special ones out of its text
        assert completion.token_ids.index(ends) == BUDGET_TOKENS


def save_thinking_model(folder: Path, tiny_model: str) -> list[int]:
    """The shipped weights under a tokeniser whose last two tokens are the tags of thoughts; these two."""
    shutil.copytree(tiny_model, folder)
    content = json.loads((folder / "tokenizer.json").read_text())
    model = content["model"]
    words = sorted(model["vocab"], key=model["vocab"].__getitem__)[-2:]
    model["merges"] = [pair for pair in model["merges"] if "".join(pair) not in words]
    ids = [model["vocab"].pop(word) for word in words]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    content["added_tokens"] += [
        {"id": token, "content": tag, "special": True, **flags}
        for tag, token in zip((OPENING, THOUGHT_END), ids, strict=True)
    ]
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return ids


@pytest.mark.vllm
@pytest.mark.slow
async def test_vllm_ends_each_thought_at_its_budget_and_goes_on_behind_it(tiny_model: str, tmp_path: Path) -> None:
    opens, ends = save_thinking_model(tmp_path / "model", tiny_model)
    tokenizer = Tokenizer(str(tmp_path / "model"))
    engine = VllmEngine(cpu_kv_cache_gib=1).open(context_of(tokenizer.model, sampling=THINKS))
    await engine.start()

    full = PreTrainedTokenizerFast.from_pretrained(tokenizer.model)

    async def complete(text: str, tail: str, guide: Guide | None = None) -> Completion:
        shown = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n{tail}"
        token_ids = full.encode(shown, add_special_tokens=False)
        prompt = Prompt(path="p", kind="k", token_ids=token_ids, max_tokens=24, guide=guide)
        return await engine.complete(prompt, seed=0)

    text = "Which code is in the text? The code of the harbour is 1234. " * 3
    opened = f"{OPENING}\n"
    try:
        first, second = await asyncio.gather(complete(text, opened), complete("the number is 77. " * 20, opened))
        silent, closed = await asyncio.gather(complete(text, ""), complete(text, f"{opened}\n{THOUGHT_END}\n\n"))
        guided = await complete(text, opened, choice_guide("1", "2"))
    finally:
        await engine.stop()
    for completion in (first, second):
        assert list(completion.token_ids).index(ends) == BUDGET_TOKENS - 1  # the line end behind the tag counts
        assert completion.text.count(THOUGHT_END) == 1
        assert len(completion.token_ids) > BUDGET_TOKENS
    assert opens not in first.token_ids
    assert ends not in [*silent.token_ids, *closed.token_ids, *guided.token_ids]
    assert guided.text in ("1", "2")

"""Models that think: a tokeniser with tags like Qwen3's, and what prompts, memories and tables make of its thoughts."""

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken
from tokenizers import Tokenizer as BackendTokenizer
from transformers import PreTrainedTokenizerFast

from memagent_batch.cli.settings import job_of
from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.engines import EndpointApi, OpenAIConfig
from memagent_batch.errors import EngineStartError, SettingsError, TurnUnansweredError
from memagent_batch.logs import EventKind
from memagent_batch.loop.addresses import ReadingAddress
from memagent_batch.loop.engines.engine import Engine
from memagent_batch.loop.guides import GuideKind, choice_guide
from memagent_batch.loop.policies.overwrite import OverwritePolicy
from memagent_batch.loop.prompt_sets.built_in import BUILT_IN_PROMPTS
from memagent_batch.loop.prompts import PromptTokens, Slot
from memagent_batch.loop.tokens.tokenizer import Tokenizer
from memagent_batch.run.flows.answer import answer
from memagent_batch.run.flows.check import check
from memagent_batch.run.reading.read import ReadingTurns, ReplayOnly, TurnCounts
from memagent_batch.run.wiring import ReaderIdentity, identify_reader, make_engine, make_follow_up_tokens
from memagent_batch.types import Completion, FinishReason, Outcome, Prompt, QuestionTokens
from tests.engines.scripted_server import Reply, Script, scripted_server
from tests.jobs import put_texts, small_job
from tests.tables import rows_in

TOOLS = "{% if tools %}<tool_call>{% endif %}"
MESSAGES = (
    TOOLS + "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
)
HYBRID = (
    MESSAGES + "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
"""Thinks unless it is told not to, as Qwen3 does."""
OPENING = MESSAGES + "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
"""Opens the thought in the prompt, as models do that always think."""
SILENT = MESSAGES + "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
"""Says nothing of thoughts, as the templates of most models do."""

PLAIN, ADDED, SPECIAL = "plain text", "added tokens", "special tokens"
NOTES = "\n\nThe code is 1234 <b>.\n"
THOUGHT = "<think>\nMaybe \\boxed{99}?\n</think>"


def save_model(folder: Path, text_model: str, *, template: str, tags: str = ADDED) -> Tokenizer:
    """A model folder whose tags of thoughts are plain text, added tokens or special ones; its tokeniser."""
    full = PreTrainedTokenizerFast.from_pretrained(text_model)
    if tags != PLAIN:
        is_special = tags == SPECIAL
        added = [AddedToken(tag, special=is_special, normalized=False) for tag in ("<think>", "</think>")]
        full.add_tokens(added, special_tokens=is_special)
    full.add_tokens([AddedToken("<tool_call>", special=False, normalized=False)])
    full.chat_template = template
    full.save_pretrained(folder)
    return Tokenizer(str(folder))


THINKING = {"enable_thinking": True}


def tokens_of(
    tokenizer: Tokenizer, *, prompt_set: str = "default", chat_template_kwargs: Mapping[str, bool] = {}
) -> PromptTokens:
    return tokenizer.prompt_tokens(BUILT_IN_PROMPTS[prompt_set], chat_template_kwargs=chat_template_kwargs)


def shown_by(tokenizer: Tokenizer, token_ids: Sequence[int]) -> str:
    return str(backend_of(tokenizer).decode(list(token_ids), False))


def backend_of(tokenizer: Tokenizer) -> BackendTokenizer:
    return BackendTokenizer.from_file(f"{tokenizer.model}/tokenizer.json")


async def read(
    tokenizer: Tokenizer, prompts: PromptTokens, completions: Sequence[str], *, cut: Sequence[int] = ()
) -> tuple[Outcome, list[Prompt], list[Completion], TurnCounts]:
    """Reads a document of one chunk less than there are completions, which the model writes in turn."""
    asked: list[Prompt] = []
    written: list[Completion] = []
    backend = backend_of(tokenizer)

    class Model(ReplayOnly):
        async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
            asked.append(prompt)
            said = backend.encode(completions[len(written)], add_special_tokens=False).ids
            reason = FinishReason.LENGTH if len(written) in cut else FinishReason.STOP
            text = tokenizer.continuation(said, after=prompt.token_ids)
            written.append(Completion(token_ids=said, text=text, finish_reason=reason))
            return written[-1]

    text = "some text to read " * 40
    whole = tokenizer.document(text)
    document = replace(whole, token_ids=whole.tokens(0, 20 * (len(completions) - 1)))
    address = ReadingAddress(document_hash="", question_hash="", sample=0, fingerprint="")
    turns = ReadingTurns(engine=Model(), address=address, seed=0, opens_thought=prompts.opens_thought)
    policy = OverwritePolicy(chunk_tokens=20, memory_tokens=64, answer_tokens=64)
    question = QuestionTokens(token_ids=tokenizer.encode("Which code?"))
    outcome = await policy.read(document, question, prompts=prompts, turns=turns)
    return outcome, asked, written, turns.counts


@pytest.mark.parametrize("tags", [PLAIN, ADDED, SPECIAL])
@pytest.mark.parametrize("template", [HYBRID, OPENING, SILENT])
async def test_reading_of_a_thinking_model_shows_and_keeps_what_follows_its_thoughts(
    tmp_path: Path, text_model: str, template: str, tags: str
) -> None:
    tokenizer = save_model(tmp_path, text_model, template=template, tags=tags)
    prompts = tokens_of(tokenizer, chat_template_kwargs=THINKING if template == HYBRID else {})
    thought = THOUGHT.removeprefix("<think>") if template == OPENING else THOUGHT
    answer = thought + "\\boxed{1234}"
    outcome, asked, written, _ = await read(
        tokenizer, prompts, [thought + NOTES, thought + NOTES + "<tool_call>", answer]
    )
    assert [completion.text for completion in written] == [thought + NOTES, thought + NOTES, answer]
    for prompt in asked[1:]:
        assert f"<memory>\n{NOTES.strip()}\n</memory>" in shown_by(tokenizer, prompt.token_ids)
    assert (outcome.response, outcome.memory.text) == ("\\boxed{1234}", NOTES.strip())


@pytest.mark.parametrize("tags", [PLAIN, ADDED, SPECIAL])
@pytest.mark.parametrize("template", [OPENING, SILENT])
@pytest.mark.parametrize("cut", [1, 2], ids=["update", "answer"])
async def test_reading_of_a_thinking_model_that_is_cut_off_in_its_thought_fails(
    cut: int, tmp_path: Path, text_model: str, template: str, tags: str
) -> None:
    tokenizer = save_model(tmp_path, text_model, template=template, tags=tags)
    opening = "" if template == OPENING else "<think>"
    texts = [f"{opening}a</think>notes"] * cut + [f"{opening}Maybe \\boxed{{99}}"]
    prompts = tokens_of(tokenizer)
    with pytest.raises(TurnUnansweredError, match=r"a thought that is not closed.*64 tokens.*policy.memory_tokens"):
        await read(tokenizer, prompts, texts + ["unasked"] * (2 - cut), cut=[cut])


def test_prompts_for_a_template_that_knows_thinking_close_it_unless_it_is_asked_for(
    tmp_path: Path, text_model: str
) -> None:
    tokenizer = save_model(tmp_path, text_model, template=HYBRID)
    endings = []
    for tokens in (tokens_of(tokenizer), tokens_of(tokenizer, chat_template_kwargs=THINKING)):
        end = tokens.update.pieces[-1]
        assert not isinstance(end, Slot)
        endings.append(shown_by(tokenizer, end))
    assert endings[0].endswith("assistant\n<think>\n\n</think>\n\n")
    assert endings[1].endswith("assistant\n")


@pytest.mark.parametrize("name", ["enable_thinkin", "messages", "tokenize", "add_generation_prompt"])
def test_prompts_with_a_value_that_the_template_does_not_take_are_refused(
    tmp_path: Path, text_model: str, name: str
) -> None:
    tokenizer = save_model(tmp_path, text_model, template=HYBRID)
    with pytest.raises(SettingsError, match=f"chat_template_kwargs: .* takes no '{name}'"):
        tokens_of(tokenizer, chat_template_kwargs={name: True})


def identity_of(model: str, **chat_template_kwargs: bool) -> ReaderIdentity:
    engine: dict[str, Any] = {"engine": "simulated", "window_tokens": 9000}
    return identify_reader(AgentConfig(model=model, chat_template_kwargs=chat_template_kwargs, **engine))


def test_reader_fingerprint_of_a_model_that_thinks_depends_on_whether_it_may(tmp_path: Path, text_model: str) -> None:
    tokenizer = save_model(tmp_path, text_model, template=HYBRID)
    silent, thinking = identity_of(tokenizer.model), identity_of(tokenizer.model, enable_thinking=True)
    assert silent.parts["chat_template_kwargs"] == {"enable_thinking": False}
    assert silent == identity_of(tokenizer.model, enable_thinking=False)
    assert silent.fingerprint != thinking.fingerprint
    assert silent.parts["thoughts"] == thinking.parts["thoughts"] == "cut off"
    assert not {"chat_template_kwargs", "thoughts"} & identity_of(text_model).parts.keys(), "a model without thoughts"


def test_job_with_a_model_that_thinks_keeps_raw_turns_in_the_log_and_shows_what_follows(
    tmp_path: Path, text_model: str
) -> None:
    tokenizer = save_model(tmp_path / "model", text_model, template=OPENING)
    (tmp_path / "a.txt").write_text("7" * 100)  # a digit is a token
    raw = ["hm</think>\n\nnews", "more</think>news", "\\boxed{99}?</think>\\boxed{1}"]
    reasons = ["stop", "length", "stop"]
    replies = [
        Reply(body=json.dumps({"choices": [{"text": text, "finish_reason": reason}]}).encode())
        for text, reason in zip(raw, reasons, strict=True)
    ]
    with scripted_server(*replies) as script:
        asked = {"documents": str(tmp_path / "a.txt"), "ask": ("Who?",), "policy": {"chunk_tokens": 60}}
        engine = {"tokenizer": tokenizer.model, "engine": "openai", "openai": {"base_url": script.base_url}}
        answer(small_job(tmp_path, "tiny", **asked, **engine))
    (row,) = rows_in(tmp_path / "run" / "answers")
    assert [row[name] for name in ("answer", "memory", "memory_truncations")] == ["1", "news", 1]
    table = rows_in(tmp_path / "run" / "memories")
    assert [(turn["memory"], turn["changed"]) for turn in table] == [("news", True), ("news", False), ("news", False)]
    shown = [shown_by(tokenizer, request["prompt"]) for request in script.requests]
    assert all("<memory>\nnews\n</memory>" in prompt for prompt in shown[1:])
    logged = rows_in(tmp_path / "run" / "log" / "turns")
    assert sorted(turn["text"] for turn in logged) == sorted(raw)


OBEYED = {"choice": "733", "regex": "zq733", "json": '{"zq":[733,733]}'}


@contextmanager
def server_with_reasoning_parser(tokenizer: Tokenizer) -> Iterator[Script]:
    """As vLLM 0.32 does, it applies a guide only behind the end of a thought; until then the model thinks."""
    tags = [backend_of(tokenizer).token_to_id(tag) for tag in ("<think>", "</think>")]

    def reply(body: dict[str, Any]) -> Reply:
        seen = [token for token in body.get("prompt", ()) if token in tags]
        is_silent = body.get("chat_template_kwargs", {}).get("enable_thinking") is False
        ((kind, guide),) = body.get("structured_outputs", {"json": None}).items()
        if not is_silent and seen[-1:] != tags[1:]:
            return written("<think>\nAm I?", "length")
        return written(guide[-1] if kind == "choice" and "733" not in guide else OBEYED[kind], "stop")

    def written(text: str, reason: str) -> Reply:
        choice = {"text": text, "message": {"content": text}, "finish_reason": reason}
        return Reply(body=json.dumps({"choices": [choice]}).encode())

    with scripted_server() as script:
        script.answer = reply
        yield script


@asynccontextmanager
async def reading_through(script: Script, tokenizer: Tokenizer, **settings: Any) -> AsyncIterator[Engine]:
    """The engine of an agent that reads there."""
    openai = {"base_url": script.base_url, "api": settings.pop("api", "completions")}
    engine = make_engine(
        AgentConfig(model="tiny", tokenizer=tokenizer.model, engine="openai", openai=OpenAIConfig(**openai), **settings)
    )
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


@pytest.mark.parametrize("tags", [ADDED, SPECIAL])
@pytest.mark.parametrize(
    ("template", "kwargs"),
    [(OPENING, {}), (HYBRID, {}), (HYBRID, THINKING), (SILENT, {})],
    ids=["opening", "silenced", "thinking", "silent"],
)
async def test_server_with_a_reasoning_parser_obeys_guides(
    template: str, kwargs: dict[str, bool], tags: str, tmp_path: Path, text_model: str
) -> None:
    tokenizer = save_model(tmp_path, text_model, template=template, tags=tags)
    with server_with_reasoning_parser(tokenizer) as script:
        async with reading_through(script, tokenizer, chat_template_kwargs=kwargs) as engine:
            await engine.require_guides(list(GuideKind))
            agent = AgentConfig(model=tokenizer.model, chat_template_kwargs=kwargs)
            filled = dict.fromkeys(Slot, tokenizer.encode("some text"))
            token_ids = make_follow_up_tokens(agent).templates["support"].fill(filled)
            guide = choice_guide("1", "2")
            turn = Prompt(path="support", kind="support", token_ids=token_ids, max_tokens=4, guide=guide)
            assert (await engine.complete(turn, seed=0)).text == "2"


async def test_chat_server_with_a_reasoning_parser_is_asked_for_no_thought_in_guided_turns(
    tmp_path: Path, text_model: str
) -> None:
    tokenizer = save_model(tmp_path, text_model, template=HYBRID)
    with server_with_reasoning_parser(tokenizer) as script:
        async with reading_through(script, tokenizer, api="chat", chat_template_kwargs=THINKING) as engine:
            await engine.require_guides(list(GuideKind))
    assert all(probe["chat_template_kwargs"] == THINKING for probe in script.probed)


@pytest.mark.parametrize("kind", list(GuideKind))
async def test_server_that_thinks_in_spite_of_the_prompt_is_refused_with_the_flag_to_drop(
    kind: GuideKind, tmp_path: Path, text_model: str
) -> None:
    served = save_model(tmp_path / "served", text_model, template=SILENT)
    counting = save_model(tmp_path / "counting", text_model, template=SILENT, tags=PLAIN)
    with server_with_reasoning_parser(served) as script:
        async with reading_through(script, counting) as engine:
            with pytest.raises(EngineStartError, match=f"completions to a {kind}.*without --reasoning-parser"):
                await engine.require_guides([kind])


@pytest.mark.parametrize("engine", ["openai", "simulated"])
def test_model_that_always_thinks_is_warned_of(
    engine: str, tmp_path: Path, text_model: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = save_model(tmp_path / "model", text_model, template=OPENING).model
    put_texts(tmp_path / "in", {"a.txt": "Some text."})
    agent = {"engine": engine, "tokenizer": model, "window_tokens": 9000}
    check(job_of(documents=f"{tmp_path}/in", ask=("Who?",), output=f"{tmp_path}/out", model="m", **agent))
    (warned,) = [each for each in caplog.records if each.__dict__.get("event") == EventKind.THOUGHTS_UNBOUNDED]
    assert "Raise policy.memory_tokens" in warned.getMessage()


@pytest.mark.parametrize("tag", ["<|channel|>", "[THINK]", "<seed:think>"])
def test_model_that_marks_its_thoughts_in_another_way_is_refused_unless_a_server_tells_them_apart(
    tag: str, tmp_path: Path, text_model: str
) -> None:
    tokenizer = save_model(tmp_path, text_model, template=SILENT + tag)
    agent = AgentConfig(model="m", tokenizer=tokenizer.model, engine="openai", window_tokens=9000)
    with pytest.raises(SettingsError, match=rf"marks thoughts with {re.escape(tag)};.*openai\.api 'chat'"):
        identify_reader(agent)
    assert identify_reader(agent.model_copy(update={"openai": OpenAIConfig(api=EndpointApi.CHAT)})).fingerprint

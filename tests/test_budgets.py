"""Window and budgets that nobody gave: what the model holds."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import memagent_batch as ma
from memagent_batch.cli.settings import job_of
from memagent_batch.config.agent import AgentConfig
from memagent_batch.errors import SettingsError
from memagent_batch.loop.engines.simulated import SimulatedEngine
from memagent_batch.loop.models.shipped import TINY_MODEL
from memagent_batch.loop.policies.overwrite import OverwritePolicy
from memagent_batch.plugins import make_policy
from memagent_batch.run.budgets import fit_budgets_to_window
from memagent_batch.run.wiring import identify_reader, make_prompt_tokens

BUDGETS = ("chunk_tokens", "question_tokens", "memory_tokens", "answer_tokens")


def agent_of(**settings: Any) -> AgentConfig:
    return AgentConfig.model_validate(settings)


def budgets(agent: AgentConfig) -> dict[str, int]:
    return {"window_tokens": agent.window_tokens} | {name: getattr(agent.policy, name) for name in BUDGETS}


def fitted(model: str, **settings: Any) -> AgentConfig:
    return fit_budgets_to_window(agent_of(model=model, engine="simulated", **settings))


def largest(agent: AgentConfig) -> int:
    turns = make_policy(agent).largest_turns(make_prompt_tokens(agent))
    return agent.policy.question_tokens + max(sum(parts.values()) for parts in turns.values())


@pytest.fixture
def model(text_model: str, tmp_path: Path) -> str:
    for file in Path(text_model).iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 32768}))
    return str(tmp_path)


@pytest.mark.parametrize("kind", ["overwrite", "gated", "parallel", "truncate", "retrieve"])
def test_fitted_defaults_of_the_shipped_policy_fit_the_window_that_it_holds(kind: str) -> None:
    agent = fit_budgets_to_window(agent_of(policy={"kind": kind}))
    assert agent.window_tokens == 4096
    assert largest(agent) <= 4096
    assert agent.policy.chunk_tokens > 2000
    identify_reader(agent)


def test_fitted_defaults_of_a_model_that_holds_more_are_the_published_ones(model: str) -> None:
    published = dict(zip(BUDGETS, (5000, 1024, 1024, 1024), strict=True))
    assert budgets(fitted(model, window_tokens=16384)) == {"window_tokens": 16384} | published
    bare = fitted(model)
    assert budgets(bare) == {"window_tokens": 8192} | published | {"chunk_tokens": bare.policy.chunk_tokens}
    assert largest(bare) == 8192  # the tokeniser of the tests needs many tokens for the prompt's own text


def test_fitted_leaves_what_was_given_and_defaults_that_fit_beside_it(model: str) -> None:
    settings = {"window_tokens": 6000, "policy": {"chunk_tokens": 1000, "break_at": "sentences"}}
    given = agent_of(model=model, engine="simulated", **settings)
    assert budgets(fitted(model, **settings)) == budgets(given)
    assert identify_reader(fitted(model, **settings)) == identify_reader(given)


def test_fitted_shrinks_only_what_was_not_given(model: str) -> None:
    agent = fitted(model, window_tokens=2048, policy={"memory_tokens": 200})
    assert (agent.window_tokens, agent.policy.memory_tokens) == (2048, 200)
    assert (agent.policy.question_tokens, agent.policy.answer_tokens) == (256, 256)
    assert 1000 < agent.policy.chunk_tokens <= 1250
    assert fit_budgets_to_window(agent) == agent
    passages = fitted(model, window_tokens=512, policy={"kind": "retrieve"}).policy
    assert passages.passage_tokens <= passages.chunk_tokens


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"window_tokens": 8192}, r"the model tiny holds 4096 tokens .*, window_tokens is 8192; lower"),
        ({"policy": {"memory_tokens": 2000}}, r"memory 2,000 \+ chunk 32 .* tokens; the window has 4,096"),
        ({"policy": {"overlap_tokens": 4000}}, r"chunk 4,001 .*; the window has 4,096"),
        ({"policy": {"kind": "retrieve", "passage_tokens": 4000}}, r"chunk 4,000 .*; the window has 4,096"),
    ],
)
def test_fitted_refuses_what_the_model_can_not_hold(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        fit_budgets_to_window(agent_of(**settings))


def test_fitted_believes_a_user_who_stretches_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    stretched = {"window_tokens": 8192, "vllm": {"engine_args": {"hf_overrides": {"max_position_embeddings": 8192}}}}
    assert fit_budgets_to_window(agent_of(**stretched)).window_tokens == 8192
    monkeypatch.setenv("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1")
    assert fit_budgets_to_window(agent_of(window_tokens=8192)).window_tokens == 8192


def test_fitted_takes_the_window_of_an_endpoint_from_its_tokeniser(model: str) -> None:
    endpoint, tiny = {"engine": "openai", "model": "served"}, str(TINY_MODEL)
    assert fit_budgets_to_window(agent_of(**endpoint, tokenizer=model)).window_tokens == 8192
    assert fit_budgets_to_window(agent_of(**endpoint, tokenizer=tiny)).window_tokens == 4096
    assert fit_budgets_to_window(agent_of(**endpoint, tokenizer=tiny, window_tokens=8192)).window_tokens == 8192


SMALL = {"chunk_tokens": 300, "question_tokens": 40, "memory_tokens": 60, "answer_tokens": 40}


@pytest.mark.parametrize(
    ("policy", "turn"),
    [
        ({"kind": "overwrite", "chunk_tokens": 4000}, "update"),
        ({"kind": "overwrite", "answer_tokens": 1500}, "answer"),
        ({"kind": "parallel", "memory_tokens": 350}, "merge"),
        ({"kind": "truncate", "chunk_tokens": 1500}, "direct"),
    ],
)
def test_turn_that_does_not_fit_is_refused_with_its_parts_as_a_sum(
    model: str, policy: dict[str, Any], turn: str
) -> None:
    said = rf"the {turn} turn needs question 40 \+ .*; the window has 1,500"
    with pytest.raises(SettingsError, match=said) as raised:
        identify_reader(fitted(model, window_tokens=1500, policy=SMALL | policy))
    shown = re.search(r"needs (.*) = (.*) tokens;", str(raised.value))
    assert shown is not None
    parts = [int(part.rpartition(" ")[2].replace(",", "")) for part in shown[1].split(" + ")]
    assert sum(parts) == int(shown[2].replace(",", "")) > 1500


ENGINES: list[dict[str, Any]] = [
    {"engine": "simulated"},
    {"engine": "vllm"},
    {"engine": "openai", "model": "served"},
    {"engine": "openai", "model": "served", "openai": {"api": "chat"}},
]


@pytest.mark.parametrize("settings", ENGINES)
@pytest.mark.parametrize("budgets_given", [{}, {"window_tokens": 65536, "policy": {"memory_tokens": 2500}}])
def test_same_settings_give_the_same_budgets_and_fingerprint_from_python_and_from_a_command(
    settings: dict[str, Any], budgets_given: dict[str, Any], tiny_model: str, model: str
) -> None:
    has_weights = settings["engine"] == "vllm"
    if has_weights and budgets_given:
        budgets_given = {"window_tokens": 4096}
    names = {"model": tiny_model} if has_weights else {"model": model, "tokenizer": model}
    given = {**names, **settings, **budgets_given}
    command = fit_budgets_to_window(job_of(**given, documents="in", output="out", ask=("Who?",)).agent)
    python = fit_budgets_to_window(ma.Agent(**given))
    assert budgets(command) == budgets(python)
    assert identify_reader(command) == identify_reader(python)


def test_window_of_a_tokeniser_that_only_counts_is_not_that_of_the_served_model() -> None:
    agent = agent_of(model="served", engine="openai", tokenizer="tiny", openai={"api": "chat"})
    assert budgets(fit_budgets_to_window(agent))["window_tokens"] == 8192
    own = agent_of(model="served", engine="openai", tokenizer="tiny")
    assert budgets(fit_budgets_to_window(own))["window_tokens"] == 4096


@pytest.mark.parametrize(
    "make",
    [ma.SamplingConfig, lambda **sampling: job_of(sampling=sampling, documents="in", output="out", ask=("Who?",))],
)
def test_samples_without_a_temperature_are_refused_since_all_are_equal(make: Callable[..., Any]) -> None:
    with pytest.raises((ValueError, SettingsError), match="8 greedy samples are all the same, at 8 times the cost"):
        make(samples=8)
    make(samples=8, temperature=0.7)


def test_policy_or_engine_that_is_an_object_is_refused_with_the_way_to_name_it() -> None:
    policy = OverwritePolicy(chunk_tokens=10, memory_tokens=10, answer_tokens=10)
    with pytest.raises(
        SettingsError, match=r"PolicyConfig\(kind='memagent_batch.loop.policies.overwrite:OverwritePolicy'"
    ):
        ma.Agent(policy=policy)
    with pytest.raises(SettingsError, match=r"give 'memagent_batch.loop.engines.simulated:SimulatedEngine'"):
        ma.Agent(engine=SimulatedEngine())

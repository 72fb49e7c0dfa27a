"""Plug-ins from outside of the package: a policy, an engine and a reward that nothing here names."""

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from memagent_batch.cli.settings import job_of
from memagent_batch.config.agent import AgentConfig, PolicyConfig
from memagent_batch.config.engines import VllmConfig
from memagent_batch.config.job import PoolConfig
from memagent_batch.errors import PromptSetError, SettingsError
from memagent_batch.loop.engines.engine import Engine, EngineContext
from memagent_batch.loop.engines.simulated import SimulatedEngine
from memagent_batch.loop.policies.direct import TruncatePolicy
from memagent_batch.loop.policies.overwrite import OverwritePolicy
from memagent_batch.loop.prompts import PromptTokens
from memagent_batch.plugins import ENGINES, POLICIES, engine_settings, make_policy, policy_class
from memagent_batch.run.executors.ray.executor import replica_gpus
from memagent_batch.run.manifest import public_settings
from memagent_batch.run.wiring import identify_reader, make_engine
from memagent_batch.testing import GuidedEngineContract
from memagent_batch.types import MERGE
from tests.engine_context import context_of

HERE = __name__
SMALL = {"chunk_tokens": 100, "question_tokens": 50, "memory_tokens": 40, "answer_tokens": 40}


@dataclass(frozen=True, slots=True, kw_only=True)
class TwicePolicy(OverwritePolicy):
    """A stranger's policy: smaller chunks, by its own setting."""

    kind: ClassVar[str] = "twice"

    divisor: int = 2
    """Parts of a chunk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergingPolicy(OverwritePolicy):
    """Merges notes, though its prompt set has no text for that."""

    kind: ClassVar[str] = "merging"

    def largest_turns(self, prompts: PromptTokens) -> Mapping[str, Mapping[str, int]]:
        return {MERGE: {"notes": self.chunk_tokens, "template": prompts.merge.num_fixed_tokens}}


class Parrot(SimulatedEngine):
    kind: ClassVar[str] = "parrot"
    secrets: ClassVar[frozenset[str]] = frozenset({"password"})

    password: str = "none"
    """A secret."""


class TestSimulated(GuidedEngineContract):
    @pytest.fixture(autouse=True)
    def _model(self, text_model: str) -> None:
        self._text_model = text_model

    def config(self) -> Engine:
        return SimulatedEngine(completion_tokens=4)

    def context(self) -> EngineContext:
        return context_of(self._text_model, window_tokens=256)


def agent_of(model: str, **policy: Any) -> AgentConfig:
    return AgentConfig(model=model, engine="simulated", window_tokens=1000, policy=PolicyConfig(**SMALL | policy))


def test_policy_of_a_stranger_has_its_own_settings_and_those_that_it_shares(text_model: str) -> None:
    policy = make_policy(agent_of(text_model, kind=f"{HERE}:TwicePolicy", settings={"divisor": 3}))
    assert policy == TwicePolicy(chunk_tokens=100, memory_tokens=40, answer_tokens=40, divisor=3)
    assert identify_reader(agent_of(text_model, kind=f"{HERE}:TwicePolicy")).parts["policy"]["divisor"] == 2


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("TwicePolicy", {"divisors": 3}, r"policy\.divisors: the policy '.*' has no such setting; it has .*divisor"),
        ("TwicePolicy", {"divisor": "many"}, r"policy\.divisor: this is not a whole number"),
        ("Absent", {}, rf"policy\.kind: '{HERE}:Absent' .*AttributeError"),
        ("absent.module:Tree", {}, r"policy\.kind: 'absent.module:Tree' .*ModuleNotFoundError.*PYTHONPATH"),
    ],
)
def test_policy_of_a_stranger_with_a_wrong_setting_or_name_is_refused(
    kind: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        make_policy(agent_of("tiny", kind=kind if ":" in kind else f"{HERE}:{kind}", settings=settings))


def test_policy_that_merges_with_a_prompt_set_without_that_text_is_refused(text_model: str) -> None:
    with pytest.raises(PromptSetError, match=r"prompt set 'default', merge text: empty, but the policy uses it"):
        identify_reader(agent_of(text_model, kind=f"{HERE}:MergingPolicy"))


def test_setting_that_a_policy_has_not_changes_no_fingerprint(text_model: str) -> None:
    def fingerprint(**settings: Any) -> str:
        return identify_reader(agent_of(text_model, **settings)).fingerprint

    assert fingerprint(kind="truncate") == fingerprint(kind="truncate", memory_tokens=20, passage_tokens=30)
    assert fingerprint(kind="overwrite") != fingerprint(kind="overwrite", memory_tokens=20)
    assert fingerprint(kind="overwrite") == fingerprint(kind="overwrite", passage_tokens=30)
    assert make_policy(agent_of(text_model, kind="truncate")) == TruncatePolicy(chunk_tokens=100, answer_tokens=40)


def test_engine_of_a_stranger_opens_with_its_settings_and_keeps_its_secrets(text_model: str) -> None:
    job = job_of(documents="d", ask=("q",), output="o", model=text_model, allow_code=True, window_tokens=1000)
    strange = {"engine": f"{HERE}:Parrot", "engine_options": {"password": "hunter2", "completion_tokens": 3}}
    agent = job.agent.model_copy(update=strange)
    assert engine_settings(agent) == Parrot(password="hunter2", completion_tokens=3)
    assert make_engine(agent) is not None
    assert "hunter2" not in str(public_settings(job.with_agent(agent)))
    with pytest.raises(SettingsError, match=r"engine_options\.colour: the engine '.*:Parrot' has no such setting"):
        engine_settings(agent.model_copy(update={"engine_options": {"colour": "blue"}}))


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"policy": {"kind": "a.b:C"}}, "policy.kind"),
        ({"engine": "a.b:C"}, "engine"),
        ({"rollouts": {"reward": "a.b:c"}}, "rollouts.reward"),
    ],
)
def test_code_of_the_users_needs_consent_and_is_not_imported_without(settings: dict[str, Any], setting: str) -> None:
    given: dict[str, Any] = {"documents": "d", "ask": ("q",), "output": "o"}
    with pytest.raises(SettingsError, match=f"{setting}: 'a.b:.' is code of yours; pass --allow-code to run it"):
        job_of(**given, **settings)
    assert job_of(**given, **settings, allow_code=True)
    assert "a.b" not in sys.modules


def test_built_in_kinds_are_importable_and_named_as_they_are() -> None:
    for seam in (POLICIES, ENGINES):
        assert all(seam.find(kind).kind == kind for kind in seam.built_in)


@pytest.mark.parametrize(("version", "num_gpus"), [("0.32.0", 8), ("0.32.0+cpu", 0)])
def test_replica_takes_gpus_by_the_build_of_vllm_that_is_installed(
    version: str, num_gpus: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"vllm-{version}.dist-info").mkdir()
    (tmp_path / f"vllm-{version}.dist-info" / "METADATA").write_text(f"Name: vllm\nVersion: {version}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    agent = AgentConfig(vllm=VllmConfig(tensor_parallel_size=4, pipeline_parallel_size=2))
    assert engine_settings(agent).num_gpus == num_gpus
    assert replica_gpus(agent, PoolConfig()) == num_gpus
    assert replica_gpus(agent, PoolConfig(gpus_per_replica=0.5)) == 0.5


PLUGINS = """
from dataclasses import dataclass
from typing import ClassVar
from memagent_batch.loop.engines.simulated import SimulatedEngine
from memagent_batch.loop.policies.overwrite import OverwritePolicy

@dataclass(frozen=True, slots=True, kw_only=True)
class Mine(OverwritePolicy):
    kind: ClassVar[str] = "mine"
    def rule(self) -> str:
        return "RULE"

class Local(SimulatedEngine):
    kind: ClassVar[str] = "local"
    def rule(self) -> str:
        return "RULE"
"""


@pytest.mark.parametrize("settings", [{"policy": PolicyConfig(kind="{}:Mine", **SMALL)}, {"engine": "{}:Local"}])
@pytest.mark.parametrize("when", ["used", "imported"])
def test_plugin_edited_in_a_living_process_is_refused_until_its_module_is_loaded_again(
    settings: dict[str, Any], when: str, text_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    name = f"edited_{when}_{'_'.join(settings)}"
    (tmp_path / f"{name}.py").write_text(PLUGINS)
    policy = settings.get("policy", PolicyConfig(**SMALL))
    agent = AgentConfig(
        model=text_model,
        engine=settings.get("engine", "simulated").format(name),
        policy=policy.model_copy(update={"kind": policy.kind.format(name)}),
        window_tokens=1024,
    )
    if when == "used":
        identify_reader(agent)
    module = importlib.import_module(name)
    (tmp_path / f"{name}.py").write_text(PLUGINS.replace("RULE", "NEW RULE"))
    with pytest.raises(SettingsError, match=rf"{name}\.py was changed after this process imported it"):
        identify_reader(agent)
    assert policy_class(agent.policy.kind)  # a run that has begun goes on with the code that it has
    importlib.reload(module)
    after = identify_reader(agent).fingerprint
    (tmp_path / f"{name}.py").write_text(PLUGINS)
    importlib.reload(module)
    assert identify_reader(agent).fingerprint != after

"""Settings to live objects: the only place that names concrete engines."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memagent_batch.domain.addresses import fingerprint
from memagent_batch.domain.policies import POLICIES
from memagent_batch.domain.prompts import PromptSet, PromptTokens
from memagent_batch.domain.readings import Policy
from memagent_batch.engines.engine import Engine
from memagent_batch.engines.tokenizer import Tokenizer, load_tokenizer
from memagent_batch.engines.weights import model_sha256
from memagent_batch.errors import SettingsError
from memagent_batch.settings import EngineKind, Settings
from memagent_batch.storage.location import Location
from memagent_batch.storage.prompt_files import load_prompt_set

TINY_MODEL = Path(__file__).parent / "models" / "tiny"
"""The policy that comes with the project; `model: tiny` names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderIdentity:
    """All that decides a reading's result, apart from document and question."""

    fingerprint: str
    """Hash of the parts, 64 hex digits."""
    parts: dict[str, Any]
    """The parts, as the manifest shows them."""


def model_folder(settings: Settings) -> str:
    """The model's folder or hub name, with `tiny` resolved."""
    return str(TINY_MODEL) if settings.model == "tiny" else settings.model


def make_tokenizer(settings: Settings) -> Tokenizer:
    """The model's tokeniser."""
    return load_tokenizer(settings.tokenizer or model_folder(settings))


def make_prompt_set(settings: Settings) -> PromptSet:
    """The prompt set that the settings name."""
    return load_prompt_set(settings.prompt_set)


def make_prompt_tokens(settings: Settings) -> PromptTokens:
    """The prompt set as the model's tokeniser writes it."""
    return make_tokenizer(settings).prompt_tokens(make_prompt_set(settings), answer_form=settings.answer_form)


def make_policy(settings: Settings) -> Policy:
    """The policy with its knobs."""
    policy = settings.policy
    return POLICIES[policy.kind](memory_tokens=policy.memory_tokens, answer_tokens=policy.answer_tokens)


def make_engine(settings: Settings) -> Engine:
    """The engine, not started."""
    match settings.engine:
        case EngineKind.VLLM:
            from memagent_batch.engines.vllm import VllmEngine

            return VllmEngine(
                settings.vllm,
                model=model_folder(settings),
                tokenizer=settings.tokenizer,
                window_tokens=settings.window_tokens,
                sampling=settings.sampling,
            )
        case EngineKind.OPENAI:
            from memagent_batch.engines.openai import OpenAIEngine

            return OpenAIEngine(
                settings.openai,
                model=settings.model,
                window_tokens=settings.window_tokens,
                sampling=settings.sampling,
                tokenizer=make_tokenizer(settings),
            )
        case EngineKind.SIMULATED:
            from memagent_batch.engines.simulated import SimulatedEngine

            return SimulatedEngine(
                settings.simulated, window_tokens=settings.window_tokens, tokenizer=make_tokenizer(settings)
            )


def make_output(settings: Settings) -> Location:
    """The run's location."""
    return Location(uri=settings.output, storage_options=settings.storage_options)


def identify_reader(settings: Settings) -> ReaderIdentity:
    """The reader fingerprint and its parts.

    Raises:
        SettingsError: the prompts and budgets can't fit the window, or the model has no tokeniser or weights.
    """
    tokenizer = make_tokenizer(settings)
    require_window(settings, prompts=make_prompt_tokens(settings))
    parts = {
        "model": settings.model,
        "model_sha256": _weights(settings),
        "weights_version": settings.weights_version,
        "tokenizer_sha256": tokenizer.sha256,
        "chat_template_sha256": tokenizer.chat_template_sha256,
        "prompt_set": make_prompt_set(settings).name,
        "prompt_set_sha256": make_prompt_set(settings).sha256,
        "answer_form": settings.answer_form.value,
        "policy": settings.policy.model_dump(mode="json"),
        "sampling": _sampling(settings),
        "engine": _engine(settings),
    }
    hashed = {name: value for name, value in parts.items() if name != "model" or settings.engine == EngineKind.OPENAI}
    return ReaderIdentity(fingerprint=fingerprint(hashed), parts=parts)


def require_window(settings: Settings, *, prompts: PromptTokens) -> None:
    """Checks that the largest prompt of each turn fits the window with its budget.

    Raises:
        SettingsError: names the knobs and their sum in tokens.
    """
    policy = settings.policy
    update = prompts.update.num_fixed_tokens + policy.chunk_tokens
    needed = {
        "update": policy.question_tokens + policy.memory_tokens + update + policy.memory_tokens,
        "answer": policy.question_tokens
        + policy.memory_tokens
        + prompts.answer.num_fixed_tokens
        + policy.answer_tokens,
    }
    for turn, num_tokens in needed.items():
        if num_tokens > settings.window_tokens:
            raise SettingsError(
                f"window_tokens: the {turn} turn needs up to {num_tokens} tokens (question_tokens + memory_tokens + "
                f"chunk_tokens + the prompt's own text + its budget), the window has {settings.window_tokens}; lower "
                f"policy.chunk_tokens by {num_tokens - settings.window_tokens} or more, or raise window_tokens"
            )


def _weights(settings: Settings) -> str:
    """Hash of the weights; empty where they can't be seen from here, and `weights_version` speaks for them."""
    return model_sha256(model_folder(settings)) if settings.engine == EngineKind.VLLM else ""


def _sampling(settings: Settings) -> dict[str, Any]:
    """What of the sampling decides a result: nothing but its temperature where that is 0."""
    sampling = settings.sampling.model_dump(mode="json", exclude={"samples"})
    if settings.sampling.temperature > 0:
        return sampling
    return {"temperature": 0.0, "logprobs": settings.sampling.logprobs}


def _engine(settings: Settings) -> dict[str, Any]:
    """What of the engine's knobs decides a result: number formats and whatever the user passes through."""
    match settings.engine:
        case EngineKind.VLLM:
            return {"kind": "vllm", "dtype": settings.vllm.dtype, "engine_args": settings.vllm.engine_args}
        case EngineKind.OPENAI:
            return {"kind": "openai", "extra_body": settings.openai.extra_body}
        case EngineKind.SIMULATED:
            return {"kind": "simulated", "completion_tokens": settings.simulated.completion_tokens}

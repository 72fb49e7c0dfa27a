"""An agent to what reads in a process: tokeniser, prompts, policy, engine, and the identity of them all."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from memagent_batch.config.agent import AgentConfig, BreakAt
from memagent_batch.config.engines import ENDPOINT_ENGINES
from memagent_batch.config.job import RunConfig
from memagent_batch.config.problems import suggestion
from memagent_batch.config.sources import SourceConfig
from memagent_batch.data.documents.lake.tables import documents_place
from memagent_batch.data.store.location import Location
from memagent_batch.errors import PromptSetError, RunFailedError, SettingsError
from memagent_batch.loop.addresses import fingerprint
from memagent_batch.loop.completions import OPENING, THOUGHT_END
from memagent_batch.loop.engines.engine import Engine, EngineContext
from memagent_batch.loop.follow_ups.prompts import FOLLOW_UP_TEXTS, FollowUpTokens
from memagent_batch.loop.models.packaged import GGUF_ENDING, PACKAGED_MODELS, converted_gguf, installed_model
from memagent_batch.loop.models.shipped import SHIPPED_MODELS
from memagent_batch.loop.models.weights import model_sha256
from memagent_batch.loop.prompt_sets.built_in import SECTION_FIRST_PROMPTS
from memagent_batch.loop.prompt_sets.files import load_prompt_set
from memagent_batch.loop.prompts import PromptSet, PromptTokens
from memagent_batch.loop.texts.sentences import SPLIT
from memagent_batch.loop.tokens.chat_template import TEMPLATE_TIME, ChatTemplate
from memagent_batch.loop.tokens.tokenizer import Tokenizer, load_tokenizer
from memagent_batch.masking import redact_settings
from memagent_batch.plugins import engine_settings, make_policy, policy_class, source_sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderIdentity:
    """All that decides a reading's result, apart from document and question."""

    fingerprint: str
    parts: Mapping[str, Any]
    """The parts, as the manifest shows them: a hash in place of each secret, which the fingerprint is made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderFiles:
    """What an agent reads with from files, as this process has loaded them: later edits change none of it."""

    tokenizer: Tokenizer
    prompt_set: PromptSet


KEPT_FILES = 4
"""Agents whose files a process keeps: a tokeniser may take 100 MB."""


def resolve_model(name: str) -> str:
    """The folder of a model that has a name here, or of a GGUF file; else the name itself: a folder or hub name.

    Raises:
        SettingsError: the model is not installed, or the file can't be converted.
    """
    if name in PACKAGED_MODELS:
        return str(installed_model(name))
    if name.endswith(GGUF_ENDING) and Path(name).is_file():
        return str(converted_gguf(Path(name)))
    return str(SHIPPED_MODELS.get(name, name))


def model_name(agent: AgentConfig) -> str:
    """What tables call the model of an agent: its name, or that of the engine if that is without a model."""
    return agent.model if engine_settings(agent).has_model else agent.engine


def make_tokenizer(agent: AgentConfig, *, sha256: str | None = None) -> Tokenizer:
    """The model's tokeniser, or the one that `tokenizer` names; see `load_tokenizer`.

    Raises:
        SettingsError: there is none, or it can't be loaded; names the setting.
    """
    name = agent.tokenizer or agent.model
    try:
        return load_tokenizer(resolve_model(name), sha256=sha256)
    except SettingsError as error:
        message = str(error).replace("model:", "tokenizer:", 1) if agent.tokenizer else str(error)
        bundled = [*SHIPPED_MODELS, *PACKAGED_MODELS]
        is_known = name in bundled or Path(name).exists()
        raise SettingsError(message if is_known else message + suggestion(name, bundled)) from error


def make_prompt_set(agent: AgentConfig) -> PromptSet:
    """The prompt set that the settings name.

    Raises:
        PromptSetError: there is none, or it is not one for the policy.
    """
    default = load_prompt_set(str(policy_class(agent.policy.kind).prompt_set))
    prompts = load_prompt_set(agent.prompt_set) if agent.prompt_set else default
    for part in ("keep_word", "merge"):
        needed, there = bool(getattr(default, part)), bool(getattr(prompts, part))
        if needed != there:
            raise PromptSetError(
                f"prompt_set: {prompts.name!r} has {'a' if there else 'no'} {part}, and policy.kind is "
                f"{agent.policy.kind!r}; it needs a set {'with' if needed else 'without'} one, such as {default.name!r}"
            )
    return prompts


def load_files(agent: AgentConfig) -> ReaderFiles:
    """Loads tokeniser and prompt set as they are on the disk now.

    Raises:
        SettingsError: as `make_tokenizer`.
        PromptSetError: as `make_prompt_set`.
    """
    return ReaderFiles(tokenizer=make_tokenizer(agent), prompt_set=make_prompt_set(agent))


_FILES: dict[str, ReaderFiles] = {}
"""The files of agents that this process has identified, by fingerprint."""


def files_of(agent: AgentConfig, *, fingerprint: str) -> ReaderFiles:
    """The files with which this process has identified the agent of a run; those on the disk if it has not."""
    return _FILES.get(fingerprint) or load_files(agent)


def with_prompt_order(agent: AgentConfig, *, num_questions: int) -> AgentConfig:
    """The agent as it reads documents of up to so many questions, if no prompt set was named.

    With two or more, a section stands before the question, so that the prefix cache serves it to all of them. One order
    serves all documents of a run, since each agent has one fingerprint, and a single question costs the same in both.
    """
    if num_questions < 2 or agent.prompt_set is not None or agent.policy.kind != "overwrite":
        return agent
    return agent.model_copy(update={"prompt_set": SECTION_FIRST_PROMPTS.name})


def make_template(agent: AgentConfig, files: ReaderFiles | None = None) -> ChatTemplate:
    """What wraps a message here: the tokeniser's chat template, or nothing where the engine has its own."""
    own = (files.tokenizer if files else make_tokenizer(agent)).chat_template
    return own.at_server() if engine_settings(agent).takes_messages else own


def make_prompt_tokens(agent: AgentConfig, files: ReaderFiles | None = None) -> PromptTokens:
    """The prompt set as the model's tokeniser writes it."""
    files = files or load_files(agent)
    return files.tokenizer.prompt_tokens(
        files.prompt_set,
        chat_template_kwargs=agent.chat_template_kwargs,
        template=make_template(agent, files),
    )


def make_follow_up_tokens(agent: AgentConfig, files: ReaderFiles | None = None) -> FollowUpTokens:
    """The follow-up questions as the model's tokeniser writes them."""
    files = files or load_files(agent)
    return files.tokenizer.follow_up_tokens(
        FOLLOW_UP_TEXTS, chat_template_kwargs=agent.chat_template_kwargs, template=make_template(agent, files)
    )


def make_engine(agent: AgentConfig, *, files: ReaderFiles | None = None, num_replicas: int = 1) -> Engine:
    """The engine, not started. `num_replicas`: those of the job at most.

    Raises:
        EngineStartError: model or settings can't work, as far as that is seen without starting.
        SettingsError: there is no such engine, or a setting of it is wrong.
    """
    engine = engine_settings(agent)
    context = EngineContext(
        model=resolve_model(agent.model) if engine.has_weights else agent.model,
        tokenizer=agent.tokenizer and resolve_model(agent.tokenizer),
        window_tokens=agent.window_tokens,
        sampling=agent.sampling,
        load_tokenizer=cache(lambda: files.tokenizer if files else make_tokenizer(agent)),
        chat_template_kwargs=agent.chat_template_kwargs,
        largest_turn=partial(_largest_turn_tokens, agent, files),
        num_replicas=num_replicas,
    )
    return engine.open(context)


def _largest_turn_tokens(agent: AgentConfig, files: ReaderFiles | None) -> int:
    return sum(largest_turn(agent, prompts=make_prompt_tokens(agent, files))[1].values())


def make_documents(sources: SourceConfig) -> list[Location]:
    """The places of the documents. All are on one file system, so that each can open the files of all."""
    return [documents_place(uri, sources.storage_options) for uri in sources.documents]


def make_output(run: RunConfig) -> Location:
    """The run's location."""
    return Location(uri=run.output, storage_options=run.storage_options)


def identify_reader(agent: AgentConfig, files: ReaderFiles | None = None) -> ReaderIdentity:
    """The fingerprint and its parts, of the files and code that this process has loaded, which it keeps.

    Without `files`, those on the disk are loaded, and code that was edited since it was imported is refused.

    Raises:
        SettingsError: the prompts and budgets can't fit the window, the model has no tokeniser or weights, its
            thoughts could not be cut off, or code of a plug-in was edited.
    """
    is_new = files is None
    files = files or load_files(agent)
    tokenizer, prompts = files.tokenizer, make_prompt_tokens(agent, files)
    require_window(agent, prompts=prompts)
    require_thought_tags(agent, files)
    policy, engine = make_policy(agent), engine_settings(agent)
    policy_code = source_sha256(type(policy), setting="policy.kind", is_current=is_new)
    engine_code = source_sha256(type(engine), setting="engine", is_current=is_new)
    parts = {
        "model": agent.model,
        "model_sha256": model_sha256(resolve_model(agent.model)) if engine.has_weights else "",
        "weights_version": agent.weights_version,
        "tokenizer_sha256": tokenizer.sha256,
        "chat_template_sha256": make_template(agent, files).sha256,
        "prompt_set": files.prompt_set.name,
        "prompt_set_sha256": files.prompt_set.sha256,
        "question_tokens": agent.policy.question_tokens,
        "policy": dict(policy.identity()),
        **({"policy_code": policy_code} if policy_code else {}),
        **({"sentences": SPLIT} if agent.policy.break_at not in {None, BreakAt.LENGTH} else {}),
        "sampling": _sampling(agent),
        "engine": dict(engine.identity()),
        **({"engine_code": engine_code} if engine_code else {}),
        **_thoughts(agent, files, opens_thought=prompts.opens_thought),
        **_template_time(agent, files),
    }
    hashed = {name: value for name, value in parts.items() if name != "model" or not engine.has_weights}
    reader = ReaderIdentity(fingerprint=fingerprint(hashed), parts=redact_settings(parts))
    _FILES.setdefault(reader.fingerprint, files)
    for oldest in [*_FILES][:-KEPT_FILES]:
        _FILES.pop(oldest, None)
    return reader


def require_reader(agent: AgentConfig, *, fingerprint: str) -> ReaderFiles:
    """Loads the files of the agent that a run began with, or takes those that this process has loaded for it.

    Raises:
        RunFailedError: model, tokeniser, prompt set or code are others here, and turns would be kept under the name of
            another reader.
    """
    files = files_of(agent, fingerprint=fingerprint)
    if identify_reader(agent, files).fingerprint != fingerprint:
        raise RunFailedError(
            f"the model {agent.model!r}, its tokeniser, the prompt set, or the code of a policy or engine was edited "
            "since the run began, or another one lies on this node; put the same files on every node. The same command "
            "then begins with what is there"
        )
    return files


def require_window(agent: AgentConfig, *, prompts: PromptTokens) -> None:
    """Checks that the largest prompt fits the window with its budget.

    Raises:
        SettingsError: shows what its tokens are the sum of.
    """
    turn, parts = largest_turn(agent, prompts=prompts)
    if sum(parts.values()) > agent.window_tokens:
        raise SettingsError(
            f"window_tokens: the {turn} turn needs {sum_line(parts)}; the window has {agent.window_tokens:,}; lower "
            "one of these in policy, or raise window_tokens"
        )


def require_thought_tags(agent: AgentConfig, files: ReaderFiles) -> None:
    """Checks that the model marks its thoughts in a way that is known; else they would become memory.

    Raises:
        SettingsError: names the tags.
    """
    tags = make_template(agent, files).other_thought_tags()
    if tags:
        raise SettingsError(
            f"model: the chat template of {agent.model} marks thoughts with {', '.join(tags)}; only {OPENING} and "
            f"{THOUGHT_END} can be cut off here. Serve the model with a reasoning parser and read through engine "
            "'openai' with openai.api 'chat'; if the model does not think, take the tags out of its chat_template.jinja"
        )


def _thoughts(agent: AgentConfig, files: ReaderFiles, *, opens_thought: bool) -> dict[str, JsonValue]:
    """What decides the results of a reasoning model; empty for others, so that their fingerprints have no such part."""
    values = make_template(agent, files).values(agent.chat_template_kwargs)
    thinks = opens_thought or files.tokenizer.has_thought_tags
    return ({"chat_template_kwargs": values} if values else {}) | ({"thoughts": "cut off"} if thinks else {})


def _template_time(agent: AgentConfig, files: ReaderFiles) -> dict[str, str]:
    """What prompts say is the time; empty if the chat template prints none, so that such fingerprints have no part."""
    template = make_template(agent, files)
    prints_time = template.prints_time(template.values(agent.chat_template_kwargs))
    return {"template_time": TEMPLATE_TIME.isoformat()} if prints_time else {}


def _sampling(agent: AgentConfig) -> dict[str, JsonValue]:
    """What of the sampling decides a result: of the draws nothing but the temperature where that is 0."""
    sampling = agent.sampling.model_dump(mode="json", exclude={"samples"})
    if agent.sampling.temperature == 0:
        sampling = {"temperature": 0.0, "logprobs": agent.sampling.logprobs}
    return sampling


def largest_turn(agent: AgentConfig, *, prompts: PromptTokens) -> tuple[str, Mapping[str, int]]:
    """The kind of turn that needs most of the window, and the tokens of its parts, question and completion included."""
    largest = make_policy(agent).largest_turns(prompts)
    turn, parts = max(largest.items(), key=lambda turn: sum(turn[1].values()))
    return turn, {"question": agent.policy.question_tokens, **parts, **thinking_part(agent)}


def thinking_part(agent: AgentConfig) -> dict[str, int]:
    """The room for hidden thoughts that each request has, as a part of a turn; empty without such room."""
    num_tokens = agent.openai.thinking_tokens if agent.engine in ENDPOINT_ENGINES else 0
    return {"thinking": num_tokens} if num_tokens else {}


def sum_line(parts: Mapping[str, int]) -> str:
    """The parts as a sum, as a message shows it."""
    return f"{' + '.join(f'{name} {size:,}' for name, size in parts.items())} = {sum(parts.values()):,} tokens"

"""What must fit the window, and the budgets where none are given: the published ones, scaled to the model's window."""

import os
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from memagent_batch.config.agent import AgentConfig, BreakAt, PolicyConfig
from memagent_batch.config.follow_ups import MAX_EVIDENCE_TOKENS, FollowUpConfig
from memagent_batch.errors import SettingsError
from memagent_batch.loop.follow_ups.answer_types import ValueType
from memagent_batch.loop.follow_ups.prompts import COMPLETION_TOKENS, VALUE, largest_follow_ups
from memagent_batch.loop.follow_ups.values import completion_budget
from memagent_batch.loop.prompts import PUBLISHED
from memagent_batch.loop.tokens.pretrained import model_window
from memagent_batch.plugins import engine_settings, policy_class, setting_names
from memagent_batch.run.wiring import (
    largest_turn,
    make_follow_up_tokens,
    make_prompt_set,
    make_prompt_tokens,
    make_tokenizer,
    require_window,
    resolve_model,
    sum_line,
    thinking_part,
)
from memagent_batch.types import Cost

WINDOW_TOKENS: int = AgentConfig.model_fields["window_tokens"].default
"""The window that the defaults of all budgets are made for, tokens."""
SCALED = ("question_tokens", "memory_tokens", "answer_tokens")
"""Budgets that shrink with the window; a chunk takes what they leave."""
MIN_CHUNK_TOKENS = 32
"""A shorter chunk is not a sensible default, tokens."""
MIN_EVIDENCE_TOKENS = 256
"""Fewer are too few sentences to choose from, where a chunk has more, tokens."""
CHUNKS_OF_EVIDENCE = 4
"""By default the sentences that are shown take this part of a chunk, so that a window that holds a chunk holds them."""


def fit_budgets_to_window(agent: AgentConfig) -> AgentConfig:
    """The agent with a window that the model has and budgets that fit it.

    What was given stays as it is, and so do the defaults where they fit.

    Raises:
        SettingsError: what was given leaves no room for a chunk, or the model holds less than the given window.
    """
    make_tokenizer(agent)  # first, since it says best what is wrong with a model
    agent = _with_breaks(agent)
    agent = agent.model_copy(update={"window_tokens": _effective_window(agent)})
    if _excess(agent) <= 0:
        return agent
    given = agent.policy.model_fields_set
    share = min(1.0, agent.window_tokens / WINDOW_TOKENS)
    budgets = {name: max(1, int(getattr(agent.policy, name) * share)) for name in SCALED if name not in given}
    agent = _with_policy(agent, budgets)
    if "chunk_tokens" in given:
        return agent
    shorter = min(int(agent.policy.chunk_tokens * share), agent.policy.chunk_tokens - _excess(agent))
    chunk_tokens = max(shorter, MIN_CHUNK_TOKENS, agent.policy.overlap_tokens + 1, _least_passage(agent.policy))
    passage_tokens = min(agent.policy.passage_tokens, chunk_tokens)
    agent = _with_policy(agent, {"chunk_tokens": chunk_tokens, "passage_tokens": passage_tokens})
    require_window(agent, prompts=make_prompt_tokens(agent))
    return agent


def fitted_follow_ups(config: FollowUpConfig, agent: AgentConfig) -> FollowUpConfig:
    """What is asked after each answer of an agent, whose budgets fit its window (`fit_budgets_to_window`)."""
    chunk_tokens = agent.policy.chunk_tokens
    share = max(chunk_tokens // CHUNKS_OF_EVIDENCE, min(MIN_EVIDENCE_TOKENS, chunk_tokens))
    return config.model_copy(update={"evidence_tokens": config.evidence_tokens or min(MAX_EVIDENCE_TOKENS, share)})


def require_follow_up_window(follow_ups: FollowUpConfig, agent: AgentConfig, *, types: Iterable[ValueType]) -> None:
    """Checks that the largest follow-up question of each kind fits the window with its question and its budget.

    Raises:
        SettingsError: names the turn, its tokens and the settings.
    """
    policy = agent.policy
    largest = largest_follow_ups(
        follow_ups,
        make_follow_up_tokens(agent),
        types=types,
        memory_tokens=policy.memory_tokens,
        answer_tokens=policy.answer_tokens,
    )
    for kind, without_question in largest.items():
        num_tokens = policy.question_tokens + without_question + sum(thinking_part(agent).values())
        if num_tokens > agent.window_tokens:
            setting = "follow_ups.json_tokens, or ask for fewer labels or a smaller schema"
            raise SettingsError(
                f"window_tokens: the follow-up question {kind!r} needs up to {num_tokens} tokens (question, answer, "
                f"what it "
                f"shows, the prompt's own text, and its budget), the window has {agent.window_tokens}; lower "
                f"{setting if kind == VALUE else 'follow_ups.evidence_tokens'} or policy.answer_tokens, or raise "
                "window_tokens"
            )


def follow_up_cost(follow_ups: FollowUpConfig, agent: AgentConfig, *, value_type: ValueType | None) -> Cost:
    """What the follow-up questions of a question of this type take at most, every slot at its budget."""
    policy, tokens = agent.policy, make_follow_up_tokens(agent)
    largest = largest_follow_ups(
        follow_ups,
        tokens,
        types=[value_type] if value_type else [],
        memory_tokens=policy.memory_tokens,
        answer_tokens=policy.answer_tokens,
    )
    budgets = dict(COMPLETION_TOKENS)
    if value_type is not None:
        budgets[VALUE] = completion_budget(value_type, json_tokens=follow_ups.json_tokens)
    num_completion_tokens = sum(budgets[kind] for kind in largest)
    return Cost(
        num_chunks=0,
        num_turns=len(largest),
        num_prompt_tokens=sum(largest.values()) + policy.question_tokens * len(largest) - num_completion_tokens,
        num_completion_tokens=num_completion_tokens,
    )


def require_questions_fit(questions: pa.Table, agent: AgentConfig) -> None:
    """Checks that no question is too long for the window whatever the document.

    A question over `policy.question_tokens` that would still fit is not a reason to refuse a run: its readings fail.

    Raises:
        SettingsError: names the question and its length in tokens.
    """
    policy, prompts = agent.policy, make_prompt_tokens(agent)
    turn, parts = largest_turn(agent, prompts=prompts)
    room = agent.window_tokens - sum(parts.values()) + policy.question_tokens
    for row in questions.select(["question_id", "question"]).to_pylist():
        if len(row["question"].encode()) <= policy.question_tokens:
            continue  # no tokeniser writes more tokens than bytes
        num_tokens = len(make_tokenizer(agent).encode(row["question"]))
        if num_tokens > max(room, policy.question_tokens):
            raise SettingsError(
                f"question {row['question_id']!r} has {num_tokens:,} tokens, so that the {turn} turn needs "
                f"{sum_line({**parts, 'question': num_tokens})}; the window has {agent.window_tokens:,}: shorten the "
                "question, lower another part in policy, or raise window_tokens"
            )


def _with_breaks(agent: AgentConfig) -> AgentConfig:
    """The agent with the place where its chunks close, if its policy cuts documents and none was given."""
    has_setting = "break_at" in setting_names(policy_class(agent.policy.kind))
    if agent.policy.break_at is not None or not has_setting:
        return agent
    is_published = make_prompt_set(agent).version == PUBLISHED
    return _with_policy(agent, {"break_at": BreakAt.LENGTH if is_published else BreakAt.SENTENCES})


def _with_policy(agent: AgentConfig, changes: dict[str, Any]) -> AgentConfig:
    return agent.model_copy(update={"policy": agent.policy.model_copy(update=changes)})


def _effective_window(agent: AgentConfig) -> int:
    """The window as given, or the model's own where that is below the default."""
    window, engine = agent.window_tokens, engine_settings(agent)
    if engine.takes_messages:
        return window  # the tokeniser only counts: its window is not that of the served model
    is_given = "window_tokens" in agent.model_fields_set
    has_weights = engine.has_weights
    if is_given and (not has_weights or _is_stretched(agent)):
        return window
    own = model_window(resolve_model(agent.model if has_weights else agent.tokenizer or agent.model))
    if own is None or own >= window:
        return window
    if is_given:
        raise SettingsError(
            f"window_tokens: the model {agent.model} holds {own} tokens (its config.json), window_tokens is "
            f"{window}; lower it to {own} or less, or leave it out"
        )
    return own


def _is_stretched(agent: AgentConfig) -> bool:
    """Whether vLLM is set to take more than the model's config says."""
    return "hf_overrides" in agent.vllm.engine_args or os.environ.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "0") != "0"


def _excess(agent: AgentConfig) -> int:
    """Tokens by which the largest prompt, with its budget, is above the window; below 0 if there is room."""
    _, parts = largest_turn(agent, prompts=make_prompt_tokens(agent))
    return sum(parts.values()) - agent.window_tokens


def _least_passage(policy: PolicyConfig) -> int:
    has_passages = "passage_tokens" in setting_names(policy_class(policy.kind))
    is_given = has_passages and "passage_tokens" in policy.model_fields_set
    return policy.passage_tokens if is_given else 1

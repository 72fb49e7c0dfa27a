"""Refuses questions that can't fit the window, before an engine starts."""

import pyarrow as pa

from memagent_batch.config.agent import AgentConfig
from memagent_batch.errors import SettingsError
from memagent_batch.turn_sizes import largest_turn, sum_line
from memagent_batch.wiring import make_prompt_tokens, make_tokenizer


def require_questions_fit(questions: pa.Table, agent: AgentConfig) -> None:
    """Checks that no question is too long for the window whatever the document.

    A question over `policy.question_tokens` that would still fit is no reason to refuse a run: its readings fail.

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

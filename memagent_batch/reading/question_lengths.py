"""Refuses questions that can't fit the window, before an engine starts."""

import pyarrow as pa

from memagent_batch.config.agent import AgentConfig
from memagent_batch.errors import SettingsError
from memagent_batch.turn_sizes import knobs_of_size, turn_sizes
from memagent_batch.wiring import make_prompt_tokens, make_tokenizer


def require_questions_fit(questions: pa.Table, agent: AgentConfig) -> None:
    """Checks that no question is too long for the window whatever the document.

    A question over `policy.question_tokens` that would still fit is no reason to refuse a run: its readings fail.

    Raises:
        SettingsError: names the question and its length in tokens.
    """
    policy, prompts = agent.policy, make_prompt_tokens(agent)
    sizes = turn_sizes(agent, prompts=prompts)
    turn = max(sizes, key=lambda turn: sizes[turn])
    room = agent.window_tokens - sizes[turn] + policy.question_tokens
    for row in questions.select(["question_id", "question"]).to_pylist():
        if len(row["question"].encode()) <= policy.question_tokens:
            continue  # no tokeniser writes more tokens than bytes
        num_tokens = len(make_tokenizer(agent).encode(row["question"]))
        if num_tokens > max(room, policy.question_tokens):
            knobs = [knob for knob in knobs_of_size(agent, turn, prompts=prompts) if knob != "policy.question_tokens"]
            lower = f"lower {' or '.join(knobs)}, " if knobs else ""
            raise SettingsError(
                f"question {row['question_id']!r} has {num_tokens} tokens; beside what else a {turn} turn needs, the "
                f"window of {agent.window_tokens} leaves {room}: shorten the question, {lower}or raise "
                "window_tokens"
            )

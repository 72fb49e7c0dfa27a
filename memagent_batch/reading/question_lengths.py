"""Refuses questions that can't fit the window, before an engine starts."""

import pyarrow as pa

from memagent_batch.config.agent import AgentConfig
from memagent_batch.errors import SettingsError
from memagent_batch.log.question_list import question_lists
from memagent_batch.plugins import make_policy
from memagent_batch.turn_sizes import knobs_of_size, turn_sizes
from memagent_batch.wiring import make_prompt_tokens, make_tokenizer


def require_questions_fit(questions: pa.Table, agent: AgentConfig) -> None:
    """Checks that each question, or each list where the policy reads whole lists, has room in the prompts.

    Args:
        questions: The question list, a table of `QUESTION_SCHEMA`.
        agent: What reads.

    Raises:
        SettingsError: names the question or list and its length in tokens.
    """
    if make_policy(agent).reads_lists:
        _require_lists_fit(questions, agent)
    else:
        _require_each_fits(questions, agent)


def _require_each_fits(questions: pa.Table, agent: AgentConfig) -> None:
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


def _require_lists_fit(questions: pa.Table, agent: AgentConfig) -> None:
    """Checks that each question list fits its place in the turns of a policy that shows it whole.

    Raises:
        SettingsError: names the list and its length in tokens.
    """
    tokenizer, budget = make_tokenizer(agent), agent.policy.question_tokens
    for document_id, text in question_lists(questions).items():
        if len(text.encode()) <= budget:
            continue  # no tokeniser writes more tokens than bytes
        num_tokens = len(tokenizer.encode(text))
        if num_tokens > budget:
            whose = "for every document" if document_id is None else f"for document_id {document_id!r}"
            raise SettingsError(
                f"questions: the list {whose} has {num_tokens} tokens, policy.question_tokens is {budget}; the policy "
                f"{agent.policy.kind!r} shows it whole: split it into several runs, or raise the knob"
            )

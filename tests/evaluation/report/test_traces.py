from typing import Any

import pytest

from memagent_batch.evaluation.report.text_diff import WordChange
from memagent_batch.evaluation.report.traces import MAX_MEMORY_CHARACTERS, MAX_STEPS, StepKind, Trace, make_trace


def turns(*memories: str, chunk_tokens: int = 100) -> list[dict[str, Any]]:
    """One update a memory, then the answer."""
    rows: list[dict[str, Any]] = []
    for turn, memory in enumerate([*memories, memories[-1]]):
        is_answer = turn == len(memories)
        start = None if is_answer else turn * chunk_tokens
        end = None if start is None else start + chunk_tokens
        rows.append(
            {
                "turn": turn,
                "kind": "answer" if is_answer else "update",
                "token_start": start,
                "token_end": end,
                "char_start": start,
                "char_end": end,
                "memory": memory,
                "changed": memory != (memories[turn - 1] if turn else "none yet"),
                "finish_reason": "stop",
            }
        )
    return rows


def trace_of(*memories: str, references: tuple[str, ...] = ("42",), alternatives: bool = False) -> Trace:
    return make_trace(turns(*memories), references=references, alternatives=alternatives)


def test_make_trace_unchanged_turns_are_one_step_with_their_whole_span() -> None:
    trace = trace_of("a", *["a b"] * 300, "c")
    assert [step.kind for step in trace.steps] == [
        StepKind.CHANGED,
        StepKind.CHANGED,
        StepKind.UNCHANGED,
        StepKind.CHANGED,
        StepKind.ANSWER,
    ]
    run = trace.steps[2]
    assert (run.first_turn, run.last_turn, run.token_start, run.token_end) == (2, 300, 200, 30100)
    assert (trace.num_turns, trace.num_changed) == (303, 3)


def test_make_trace_changed_turn_tells_words_and_references() -> None:
    first, second, third, _ = trace_of("key 42", "key 7", "key 42 again").steps
    assert (first.references_in, second.references_out, third.references_in) == (("42",), ("42",), ("42",))
    assert [(piece.change, piece.text) for piece in second.pieces] == [
        (WordChange.KEPT, "key"),
        (WordChange.REMOVED, " 42"),
        (WordChange.ADDED, " 7"),
    ]


@pytest.mark.parametrize(
    ("memories", "references", "alternatives", "verdict"),
    [
        (["x", "FOX here"], ("Fox",), False, "in the last memory"),
        (["fox", "x"], ("fox",), False, "lost on the way"),
        (["x", "y"], ("fox",), False, "never in the memory"),
        (["fox", "dog"], ("fox", "dog"), True, "in the last memory"),
        (["fox", "dog"], ("fox", "dog", "cat"), False, "1 in the last memory, 1 lost, 1 never noted"),
        (["none yet"], ("fox",), False, "the memory never changed"),
    ],
)
def test_make_trace_verdict_says_where_the_reference_went(
    memories: list[str], references: tuple[str, ...], alternatives: bool, verdict: str
) -> None:
    assert trace_of(*memories, references=references, alternatives=alternatives).verdict == verdict


def test_make_trace_no_turns_is_empty() -> None:
    trace = make_trace([], references=["42"], alternatives=False)
    assert (trace.steps, trace.num_turns, trace.verdict) == ((), 0, "no turn recorded")


def test_make_trace_many_changes_are_bounded_and_every_turn_is_accounted_for() -> None:
    memories = [f"memory {number}" for number in range(400)]
    memories[200] = "the key is fox"
    trace = trace_of(*memories, references=("fox",))
    changed = [step for step in trace.steps if step.kind is StepKind.CHANGED]
    assert len(changed) == MAX_STEPS
    assert {0, 200, 201, 399} <= {step.first_turn for step in changed}
    covered = [turn for step in trace.steps for turn in range(step.first_turn, step.last_turn + 1)]
    assert covered == list(range(401))


def test_make_trace_long_memory_is_cut_and_says_so() -> None:
    [first, *_] = trace_of("w" * 50_000).steps
    assert sum(len(piece.text) for piece in first.pieces) < MAX_MEMORY_CHARACTERS + 100
    assert "characters not shown" in first.pieces[0].text
    assert first.num_characters == 50_000

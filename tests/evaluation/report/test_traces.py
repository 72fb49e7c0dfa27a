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


def rows_of(*texts: tuple[str, str]) -> list[dict[str, Any]]:
    """Rows of `memories` with these kinds and texts, all changed but for the answer."""
    [row] = turns("")[:1]
    return [
        row | {"turn": n, "kind": kind, "memory": text, "changed": kind != "answer"}
        for n, (kind, text) in enumerate(texts)
    ]


def test_make_trace_of_parallel_compares_notes_with_nothing_and_the_last_merge_with_the_memory() -> None:
    notes = (("read", "key 42"), ("read", "Ann"), ("merge", "key 42 Ann"), ("merge", "May"), ("merge", "key 42 May"))
    rows = rows_of(*notes, ("read", "June"), ("merge", "key 42 June"), ("answer", "key 42 June"))
    trace = make_trace(rows, references=("42",), alternatives=False)
    changed = [step for step in trace.steps if step.kind is StepKind.CHANGED]
    assert [step.is_note for step in changed] == [True, True, True, True, False, True, False]
    assert [bool(step.references_in) for step in changed] == [True, False, True, False, True, False, False]
    assert all(step.references_out == () for step in changed)
    assert (trace.num_changed, trace.verdict) == (2, "in the last memory")


def test_make_trace_of_notes_alone_ends_without_a_memory() -> None:
    trace = make_trace(rows_of(("read", "key 42")), references=("42",), alternatives=False)
    assert (trace.num_changed, trace.verdict) == (0, "the memory never changed")

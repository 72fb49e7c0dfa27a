from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.apps.pages.traces import (
    StepKind,
    Trace,
    WordChange,
    make_trace,
    word_differences,
)


def turns(*memories: str) -> list[dict[str, Any]]:
    """One update a memory, then the answer."""
    rows: list[dict[str, Any]] = []
    for turn, memory in enumerate([*memories, memories[-1]]):
        is_answer = turn == len(memories)
        start, end = (None, None) if is_answer else (turn * 100, turn * 100 + 100)
        span = {"token_start": start, "token_end": end, "char_start": start, "char_end": end}
        changed = memory != (memories[turn - 1] if turn else "none yet")
        kind = "answer" if is_answer else "update"
        row = {"turn": turn, "kind": kind, "writes": None if is_answer else "memory", **span, "memory": memory}
        rows.append({**row, "changed": changed, "finish_reason": "stop"})
    return rows


def trace_of(*memories: str, answers: tuple[str, ...] = ("42",)) -> Trace:
    return make_trace(turns(*memories), answers=answers)


def test_make_trace_unchanged_turns_are_one_step_with_their_whole_span() -> None:
    trace = trace_of("a", *["a b"] * 300, "c")
    changed = StepKind.CHANGED
    kinds = [step.kind for step in trace.steps]
    assert kinds == [changed, changed, StepKind.UNCHANGED, changed, StepKind.ANSWER]
    run = trace.steps[2]
    assert (run.first_turn, run.last_turn) == (2, 300)
    assert (trace.num_turns, trace.num_changed) == (303, 3)


def test_make_trace_changed_turn_tells_words_and_answers() -> None:
    first, second, third, _ = trace_of("key 42", "key 7", "key 42 again").steps
    assert (first.answers_in, second.answers_out, third.answers_in) == (("42",), ("42",), ("42",))
    assert [(piece.change, piece.text) for piece in second.pieces] == [
        (WordChange.KEPT, "key"),
        (WordChange.REMOVED, " 42"),
        (WordChange.ADDED, " 7"),
    ]


def test_make_trace_no_turns_is_empty() -> None:
    trace = make_trace([], answers=["42"])
    assert (trace.steps, trace.num_turns) == ((), 0)


def test_make_trace_many_changes_are_bounded_and_every_turn_is_accounted_for() -> None:
    memories = [f"memory {number}" for number in range(400)]
    memories[200] = "the key is fox"
    trace = trace_of(*memories, answers=("fox",))
    changed = [step for step in trace.steps if step.kind is StepKind.CHANGED]
    assert len(changed) < 200
    assert {0, 200, 201, 399} <= {step.first_turn for step in changed}
    covered = [turn for step in trace.steps for turn in range(step.first_turn, step.last_turn + 1)]
    assert covered == list(range(401))


def test_make_trace_long_memory_is_cut_and_says_so() -> None:
    [first, *_] = trace_of("w" * 50_000).steps
    assert sum(len(piece.text) for piece in first.pieces) < 25_000
    assert "characters not shown" in first.pieces[0].text
    assert first.num_characters == 50_000


def rows_of(*texts: tuple[str, str | None, str]) -> list[dict[str, Any]]:
    """Rows of `memories` with these kinds, purposes and texts, all changed except for the answer."""
    [row] = turns("")[:1]
    return [
        row | {"turn": n, "kind": kind, "writes": writes, "memory": text, "changed": kind != "answer"}
        for n, (kind, writes, text) in enumerate(texts)
    ]


@pytest.mark.parametrize(("read", "merge"), [("read", "merge"), ("skim", "summarise"), ("update", "update")])
def test_make_trace_compares_notes_with_nothing_and_memories_with_the_one_before_whatever_their_kinds(
    read: str, merge: str
) -> None:
    trace = make_trace(
        rows_of(
            (read, "note", "key 42"),
            (read, "note", "Ann"),
            (merge, "note", "key 42 Ann"),
            (merge, "note", "May"),
            (merge, "memory", "key 42 May"),
            (read, "note", "June"),
            (merge, "memory", "key 42 June"),
            ("answer", None, "key 42 June"),
        ),
        answers=("42",),
    )
    changed = [step for step in trace.steps if step.kind is StepKind.CHANGED]
    assert [step.is_note for step in changed] == [True, True, True, True, False, True, False]
    assert [bool(step.answers_in) for step in changed] == [True, False, True, False, True, False, False]
    assert all(step.answers_out == () for step in changed)
    assert trace.num_changed == 2


WORDS = st.lists(st.sampled_from(["fox", "the", "a", "42", "\n", "x  y"]), max_size=30).map(" ".join)


@given(before=WORDS, after=WORDS)
def test_differences_pieces_join_to_either_memory(before: str, after: str) -> None:
    pieces = word_differences(before, after)
    assert "".join(piece.text for piece in pieces if piece.change is not WordChange.ADDED) == before
    assert "".join(piece.text for piece in pieces if piece.change is not WordChange.REMOVED) == after


@pytest.mark.timeout(60)  # quadratic in the repeats, it would take hours
def test_differences_one_word_repeated_thousands_of_times_are_told() -> None:
    for before, after in (("a " * 20_000 + "b", "a " * 20_000 + "c"), ("a " * 3_000, "b " + "a " * 3_000 + "c")):
        assert {piece.change for piece in word_differences(before, after)} >= {WordChange.ADDED}

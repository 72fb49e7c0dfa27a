import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.evaluation.report.text_diff import WordChange, differences

WORDS = st.lists(st.sampled_from(["fox", "the", "a", "42", "\n", "x  y"]), max_size=30).map(" ".join)


def _told(before: str, after: str) -> list[tuple[str, str]]:
    return [(piece.change.value, piece.text) for piece in differences(before, after)]


def test_differences_one_word_written_over_is_removed_and_added() -> None:
    assert _told("The key is 12 today.", "The key is 34 today.") == [
        ("kept", "The key is"),
        ("removed", " 12"),
        ("added", " 34"),
        ("kept", " today."),
    ]


def test_differences_first_memory_is_all_added() -> None:
    assert _told("", "a b") == [("added", "a b")]


@given(before=WORDS, after=WORDS)
def test_differences_pieces_join_to_either_memory(before: str, after: str) -> None:
    pieces = differences(before, after)
    assert not any(piece.change is WordChange.ELIDED for piece in pieces)
    assert "".join(piece.text for piece in pieces if piece.change is not WordChange.ADDED) == before
    assert "".join(piece.text for piece in pieces if piece.change is not WordChange.REMOVED) == after


def test_differences_long_unchanged_stretch_is_elided_and_counted() -> None:
    same = " ".join(str(number) for number in range(500))
    pieces = differences(f"old {same} end", f"new {same} fin")
    [elided] = [piece for piece in pieces if piece.change is WordChange.ELIDED]
    assert "476 words unchanged" in elided.text
    shown = "".join(piece.text for piece in pieces)
    assert shown.startswith("oldnew 0 1 2")
    assert " 498 499 end fin" in shown


@pytest.mark.timeout(60)  # quadratic in the repeats, it would take hours
def test_differences_one_word_repeated_thousands_of_times_are_told() -> None:
    for before, after in (("a " * 20_000 + "b", "a " * 20_000 + "c"), ("a " * 3_000, "b " + "a " * 3_000 + "c")):
        assert {piece.change for piece in differences(before, after)} >= {WordChange.ADDED}

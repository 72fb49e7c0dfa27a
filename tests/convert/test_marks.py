"""Marks for raised, lowered and struck-out text."""

import pytest

from memagent_batch.data.ingest.readers.marks import Run, Script, join_runs, struck_out, subscript, superscript

NORMAL, SUPER, SUB = Script.NORMAL, Script.SUPER, Script.SUB


@pytest.mark.parametrize(
    ("text", "raised", "lowered"),
    [
        ("2", "^2", "_2"),
        ("-6", "^-6", "_-6"),
        ("n+1", "^(n+1)", "_(n+1)"),
        ("1,2", "^(1,2)", "_(1,2)"),
        ("2 ", "^2 ", "_2 "),
        ("th", "th", "_th"),
        ("\N{TRADE MARK SIGN}", "\N{TRADE MARK SIGN}", "\N{TRADE MARK SIGN}"),
        ("\N{INFINITY}", "^\N{INFINITY}", "_\N{INFINITY}"),
        ("*", "*", "*"),
        (" ", " ", " "),
    ],
)
def test_raised_and_lowered_texts_have_a_sign_before_them(text: str, raised: str, lowered: str) -> None:
    assert (superscript(text), subscript(text)) == (raised, lowered)


def test_struck_out_text_is_in_brackets_and_white_space_outside() -> None:
    assert (struck_out(" two years "), struck_out("\n")) == (" [struck out: two years] ", "\n")


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        ([Run("EUR 100"), Run("1", SUPER), Run(" a share")], "EUR 100^1 a share"),
        ([Run("10"), Run("-", SUPER), Run("6", SUPER), Run(" m")], "10^-6 m"),
        ([Run("1", SUPER), Run("5 days")], "^1 5 days"),
        ([Run("x"), Run("n", SUPER), Run("m")], "x^n m"),
        ([Run("H"), Run("2", SUB), Run("O")], "H_2O"),
        ([Run("2"), Run("1", SUPER), Run("/"), Run("2", SUB), Run(" %")], "2 1/2 %"),
        ([Run("1/", SUPER), Run("12", SUB)], "1/12"),
        ([Run("the 30"), Run("th", SUPER), Run(" day")], "the 30th day"),
        (
            [Run("in "), Run("two ", is_struck=True), Run("days", is_struck=True), Run(".")],
            "in [struck out: two days].",
        ),
        ([Run("5"), Run("0", is_struck=True), Run("7")], "5[struck out: 0]7"),
        ([], ""),
    ],
)
def test_runs_are_joined_without_changing_a_number(runs: list[Run], text: str) -> None:
    assert join_runs(runs) == text

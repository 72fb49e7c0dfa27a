"""`memagent diff`: what it prints of two runs."""

import json
from pathlib import Path

import pytest

from memagent_batch.cli import main as cli
from memagent_batch.data.store.location import Location
from tests.runs.written_runs import Answers, write_answers

QUESTIONS = {"q": "Why?"}
MONDAY, TUESDAY = "20261123T010000.000Z.aaaa", "20261124T010000.000Z.bbbb"


def asked(**answers: str | None) -> dict[str, Answers]:
    """Answers to one question, by document."""
    return {name: {"q": answer} for name, answer in answers.items()}


@pytest.fixture
def output(tmp_path: Path) -> Location:
    return Location(uri=str(tmp_path / "run"))


@pytest.fixture
def nights(output: Location) -> Location:
    """Two runs: of one document the text changed, one is new, one is gone."""
    write_answers(output, asked(a="same", b="left", c="gone"), run_id=MONDAY, questions=QUESTIONS)
    write_answers(output, asked(a="same", b="right\x1b[2J", d="new"), run_id=TUESDAY, questions=QUESTIONS)
    return output


def diff(*arguments: str) -> int:
    return cli.main(["diff", *arguments])


def test_diff_prints_a_summary_then_changed_answers_then_a_line_for_each_other_document(
    nights: Location, capsys: pytest.CaptureFixture[str]
) -> None:
    assert diff(nights.uri, "--before", "previous", "--after", "latest") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1 answer changed, 1 new, 1 gone; 3 asked for before, 3 now"
    assert lines[3:] == [
        *(
            "CHANGED ANSWERS",
            "  b: Why? (q)",
            "    before: left",
            "    now:    right [2J",
            "    the text of the document changed",
        ),
        *("", "NEW", "  d: the document is new", "", "GONE", "  c: the document is gone"),
    ]


def test_diff_shows_a_document_with_many_new_answers_once_and_counts_what_it_leaves_out(
    output: Location, capsys: pytest.CaptureFixture[str]
) -> None:
    questions = {"q": "Why?", "r": "Who?"}
    write_answers(output, asked(a="same"), run_id=MONDAY, questions=questions)
    answers: dict[str, Answers] = {f"{number:03}": dict.fromkeys(questions, "same") for number in range(203)}
    write_answers(output, asked(a="same") | answers, run_id=TUESDAY, questions=questions)
    assert diff(output.uri) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("0 answers changed, 406 new")
    assert lines[-2:] == ["  199: the document is new", "  and 3 more: --json shows them"]


def test_diff_shows_answers_to_a_new_question_and_texts_that_changed_without_an_answer(
    output: Location, capsys: pytest.CaptureFixture[str]
) -> None:
    questions = {"q": "Why?", "r": "Who?"}
    write_answers(output, asked(a="same", b=None), run_id=MONDAY, questions={"q": "Why?"}, texts={"b": "one"})
    answers: dict[str, Answers] = {"a": {"q": "same", "r": "same"}, "b": {"q": None, "r": None}}
    write_answers(output, answers, run_id=TUESDAY, questions=questions, texts={"b": "two"})
    assert diff(output.uri) == 0
    assert capsys.readouterr().out.splitlines()[3:] == [
        *("NEW", "  a: Who? (r)", "    now:    same", "    the question is new"),
        *("  b: Who? (r)", "    now:    (the engine refused it)", "    the question is new"),
        *("", "CHANGED TEXTS WITH THE SAME ANSWERS", "  b"),
    ]


def test_diff_as_json_is_one_object_a_line_also_of_two_outputs_and_a_run_that_is_not_there_is_named(
    nights: Location, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def changes(*arguments: str) -> list[tuple[str, ...]]:
        assert diff(*arguments, "--json") == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return [(row["document_id"], row["change"], *row["why"], row["memory_after"]) for row in rows]

    now = "noted: right\x1b[2J"
    gone, new = ("c", "removed", "document", None), ("d", "added", "document", "noted: new")
    assert changes(nights.uri) == [("b", "changed", "document", now), gone, new]
    other = Location(uri=str(tmp_path / "other"))
    write_answers(other, asked(a="same", b="other"), run_id=MONDAY, questions=QUESTIONS, columns={"fingerprint": "g"})
    assert changes(other.uri, nights.uri) == [("b", "changed", "document", "reader", now), new]
    assert diff(nights.uri, "--before", "monday") == 2
    assert f"no finished run 'monday' at {nights.uri}; there are {MONDAY}, {TUESDAY}" in capsys.readouterr().err


def test_diff_and_page_show_a_value_that_has_changed_under_the_same_answer(
    output: Location, capsys: pytest.CaptureFixture[str]
) -> None:
    for run_id, value in ((MONDAY, None), (TUESDAY, '{"price":5}')):
        typed = {"answer_type": "json", "value_status": "ok" if value else "invalid", "value": value}
        write_answers(output, asked(a="five"), run_id=run_id, questions=QUESTIONS, columns=typed)
    assert diff("--output", output.uri) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.strip() for line in said[-3:-1]] == ["before: invalid", 'now:    {"price": 5}']
    assert said[0].startswith("1 answer changed, 0 new, 0 gone")
    assert cli.main(["page", output.uri]) == 0
    [page] = Path(output.path).glob("pages/documents/*/*.html")
    assert "<dt>value before</dt>" in page.read_text()

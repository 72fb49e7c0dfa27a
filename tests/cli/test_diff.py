import json
import re
from pathlib import Path

import pytest

from memagent_batch.cli import diff as command
from memagent_batch.cli import main as cli
from memagent_batch.store.location import Location
from tests.runs.recorded_nights import FAILS, Nights
from tests.runs.typed_nights import CUT, FIVE, night

QUESTIONS = {"q": "Why?"}


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    nights = Nights(Location(uri=str(tmp_path / "run")))
    nights.run({"a": "same", "b": "left", "c": "gone"}, QUESTIONS)
    nights.run({"a": "same", "b": "right\x1b[2J", "d": "new"}, QUESTIONS)
    return nights


def diff(*arguments: str) -> int:
    return cli.main(["diff", *arguments])


def test_diff_prints_a_summary_then_changed_answers_then_a_line_for_each_other_document(
    nights: Nights, capsys: pytest.CaptureFixture[str]
) -> None:
    assert diff(nights.output.uri, "--before", "previous", "--after", "latest") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1 answers changed, 1 are new, 1 are gone; 3 were asked for before, 3 now"
    assert lines[3:] == [
        "CHANGED ANSWERS",
        "  b: Why? (q)",
        "    before: left",
        "    now:    right [2J",
        "    the document changed",
        "",
        "NEW",
        "  d: the document is new",
        "",
        "GONE",
        "  c: the document is gone",
    ]


def test_diff_shows_a_document_with_many_new_answers_once_and_counts_what_it_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "SHOWN_ITEMS", 2)
    questions = {"q": "Why?", "r": "Who?"}
    nights = Nights(Location(uri=str(tmp_path / "run")))
    nights.run({"a": "same"}, questions)
    nights.run(dict.fromkeys("abcd", "same"), questions)
    assert diff(nights.output.uri) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("0 answers changed, 6 are new")
    assert lines[-3:] == ["  b: the document is new", "  c: the document is new", "  and 1 more: --json shows them"]


def test_diff_shows_answers_to_a_new_question_and_texts_that_changed_without_an_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nights = Nights(Location(uri=str(tmp_path / "run")))
    nights.run({"a": "same", "b": f"{FAILS}, one"}, {"q": "Why?"}, bound={})
    nights.run({"a": "same", "b": f"{FAILS}, two"}, {"q": "Why?"}, bound={("a", "r"): "Who?", ("b", "r"): "Who?"})
    assert diff(nights.output.uri) == 0
    assert capsys.readouterr().out.splitlines()[3:] == [
        *("NEW", "  a: Who? (r)", "    now:    same", "    the question is new"),
        *("  b: Who? (r)", "    now:    (the engine refused it)", "    the question is new"),
        *("", "CHANGED TEXTS WITH THE SAME ANSWERS", "  b"),
    ]


def test_diff_as_json_is_one_object_a_line(nights: Nights, capsys: pytest.CaptureFixture[str]) -> None:
    assert diff(nights.output.uri, "--json") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["document_id"], row["change"], row["why"]) for row in rows] == [
        ("b", "changed", ["document"]),
        ("d", "added", ["document"]),
        ("c", "removed", ["document"]),
    ]
    assert (rows[0]["memory_before"], rows[0]["memory_after"]) == ("noted: left", "noted: right\x1b[2J")


def test_diff_of_two_outputs_compares_their_latest_runs(
    nights: Nights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Nights(Location(uri=str(tmp_path / "other"))).run({"a": "same", "b": "other"}, QUESTIONS, reader="g")
    monkeypatch.chdir(tmp_path)
    assert diff("run", "other", "--json") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["document_id"], *row["why"]) for row in rows] == [("b", "document", "reader"), ("d", "document")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{output}", "--before", "monday"], "no finished run 'monday' at {output}; there are {runs}"),
        (["latest", "previous", "--output", "{output}"], "'latest' belongs to no option"),
    ],
)
def test_diff_mistake_is_named_with_its_remedy(
    nights: Nights, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    runs = ", ".join(sorted(path.name for path in (tmp_path / "run" / "runs").iterdir()))
    names = {"output": nights.output.uri, "folder": str(tmp_path), "runs": runs}
    assert diff(*(argument.format(**names) for argument in arguments)) == 2
    assert said.format(**names) in capsys.readouterr().err


def test_diff_and_page_show_a_value_that_has_changed_under_the_same_answer(
    tmp_path: Path, text_model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    nights = Nights(Location(uri=str(tmp_path / "run")))
    night(nights, CUT, model=text_model, json_tokens=64)
    night(nights, FIVE, model=text_model, json_tokens=128)
    assert diff("--output", nights.output.uri) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.strip() for line in said[-3:-1]] == ["before: invalid", 'now:    {"price": 5}']
    assert said[0].startswith("1 answers changed, 0 are new, 0 are gone")
    assert cli.main(["page", nights.output.uri, "--without-text"]) == 0
    [page] = (tmp_path / "run" / "page").rglob("documents/*/*.html")
    assert re.search(r"<dt>value before</dt><dd[^>]*>invalid</dd>", page.read_text())

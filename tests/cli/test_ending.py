"""What a person sees at the end of a command, and that a program gets nothing but JSON."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.cli.main import main
from memagent_batch.cli.screen import ending
from memagent_batch.cli.status import status_lines
from memagent_batch.data.store.location import Location
from memagent_batch.errors import TooManyFailedError
from memagent_batch.run.history import PastRun, require_manifest
from tests.flows.scans import make_scan
from tests.jobs import put_texts, small_arguments
from tests.runs.written_runs import Answers, rewrite_answers, write_answers


@pytest.fixture
def output(tmp_path: Path) -> Location:
    return Location(uri=f"{tmp_path}/run/")


def ending_of(run: PastRun, *, num_columns: int = 110) -> str:
    return ending(run.output, run.manifest, num_columns=num_columns)


def test_ending_shows_three_answers_where_tables_are_and_what_to_do_next(output: Location) -> None:
    questions, place = {"q": "Who signed?"}, output.uri.rstrip("/")
    answers: dict[str, Answers] = {
        "a": {"q": "Ann\x1b[2J\nSmith"},
        "b": {"q": None},
        "c": {"q": "Bob"},
        "d": {"q": "never shown"},
    }
    run = write_answers(output, answers, run_id="1", questions=questions)
    said = ending_of(run)
    assert said.startswith("4 readings: 3 ok, 1 failed; ")
    assert said.count("Who signed?") == 1
    assert max(map(len, ending_of(run, num_columns=30).split("\n")[2:6])) == 30
    assert "Ann [2J Smith" in said
    assert "failed: the engine refused it" in said
    assert "never shown" not in said
    assert f"\n  3 of 4; all: memagent page {place}\n" in said
    assert f"{place}/answers/   4 rows" in said
    assert f"memagent status {place}\n" in f"{said}\n"
    assert "memagent diff" not in said
    assert f'memagent_batch.table("{place}", "answers")' in said
    later = write_answers(output, answers | {"d": {"q": "read now"}}, run_id="2", questions=questions)
    assert f"memagent diff {place} " in ending_of(later)


def test_ending_shows_what_this_run_has_read_first_and_answers_of_different_documents(output: Location) -> None:
    questions = {"q": "Who signed?", "r": "Who paid?"}
    answers: dict[str, Answers] = {name: dict.fromkeys(questions, name) for name in ("a", "b")}
    said = ending_of(write_answers(output, answers, run_id="1", questions=questions))
    assert [said.count(f"    {name}  ") for name in ("a", "b")] == [2, 1]
    assert "\n  3 of 4; all: " in said
    of_this = rewrite_answers(output, "2", lambda rows: [*rows[:3], {**rows[3], "read_run_id": "2"}])
    assert ending_of(of_this).index("    b  ") < ending_of(of_this).index("    a  ")
    response = {"answer": None, "response": "\\boxed{it never closes {"}
    one = ending_of(write_answers(output, {"a": {"q": "x"}}, run_id="3", questions=questions, columns=response))
    assert "; all: " not in one
    assert "no answer; the response: \\boxed{it never closes {" in one
    assert "--extraction raw" in one


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Stdout is a terminal; what it showed is added to the list at the end."""
    shown: list[str] = []
    reader, writer = os.openpty()
    with os.fdopen(writer, "w") as screen, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", screen)
        yield shown
        screen.flush()
        shown.append(os.read(reader, 100_000).decode().replace("\r\n", "\n"))
    os.close(reader)


def test_commands_on_a_terminal_speak_to_a_person_and_elsewhere_print_json_and_exit_codes_are_the_same(
    text_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put_texts(tmp_path / "in", {"a.txt": "some text"})
    (tmp_path / "in" / "b.txt").write_bytes(b"\xff")
    arguments = small_arguments(tmp_path, text_model, ask="Who?", max_failed_share=0.4)
    texts = ["--documents", f"{tmp_path}/in", "--output", f"{tmp_path}/texts"]
    answered, run = ["2 readings: 1 ok, 1 failed", "/run/answers/   2 rows"], f"{tmp_path}/run"
    ingested = ["2 sources, ", "2 documents in ", "1 needs review", "next: memagent answer --config reader"]
    to_do = ["2 documents, 1 question: 2 readings", "next: `memagent answer`"]
    commands: list[tuple[list[str], int, str, Any, list[str]]] = [
        (["ingest", *texts], 0, "documents", 2, ingested),
        (["plan", *arguments], 0, "readings_to_do", 1, to_do),
        (["answer", *arguments], TooManyFailedError.exit_code, "ok", 1, answered),
        (["plan", *arguments], 0, "readings_to_do", 0, ["next: nothing is left to read"]),
        (["status", run], 0, "state", "finished", ["1 answered, 1 failed", f"memagent page {run}"]),
        (["page", run], 0, "readings", 2, ["2 answers of 2 documents", f"next: open {run}/pages/index.html"]),
    ]
    for words, code, name, value, expected in commands:
        assert main(words) == code
        assert json.loads(capsys.readouterr().out)[name] == value
        with terminal(monkeypatch) as shown:
            assert main(words) == code
        assert not [text for text in expected if text not in shown[0]], shown[0]
        if words[0] not in {"answer", "page"}:
            with terminal(monkeypatch) as shown:
                main([*words, "--json"])
            assert json.loads(shown[0])[name] == value


def test_ending_shows_the_sentence_of_an_answer_with_its_place(text_model: str, tmp_path: Path) -> None:
    stream = make_scan(tmp_path, text_model)
    output = Location(uri=str(stream.output))
    manifest = require_manifest(output)
    shown = ending(output, manifest, num_columns=100)
    assert '\n      "A cat."   [characters 0 to 6]\n' in shown  # of the document that is one sentence
    assert f"memagent show {stream.output} d " in shown  # read by this run
    assert "--follow-ups.evidence" not in shown


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"state": "running or killed", "last_sign_of_life_seconds_ago": 9},
            ["running or killed; last sign of life 9 s ago", "it goes on from the log"],
        ),
        (
            {"state": "stopped", "stopped_at": "2026-11-26T18:00:59+00:00", "stopped_because": "the disk is full"},
            ["stopped at 2026-11-26 18:00 UTC: the disk is full", "remove the cause"],
        ),
        ({"state": "incomplete", "finished_at": "2026-11-26T18:00:59+00:00"}, ["it reads what could not be read"]),
        (
            {"state": "finished", "counts": {"ok": 1, "failed": 2, "not_read": 0}},
            ["1 answered, 2 failed", "memagent page 'my out'", "--retry-failed"],
        ),
    ],
)
def test_status_says_what_to_do_in_each_state(changes: dict[str, Any], expected: list[str]) -> None:
    state: Any = {"run_id": "r", "readings_asked": 3, "finished_at": None, "progress": None, "counts": None} | changes
    shown = "\n".join(status_lines(state, output="'my out'"))
    assert not [text for text in expected if text not in shown], shown

import io
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from memagent_batch.logs import CLEAR_LINE, STDERR, EventKind, as_json, begin_log, rewritten_stderr, step
from memagent_batch.ray_data.board import KEPT_EVENTS, Event, ProgressBoard, Report

log = logging.getLogger("memagent_batch.tests")

FAILED = "reading failed: document 'd'"
FIELDS = {"run_id": "r", "document_id": "d", "question_id": "q", "sample": 0}
ROOT = Path(__file__).parents[1]


def warn_of_failed() -> None:
    log.warning(FAILED, extra={"event": EventKind.READING_FAILED, **FIELDS})


def test_json_line_is_an_object_with_ids(capsys: pytest.CaptureFixture[str]) -> None:
    begin_log(as_json=True)
    log.info("run r:\n2 readings asked", extra={"event": EventKind.RUN_STARTED, "run_id": "r", "asked": 2})
    warn_of_failed()
    started, failed = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert list(started) == ["time", "level", "event", "run_id", "asked", "message"]
    assert (started["level"], started["event"], started["asked"]) == ("info", "run_started", 2)
    assert started["message"] == "run r:\n2 readings asked"
    assert (failed["level"], failed["document_id"], failed["question_id"]) == ("warning", "d", "q")


def test_text_line_is_the_message(capsys: pytest.CaptureFixture[str]) -> None:
    begin_log(as_json=False)
    warn_of_failed()
    assert capsys.readouterr().err == f"{FAILED}\n"


def test_line_of_a_library_names_its_logger_and_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        begin_log(as_json=True)
    logging.getLogger("some.library").warning("an option %s is old", "x")
    logging.getLogger("some.library").info("not worth a line")
    (line,) = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert (line["event"], line["logger"], line["message"]) == ("other", "some.library", "an option x is old")


FORGED = "the endpoint answered 400: bad\x1b[2J\x1b[1;1H\r\nrun 1 closed: 9 ok\x85run 2 closed\u2028run 3 closed\u202e"


def test_text_line_with_foreign_words_neither_steers_a_terminal_nor_looks_like_another_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    begin_log(as_json=False)
    log.warning(f"reading failed: {FORGED}", extra={"event": EventKind.READING_FAILED})
    (line,) = capsys.readouterr().err.splitlines()
    assert line.isprintable()
    assert r"bad\x1b[2J" in line


def test_end_of_several_lines_only_the_first_begins_at_the_margin(capsys: pytest.CaptureFixture[str]) -> None:
    begin_log(as_json=False)
    log.error(f"error: one: bad\n  two: bad\n{FORGED}", extra={"event": EventKind.RUN_STOPPED})
    first, *others = capsys.readouterr().err.splitlines()
    assert (first, others[0]) == ("error: one: bad", "  two: bad")
    assert all(line.startswith("  ") and line.isprintable() for line in others)


def test_json_line_holds_the_message_whole_in_characters_that_steer_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    begin_log(as_json=True)
    log.warning(FORGED, extra={"event": EventKind.READING_FAILED, "document_id": FORGED})
    (line,) = capsys.readouterr().err.splitlines()
    assert line.isprintable()
    assert json.loads(line)["message"] == json.loads(line)["document_id"] == FORGED


def test_line_hides_the_secrets_of_a_url_in_message_fields_and_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    url = "http://svc:hunter2@host/v1?sig=hunter2"
    for is_json in (False, True):
        begin_log(as_json=is_json)
        try:
            raise ValueError(url)
        except ValueError:
            fields = {"event": EventKind.RUN_STOPPED, "places": [url], "error": {"at": url}}
            log.exception(f"no answer of {url}", extra=fields)
    text = capsys.readouterr().err
    assert text.count("ValueError: http://host/v1") == 2
    assert "hunter2" not in text


async def test_board_keeps_events_until_they_are_taken() -> None:
    board, failed = ProgressBoard(), Event(kind=EventKind.READING_FAILED, message=FAILED, fields=FIELDS)
    await board.put(Report(counts={"turns": 2}, events=[failed]))
    await board.put(Report(counts={"turns": 3}))
    assert await board.take() == Report(counts={"turns": 5}, events=[failed])
    assert await board.take() == Report(counts={}, events=[])


async def test_board_full_of_events_says_how_many_it_left_out() -> None:
    board, failed = ProgressBoard(), Event(kind=EventKind.READING_FAILED, message=FAILED)
    await board.put(Report(counts={}, events=[failed] * KEPT_EVENTS))
    await board.put(Report(counts={}, events=[failed] * 3))
    events = (await board.take()).events
    assert len(events) == KEPT_EVENTS + 1
    assert events[-1].fields == {"left_out": 3}
    assert (await board.take()).events == []


class Terminal(io.StringIO):
    """A stderr that a person looks at."""

    def isatty(self) -> bool:
        return True


def test_step_on_a_terminal_is_a_line_that_is_gone_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    begin_log(as_json=False)
    with step("starting Ray"):
        assert terminal.getvalue() == "starting Ray ..."
    assert terminal.getvalue() == f"starting Ray ...{CLEAR_LINE}"
    with step("indexing"):
        warn_of_failed()
    warn_of_failed()
    shown = terminal.getvalue().split(CLEAR_LINE)
    assert shown[1:] == ["indexing ...", f"{FAILED}\n{FAILED}\n"]


def test_step_elsewhere_is_a_line_or_an_object_as_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begin_log(as_json=False)
    with step("starting Ray"):
        pass
    assert capsys.readouterr().err == "starting Ray\n"
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    begin_log(as_json=True)
    with step("starting Ray"):
        pass
    line = json.loads(terminal.getvalue())
    assert (line["event"], line["message"]) == ("step", "starting Ray")


def test_rewritten_stderr_takes_lines_of_this_process_and_of_its_children(capfd: pytest.CaptureFixture[str]) -> None:
    with rewritten_stderr(lambda line: b"" if b"notice" in line else line):
        os.write(STDERR, b"[I] a notice\nother words\n")
        subprocess.run([sys.executable, "-c", "import os; os.write(2, b'a child')"], check=True)
    os.write(STDERR, b", and afterwards\n")
    assert capfd.readouterr().err == "other words\na child, and afterwards\n"


def test_json_log_holds_what_is_written_past_logging(capfd: pytest.CaptureFixture[str]) -> None:
    with rewritten_stderr(as_json):
        os.write(STDERR, b"\ncore: \xff\x1b[2J http://svc:hunter2@host/v1\n17\n")
        subprocess.run([sys.executable, "-c", "import sys; sys.exit('a child failed')"], check=False)
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert {(line["event"], line["logger"], line["level"]) for line in lines} == {("other", "stderr", "warning")}
    assert [line["message"] for line in lines] == ["core: \ufffd\x1b[2J http://host/v1", "17", "a child failed"]


@pytest.fixture(scope="module")
def job(text_model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a job over two documents, whose log lines are JSON."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "texts").mkdir()
    (folder / "texts" / "a.txt").write_text("Ann signed.")
    (folder / "texts" / "b.txt").write_bytes(b"\xff")
    knobs: dict[str, Any] = {
        "documents": "texts",
        "output": "run",
        "ask": ["Who?"],
        "engine": "simulated",
        "model": text_model,
        "window_tokens": 1000,
        "policy": {"chunk_tokens": 50, "question_tokens": 60, "memory_tokens": 40, "answer_tokens": 40},
        "log_format": "json",
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(knobs))
    (folder / "wrong.yaml").write_text(yaml.safe_dump({**knobs, "documnets": "texts"}))
    return folder


def lines_of(folder: Path, *arguments: str, code: int) -> list[dict[str, Any]]:
    """The lines of stderr of a command, each of them parsed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "always"}
    command = [sys.executable, "-m", "memagent_batch", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)
    assert done.returncode == code, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert all({"time", "level", "event", "message"} <= line.keys() for line in lines)
    return lines


@pytest.mark.ray
def test_run_with_json_log_writes_nothing_else_to_stderr(job: Path) -> None:
    lines = lines_of(job, "answer", "--config", "job.yaml", code=0)
    kinds = [line["event"] for line in lines]
    assert {"step", "documents_found", "run_started", "progress", "run_closed"} <= set(kinds)
    lines = lines_of(job, "answer", "--config", "job.yaml", "--max-failed-share", "0.1", code=4)
    assert (lines[-1]["event"], lines[-1]["exit_code"]) == ("run_stopped", 4)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["answer", "--config", "wrong.yaml"], "did you mean documents?"),
        (["answer", "--config", "missing.yaml", "--log-format=json"], "missing.yaml is not there"),
        (["answer", "--log-format", "json", "--ask"], "ask"),
        (["anser", "--log-format", "json"], "did you mean answer?"),
    ],
)
def test_mistake_with_json_log_is_one_object(job: Path, arguments: list[str], said: str) -> None:
    (line,) = lines_of(job, *arguments, code=2)
    assert (line["event"], line["level"], line["exit_code"]) == ("run_stopped", "error", 2)
    assert said in line["message"]


UNEXPECTED = """
import sys, warnings
from jobs.cli import run_command
def command():
    warnings.warn("an old option")
    print("a word past logging", file=sys.stderr)
    raise ZeroDivisionError("a defect")
sys.exit(run_command(command))
"""


def run_code(code: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)


def test_unexpected_error_is_one_line_with_its_traceback() -> None:
    done = run_code(UNEXPECTED, MEMAGENT_LOG_FORMAT="json")
    *others, last = [json.loads(line) for line in done.stderr.splitlines()]
    assert {line["event"] for line in others} == {"other"}
    assert (done.returncode, last["event"], last["error_type"]) == (1, "run_stopped", "ZeroDivisionError")
    assert last["message"] == "failed: ZeroDivisionError: a defect"
    assert "in command" in last["exc_info"]
    done = run_code(UNEXPECTED)
    assert "failed: ZeroDivisionError: a defect\n  Traceback (most recent call last):\n" in done.stderr

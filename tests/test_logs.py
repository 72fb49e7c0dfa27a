import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.logs import (
    LINE_BYTES,
    STDERR_NUMBER,
    EventKind,
    as_json,
    begin_log,
    log_step,
    rewritten_stderr,
)
from memagent_batch.run.executors.reports import KEPT_EVENTS, ActorReport, Board, Event
from tests.job_process import run_job
from tests.jobs import small_arguments

log = logging.getLogger("memagent_batch.tests")

ROOT = Path(__file__).parents[1]
OWN = 'logging.getLogger("memagent_batch")'


def test_json_line_is_an_object_with_fields_then_the_message(capsys: pytest.CaptureFixture[str]) -> None:
    begin_log(as_json=True)
    fields = {"run_id": "r", "rates": [float("nan"), 2.5]}
    log.info(f"run r:\n{FORGED}", extra={"event": EventKind.RUN_STARTED, **fields, "document_id": FORGED})
    log_step("starting Ray")
    text = capsys.readouterr().err
    assert all(line.isprintable() for line in text.splitlines())
    started, step = [json.loads(line, parse_constant=pytest.fail) for line in text.splitlines()]
    assert list(started) == ["time", "level", "event", "run_id", "rates", "document_id", "message"]
    assert (started["level"], started["event"], started["rates"]) == ("info", "run_started", [None, 2.5])
    assert (started["message"], started["document_id"]) == (f"run r:\n{FORGED}", FORGED)
    assert (step["event"], step["message"]) == ("step", "starting Ray")


@pytest.mark.parametrize(
    ("set_up", "is_shown"),
    [("", True), ("logging.basicConfig(level=logging.WARNING)", False), (f"{OWN}.setLevel(logging.ERROR)", False)],
)
def test_program_sees_what_the_library_does_unless_it_has_set_up_logging(set_up: str, is_shown: bool) -> None:
    script = f"""
import logging
from memagent_batch.logs import log_of_program
{set_up}
for _ in range(2):
    with log_of_program():
        {OWN}.info("read")
{OWN}.info("later")
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stderr
    assert said == "read\nread\n" * is_shown


def test_line_of_a_library_names_its_logger_and_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        begin_log(as_json=True)
    logging.getLogger("some.library").warning("an option %s is old", "x")
    logging.getLogger("some.library").info("not worth a line")
    logging.getLogger("some.library.loud").setLevel(logging.DEBUG)
    logging.getLogger("some.library.loud").debug("not worth a line though its library says so")
    (line,) = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert (line["event"], line["logger"], line["message"]) == ("other", "some.library", "an option x is old")


FORGED = "the endpoint answered 400: bad\x1b[2J\x1b[1;1H\r\nrun 1 closed: 9 ok\x85run 2 closed\u2028run 3 closed\u202e"


def test_foreign_words_neither_steer_a_terminal_nor_look_like_another_line(capsys: pytest.CaptureFixture[str]) -> None:
    begin_log(as_json=False)
    log.warning(f"reading failed: {FORGED}", extra={"event": EventKind.READING_FAILED})
    log.error(f"error: one: bad\n  two: bad\n{FORGED}", extra={"event": EventKind.RUN_STOPPED})
    warning, first, *others = capsys.readouterr().err.splitlines()
    assert warning.isprintable()
    assert r"bad\x1b[2J" in warning
    assert (first, others[0]) == ("error: one: bad", "  two: bad")
    assert all(line.startswith("  ") and line.isprintable() for line in others)


CYCLE: dict[str, Any] = {}
CYCLE["itself"] = CYCLE


class Unshowable:
    """Of a library that fails to show it."""

    def __str__(self) -> str:
        raise ZeroDivisionError


@pytest.mark.parametrize("is_json", [False, True])
@pytest.mark.parametrize(
    ("words", "arguments", "fields"),
    [
        ("connected", (), {"event": "connected", "time": 1, "level": "fine", "logger": "l"}),
        ("connected", (), {"event": ["connected"]}),
        ("connected %d", ("x",), {}),
        ("connected %s", (Unshowable(),), {}),
        ("connected", (), {"peers": {("a", 1): 2}}),
        ("connected", (), {"peers": CYCLE}),
        ("connected", (), {"peer": Unshowable()}),
    ],
)
def test_no_line_of_a_library_raises_where_it_is_logged(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    arguments: tuple[object, ...],
    fields: dict[str, Any],
    is_json: bool,
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's own one raises
    begin_log(as_json=is_json)
    logging.getLogger("some.library").warning(words, *arguments, extra=fields)
    (line,) = capsys.readouterr().err.splitlines()
    if is_json:
        written = json.loads(line)
        assert (written["event"], written["level"], written["logger"]) == ("other", "warning", "some.library")
        assert set(written) == {"time", "level", "event", "logger", "message"}
        line = written["message"]
    assert line.startswith("connected")


SECRET_URL = "http://svc:hunter2@host/v1"


class Address:
    """A URL as a library's own type."""

    def __str__(self) -> str:
        return SECRET_URL


def test_line_hides_secrets_in_message_traceback_and_fields_of_any_type(capsys: pytest.CaptureFixture[str]) -> None:
    url = f"{SECRET_URL}?sig=hunter2"
    fields = {"places": {SECRET_URL}, "at": Address(), "by": {SECRET_URL: 1}, "error": {"at": url}}
    for is_json in (False, True):
        begin_log(as_json=is_json)
        try:
            raise ValueError(url)
        except ValueError:
            log.exception(f"no answer of {url}", extra={"event": EventKind.RUN_STOPPED, **fields})
    text = capsys.readouterr().err
    assert text.count("ValueError: http://host/v1") == 2
    assert "hunter2" not in text
    line = json.loads(text.splitlines()[-1])
    assert (line["at"], line["by"], line["places"]) == ("http://host/v1", {"http://host/v1": 1}, ["http://host/v1"])


FOREIGN = json.dumps({"message": "no answer", "level": "info", "event": "other_event"})


@pytest.mark.parametrize("text", [FOREIGN, "[" * 3000, '{"a":' * 3000, "1" * 5000, '{"n": ' + "1" * 5000 + "}"])
def test_json_log_holds_a_line_that_this_program_has_not_written_as_a_text(text: str) -> None:
    shown = as_json(text.encode())
    line = json.loads(shown)
    assert (line["event"], line["level"], line["logger"], line["message"]) == ("other", "warning", "stderr", text)
    assert as_json(shown) == shown


async def test_board_full_of_events_says_how_many_it_left_out() -> None:
    board, event = Board(), Event(kind=EventKind.READING_FAILED, message="reading failed")
    await board.put(ActorReport(counts={}, events=[event] * (KEPT_EVENTS + 3)))
    assert board.take().events[-1].fields == {"left_out": 3}


def test_json_log_holds_what_is_written_past_logging(capfd: pytest.CaptureFixture[str]) -> None:
    with rewritten_stderr(as_json):
        os.write(STDERR_NUMBER, b"\ncore: \xff\x1b[2J http://svc:hunter2@host/v1\n17\n")
        subprocess.run([sys.executable, "-c", "import sys; sys.exit('a child failed')"], check=False)
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert {(line["event"], line["logger"], line["level"]) for line in lines} == {("other", "stderr", "warning")}
    assert [line["message"] for line in lines] == ["core: \ufffd\x1b[2J http://host/v1", "17", "a child failed"]


def test_json_log_shows_each_state_of_a_progress_bar_and_cuts_a_line_without_end(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with rewritten_stderr(as_json):
        os.write(STDERR_NUMBER, b"\r1%\r2%")
        begun = time.monotonic()
        while not (shown := capfd.readouterr().err) and time.monotonic() - begun < 10:
            time.sleep(0.01)
        assert json.loads(shown)["message"] == "1%"
        os.write(STDERR_NUMBER, b"\r" + b"x" * 3 * LINE_BYTES)
    lengths = [len(json.loads(line)["message"]) for line in capfd.readouterr().err.splitlines()]
    assert sum(lengths) == len("2%") + 3 * LINE_BYTES
    assert max(lengths) <= 2 * LINE_BYTES


def test_child_that_keeps_stderr_open_holds_nothing_up(capfd: pytest.CaptureFixture[str]) -> None:
    begun = time.monotonic()
    with rewritten_stderr(as_json):
        child = subprocess.Popen(["sleep", "60"])
        os.write(STDERR_NUMBER, b"first\n")
    os.write(STDERR_NUMBER, b"second\n")
    assert time.monotonic() - begun < 20
    child.kill()
    child.wait()
    first, second = capfd.readouterr().err.splitlines()
    assert (json.loads(first)["message"], second) == ("first", "second")


@pytest.fixture(scope="module")
def job(text_model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    (folder / "in").mkdir()
    (folder / "in" / "a.txt").write_text("Ann signed.")
    (folder / "in" / "b.txt").write_bytes(b"\xff")
    small_arguments(folder, text_model, ask="Who?", log_format="json", executor="ray")
    (folder / "wrong.yaml").write_text((folder / "job.yaml").read_text() + "documnets: texts\n")
    return folder


def lines_of(folder: Path, *arguments: str, code: int) -> list[dict[str, Any]]:
    """The lines of stderr of a command, each of them parsed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "always"}
    done = run_job([sys.executable, "-m", "memagent_batch", *arguments], cwd=folder, env=environment)
    assert done.returncode == code, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert all({"time", "level", "event", "message"} <= line.keys() for line in lines)
    return lines


@pytest.mark.slow
@pytest.mark.ray
def test_run_with_json_log_writes_nothing_else_to_stderr(job: Path) -> None:
    lines = lines_of(job, "answer", "--config", "job.yaml", "--max-failed-share", "0.1", code=4)
    kinds = [line["event"] for line in lines]
    assert {"step", "documents_found", "run_started", "progress", "run_closed"} <= set(kinds)
    assert (lines[-1]["event"], lines[-1]["exit_code"]) == ("run_stopped", 4)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["answer", "--config", "wrong.yaml"], "did you mean documents?"),
        (["answer", "--config", "missing.yaml", "--log-format=json"], "missing.yaml is not there"),
        (["anser", "--log-format", "json"], "did you mean answer?"),
        (["answer", "--input.carry-column", "kind", "--log-format", "json"], "did you mean --input.carry-columns?"),
    ],
)
def test_mistake_with_json_log_is_one_object(job: Path, arguments: list[str], said: str) -> None:
    (line,) = lines_of(job, *arguments, code=2)
    assert (line["event"], line["level"], line["exit_code"]) == ("run_stopped", "error", 2)
    assert said in line["message"]


COMMAND = """
import atexit, logging, os, sys, warnings
from memagent_batch.cli.main import run_command
def late():
    logging.getLogger("lib").warning("late: http://svc:hunter2@host/v1")
    os.write(2, b"later: http://svc:hunter2@host/v1\\n")
def command():
    atexit.register(late)
    warnings.warn("an old option")
    raise ZeroDivisionError("a defect")
sys.exit(run_command(command))
"""


def run_script(folder: Path, *, stderr: int = subprocess.PIPE, **variables: str) -> "subprocess.CompletedProcess[str]":
    (folder / "memagent.py").write_text(COMMAND)  # the name of a process of this project
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, str(folder / "memagent.py")]
    return subprocess.run(command, stderr=stderr, text=True, env=environment, check=False)


def test_unexpected_error_is_one_line_with_its_traceback_and_lines_after_it_are_json_too(tmp_path: Path) -> None:
    done = run_script(tmp_path, MEMAGENT_LOG_FORMAT="json")
    *old, error, first, second = [json.loads(line) for line in done.stderr.splitlines()]
    assert "an old option" in old[0]["message"]
    assert (done.returncode, error["event"], error["error_type"]) == (1, "run_stopped", "ZeroDivisionError")
    assert error["message"] == "failed: ZeroDivisionError: a defect"
    assert "in command" in error["exc_info"]
    assert [line["message"] for line in (first, second)] == ["late: http://host/v1", "later: http://host/v1"]
    assert "failed: ZeroDivisionError: a defect\n  Traceback (most recent call last):\n" in run_script(tmp_path).stderr


def test_stderr_that_nobody_reads_stops_no_command(tmp_path: Path) -> None:
    """Behind `2>&1 | head`."""
    reader, writer = os.pipe()
    os.close(reader)
    assert run_script(tmp_path, stderr=writer, MEMAGENT_LOG_FORMAT="json").returncode == 1
    os.close(writer)

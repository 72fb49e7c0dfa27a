import io
import json

import pytest

from memagent_batch.events import CLEAR_LINE, Event, EventKind, begin_log, step, tell
from memagent_batch.ray_data.progress import KEPT_EVENTS, ProgressBoard

FAILED = Event(
    kind=EventKind.READING_FAILED,
    message="reading failed: document 'd'",
    fields={"run_id": "r", "document_id": "d", "question_id": "q", "sample": 0},
)


def test_tell_as_json_is_one_object_a_line_with_ids(capsys: pytest.CaptureFixture[str]) -> None:
    begin_log(as_json=True)
    tell(Event(kind=EventKind.RUN_STARTED, message="run r:\n2 readings asked", fields={"run_id": "r", "asked": 2}))
    tell(FAILED)
    started, failed = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert (started["level"], started["event"], started["asked"]) == ("info", "run_started", 2)
    assert started["message"] == "run r:\n2 readings asked"
    assert (failed["level"], failed["document_id"], failed["question_id"]) == ("warning", "d", "q")


def test_tell_as_text_is_the_message(capsys: pytest.CaptureFixture[str]) -> None:
    begin_log(as_json=False)
    tell(FAILED)
    assert capsys.readouterr().err == "reading failed: document 'd'\n"


FORGED = "the endpoint answered 400: bad\x1b[2J\x1b[1;1H\r\nrun 1 closed: 9 ok\x85run 2 closed\u2028run 3 closed\u202e"


def test_tell_as_text_foreign_words_neither_steer_a_terminal_nor_look_like_a_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    begin_log(as_json=False)
    tell(Event(kind=EventKind.READING_FAILED, message=f"reading failed: {FORGED}"))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.isprintable()
    assert r"bad\x1b[2J" in line


def test_tell_an_end_of_several_lines_only_the_first_begins_at_the_margin(capsys: pytest.CaptureFixture[str]) -> None:
    begin_log(as_json=False)
    tell(Event(kind=EventKind.RUN_STOPPED, message=f"error: one: bad\n  two: bad\n{FORGED}"))
    first, *others = capsys.readouterr().err.splitlines()
    assert (first, others[0]) == ("error: one: bad", "  two: bad")
    assert all(line.startswith("  ") and line.isprintable() for line in others)


def test_tell_as_json_holds_the_message_whole_in_characters_that_steer_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    begin_log(as_json=True)
    tell(Event(kind=EventKind.READING_FAILED, message=FORGED, fields={"document_id": FORGED}))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.isprintable()
    assert json.loads(line)["message"] == json.loads(line)["document_id"] == FORGED


def test_tell_hides_what_a_url_holds(capsys: pytest.CaptureFixture[str]) -> None:
    for as_json in (False, True):
        begin_log(as_json=as_json)
        tell(Event(kind=EventKind.ENGINE_DIED, message="no answer of http://svc:hunter2@host/v1?sig=hunter2"))
    assert "hunter2" not in capsys.readouterr().err


async def test_board_keeps_events_until_they_are_taken() -> None:
    board = ProgressBoard()
    await board.tell([FAILED])
    assert await board.take_events() == [FAILED]
    assert await board.take_events() == []


async def test_board_full_of_events_says_how_many_it_left_out() -> None:
    board = ProgressBoard()
    await board.tell([FAILED] * KEPT_EVENTS)
    await board.tell([FAILED] * 3)
    events = await board.take_events()
    assert len(events) == KEPT_EVENTS + 1
    assert events[-1].fields == {"left_out": 3}
    assert await board.take_events() == []


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
        tell(FAILED)
    tell(FAILED)
    said = terminal.getvalue().split(CLEAR_LINE)
    assert said[1:] == ["indexing ...", f"{FAILED.message}\n{FAILED.message}\n"]


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

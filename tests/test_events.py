import json

import pytest

from memagent_batch.events import Event, EventKind, begin_log, tell
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

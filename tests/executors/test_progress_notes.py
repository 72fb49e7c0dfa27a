"""What a run notes of how far it is, and how `memagent status` draws it."""

import asyncio
import time
from pathlib import Path

import pytest

from memagent_batch.data.store.location import Location
from memagent_batch.errors import StorageError
from memagent_batch.run.executors import progress
from memagent_batch.run.executors.reports import ActorReport, Board
from memagent_batch.run.plan import PendingWork
from memagent_batch.run.state import ProgressNote, read_progress, write_progress


def test_notes_tell_share_rate_and_end_and_a_store_that_fails_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(progress, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(progress, "NOTE_SECONDS", 0.05)
    notes: list[ProgressNote] = []
    written: list[ProgressNote] = []

    def keep(note: ProgressNote) -> None:
        notes.append(note)
        if len(notes) == 1:
            raise StorageError("full")
        write_progress(note, output=Location(uri=str(tmp_path)), run_id="r")
        written.append(note)

    board = Board()
    counts = {"turns": 2, "prompt_tokens": 90, "completion_tokens": 10, "readings": 1, "document_bytes": 25}
    asyncio.run(board.put(ActorReport(counts=counts)))
    with progress_of(10).shown(board, pending=PENDING, starting="", keep=keep):
        deadline = time.monotonic() + 60
        while not any(note["turns"] for note in written) and time.monotonic() < deadline:
            time.sleep(0.02)
    note = next(note for note in written if note["turns"])
    assert (note["readings_done"], note["readings_asked"], note["share_read"]) == (7, 10, 0.25)
    assert (note["tokens"], note["tokens_per_second"] > 0) == (100, True)
    assert note["expected_end_at"] is None  # the first report says nothing of the pace
    last = read_progress(Location(uri=str(tmp_path)), run_id="r")
    assert last == written[-1]
    assert (last["turns"], last["last_turn_at"] is not None) == (2, True)


def progress_of(asked: int) -> progress.Progress:
    return progress.Progress(run_id="r", asked=asked, model="m", policy="p")


PENDING = PendingWork(readings=4, num_bytes=100, follow_up_readings=0)


def test_line_says_that_the_model_loads_until_a_turn_has_ended(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progress, "LOG_SECONDS", 0)
    monkeypatch.setattr(progress, "LOOK_SECONDS", 0.01)
    caplog.set_level("INFO")
    board = Board()
    pending = PendingWork(readings=1, num_bytes=9, follow_up_readings=0)
    with progress_of(1).shown(board, pending=pending, starting="loading"):
        while len(caplog.messages) < 2:
            time.sleep(0.01)
        asyncio.run(board.put(ActorReport(counts={"turns": 2, "document_bytes": 9, "readings": 1})))
    assert caplog.messages[1] == "readings 0/1, loading, 0m00s"
    assert caplog.messages[-1].startswith("readings 1/1, 2 turns, ")


@pytest.mark.parametrize(
    ("reports", "share", "has_end"),
    [
        ([(20, 0)], 0.2, False),
        ([(20, 0), (80, 3)], 0.9999, True),
        ([(20, 0), (110, 3)], 0.9999, True),
        ([(20, 0), (80, 4)], 1.0, False),
    ],
)
def test_end_is_expected_from_the_second_report_until_all_readings_have_ended(
    monkeypatch: pytest.MonkeyPatch, reports: list[tuple[int, int]], share: float, has_end: bool
) -> None:
    monkeypatch.setattr(progress, "LOOK_SECONDS", 0.01)
    board, shown = Board(), progress_of(10)
    with shown.shown(board, pending=PENDING, starting=""):
        for num_bytes, readings in reports:
            before, deadline = shown.note()["share_read"], time.monotonic() + 60
            asyncio.run(board.put(ActorReport(counts={"document_bytes": num_bytes, "readings": readings})))
            while shown.note()["share_read"] == before and time.monotonic() < deadline:
                time.sleep(0.02)
    note = shown.note()
    assert (note["share_read"], note["expected_end_at"] is not None) == (share, has_end)


def test_readings_that_a_replaced_actor_counts_twice_are_no_more_than_were_asked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progress, "LOOK_SECONDS", 0.01)
    caplog.set_level("INFO")
    board, run = Board(), progress_of(10)
    with run.shown(board, pending=PENDING, starting=""):
        asyncio.run(board.put(ActorReport(counts={"turns": 9, "readings": 7, "document_bytes": 130})))
    assert (run.note()["readings_done"], run.note()["share_read"]) == (10, 1.0)
    assert caplog.messages[-1].startswith("readings 10/10, 9 turns, ")

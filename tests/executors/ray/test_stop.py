from pathlib import Path

import pytest

from memagent_batch.data.store.location import Location
from memagent_batch.errors import StorageError, TerminatedError
from memagent_batch.run.executors.leaving import ShutdownRequested, noted_stop
from memagent_batch.run.state import NOTES_FOLDER, read_state
from tests.runs.recorded_nights import Killed, Nights


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (KeyboardInterrupt(), "interrupted, as by Ctrl-C"),
        (ShutdownRequested(TerminatedError("SIGTERM: the node is removed")), "SIGTERM: the node is removed"),
        (StorageError("s3://user:hunter2@bucket is gone"), "s3://bucket is gone"),
        (RuntimeError("a text of a document"), "RuntimeError"),
    ],
    ids=["interrupted", "terminated", "failed", "unknown"],
)
def test_noted_stop_status_says_why_until_another_run_begins(tmp_path: Path, error: BaseException, why: str) -> None:
    output = Location(uri=str(tmp_path))
    night = Nights(output)
    with pytest.raises(Killed):
        night.run({"a": "Ann"}, {"q": "Who signed?"}, killed_at="tables")
    (output / NOTES_FOLDER).delete()  # a kill leaves no note
    state = read_state(output)
    assert state["state"] == "running or killed"
    assert state["last_sign_of_life_at"] >= state["started_at"]
    assert 0 <= state["last_sign_of_life_seconds_ago"] < 3600
    with pytest.raises(type(error)), noted_stop(output, run_id=state["run_id"]):
        raise error
    state = read_state(output)
    assert (state["state"], state["stopped_because"]) == ("stopped", why)
    assert state["stopped_at"] is not None
    assert state["stopped_at"] > state["started_at"]
    night.run({"a": "Ann"}, {"q": "Who signed?"})
    assert read_state(output)["state"] == "finished"


def test_noted_stop_run_that_ends_well_leaves_no_note(tmp_path: Path) -> None:
    output = Location(uri=str(tmp_path))
    with noted_stop(output, run_id="20260101T000000.000Z"):
        pass
    assert output.files() == []

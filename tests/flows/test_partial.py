"""What a run has answered so far, written twice at the same time."""

from pathlib import Path
from typing import Any

import pytest

from memagent_batch.flows import partial
from memagent_batch.runs.history import recorded_plan, write_begun_plan
from memagent_batch.runs.manifest import RUN_FILE
from memagent_batch.store.json_files import json_bytes, read_json
from memagent_batch.store.location import Location
from memagent_batch.store.turn_log.index import scan_log
from tests.runs.recorded_nights import Killed, Nights, plan_of

DOCUMENTS = {"a": "one", "b": "two"}
QUESTIONS = {"q": "What?"}


def test_partial_answers_that_are_written_twice_at_once_are_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = _stopped_run(tmp_path)
    partial.write_partial(output)

    def while_another_writes(record: Any) -> bytes:
        """Another one begins and ends after the first has written its tables, and before it shows them."""
        monkeypatch.setattr(partial, "json_bytes", json_bytes)
        partial.write_partial(output)
        return json_bytes(record)

    monkeypatch.setattr(partial, "json_bytes", while_another_writes)
    record = partial.write_partial(output)
    assert record["readings_shown"] == 2
    shown = read_json(output / partial.PARTIAL_FILE)
    assert shown is not None
    assert shown["files"] == record["files"]
    files = (output / f"{partial.PARTIAL_FOLDER}/answers").files()
    assert files == [(output / name).path for name in record["files"]]


def _stopped_run(folder: Path) -> Location:
    nights = Nights(Location(uri=str(folder / "out")))
    with pytest.raises(Killed):
        nights.run(DOCUMENTS, QUESTIONS, killed_at="reading")
    plan = plan_of(DOCUMENTS, QUESTIONS)
    record = read_json(nights.output / RUN_FILE)
    assert record is not None
    index = scan_log(nights.output, fingerprint="f", follow_up_readings=plan.asked.follow_up_readings)
    write_begun_plan(nights.output, recorded_plan(plan, index), run_id=record["run_id"])
    return nights.output

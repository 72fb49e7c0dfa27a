"""What a run has answered so far."""

from pathlib import Path

import pytest

from memagent_batch.flows import partial
from memagent_batch.runs.history import recorded_plan, write_begun_plan
from memagent_batch.runs.manifest import RUN_FILE
from memagent_batch.runs.tables import read_tables
from memagent_batch.store.json_files import read_json
from memagent_batch.store.location import Location
from memagent_batch.store.turn_log.index import scan_log
from tests.runs.recorded_nights import Killed, Nights, plan_of

DOCUMENTS = {"a": "one", "b": "two"}
QUESTIONS = {"q": "What?"}


def test_partial_answers_stand_in_one_file_that_says_so_and_is_replaced(tmp_path: Path) -> None:
    output = _stopped_run(tmp_path)
    for _ in range(2):
        record = partial.write_partial(output)
    assert (record["readings_shown"], record["readings_asked"]) == (2, 2)
    table = read_tables(output, [record["file"]])
    assert table.num_rows == 2
    assert record["run_id"].encode() in table.schema.metadata[partial.INCOMPLETE.encode()]
    assert (output / "partial").files() == [(output / record["file"]).path]


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

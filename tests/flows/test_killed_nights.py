"""Whatever moment a run dies at, its output shows the tables of the last run or its own: whole, and those alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from memagent_batch.data.store.location import Location
from memagent_batch.errors import StorageOutageError
from memagent_batch.loop.addresses import text_hash
from memagent_batch.run.flows.answer import answer
from memagent_batch.run.flows.verify import verify
from memagent_batch.run.tables import table_files
from tests.faults.loopback.small_disk import small_disk
from tests.flows.killed_nights import MONDAY, QUESTIONS, TUESDAY, night, real_job
from tests.runs.recorded_nights import Killed, Nights
from tests.tables import table_rows

SCRIPT = Path(__file__).with_name("killed_nights.py")
ROOT = Path(__file__).parents[2]


def killed_nights(output: Location, *, stride: int, **others: str) -> int:
    """Strikes; returns the number of outputs whose Tuesday was killed."""
    settings = json.dumps({"output": output.uri, "storage_options": dict(output.storage_options), **others})
    command, environment = [sys.executable, str(SCRIPT), settings, str(stride)], {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False, env=environment)
    assert ended.stdout.strip().isdigit(), ended.stdout + ended.stderr
    return int(ended.stdout)


def shown_night(output: Location) -> str:
    """Which night the manifest's files are of; they are there and hold each row once."""
    answers = {}
    for uri in table_files(output.uri, "answers", storage_options=output.storage_options):
        with Location(uri=uri, storage_options=output.storage_options).open() as stream:
            for row in pq.read_table(stream).to_pylist():
                assert row["document_id"] not in answers
                answers[row["document_id"]] = row["answer"]
    for table in ("memories", "removed"):
        for uri in table_files(output.uri, table, storage_options=output.storage_options):
            assert Location(uri=uri, storage_options=output.storage_options).exists()
    counts = json.loads((output / "manifest.json").read_bytes())["counts"]
    assert counts["answers_rows"] == len(answers)
    (shown,) = (name for name, texts in (("monday", MONDAY), ("tuesday", TUESDAY)) if answers == texts)
    return shown


def require_whole(output: Location, *, moments: int) -> None:
    """Each output shows one night, and the same command shows Tuesday and leaves no other file."""
    nights = [shown_night(output / str(number)) for number in range(moments + 1)]  # nothing kills the last one
    assert nights == sorted(nights)  # Monday's until the switch, Tuesday's from then on
    assert set(nights) == {"monday", "tuesday"}
    for number in (0, moments - 1):
        place = output / str(number)
        night(place, TUESDAY)
        assert shown_night(place) == "tuesday"
        tables = ("answers", "memories")
        named = [uri for name in tables for uri in table_files(place.uri, name, storage_options=place.storage_options)]
        replaced = json.loads((place / "manifest.json").read_bytes())["replaced"]  # of the night before, which stay
        named += [f"{place.uri}/{file}" for run in replaced for file in run["files"]]
        folders = [path for name in tables for path in (place / name).files(temporary=True)]
        assert sorted(place.at(path).path for path in folders) == sorted(Location(uri=uri).path for uri in named)


@pytest.mark.parametrize("stride", [50, pytest.param(1, marks=pytest.mark.slow)])
def test_night_killed_at_any_change_of_a_disk_leaves_one_night_whole(tmp_path: Path, stride: int) -> None:
    output = Location(uri=str(tmp_path))
    require_whole(output, moments=killed_nights(output, stride=stride))


@pytest.mark.slow
def test_job_killed_at_any_change_of_a_disk_goes_on_with_the_index_and_the_parts_of_a_finished_night(
    tmp_path: Path, text_model: str
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    output = Location(uri=str(tmp_path / "nights"))
    moments = killed_nights(output, stride=6, documents=str(folder), model=text_model)
    for number in range(moments):
        place = output / str(number)
        assert hashes(place) in (hashes_of(MONDAY), hashes_of(TUESDAY))
        changes = answer(real_job(place, TUESDAY, folder=folder, model=text_model))["changes"]["readings"]
        assert hashes(place) == hashes_of(TUESDAY)
        assert changes["read"] <= 2, "a and b were not read again"
        assert not verify(place).problems


def hashes(output: Location) -> dict[str, str]:
    """Hashes of the documents that the tables show, each with one row."""
    rows = table_rows(output.uri, "answers")
    found = {row["document_id"]: row["document_hash"] for row in rows}
    assert len(found) == len(rows)
    return found


def hashes_of(documents: dict[str, str | None]) -> dict[str, str]:
    return {f"{name}.txt": text_hash(text) for name, text in documents.items() if text is not None}


@pytest.mark.s3
@pytest.mark.slow
def test_night_killed_at_many_changes_of_a_bucket_leaves_one_night_whole(s3_bucket: Location) -> None:
    output = s3_bucket / "nights"
    require_whole(output, moments=killed_nights(output, stride=3))


@pytest.mark.system
def test_night_on_a_full_disk_leaves_the_last_one_and_goes_on_with_room(tmp_path: Path) -> None:
    text = os.urandom(60_000).hex()
    with small_disk(tmp_path / "disk", size="1m") as disk:
        output = Location(uri=str(disk / "run"))
        Nights(output).run(MONDAY, QUESTIONS)
        with pytest.raises(Killed):  # the text is read, and in the log
            Nights(output).run({"a": text}, QUESTIONS, killed_at="reading")
        filler = disk / "filler"
        free = os.statvfs(disk)
        filler.write_bytes(bytes(free.f_bavail * free.f_frsize - 40_000))
        with pytest.raises(StorageOutageError, match="No space left"):
            Nights(output).run({"a": text}, QUESTIONS)
        assert shown_night(output) == "monday"
        filler.unlink()
        Nights(output).run({"a": text}, QUESTIONS)
        assert Nights(output).answers() == {("a", "q"): text}

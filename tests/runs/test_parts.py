"""Parts of the tables that a run takes over from the run before."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from memagent_batch.domain.readings import Status
from memagent_batch.errors import OutputError
from memagent_batch.runs import parts
from memagent_batch.runs.comparison import compare_runs
from memagent_batch.runs.history import find_run, finished_runs
from memagent_batch.runs.state import read_state
from memagent_batch.runs.tables import table_files
from memagent_batch.store.location import Location
from tests.runs.recorded_nights import FAILS, Nights
from tests.store.turn_log.logs import outcome_row

QUESTIONS = {"q": "Who?"}
DOCUMENTS: dict[str, str | None] = {"a": "fox", "b": "dog", "c": FAILS, "d": None}


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nights:
    """A scan whose parts hold one reading each."""
    monkeypatch.setattr(parts, "PART_READINGS", 1)
    return Nights(Location(uri=str(tmp_path / "run")))


def files_of(nights: Nights) -> dict[str, int]:
    """Table files by name, with the number that the disk gave them."""
    return {
        path: Path(path).stat().st_ino
        for name in ("answers", "memories")
        for path in table_files(nights.output.uri, name)
    }


def test_night_without_any_change_writes_no_table_file(nights: Nights) -> None:
    first = nights.run(DOCUMENTS, QUESTIONS)
    files = files_of(nights)
    second = nights.run(DOCUMENTS, QUESTIONS)
    assert files_of(nights) == files
    assert second["run_id"] > first["run_id"]
    new = {"run_id", "started_at", "finished_at", "seconds", "changes", "files", "record", "replaced"}
    assert {name: value for name, value in second.items() if name not in new} == {
        name: value for name, value in first.items() if name not in new
    }
    assert second["replaced"] == [{"run_id": first["run_id"], "files": []}]
    assert second["changes"]["since"] == first["run_id"]
    assert second["changes"]["readings"] == {"read": 0, "kept": 3, "unreadable": 1, "not_read": 0}
    assert finished_runs(nights.output) == [first["run_id"], second["run_id"]]
    assert read_state(nights.output)["state"] == "finished"
    before, after = (find_run(nights.output, name) for name in ("previous", "latest"))
    assert list(compare_runs(before, after)) == []


@pytest.mark.parametrize(
    ("documents", "change", "kept"),
    [
        ({**DOCUMENTS, "b": "lynx"}, {}, 3),
        ({name: text for name, text in DOCUMENTS.items() if name != "a"}, {}, 3),
        (DOCUMENTS, {"retried": True}, 3),
        (DOCUMENTS, {"questions": {"other": "Who?"}}, 0),
        (DOCUMENTS, {"extraction": "raw"}, 0),
        (DOCUMENTS, {"table_format": "arrow"}, 0),
        (DOCUMENTS, {"reader": "another"}, 0),
    ],
)
def test_night_with_a_change_keeps_the_parts_that_it_does_not_touch(
    nights: Nights, documents: dict[str, str | None], change: dict[str, Any], kept: int
) -> None:
    nights.run(DOCUMENTS, QUESTIONS)
    before = set(table_files(nights.output.uri, "answers"))
    questions = change.get("questions", QUESTIONS)
    nights.run(documents, questions, **{name: value for name, value in change.items() if name != "questions"})
    fresh = Nights(Location(uri=f"{nights.output.uri}-fresh"))
    fresh.run(documents, questions, **{name: value for name, value in change.items() if name != "questions"})
    assert len(before & set(table_files(nights.output.uri, "answers"))) == kept
    assert nights.answers() == fresh.answers()


@pytest.mark.parametrize("table_format", ["parquet", "arrow"])
@pytest.mark.parametrize("left", [None, 0, 100])
def test_night_writes_a_file_again_that_was_lost_or_cut(nights: Nights, table_format: str, left: int | None) -> None:
    nights.run(DOCUMENTS, QUESTIONS, table_format=table_format)
    answers = nights.answers()
    file = Path(table_files(nights.output.uri, "answers")[0])
    if left is None:
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:left])
    manifest = nights.run(DOCUMENTS, QUESTIONS, table_format=table_format)
    assert manifest["counts"]["answers_rows"] == 4
    assert nights.answers() == answers


def test_documents_that_are_asked_nothing_lie_in_several_parts(nights: Nights) -> None:
    texts = {name: f"text of {name}" for name in "abcdefgh"}
    manifest = nights.run(texts, {}, bound={("c", "q"): "Who?"})
    assert manifest["counts"]["answers_rows"] == 1
    assert len(manifest["parts"]) == len(texts)


def test_table_files_without_a_finished_run_says_so(nights: Nights) -> None:
    with pytest.raises(OutputError, match=r"no run has finished at .* \(no manifest\.json\)"):
        table_files(nights.output.uri, "answers")
    nights.run(DOCUMENTS, QUESTIONS)
    with pytest.raises(OutputError, match="no table 'answer'; it has answers, memories, removed"):
        table_files(nights.output.uri, "answer")


def test_readings_that_are_not_read_take_little_of_the_drivers_memory() -> None:
    """As on the night on which the endpoint stays away: each ends by itself, in a table of its own."""

    def ended(number: int) -> pa.Table:
        row = {**outcome_row(Status.NOT_READ), "run_id": "r", "document_hash": str(number)}
        row |= {"question_hash": "q", "sample": 0, "fingerprint": "f"}
        return pa.Table.from_pylist([{"document_id": "", "status": "not_read", "not_read": row}], schema=parts.ENDED)

    before = pa.total_allocated_bytes()
    not_read = parts.collect_not_read(map(ended, range(2500)))
    assert pa.total_allocated_bytes() - before < 10 * 2500
    assert not_read["document_hash"].to_pylist() == [str(number) for number in range(2500)]

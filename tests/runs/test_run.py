"""The end of a run: its counts close, or it says which readings are missing."""

import json
from pathlib import Path

import pytest

from memagent_batch.cli.settings import job_of
from memagent_batch.errors import CountsError, SupersededError
from memagent_batch.executors.write import write_tables
from memagent_batch.runs import run as close
from memagent_batch.runs.history import PastRun, recorded_plan, write_plan
from memagent_batch.runs.manifest import Manifest, PartReport
from memagent_batch.runs.parts import attach_not_read, collect_not_read, plan_parts
from memagent_batch.runs.plan import Plan
from memagent_batch.runs.run import ActiveRun, begin_run, close_run
from memagent_batch.runs.state import read_state
from memagent_batch.store.location import Location
from memagent_batch.store.turn_log.index import scan_log
from memagent_batch.wiring import ReaderIdentity
from tests.runs.recorded_nights import AWAY, FAILS, Nights
from tests.runs.recorded_nights import plan_of as recorded_plan_of

IDENTITY = ReaderIdentity(fingerprint="f", parts={"model": "m"})


def plan_of(*, readable: int, broken: int) -> Plan:
    texts = {f"d{number}": str(number) for number in range(readable)}
    return recorded_plan_of({**texts, **dict.fromkeys(f"b{number}" for number in range(broken))}, {"q": "Who?"})


def begun(folder: Path, plan: Plan) -> ActiveRun:
    job = job_of(documents=str(folder / "docs"), output=str(folder / "run"), ask=("Who?",))
    return begin_run(Location(uri=job.output), job, reader=IDENTITY, plan=plan)


def written(run: ActiveRun, plan: Plan) -> list[PartReport]:
    parts = attach_not_read(plan_parts(plan, scan_log(run.output, fingerprint="f")), collect_not_read([]))
    return [row for part in parts for row in write_tables(part, projection=run.projection, kept={}).to_pylist()]


def closed(run: ActiveRun, plan: Plan, reports: list[PartReport]) -> Manifest:
    recorded = recorded_plan(plan, scan_log(run.output, fingerprint="f"))
    return close_run(run, reports=reports, recorded=recorded, before=None)


def test_close_run_whose_counts_close_writes_the_manifest(tmp_path: Path) -> None:
    plan = plan_of(readable=0, broken=3)
    run = begun(tmp_path, plan)
    manifest = closed(run, plan, written(run, plan))
    ends = {"ok": 0, "failed": 3, "not_read": 0}
    assert manifest["counts"] == {"asked": 3, **ends, "answers_rows": 3, "memories_rows": 0}
    assert json.loads((tmp_path / "run" / "manifest.json").read_text()) == manifest
    for name in ("answers", "memories"):
        files = [tmp_path / "run" / file for file in manifest["files"][name]]
        assert files == [*(tmp_path / "run" / name).iterdir()]
    assert [(tmp_path / "run" / file).exists() for file in manifest["files"]["removed"]] == [True]
    state = read_state(run.output)
    assert (state["state"], state["counts"]) == ("finished", manifest["counts"])


def test_close_run_with_missing_readings_names_them_and_writes_no_manifest(tmp_path: Path) -> None:
    plan = plan_of(readable=2, broken=1)
    run = begun(tmp_path, plan)
    reports = written(run, plan)
    said = r"2 readings have no outcome .*document 'd0'.*document 'd1'.*same command again"
    with pytest.raises(CountsError, match=said):
        closed(run, plan, reports)
    assert not (tmp_path / "run" / "manifest.json").exists()


def test_close_run_whose_files_hold_other_rows_than_reported_is_refused(tmp_path: Path) -> None:
    plan = plan_of(readable=0, broken=2)
    run = begun(tmp_path, plan)
    reports = written(run, plan)
    (file,) = (tmp_path / "run" / "answers").iterdir()
    file.unlink()
    with pytest.raises(CountsError, match="the counts do not close"):
        closed(run, plan, reports)


def test_close_run_whose_files_a_newer_attempt_removed_before_they_were_hashed_is_superseded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(readable=0, broken=2)
    run = begun(tmp_path, plan)

    def overtaken(past: PastRun) -> None:
        write_plan(past)
        begun(tmp_path, plan)
        for file in (tmp_path / "run" / "answers").iterdir():
            file.unlink()

    monkeypatch.setattr(close, "write_plan", overtaken)
    with pytest.raises(SupersededError, match="claimed by a newer attempt"):
        closed(run, plan, written(run, plan))
    assert not (tmp_path / "run" / "manifest.json").exists()


def test_close_run_removes_what_another_attempt_left_among_the_tables(tmp_path: Path) -> None:
    plan = plan_of(readable=0, broken=2)
    run = begun(tmp_path, plan)
    reports = written(run, plan)
    (file,) = (tmp_path / "run" / "answers").iterdir()
    file.with_name("part-99999.parquet").write_bytes(file.read_bytes())
    assert closed(run, plan, reports)["counts"]["answers_rows"] == 2
    assert list((tmp_path / "run" / "answers").iterdir()) == [file]


def test_run_that_claims_later_has_the_later_id_whatever_its_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, replace = plan_of(readable=0, broken=1), Location.replace
    overtaken_by = "29990101T000000.000Z.ffff"

    def replace_late(place: Location, data: bytes, *, version: str | None) -> bool:
        """Another attempt, whose clock is far ahead, claims the output first."""
        if not place.exists():
            place.write_bytes(json.dumps({"run_id": overtaken_by}).encode())
        return replace(place, data, version=version)

    monkeypatch.setattr(Location, "replace", replace_late)
    run = begun(tmp_path, plan)
    assert run.run_id > overtaken_by
    assert json.loads((tmp_path / "run" / "run.json").read_text())["run_id"] == run.run_id


@pytest.mark.parametrize("folder", ["turns", "outcomes", "follow_ups"])
def test_run_has_a_later_id_than_all_rows_of_the_log_of_which_run_json_knows_nothing(
    tmp_path: Path, folder: str
) -> None:
    plan, ahead = plan_of(readable=0, broken=1), "29990101T000000.000Z.ffff"
    begun(tmp_path, plan)
    logged = tmp_path / "run" / "log" / folder / f"{ahead}-w-000001.parquet"
    logged.parent.mkdir(parents=True, exist_ok=True)
    logged.touch()
    assert begun(tmp_path, plan).run_id > ahead


def test_close_run_counts_a_reading_that_was_not_read_and_says_why(tmp_path: Path) -> None:
    nights = Nights(Location(uri=str(tmp_path / "run")))
    manifest = nights.run({"a": f"1 {AWAY}", "b": f"2 {AWAY}", "c": FAILS, "d": "fine"}, {"q": "Why?"}, away=True)
    ends = {"ok": 1, "failed": 1, "not_read": 2}
    assert manifest["counts"] == {"asked": 4, **ends, "answers_rows": 4, "memories_rows": 0}
    reason = {"error_type": "EngineUnavailableError", "error_message": "'1 away' is away", "num_readings": 2}
    assert manifest["reasons"]["not_read"] == [reason]
    assert [row["num_readings"] for row in manifest["reasons"]["failed"]] == [1]
    rows = {row["document_id"]: row for row in nights.table("answers")}
    assert (rows["b"]["status"], rows["b"]["answer"]) == ("not_read", None)
    assert (rows["b"]["error_type"], rows["b"]["error_message"]) == ("EngineUnavailableError", "'2 away' is away")
    assert read_state(nights.output)["state"] == "incomplete"
    assert nights.run({"d": "fine"}, {"q": "Why?"})["reasons"] == {"failed": [], "not_read": [], "follow_up_failed": []}
    assert read_state(nights.output)["state"] == "finished"


def test_close_run_of_a_failed_reading_that_could_not_be_read_again_says_so(tmp_path: Path) -> None:
    nights = Nights(Location(uri=str(tmp_path / "run")))
    documents = {"a": f"{FAILS} {AWAY}"}
    nights.run(documents, {"q": "Why?"})
    counts = nights.run(documents, {"q": "Why?"}, retried=True, away=True)["counts"]
    assert (counts["failed"], counts["not_read"]) == (0, 1)
    assert nights.run(documents, {"q": "Why?"}, retried=True)["counts"]["ok"] == 1

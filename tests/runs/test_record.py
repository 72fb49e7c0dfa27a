"""What a run records of its files, and what it takes over from the run before."""

import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.cli.settings import job_of
from memagent_batch.errors import SettingsError
from memagent_batch.executors.local import LocalExecutor
from memagent_batch.executors.progress.progress import Progress
from memagent_batch.flows import answer
from memagent_batch.flows.check import check
from memagent_batch.flows.plan import scan_plan
from memagent_batch.review.record import latest_estimates
from memagent_batch.review.sign_offs import append_sign_offs
from memagent_batch.runs.manifest import Manifest
from memagent_batch.runs.record import SIGN_OFF_LOG_FOLDER, SIGNED_FOLDER, list_log, parse_sums, signature
from memagent_batch.runs.run import ActiveRun, begin_run, close_run
from memagent_batch.store.parquet import parquet_bytes
from memagent_batch.store.turn_log.index import LogIndex
from memagent_batch.wiring import ReaderIdentity
from tests.audit.scan import found, verify_here
from tests.audit.test_verify import signers
from tests.runs import recorded_nights
from tests.runs.recorded_nights import Nights, plan_of

DOCUMENTS = {"a": "one", "b": "two"}
QUESTIONS = {"q": "Why?"}


def hashes(nights: Nights, names: Mapping[str, str]) -> dict[str, str]:
    return {name: sha256((nights.output / name).read_bytes()).hexdigest() for name in names}


def write_outcome(nights: Nights, *, run_id: str) -> None:
    """Adds other answers to the log, which count for more than those that are there."""
    place = (nights.output / "log/outcomes").files()[0]
    table = pq.read_table(place)
    rows = [
        row | {"response": "\\boxed{late}", "run_id": run_id, "finished_at": datetime.now(UTC)}
        for row in table.to_pylist()
    ]
    name = f"log/outcomes/{run_id}-late-000001.parquet"
    (nights.output / name).write_bytes(parquet_bytes(pa.Table.from_pylist(rows, schema=table.schema)))


def flip(nights: Nights, name: str) -> None:
    place = nights.output / name
    data = place.read_bytes()
    place.write_bytes(data[:60] + bytes([data[60] ^ 1]) + data[61:])


def sums_of(nights: Nights, run_id: str) -> dict[str, str]:
    name = f"runs/{run_id}/SHA256SUMS"
    return parse_sums((nights.output / name).read_bytes(), name=name)


def test_list_of_a_run_has_every_file_and_the_list_before(nights: Nights) -> None:
    first = nights.run(DOCUMENTS, QUESTIONS)
    second = nights.run({**DOCUMENTS, "c": "three"}, QUESTIONS)
    run_id = second["run_id"]
    files = sums_of(nights, run_id)
    assert files == hashes(nights, files)
    tables = {name for names in second["files"].values() for name in names}
    record = ("plan.parquet", "removed.parquet", "projection.json", "manifest.json")
    assert files.keys() == {
        *tables,
        *list_log(nights.output),
        *(f"runs/{run_id}/{name}" for name in record),
        f"log/questions/{run_id}.parquet",
        f"runs/{first['run_id']}/SHA256SUMS",
    }
    assert not any(name.endswith("/SHA256SUMS") for name in sums_of(nights, first["run_id"]))


def test_hashes_of_unchanged_files_are_taken_over_so_that_damage_between_two_nights_is_found(nights: Nights) -> None:
    first = nights.run(DOCUMENTS, QUESTIONS)
    table = first["files"]["memories"][0]
    log = (nights.output / "log/outcomes").files()[0].removeprefix(f"{nights.output.path}/")
    flip(nights, table)
    second = nights.run(DOCUMENTS, QUESTIONS)
    assert second["files"]["memories"] == first["files"]["memories"]
    flip(nights, log)
    assert found(verify_here(nights.output)) == {("changed", table), ("changed", log)}


@pytest.mark.parametrize("damage", ["cut short", "gone"])
def test_list_of_the_night_before_is_not_trusted_if_it_is_damaged(nights: Nights, damage: str) -> None:
    first = nights.run(DOCUMENTS, QUESTIONS)
    name = f"runs/{first['run_id']}/SHA256SUMS"
    data = (nights.output / name).read_bytes()
    if damage == "gone":
        (nights.output / name).delete()
    else:
        (nights.output / name).write_bytes(data[:-70])
    second = nights.run({**DOCUMENTS, "c": "three"}, QUESTIONS)
    files = sums_of(nights, second["run_id"])
    assert files == hashes(nights, files)
    assert verify_here(nights.output).findings == []


def test_record_is_signed_by_the_key_of_the_settings(nights: Nights, tmp_path: Path) -> None:
    allowed = signers(tmp_path)
    nights.run(DOCUMENTS, QUESTIONS, record={"sign": str(tmp_path / "key")})
    result = verify_here(nights.output, allowed_signers=allowed)
    assert (result.findings, result.signer) == ([], "scans@example.org")
    nights.run(DOCUMENTS, QUESTIONS)
    assert {kind for kind, _ in found(verify_here(nights.output, allowed_signers=allowed))} == {"signature"}


def test_key_that_can_not_sign_is_refused_with_the_remedy_before_anything_is_written(tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "a passphrase", "-f", str(tmp_path / "key")], check=True)
    for key in ("/nowhere/key", str(tmp_path / "key")):
        with pytest.raises(SettingsError, match=r"record\.sign: .* can't sign: .*; pass a key"):
            signature(b"", key=key)
    job = job_of(documents="docs", questions="list", output=str(tmp_path / "run"), record={"sign": "/nowhere/key"})
    with pytest.raises(SettingsError, match=r"record\.sign"):
        check(job)
    assert not (tmp_path / "run").exists()


ESTIMATED = (
    '{"run_id": "r", "question_id": "q", "decision": "d", "labels": {"left": 0}, "num_unreadable": 0, "strata": [], '
    '"measures": {}, "recall_at_worst": null}'
)
"""An estimate that lacks its measures."""


@pytest.mark.parametrize(
    "text", ["", '{"strata": [', "{}", '{"strata": [{"value": 1}]}', '{"strata": 3}', "[]", ESTIMATED]
)
def test_estimate_that_can_not_be_read_is_named_and_left_out(
    nights: Nights, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (nights.output / "review/q-1/estimate.json").write_bytes(text.encode())
    assert latest_estimates(nights.output) == []
    assert "review/q-1/estimate.json is not an estimate of a review" in caplog.text


def test_log_file_that_lands_after_the_tables_were_planned_is_not_sealed(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of an attempt that was superseded, and flushes late: it has other answers, which no table shows."""

    def late(run: ActiveRun, **settings: Any) -> Manifest:
        write_outcome(nights, run_id=run.run_id)
        return close_run(run, **settings)

    nights.run(DOCUMENTS, QUESTIONS)
    monkeypatch.setattr(recorded_nights, "close_run", late)
    nights.run(DOCUMENTS, QUESTIONS)
    result = verify_here(nights.output)
    assert (result.findings, [each.what for each in result.unchecked]) == ([], ["1 files of the log"])


@pytest.mark.parametrize("when", ["before", "after"])
def test_log_files_of_a_run_are_those_that_its_tables_are_planned_from(
    nights: Nights, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights.run(DOCUMENTS, QUESTIONS)
    plan = plan_of(DOCUMENTS, QUESTIONS)
    job = job_of(documents="docs", questions="list", output=nights.output.uri)
    run = begin_run(nights.output, job, reader=ReaderIdentity(fingerprint="f", parts={}), plan=plan)

    def scan(*given: Any, **settings: Any) -> LogIndex:
        scans.append(1)
        if len(scans) == 1 and when == "before":
            write_outcome(nights, run_id=run.run_id)
        index = scan_plan(*given, **settings)
        if len(scans) == 1 and when == "after":
            write_outcome(nights, run_id=run.run_id)
        return index

    scans: list[int] = []
    monkeypatch.setattr(answer, "scan_plan", scan)
    progress = Progress(run_id=run.run_id, asked=run.record.asked, model="m", policy="p")
    read = answer.read_plan(plan, run=run, executor=LocalExecutor(), progress=progress, before=nights.last())
    late = f"log/outcomes/{run.run_id}-late-000001.parquet"
    assert (late in read.log_files) is (when == "before")
    assert set(list_log(nights.output)) == read.log_files | {late}


def test_readings_that_were_not_read_follow_from_the_log_too(nights: Nights) -> None:
    nights.run({"a": "1 away", "b": "two"}, QUESTIONS, away=True)
    assert verify_here(nights.output).findings == []


def sign_off(nights: Nights) -> str:
    """Signs a reading off; the name of the file that holds it."""
    row: Any = {"document_id": "a", "question_id": "q", "sample": 0, "reading_hash": "0" * 32, "decision": "accept"}
    row |= {"signed_by": "Ada", "signed_at": datetime.now(UTC), "correction": None, "comment": None}
    append_sign_offs(nights.output, [row | {"withdrawn": False}])
    (path,) = (nights.output / SIGNED_FOLDER).files()
    return f"{SIGNED_FOLDER}/{Path(path).name}"


def test_sign_offs_that_are_removed_or_changed_are_found_at_once_and_after_later_runs(nights: Nights) -> None:
    nights.run(DOCUMENTS, QUESTIONS)
    name = sign_off(nights)
    assert (found(verify_here(nights.output)), verify_here(nights.output).num_sign_off_files) == (set(), 1)
    flip(nights, name)
    assert found(verify_here(nights.output)) == {("changed", name)}
    (nights.output / name).delete()
    for changed in ("two", "2", "II"):
        assert found(verify_here(nights.output)) == {("gone", name)}
        nights.run({"a": "one", "b": changed}, QUESTIONS)


def test_sign_offs_whose_list_is_removed_too_are_found_once_a_run_has_listed_them(nights: Nights) -> None:
    nights.run(DOCUMENTS, QUESTIONS)
    name = sign_off(nights)
    lists = nights.output / SIGN_OFF_LOG_FOLDER
    lists.delete()  # as before versions that write it
    unlisted = verify_here(nights.output)
    assert (found(unlisted), [each.what for each in unlisted.unchecked]) == (set(), ["1 file of sign-offs"])
    nights.run({**DOCUMENTS, "c": "three"}, QUESTIONS)
    assert verify_here(nights.output).num_sign_off_files == 1
    (nights.output / SIGNED_FOLDER).delete()
    assert found(verify_here(nights.output)) == {("gone", name)}

"""`memagent verify` and `memagent bundle` as users type them."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.cli.main import main
from memagent_batch.cli.verify import _job_of
from memagent_batch.runs.history import LATEST, find_run
from memagent_batch.store.location import Location
from tests.audit.scan import Copy


def test_verify_ends_with_0_if_all_holds_and_with_5_if_something_does_not(
    copied: Callable[[], Copy], capsys: pytest.CaptureFixture[str]
) -> None:
    copy = copied()
    assert main(["verify", str(copy.folder)]) == 0
    whole = capsys.readouterr().out
    assert f"run {copy.runs[-1]}: " in whole
    assert "all that was checked is as it was recorded" in whole
    assert main(["verify", str(copy.folder), "--all"]) == 0
    assert "by 3 runs" in capsys.readouterr().out
    (copy.folder / copy.manifest["files"]["memories"][0]).unlink()
    assert main(["verify", str(copy.folder), "--json"]) == 5
    result = json.loads(capsys.readouterr().out)
    assert [each["where"] for each in result["findings"]] == [copy.manifest["files"]["memories"][0]]
    assert f"SHA-256 of its list of files: {result['sha256']}" in whole


def test_verify_refuses_a_file_of_signers_that_is_not_there(
    copied: Callable[[], Copy], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(copied().folder), "--allowed-signers", "/nowhere"]) == 2
    assert "there is no file /nowhere" in capsys.readouterr().err


def test_reread_takes_the_agent_from_the_record_or_from_a_job_file(
    copied: Callable[[], Copy], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = copied()
    arguments = ["verify", str(copy.folder), "--reread", "5", "--json"]
    assert main(arguments) == 2
    assert "--allow-code" in capsys.readouterr().err  # the engine of this scan is code of the user's
    job = tmp_path / "job.yaml"
    job.write_text(json.dumps({**copy.stream.settings, "output": "x", "allow_code": True}))
    assert main([*arguments, "--job", str(job)]) == 0
    again = json.loads(capsys.readouterr().out)["reread"]
    assert (again["num_drawn"], again["num_asked"], again["different"]) == (5, 5, [])


def test_reread_takes_no_code_and_no_address_from_a_record(
    copied: Callable[[], Copy], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copied()
    arguments = ["verify", str(copy.folder), "--reread", "5"]
    copy.rewrite(lambda manifest: manifest["settings"].update(allow_code=True))
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert "--allow-code" in printed.err
    assert "5 turns were to be asked again, and none was" in printed.out
    address = "http://127.0.0.1:9/elsewhere"
    copy.rewrite(lambda manifest: manifest["settings"].update(engine="openai", openai={"base_url": address}))
    monkeypatch.setenv("MEMAGENT_OPENAI__API_KEY", "hunter2")
    assert main(arguments) == 2
    assert "its address is not taken from the record" in capsys.readouterr().err
    monkeypatch.setenv("MEMAGENT_OPENAI__BASE_URL", address)
    assert main(arguments) == 2
    assert "this is not the reader" in capsys.readouterr().err


def test_engine_arguments_and_settings_of_other_versions_are_not_taken_from_a_record(
    copied: Callable[[], Copy],
) -> None:
    copy = copied()
    past = find_run(Location(uri=str(copy.folder)), LATEST)
    given: dict[str, Any] = {"vllm": {"engine_args": {"trust_remote_code": True}, "dtype": "half"}}
    given |= {"log": {"flush_bytes": 7, "outage_seconds": 3.0}, "no_longer": {"there": 1}}
    past.manifest["settings"] = {**past.manifest["settings"], **given, "engine": "vllm"}
    job = _job_of(past, job=None, output="x", storage_options={})
    assert (job.agent.vllm.engine_args, job.agent.vllm.dtype, job.log.outage_seconds) == ({}, "half", 3.0)


def test_bundle_says_what_it_packed(
    copied: Callable[[], Copy], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = copied()
    assert main(["bundle", str(copy.folder), "--to", str(tmp_path / "scan.zip"), "--without-text"]) == 0
    packed = json.loads(capsys.readouterr().out)
    assert packed["run_id"] == copy.runs[-1]
    assert packed["sha256"] == sha256((tmp_path / "scan.zip").read_bytes()).hexdigest()
    copy.rewrite(lambda manifest: manifest.update(seconds=1.0), seals=False)
    assert main(["bundle", str(copy.folder), "--to", str(tmp_path / "again.zip"), "--without-text"]) == 5

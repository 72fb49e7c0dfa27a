"""`memagent verify` and `memagent bundle` as users type them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.cli import main
from tests.verification.scan import Copy


def test_verify_ends_with_0_where_all_holds_and_with_5_where_something_does_not(
    copied: Callable[[], Copy], capsys: pytest.CaptureFixture[str]
) -> None:
    copy = copied()
    assert main(["verify", str(copy.folder)]) == 0
    whole = capsys.readouterr().out
    assert "3 runs" in whole
    (copy.folder / copy.manifest["files"]["memories"][0]).unlink()
    assert main(["verify", str(copy.folder), "--json"]) == 5
    result = json.loads(capsys.readouterr().out)
    assert [each["where"] for each in result["findings"]] == [copy.manifest["files"]["memories"][0]]
    assert f"SHA-256 of the last manifest: {result['sha256']}" in whole
    assert main(["verify", str(copy.folder), "--expect", "0" * 64]) == 5
    assert "no manifest on the chain has the SHA-256 000" in capsys.readouterr().out


def test_verify_of_a_folder_without_a_run_is_the_users_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(tmp_path)]) == 2
    assert "no run has finished" in capsys.readouterr().err


def test_reread_takes_the_agent_from_the_record_or_from_a_job_file(
    copied: Callable[[], Copy], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = copied()
    arguments = ["verify", str(copy.folder), "--reread", "5", "--json"]
    assert main(arguments) == 2
    assert "--allow-code" in capsys.readouterr().err  # the engine of this scan is code of the user's
    job = tmp_path / "job.yaml"
    job.write_text(json.dumps({**copy.stream.knobs, "output": "x", "allow_code": True}))
    assert main([*arguments, "--job", str(job)]) == 0
    again = json.loads(capsys.readouterr().out)["reread"]
    assert (again["num_drawn"], again["num_asked"], again["different"]) == (5, 5, [])


def test_bundle_says_what_it_packed(
    copied: Callable[[], Copy], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = copied()
    assert main(["bundle", str(copy.folder), "--to", str(tmp_path / "scan.zip"), "--with-tables"]) == 0
    packed = json.loads(capsys.readouterr().out)
    assert packed["run_id"] == copy.runs[-1]
    assert packed["left_out"] == ["the turn log", "the index of a table that was read"]

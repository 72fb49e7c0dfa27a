"""`memagent verify` as users type it."""

import json
from pathlib import Path

import pytest

from memagent_batch.cli.main import main
from tests.audit.scan import Copy


def test_verify_ends_with_0_if_all_holds_and_with_5_if_something_does_not(
    copy: Copy, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_verify_refuses_a_file_of_signers_that_is_not_there(copy: Copy, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(copy.folder), "--allowed-signers", "/nowhere"]) == 2
    assert "there is no file /nowhere" in capsys.readouterr().err


def test_reread_takes_the_agent_from_a_job_file_and_nothing_from_the_record(
    copy: Copy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["verify", str(copy.folder), "--reread", "5", "--json"]
    assert main(arguments) == 2
    assert "--reread: pass the job file of the run with --job" in capsys.readouterr().err
    job = tmp_path / "job.yaml"
    copy.rewrite(lambda manifest: manifest["settings"].update(allow_code=True))
    job.write_text(json.dumps({**copy.stream.settings, "output": "x"}))
    assert main([*arguments, "--job", str(job)]) == 2
    assert "--allow-code" in capsys.readouterr().err  # the engine of this scan is code of the user's
    job.write_text(json.dumps({**copy.stream.settings, "output": "x", "allow_code": True}))
    assert main([*arguments, "--job", str(job)]) == 0
    again = json.loads(capsys.readouterr().out)["reread"]
    assert (again["num_drawn"], again["num_asked"], again["different"]) == (5, 5, [])

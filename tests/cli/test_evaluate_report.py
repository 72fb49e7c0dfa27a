from pathlib import Path

import pytest

from memagent_batch.cli import main as cli


def test_evaluate_report_folder_without_evaluation_is_a_users_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["evaluate", "report", str(tmp_path)]) == 2
    assert "there is no evaluation.json; name the folder" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_evaluate_report_bad_storage_options_are_a_users_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["evaluate", "report", str(tmp_path), "--storage-options", "{"]) == 2
    assert "--storage-options is not JSON" in capsys.readouterr().err

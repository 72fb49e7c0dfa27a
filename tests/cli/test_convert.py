"""What `memagent convert` refuses before it reads a file."""

from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.cli.main import main
from memagent_batch.convert import converter


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("some words")
    return ["--documents", str(tmp_path / "in"), "--output", str(tmp_path / "out")]


def test_missing_extra_is_named_with_its_command(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(package: str) -> Any:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(converter, "version", missing)
    assert main(["convert", *arguments]) == 2
    assert "pip install 'memagent-batch[convert]'" in capsys.readouterr().err.splitlines()[-1]

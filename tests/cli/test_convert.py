"""What `memagent convert` refuses before it reads a file."""

from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.cli.main import main
from memagent_batch.convert import converter
from memagent_batch.convert.batches import require_distinct
from memagent_batch.documents.listing import InputFile
from memagent_batch.errors import InputError


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


def test_file_below_a_file_is_refused_since_ids_could_be_the_same(tmp_path: Path) -> None:
    files = [InputFile(path=f"b/{name}", root="b/", size_bytes=1) for name in ("m.eml", "m.eml/1-a.pdf", "n.eml")]
    with pytest.raises(InputError, match=r"'m\.eml/1-a\.pdf' lies below 'm\.eml'"):
        require_distinct(files)
    require_distinct([files[0], files[2]])

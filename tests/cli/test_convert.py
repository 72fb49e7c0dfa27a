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
from memagent_batch.store.json_files import write_json
from memagent_batch.store.location import Location


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("some words")
    return ["--documents", str(tmp_path / "in"), "--output", str(tmp_path / "out")]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--converter", "pdf=docling"], "'docling' is not one of"),
        (["--converter", "pdf=rapidocs"], "did you mean rapidocr?"),
        (["--converter", "pdf=tests.convert.hostile:Quiet"], "pass --allow-code"),
        (["--converter", "pdf=tests.convert.hostile:Nobody", "--allow-code"], "can't be imported"),
        (["--converter", "ppt=text"], "'ppt' is not one of pdf, html"),
        (["--converter", "pdf"], "is not KIND=NAME"),
        (["--seconds", "0"], "--seconds: 0 is not above 0"),
        (["--memory-mib", "1.5"], "--memory-mib: 1.5 is not a whole number"),
        (["--max-failed-share", "2"], "--max-failed-share: 2 is above 1"),
    ],
)
def test_mistake_of_the_user_ends_with_2_and_one_line(
    arguments: list[str], more: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", *arguments, *more]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "out").exists()


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


def test_status_of_a_conversion_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_json(Location(uri=str(tmp_path / "run.json")), {"format": "memagent-convert/1", "run_id": "x"})
    assert main(["status", str(tmp_path)]) == 2
    assert "memagent-convert/1" in capsys.readouterr().err.splitlines()[-1]

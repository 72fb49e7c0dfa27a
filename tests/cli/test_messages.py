"""A user's mistakes are refused in one line that says what to do, before Ray starts: the rows of mistakes.yaml."""

import os
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from memagent_batch.cli import main as cli
from memagent_batch.errors import UsageError

STEPS = ("checking inputs and model\n", "listing the sources\n")
"""What a command may have told before."""
MISTAKES: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", MISTAKES, ids=lambda row: row["mistake"])
def test_mistake_is_one_line_with_its_exit_code(
    row: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in {"texts/a.txt": "Ann signed.", **row.get("files", {})}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for name, value in row.get("variables", {}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    before = sorted(os.walk(tmp_path))
    assert cli.main(shlex.split(row["run"].replace("HERE", str(tmp_path)))[1:]) == UsageError.exit_code
    said = capsys.readouterr()
    assert said.out == ""
    assert (
        said.err.removeprefix(STEPS[0]).removeprefix(STEPS[1])
        == f"error: {row['says'].replace('HERE', str(tmp_path))}\n"
    )
    assert sorted(os.walk(tmp_path)) == before


@pytest.mark.parametrize(
    "words",
    [
        "answer --documents=texts --ask=Who? --engine=simulated --output",
        "status",
        "show",
        "diff",
        "page",
        "verify",
        "export --to=csv",
        "review make --question=q",
    ],
)
def test_output_of_an_older_version_is_refused_in_one_line_and_stays(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("texts/a.txt", "out/run.json", "out/manifest.json", "out/answers/part-00000.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"format": "memagent-batch/2", "run_id": "r"}')
    before = sorted(os.walk(tmp_path))
    assert cli.main([*shlex.split(words), "out"]) == UsageError.exit_code
    assert "output: out was written by an earlier version of memagent-batch" in capsys.readouterr().err.splitlines()[-1]
    assert sorted(os.walk(tmp_path)) == before

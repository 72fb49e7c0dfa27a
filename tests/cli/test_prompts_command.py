import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from memagent_batch.apps.official_prompts import MEMAGENT, OfficialText, import_official
from memagent_batch.cli import prompts as prompts_command
from memagent_batch.cli.main import main
from memagent_batch.errors import UsageError
from memagent_batch.loop.prompt_sets.built_in import BUILT_IN_PROMPTS, DEFAULT_PROMPTS
from memagent_batch.loop.prompt_sets.files import load_prompt_set

TEXTS = {OfficialText.UPDATE: "{prompt} {memory} {chunk}", OfficialText.ANSWER: "{prompt} {memory} {{}}"}


@pytest.fixture
def official(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with texts that are taken for the published ones, which are not part of this project."""
    sha256 = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in TEXTS.items()}
    published = replace(MEMAGENT, sha256=sha256)
    monkeypatch.setattr(prompts_command, "import_official", partial(import_official, publications=(published,)))
    path = tmp_path / "official.py"
    path.write_text("".join(f"TEMPLATE = {text!r}\n" for text in TEXTS.values()))
    return path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run_command(*arguments: str) -> str:
        assert main(["prompts", *arguments]) == 0
        return capsys.readouterr().out

    return run_command


def test_show_lists_every_built_in_set_with_its_hash_and_the_texts_of_one(run: Callable[..., str]) -> None:
    texts = [DEFAULT_PROMPTS.first_memory, DEFAULT_PROMPTS.update, DEFAULT_PROMPTS.answer, DEFAULT_PROMPTS.direct]
    assert [text for text in (DEFAULT_PROMPTS.sha256, *texts) if text not in run("show", "default")] == []
    listed = run("show")
    assert all(prompts.sha256 in listed and name in listed for name, prompts in BUILT_IN_PROMPTS.items())


def test_import_writes_a_set_that_can_be_shown(official: Path, tmp_path: Path, run: Callable[..., str]) -> None:
    target = tmp_path / "new" / "mine.json"
    report = run("import", str(official), "--output", str(target), "--name", "mine")
    assert load_prompt_set(str(target)).name == "mine"
    assert load_prompt_set(str(target)).sha256 in report
    assert report.endswith(f"use it with --prompt-set {target}\n")
    assert "{question} {memory} {chunk}" in run("show", str(target))


def test_import_without_output_writes_here_and_replaces_only_the_same(
    official: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("import", str(official)) == run("import", str(official))
    Path("official.json").write_text("something else")
    assert main(["prompts", "import", str(official)]) == UsageError.exit_code
    assert Path("official.json").read_text() == "something else"

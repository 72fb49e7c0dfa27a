import subprocess
import sys
from pathlib import Path

import pytest

from memagent_batch.cli.main import main
from memagent_batch.cli.prompts import import_prompts, list_prompts, show_prompts
from memagent_batch.errors import OutputError
from memagent_batch.prompts.built_in import BUILT_IN_PROMPTS, DEFAULT_PROMPTS
from memagent_batch.prompts.files import load_prompt_set

CODE = "TEMPLATE = '{prompt} {memory} {chunk}'\nTEMPLATE_FINAL = '{prompt} {memory}'\n"
HEAVY = ("ray", "vllm", "torch", "transformers")


@pytest.fixture
def official(tmp_path: Path) -> Path:
    path = tmp_path / "official.py"
    path.write_text(CODE)
    return path


def run(*arguments: str) -> None:
    assert main(["prompts", *arguments]) == 0


def test_list_prompts_shows_every_built_in_set_with_its_hash() -> None:
    listed = list_prompts()
    assert all(prompts.sha256 in listed and name in listed for name, prompts in BUILT_IN_PROMPTS.items())


def test_show_prompts_holds_hash_version_and_every_text() -> None:
    shown = show_prompts("default")
    texts = [DEFAULT_PROMPTS.sha256, DEFAULT_PROMPTS.first_memory, DEFAULT_PROMPTS.update]
    assert all(text in shown for text in [*texts, *DEFAULT_PROMPTS.answers.values()])


def test_import_prompts_writes_a_set_that_can_be_shown(official: Path, tmp_path: Path) -> None:
    target = tmp_path / "new" / "mine.json"
    report = import_prompts(official, output=target, name="mine")
    assert load_prompt_set(str(target)).name == "mine"
    assert load_prompt_set(str(target)).sha256 in report
    assert "differs" in report
    assert "no published checkpoint" in report
    assert "{question} {memory} {chunk}" in show_prompts(str(target))


def test_import_prompts_without_output_writes_here_and_replaces_only_the_same(
    official: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert import_prompts(official) == import_prompts(official)
    assert load_prompt_set("official.json").name == "official"
    official.write_text(CODE.replace("{prompt} {memory}'", "{prompt} {memory}!'"))
    with pytest.raises(OutputError, match="--output"):
        import_prompts(official)


def test_import_prompts_leaves_a_file_that_holds_something_else_as_it_is(official: Path, tmp_path: Path) -> None:
    target = tmp_path / "mine.json"
    target.write_text("my own notes")
    with pytest.raises(OutputError, match=r"mine\.json is there already"):
        import_prompts(official, output=target)
    assert target.read_text() == "my own notes"


def test_prompts_command_line_runs_each_command(
    official: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "mine.json"
    run("list")
    assert "default" in capsys.readouterr().out
    run("import", str(official), "--output", str(target), "--name", "mine")
    assert str(target) in capsys.readouterr().out
    run("show", str(target))
    assert load_prompt_set(str(target)).sha256 in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "say what to do: memagent prompts NAME"),
        (["shwo"], "there is no command 'shwo' of memagent prompts; did you mean show?"),
        (["show", "nope"], "nope"),
        (["list", "--no-such"], "there is no option --no-such"),
        (["show"], "PROMPT_SET: missing; see memagent prompts show --help"),
    ],
)
def test_prompts_command_line_mistake_is_named_and_exits_with_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prompts", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_prompts_command_imports_no_engine_and_no_cluster() -> None:
    code = f"import sys, memagent_batch.cli.prompts; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

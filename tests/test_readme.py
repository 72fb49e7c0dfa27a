"""README's blocks as a newcomer runs them: in a fresh shell, in a folder that holds nothing else."""

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import memagent_batch
from memagent_batch.cli import main as cli

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ACTIVATE = "source .venv/bin/activate"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def command_lines() -> list[list[str]]:
    """Words of every `memagent ...` in README, as a shell splits them."""
    text = "\n".join(blocks("bash")).replace("\\\n", " ")
    lines = [shlex.split(line, comments=True) for line in text.splitlines()]
    module = ["python", "-m", "memagent_batch"]
    commands = [
        line[line.index("memagent_batch") + 1 :] for line in lines if module == line[-6:-3] or module == line[6:9]
    ]
    return commands + [line[1:] for line in lines if line[:1] == ["memagent"]]


@pytest.mark.parametrize("words", [words for words in command_lines() if words != ["--version"]], ids=" ".join)
def test_readme_command_is_understood(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    name, rest = cli.split_name(words)
    assert cli.read_command(cli.command_class(name), rest).command == f"memagent {name}"


def test_readme_names_every_command() -> None:
    assert {words[0] for words in command_lines()} == {*(name.split()[0] for name in cli.COMMANDS), "--version"}


def test_readme_python_names_are_public_and_its_agent_can_be_made() -> None:
    block = next(block for block in blocks("python") if "ma.Agent" in block)
    tree = ast.parse(block)
    names = {
        node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "ma"
    }
    assert {"Agent", "Overwrite"} <= names <= set(memagent_batch.__all__)
    made = next(line for line in block.splitlines() if line.startswith("agent = "))
    assert eval(made.removeprefix("agent = "), {"ma": memagent_batch}).policy.chunk_tokens == 5000


@pytest.mark.ray
@pytest.mark.vllm
@pytest.mark.slow
def test_readme_first_answer_in_a_fresh_shell_and_its_tables(tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(sys.prefix)
    shutil.copytree(ROOT / "jobs", tmp_path / "jobs")
    assert ACTIVATE in README
    laptop = next(block for block in blocks("bash") if "mkdir -p texts" in block)
    query = next(block for block in blocks("python") if "duckdb" in block)
    script = f"{ACTIVATE}\n{laptop}\npython - <<'END'\n{query}\nprint({query.strip().splitlines()[-1]})\nEND\n"
    variables = {name: os.environ[name] for name in ("HOME", "LANG", "PIP_FIND_LINKS") if name in os.environ}
    done = subprocess.run(
        ["bash", "-eu", "-c", script],
        cwd=tmp_path,
        env={**variables, "PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert "4071936" in done.stdout.splitlines()[-3]
    listed = re.findall(r"^out/([a-z.]+)/? +(.*)$", README, flags=re.MULTILINE)
    always = {name for name, meaning in listed if not meaning.startswith("where ")}
    assert len(always) >= 6
    assert {name for name, _ in listed if (tmp_path / "out" / name).exists()} == always

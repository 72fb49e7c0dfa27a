"""Commands, settings and job files that the pages name are there."""

import re
import shlex
from pathlib import Path

import pytest

from memagent_batch.cli import main as cli
from memagent_batch.cli.options import options_of
from memagent_batch.cli.settings import JobSettings
from tests.infra.docs.test_markdown import FENCE, PAGES, ROOT

NAMES = {option.name for option in options_of(JobSettings)}
GROUPS = {name.split(".")[0] for name in NAMES if "." in name}


def command_lines(page: Path) -> list[list[str]]:
    """The words of each `memagent ...` in the page's shell blocks."""
    blocks = re.findall(r"^```bash\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("memagent ")]
    return [line[: line.index("|")] if "|" in line else line for line in words]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_a_page_are_understood(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not run: they need a model, a bucket or files of the reader."""
    monkeypatch.chdir(tmp_path)
    for words in command_lines(page):
        name, rest = cli.split_name(words)
        for config in (word for word in rest if word.endswith(".yaml")):
            Path(config).parent.mkdir(exist_ok=True)
            shipped = ROOT / config
            Path(config).write_text(shipped.read_text() if shipped.exists() else "{documents: a, output: b, ask: [c]}")
        if name:
            cli.read_command(cli.command_class(name), [word for word in rest if word != "..."])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_settings_and_files_that_a_page_names_are_there(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    named = {name for name in re.findall(r"`([a-z]+\.[a-z0-9_]+)[:` ]", text) if name.split(".")[0] in GROUPS}
    named -= {name for name in named if name.endswith((".json", ".py"))}
    flags = {flag.replace("-", "_") for flag in re.findall(r"`--([a-z]+\.[a-z0-9_-]+)", text)}
    assert (named | flags) - NAMES == set()
    jobs = {ROOT / path for path in re.findall(r"jobs/[a-z0-9-]+\.yaml", page.read_text(encoding="utf-8"))}
    assert {path for path in jobs if not path.exists()} == set()

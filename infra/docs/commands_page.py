"""`docs/reference/commands.md`: the help of every command, as it is printed. `python -m infra.docs.commands_page`."""

import io
import os
from contextlib import redirect_stdout
from pathlib import Path
from unittest.mock import patch

from memagent_batch.cli import main as cli

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "commands.md"
WIDTH = "100"
"""Columns of the terminal that the help is wrapped for."""
INTRODUCTION = """# Commands

The help of every command, as it is printed, collected by `python -m infra.docs.commands_page`. Commands over documents
show their common options here. `--help-all` prints all of them, and [Settings](settings.md) lists them.
[Exit codes and log events](exit-codes-and-events.md) describes how commands end.
"""


def commands_page() -> str:
    """The page as Markdown."""
    sections = [f"## `memagent {name}`\n\n```text\n{help_of(name)}\n```\n" for name in cli.COMMANDS]
    return "\n".join([INTRODUCTION, f"```text\n{help_of('')}\n```\n", *sections])


def help_of(name: str) -> str:
    """What `memagent NAME --help` prints, for a terminal of WIDTH columns."""
    printed = io.StringIO()
    with patch.dict(os.environ, {"COLUMNS": WIDTH}), redirect_stdout(printed):
        cli.main([*name.split(), "--help"])
    return printed.getvalue().strip()


if __name__ == "__main__":
    PAGE.write_text(commands_page(), encoding="utf-8")

"""`docs/reference/commands.md`, made from the classes of the commands: `python -m infra.docs.commands_page`."""

import inspect
from pathlib import Path

from infra.docs.settings_page import entry
from memagent_batch.cli import main as cli
from memagent_batch.cli.options import options_of
from memagent_batch.cli.settings import (
    ALL_SETTINGS,
    Command,
    JsonCommand,
    OutputCommand,
    OutputsCommand,
    Settings,
    StorageCommand,
)

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "commands.md"
INTRODUCTION = """# Commands

`memagent --help` lists the commands, `memagent NAME --help` the common options of one with examples, `--help-all` all
options. See also [exit codes and log events](exit-codes-and-events.md).

- Every command that opens a file or folder takes `--storage-options`: arguments of the fsspec file system (JSON),
  better given as MEMAGENT_STORAGE_OPTIONS.
- `OUTPUT` is a folder or fsspec URL that `memagent answer` wrote. `diff`, `page`, `verify`, `review make` and
  `review estimate` take several, such as slices, as one scan.
- `doctor`, `ingest`, `plan`, `status`, `verify` and `review estimate` print JSON with `--json`; all but `verify` also
  if their output is not a terminal.
"""
SHARED = (
    StorageCommand.model_fields["storage_options"].description,
    OutputCommand.model_fields["output"].description,
    OutputsCommand.model_fields["output"].description,
    JsonCommand.model_fields["as_json"].description,
)
"""Descriptions of options that the introduction has."""


def commands_page() -> str:
    """The page as Markdown."""
    return "\n".join([INTRODUCTION, *(_section(cli.command_class(name)) for name in cli.COMMANDS)])


def _section(kind: type[Command]) -> str:
    """A command whose options are not settings."""
    is_settings = issubclass(kind, Settings)
    options = list(options_of(kind))
    own = [
        each for each in options if not (is_settings or "." in each.name) or each.name.split(".")[0] not in ALL_SETTINGS
    ]
    groups = dict.fromkeys(f"`{each.name.split('.')[0]}`" for each in options if each not in own)
    names = {option.name: option.name.upper() if option.name in kind.words else option.flag for option in own}
    lines = [entry(each, name=names[each.name]) for each in own if each.info.description not in SHARED]
    links = [
        f"[{Path(page).stem}](../{page.removeprefix('docs/')})" for page in kind.pages if page not in Command.pages
    ]
    more = [f"See {' and '.join(links)}."] if links else []
    paragraphs = [
        f"## `{kind.command}`",
        " ".join([inspect.cleandoc(kind.__doc__ or ""), *more]),
        "[Settings](settings.md)." if is_settings else "",
        f"[Settings](settings.md) of {' and '.join(groups)}, and:" if groups and not is_settings else "",
        "\n".join(lines),
    ]
    return "\n\n".join(filter(None, paragraphs)) + "\n"


if __name__ == "__main__":
    PAGE.write_text(commands_page(), encoding="utf-8")

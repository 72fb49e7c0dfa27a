"""`docs/reference/commands.md`, made from the classes of the commands: `python -m infra.docs.commands_page`."""

import inspect
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from infra.docs.settings_page import entry, key
from memagent_batch.cli import main as cli
from memagent_batch.cli.options import Option, options_of
from memagent_batch.cli.settings import ALL_SETTINGS, Command, Settings

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "commands.md"
INTRODUCTION = """# Commands

`memagent --help` lists the commands, `memagent NAME --help` prints the common options of one, `--help-all` all of them.
[Exit codes and log events](exit-codes-and-events.md) says how commands end. This page is made by
`python -m infra.docs.commands_page`.

## Options of several commands

`--storage-options` belongs to every command that opens a file or folder, `OUTPUT` to those whose example shows one; the
others are named where they belong.
"""


def commands_page() -> str:
    """The page as Markdown: an option that several commands have stands once."""
    kinds = [cli.command_class(name) for name in cli.COMMANDS]
    times = Counter(key(option) for kind in kinds for option in _own_options(kind))
    shared = {key(each): _line(each, kind) for kind in kinds for each in _own_options(kind) if times[key(each)] > 1}
    sections = [_section(kind, shared=shared) for kind in kinds]
    return "\n".join([INTRODUCTION, *shared.values(), "", *sections])


def _own_options(kind: type[Command]) -> list[Option]:
    """The options of a command that are not settings."""
    is_settings = issubclass(kind, Settings)
    return [option for option in options_of(kind) if not (is_settings and option.name.split(".")[0] in ALL_SETTINGS)]


def _section(kind: type[Command], *, shared: Collection[str]) -> str:
    own = _own_options(kind)
    others = [
        _name(each, kind) for each in own if key(each) in shared and each.name not in ("storage_options", "output")
    ]
    also = [f"- also {', '.join(f'`{name}`' for name in others)}"] if others else []
    options = [*(_line(option, kind) for option in own if key(option) not in shared), *also]
    more = [] if kind.page == Command.page else [f"[More](../{kind.page.removeprefix('docs/')})."]
    paragraphs = [
        f"## `{kind.command}`",
        " ".join([inspect.cleandoc(kind.__doc__ or ""), *more]),
        _settings(kind),
        "\n".join(options),
        f"```bash\n{kind.examples[-1]}\n```",
    ]
    return "\n\n".join(filter(None, paragraphs)) + "\n"


def _settings(kind: type[Command]) -> str:
    """The settings that its help shows first."""
    common = [f"`--{name.replace('_', '-')}`" for name in kind.common if name.split(".")[0] in ALL_SETTINGS]
    return f"[Settings](settings.md), such as {', '.join(common)}." if common else ""


def _name(option: Option, kind: type[Command]) -> str:
    """As it is typed: by its flag, or by its place."""
    return option.name.upper() if option.name in kind.words else option.flag


def _line(option: Option, kind: type[Command]) -> str:
    return entry(option, name=_name(option, kind))


if __name__ == "__main__":
    PAGE.write_text(commands_page(), encoding="utf-8")

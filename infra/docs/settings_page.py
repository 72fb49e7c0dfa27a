"""`docs/reference/settings.md`, made from the models of the command line: `python -m infra.docs.settings_page`."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Literal, get_args, get_origin

from pydantic import SecretStr

from memagent_batch.cli.options import Option, options_of
from memagent_batch.cli.settings import JobSettings

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
INTRODUCTION = """# Settings

A setting has one name and three places. The command line overrides the environment, which overrides the job file:

| place | form |
|---|---|
| command line | `--policy.chunk-tokens 5000` (`--policy.chunk_tokens` works as well) |
| environment | `MEMAGENT_POLICY__CHUNK_TOKENS=5000` |
| job file, given by `--config FILE` | `policy: {chunk_tokens: 5000}` in YAML |

`--config tiny --config mine.yaml` merges job files, setting by setting; later ones override.

Lists are `a,b` or `a b` on the command line and `[a, b]` in YAML. Objects are JSON on the command line and in
the environment. A flag takes `true`, `false` or nothing; `--no-retry-failed` turns `--retry-failed` off.
Unknown names are refused. This page is made by `python -m infra.docs.settings_page`.
"""
SECTIONS = (
    (
        "Runs over documents",
        JobSettings,
        "For `memagent answer`, `plan`, `collect`, `evaluate run` and `scan`, which can share a job file: each ignores "
        "settings that only others have. Only `collect` uses the group `rollouts`; it always draws at temperature 1, "
        "`top_p` 1 and `top_k` -1.",
    ),
)
"""Parts of the page: heading, the model that a command reads, and a sentence on it."""
KINDS = {bool: "flag", int: "integer", float: "number", SecretStr: "secret text"}


def settings_page() -> str:
    """The page as Markdown."""
    parts = [INTRODUCTION]
    seen: set[str] = set()
    for heading, model, text in SECTIONS:
        parts += [f"## {heading}\n", f"{text}\n", *_groups(options_of(model), seen=seen)]
        seen |= {key(setting) for setting in options_of(model)}
    return "\n".join(parts)


def key(option: Option) -> str:
    """What makes two entries the same: `output` of two commands differs in its description."""
    return f"{option.name} {option.info.description}"


def entry(option: Option, *, name: str = "") -> str:
    """The line of an option: its name, values, default and meaning."""
    traits = ", ".join(filter(None, [_values(option), _default(option)]))
    return f"- `{name or option.flag}` ({traits}): {' '.join((option.info.description or '').split())}"


def _groups(settings: Iterable[Option], *, seen: set[str]) -> Iterator[str]:
    """The entries of each group, without those that a part before has shown."""
    groups: dict[str, list[Option]] = {}
    for setting in settings:
        if key(setting) not in seen:
            groups.setdefault(setting.name.rpartition(".")[0], []).append(setting)
    for group, rows in groups.items():
        if group:
            yield f"### `{group}`\n"
        yield from map(entry, rows)
        yield ""


def _values(option: Option) -> str:
    kind = option.kind
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return "|".join(f"`{value}`" for value in kind)
    if get_origin(kind) is Literal:
        return "|".join(f"`{value}`" for value in get_args(kind))
    if get_origin(kind) is tuple:
        return "list"
    if get_origin(kind) is dict or not isinstance(kind, type) or kind not in KINDS:
        return "text" if kind in (str, Path) else "object"
    return KINDS[kind]


def _default(option: Option) -> str:
    default = option.info.default
    if option.info.is_required():
        return "required"
    if isinstance(default, bool):
        return "on" if default else ""
    text = ",".join(map(str, default)) if isinstance(default, tuple) else default
    if not isinstance(text, str | int | float) or text == "":
        return ""
    return f"default `{text}`".replace("\n", "\\n")


if __name__ == "__main__":
    PAGE.write_text(settings_page(), encoding="utf-8")

"""`docs/reference/settings.md`, made from the models of the command line: `python -m infra.docs.settings_page`."""

from pathlib import Path

from pydantic import SecretStr

from memagent_batch.cli.options import Option, options_of
from memagent_batch.cli.settings import JobSettings

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
INTRODUCTION = """# Settings

A setting has one name and three places. The command line overrides the environment, which overrides the job file:

- command line: `--policy.chunk-tokens 5000` (`--policy.chunk_tokens` works as well)
- environment: `MEMAGENT_POLICY__CHUNK_TOKENS=5000`
- job file, given by `--config FILE`: `policy: {chunk_tokens: 5000}` in YAML

`--config tiny --config mine.yaml` merges job files, setting by setting; later ones override.

Lists are `a,b` or `a b` on the command line and `[a, b]` in YAML. Objects are JSON on the command line and in
the environment. A flag takes `true`, `false` or nothing; `--no-retry-failed` turns `--retry-failed` off.
Unknown names are refused. A setting whose type is not named is text, or has the type of its default.

## Runs over documents

For `memagent answer`, `plan`, `collect`, `evaluate run` and `scan`, which can share a job file: each ignores settings
that only others have. `collect` always draws at temperature 1, `top_p` 1 and `top_k` -1.
"""
KINDS = {bool: "flag", int: "integer", float: "number", str: "text", Path: "text", SecretStr: "secret text"}


def settings_page() -> str:
    """The page as Markdown."""
    groups: dict[str, list[str]] = {}
    for option in options_of(JobSettings):
        groups.setdefault(option.name.rpartition(".")[0], []).append(entry(option))
    sections = ["\n".join([f"### `{group}`\n" if group else "", *lines, ""]) for group, lines in groups.items()]
    return "\n".join([INTRODUCTION.rstrip("\n"), *sections])


def entry(option: Option, *, name: str = "") -> str:
    """The line of an option: its name, values, default and meaning; a default shows what kind of value it is."""
    values, default = _values(option), _default(option)
    kind = "" if (default.startswith("default") and values in KINDS.values()) or values == "text" else values
    traits = ", ".join(filter(None, [kind, default]))
    meaning = " ".join((option.info.description or "").split())
    return f"- `{name or option.flag}`{f' ({traits})' if traits else ''}: {meaning}"


def _values(option: Option) -> str:
    if option.choices:
        return "|".join(f"`{value}`" for value in option.choices)
    if option.is_list:
        return "list"
    return "object" if option.is_object else KINDS.get(option.kind, "object")


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

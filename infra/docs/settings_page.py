"""`docs/reference/settings.md`, made from the models of the command line: `python -m infra.docs.settings_page`."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from memagent_batch.cli.options import ENV_PREFIX, Option, options_of
from memagent_batch.cli.settings import JobSettings, TrainLoopSettings, TrainSettings

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
INTRODUCTION = """# Settings

Every setting of every command, made from the code by `python -m infra.docs.settings_page`.

A setting has one name and three places. The command line goes before the environment, and the environment before the
job file:

| place | form |
|---|---|
| command line | `--policy.chunk-tokens 5000` (`--policy.chunk_tokens` works as well) |
| environment | `MEMAGENT_POLICY__CHUNK_TOKENS=5000` |
| job file, given by `--config FILE` | `policy: {chunk_tokens: 5000}` in YAML |

Lists are written `a,b` or `a b` on the command line and `[a, b]` in YAML. Objects are JSON on the command line and in
the environment. A flag takes `true`, `false` or nothing; `--no-retry-failed` turns `--retry-failed` off.
An unknown name is refused in all three places. Each entry gives option, environment variable, values and default.
"""
SECTIONS = (
    (
        "Runs over documents",
        JobSettings,
        "`memagent answer`, `plan`, `collect`, `evaluate run` and `train loop` read these. Several commands can "
        "share one job file and the same variables: each passes over settings that only other commands have. Documents "
        "and questions of `evaluate run` are those of its suite. The group `rollouts` belongs to `collect` and "
        "`train loop`. These draw at temperature 1, `top_p` 1 and `top_k` -1: they refuse other values than those and "
        "the defaults.",
    ),
    (
        "`memagent train`",
        TrainSettings,
        "`memagent train` reads these, and the group `learner` below. Its `rollouts` is a folder: with a job file that "
        "has the group of that name, give it on the command line.",
    ),
    (
        "`memagent train loop`",
        TrainLoopSettings,
        "`memagent train loop` reads the settings of a run, and these.",
    ),
)
"""Parts of the page: heading, the model that a command reads, and a sentence on it."""
UNITS = ("tokens", "seconds", "minutes", "bytes", "gib")
"""What the last word of a name says of its unit."""
BOUNDS = ((Ge, "ge", "at least"), (Gt, "gt", "above"), (Le, "le", "at most"), (Lt, "lt", "below"))
KINDS = {bool: "`true`, `false`", int: "whole number", float: "number", SecretStr: "secret text"}


def settings_page() -> str:
    """The page as Markdown."""
    parts = [INTRODUCTION]
    seen: set[str] = set()
    for heading, model, text in SECTIONS:
        parts += [f"## {heading}\n", f"{text}\n", *_groups(options_of(model), seen=seen)]
        seen |= {_key(setting) for setting in options_of(model)}
    return "\n".join(parts)


def _key(setting: Option) -> str:
    """What makes two entries the same: `output` of two commands differs in its description."""
    return f"{setting.name} {setting.info.description}"


def _groups(settings: Iterable[Option], *, seen: set[str]) -> Iterator[str]:
    """The entries of each group, without those that a part before has shown."""
    groups: dict[str, list[Option]] = {}
    for setting in settings:
        if _key(setting) not in seen:
            groups.setdefault(setting.name.rpartition(".")[0], []).append(setting)
    for group, rows in groups.items():
        if group:
            yield f"### `{group}`\n"
        yield from (_entry(setting) for setting in rows)
        yield ""


def _entry(setting: Option) -> str:
    variable = ENV_PREFIX + setting.name.upper().replace(".", "__")
    meaning = " ".join((setting.info.description or "").split())
    return f"- **`{setting.flag}`**, `{variable}`: {_values(setting)}; {_default(setting)}<br>{meaning}"


def _values(setting: Option) -> str:
    kind = setting.kind
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return ", ".join(f"`{value}`" for value in kind)
    if get_origin(kind) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(kind))
    if get_origin(kind) is tuple:
        return "list"
    if get_origin(kind) is dict or not isinstance(kind, type) or kind not in KINDS:
        return "text" if kind is str else "object"
    unit = [unit for unit in UNITS if setting.name.rpartition("_")[2] == unit and kind is not bool]
    return ", ".join([KINDS[kind], *(name.replace("gib", "GiB") for name in unit), *_bounds(setting.info)])


def _bounds(field: FieldInfo) -> list[str]:
    constraints = [*field.metadata, *_nested(field.annotation)]
    return [
        f"{words} {getattr(constraint, name):g}"
        for kind, name, words in BOUNDS
        for constraint in constraints
        if isinstance(constraint, kind)
    ]


def _nested(annotation: Any) -> Iterator[Any]:
    """Constraints inside a union, as of a number that may be left out."""
    for part in get_args(annotation):
        if get_origin(part) is Annotated:
            for item in part.__metadata__:
                yield from item.metadata if isinstance(item, FieldInfo) else [item]


def _default(setting: Option) -> str:
    default = setting.info.default
    if setting.info.is_required():
        return "required"
    if isinstance(default, bool):
        return f"default `{str(default).lower()}`"
    if isinstance(default, tuple) and default:
        return f"default `{','.join(f'{part:g}' for part in default)}`"
    return f"default `{default}`" if isinstance(default, str | int | float) and default != "" else "not set"


if __name__ == "__main__":
    PAGE.write_text(settings_page(), encoding="utf-8")

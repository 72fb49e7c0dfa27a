"""Every knob of a settings class as an option of the command line, with its help."""

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from jobs.options import HELP_ALL, OptionParser
from memagent_batch.errors import SettingsError
from memagent_batch.sections import JobSettings

PATHS = frozenset({"documents", "questions", "output", "rollouts", "loop.held_out", "reference"})
"""Knobs whose value is a path or URL."""


CONFIG = "A job file: YAML, with `name: value` on each line."
SOURCES = "Options can also stand in a YAML file (--config FILE) or in MEMAGENT_... variables."


@dataclass(frozen=True, slots=True, kw_only=True)
class Manual:
    """What the help of a command shows, and in which order."""

    common: tuple[str, ...] = ()
    """Knobs that stand first; `--help` shows them alone, `--help-all` the others too."""
    unused: tuple[str, ...] = ()
    """Knobs, and groups of them, that the command takes, so that it can share a job file, but does not use."""
    short: Mapping[str, str] = field(default_factory=dict)
    """Another name of a knob's option."""
    own: argparse.ArgumentParser | None = None
    """Options of the command that are no knobs."""
    example: str = ""
    """A command to start from."""
    page: str = "docs/reference/settings.md"
    """The page that says more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One value of the settings."""

    name: str
    """Its name with that of its group, as in a job file: `policy.chunk_tokens`."""
    kind: Any
    """Its type, without None."""
    info: FieldInfo
    """Its default and description."""

    @property
    def option(self) -> str:
        """Its option."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def is_list(self) -> bool:
        """Whether it holds several values."""
        return get_origin(self.kind) is tuple


def knobs_of(kind: type[BaseModel], *, below: str = "") -> Iterator[Knob]:
    """All knobs, group by group."""
    for name, info in kind.model_fields.items():
        plain = _without_none(info.annotation)
        if isinstance(plain, type) and issubclass(plain, BaseModel):
            yield from knobs_of(plain, below=f"{below}{name}.")
        else:
            yield Knob(name=below + name, kind=plain, info=info)


def knob_parser(
    kind: type[JobSettings], manual: Manual, *, command: str, description: str, is_whole: bool = True
) -> OptionParser:
    """A parser of `--config` and all knobs; its help shows the common ones alone, or all that the command uses."""
    short = f"{'' if is_whole else f'all options: {command} {HELP_ALL}; '}see {manual.page}"
    parser = OptionParser(
        prog=command,
        usage=f"{command} [options]",
        description=f"{description}\n\n{SOURCES}",
        epilog=f"example:\n  {manual.example}\n\n{short}" if manual.example else short,
        parents=[manual.own] if manual.own else [],
        add_help=False,
    )
    knobs = {knob.name: knob for knob in knobs_of(kind)}
    for name in manual.common:
        _add(parser, knobs.pop(name), manual)
        if name == "output":
            parser.add_argument("--config", metavar="FILE", help=CONFIG)
    if "output" not in manual.common:
        parser.add_argument("--config", metavar="FILE", help=CONFIG)
    others = parser.add_argument_group("all other options")
    for knob in knobs.values():
        _add(others, knob, manual, is_shown=is_whole)
    parser.add_argument("-h", "--help", action="store_true", help="show the common options")
    parser.add_argument(HELP_ALL, action="store_true", help="show all options")
    return parser


def knob_values(kind: type[JobSettings], options: argparse.Namespace) -> dict[str, Any]:
    """The knobs that were given, nested by group as settings are.

    Raises:
        SettingsError: a value that must be JSON is none.
    """
    values: dict[str, Any] = {}
    for knob in knobs_of(kind):
        if not hasattr(options, knob.name):
            continue
        *groups, name = knob.name.split(".")
        inner = values
        for group in groups:
            inner = inner.setdefault(group, {})
        inner[name] = _value(knob, getattr(options, knob.name))
    return values


def _add(parser: Any, knob: Knob, manual: Manual, *, is_shown: bool = True) -> None:
    names = [manual.short[knob.name], knob.option] if knob.name in manual.short else [knob.option]
    text = _help(knob) if is_shown and not _is_below(knob, manual.unused) else argparse.SUPPRESS
    shared = {"dest": knob.name, "default": argparse.SUPPRESS, "help": text}
    if knob.kind is bool:
        parser.add_argument(*names, action=argparse.BooleanOptionalAction, **shared)
    elif knob.name == "documents":
        parser.add_argument(*names, nargs="+", action="extend", metavar=_metavar(knob), **shared)
    elif knob.name == "ask":
        parser.add_argument(*names, action="append", metavar=_metavar(knob), **shared)
    else:
        parser.add_argument(*names, metavar=_metavar(knob), **shared)


def _is_below(knob: Knob, names: Iterable[str]) -> bool:
    return any(f"{knob.name}.".startswith(f"{name}.") for name in names)


def _help(knob: Knob) -> str:
    text = " ".join((knob.info.description or "").split())
    return (text + _shown_default(knob)).replace("%", "%%")


def _shown_default(knob: Knob) -> str:
    default = knob.info.default
    if knob.info.is_required():
        return " (required)"
    if knob.kind is bool or _is_object(knob) or default in (None, PydanticUndefined, "", ()):
        return ""
    shown = ",".join(f"{part:g}" for part in default) if isinstance(default, tuple) else default
    return f" (default: {shown})"


def _metavar(knob: Knob) -> str:
    if knob.name in PATHS:
        return "PATH"
    if get_origin(knob.kind) is Literal:
        return "|".join(get_args(knob.kind))
    if isinstance(knob.kind, type) and issubclass(knob.kind, StrEnum):
        return "|".join(knob.kind)
    if knob.is_list:
        return "TEXT" if knob.name == "ask" else "A,B"
    return {int: "N", float: "NUMBER", SecretStr: "SECRET"}.get(knob.kind, "JSON" if _is_object(knob) else "TEXT")


def _value(knob: Knob, given: Any) -> Any:
    """What the settings are made of: text stays text, which they read themselves; lists and objects are parsed."""
    if not isinstance(given, str) or not (knob.is_list or _is_object(knob)):
        return given
    if knob.is_list and not given.startswith("["):
        return given.split(",")
    try:
        return json.loads(given)
    except ValueError as error:
        example = '["a", "b"]' if knob.is_list else '{"key": "value"}'
        raise SettingsError(f"{knob.option} is not JSON ({error}); write it as {example}") from error


def _is_object(knob: Knob) -> bool:
    return get_origin(knob.kind) is dict


def _without_none(annotation: Any) -> Any:
    """The type of a value that is there."""
    if get_origin(annotation) not in (Union, UnionType):
        return annotation
    kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
    if len(kinds) != 1:
        return annotation
    return get_args(kinds[0])[0] if get_origin(kinds[0]) is Annotated else kinds[0]

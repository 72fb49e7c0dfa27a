"""Options of the command line, declared and parsed in one way for all commands.

Both spellings of an option work, an unknown name gets the nearest one, and a mistake is one line.
"""

import argparse
import difflib
import json
import os
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from memagent_batch.errors import SettingsError
from memagent_batch.files.options import StorageOptions
from memagent_batch.plugins import ENGINES, NAME_LIKENESS, POLICIES, REWARDS

if TYPE_CHECKING:
    from memagent_batch.files.location import Location

HELP = frozenset({"-h", "--help"})
HELP_ALL = "--help-all"
STORAGE_VARIABLE = "MEMAGENT_STORAGE_OPTIONS"
PATHS = frozenset({"documents", "questions", "again_from", "output", "rollouts", "loop.held_out", "reference"})
"""Knobs whose value is a path or URL."""

SEAMS = {seam.knob: seam for seam in (POLICIES, ENGINES, REWARDS)}
"""Knobs whose value is a kind."""

CONFIG_HELP = "A job file: YAML, with `name: value` on each line; or the name of one that is shipped, such as tiny."
SOURCES = "can also stand in a YAML file (--config FILE) or in MEMAGENT_... variables."
HELP_WIDTH = 100
"""Characters of a line of help that is wrapped."""

_OPTION = re.compile(r"--[A-Za-z][A-Za-z0-9_.-]*")


INPUT = ("documents", "questions", "ask")
"""Everyday knobs: what is read."""
BOUNDS = (
    *("limit", "limit_seed", "max_tokens", "max_cost", "max_hours"),
    *("price_per_hour", "price_per_million_prompt_tokens", "price_per_million_completion_tokens"),
)
"""Knobs of how much a run reads and costs."""
MODEL = ("model", "prompt_set", "window_tokens", "policy.kind", "policy.chunk_tokens", "engine")
"""Everyday knobs: what reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manual:
    """A command: its knobs, and what its help shows, in which order."""

    command: str
    """Its name, as it is typed."""
    about: str
    """What it does."""
    examples: tuple[str, str]
    """Two command lines to start from."""
    page: str = "docs/reference/settings.md"
    """The page that says more."""
    knobs: type[BaseModel] | None = None
    """The settings that its options, a job file and the environment set."""
    common: tuple[str, ...] = ()
    """Knobs that stand first; `--help` shows them alone, `--help-all` the others too."""
    unused: tuple[str, ...] = ()
    """Knobs, and groups of them, that the command takes, so that it can share a job file, but does not use."""
    short: Mapping[str, str] = field(default_factory=dict)
    """Another name of a knob's option."""


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


class OptionParser(argparse.ArgumentParser):
    """argparse as every command uses it: `--a_b` is `--a-b`, and a mistake raises a SettingsError."""

    def __init__(self, manual: Manual) -> None:
        """Declares the options that every command has, and those of its knobs."""
        more = f"see {manual.page}"
        if manual.common:
            more = f"all options: {manual.command} {HELP_ALL}; {more}"
        super().__init__(
            prog=manual.command,
            usage=f"{manual.command} [options]" if manual.knobs else None,
            description=manual.about,
            epilog="\n  ".join(["examples:", *manual.examples]) + f"\n\n{more}",
            allow_abbrev=False,
            formatter_class=_Formatter,
            add_help=False,
        )
        self.manual = manual
        self._hidden: list[argparse.Action] = []
        if manual.knobs:
            self._add_knobs(manual.knobs)
        self.add_argument("-h", "--help", action="store_true", help="show this help")
        if manual.common:
            self.add_argument(HELP_ALL, action="store_true", help="show all options")
        self._num_general = len(self._actions)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """The options.

        Raises:
            SettingsError: one is unknown, lacks its value or has a wrong one; names it.
            SystemExit: help was asked for, and is printed.
        """
        arguments = dashed(args)
        if wants_help(arguments):
            self._print_help(is_whole=HELP_ALL in arguments or not self.manual.common)
            raise SystemExit(0)
        names = {option for action in self._actions for option in action.option_strings}
        for argument in arguments:
            name = argument.split("=")[0]
            if _OPTION.fullmatch(name) and name not in names:
                see = f"{self.prog} {HELP_ALL if self.manual.common else '--help'}"
                raise SettingsError(f"there is no option {name}; {remedy(name, names, see=see)}")
        options, rest = self.parse_known_args(arguments, namespace)
        if rest:
            raise SettingsError(f"{rest[0]!r} belongs to no option; quote a value that has spaces or wildcards")
        return options

    def add_storage_options(self) -> None:
        """Adds the option that reaches file systems which need arguments; its value is an object."""
        text = f"arguments of the fsspec file system, JSON; `ps` shows them, but not {STORAGE_VARIABLE}"
        self.add_argument("--storage-options", type=parse_storage_options, metavar="JSON", default="{}", help=text)

    def error(self, message: str) -> NoReturn:
        """Raises what is wrong, in place of argparse's usage.

        Raises:
            SettingsError: always.
        """
        missing = message.removeprefix("the following arguments are required: ")
        text = f"{missing}: missing" if missing != message else message.removeprefix("argument ")
        text = re.sub(r"ignored explicit argument '.*'", "takes no value", text, flags=re.DOTALL)
        raise SettingsError(f"{text}; see {self.prog} --help")

    def _add_knobs(self, kind: type[BaseModel]) -> None:
        """`--config` and every knob, the common ones first."""
        knobs = {knob.name: knob for knob in knobs_of(kind)}
        for name in self.manual.common:
            _add_knob(self, knobs.pop(name), self.manual)
        self.add_argument("--config", metavar="FILE", help=CONFIG_HELP)
        others = self.add_argument_group("all other options")
        for knob in knobs.values():
            self._hidden.append(_add_knob(others, knob, self.manual))

    def _print_help(self, *, is_whole: bool) -> None:
        for action in [] if is_whole else self._hidden:
            action.help = argparse.SUPPRESS
        if self.manual.knobs:
            alone = ", ".join(action.option_strings[0] for action in self._actions[self._num_general :])
            sources = f"Options {f'other than {alone} ' if alone else ''}{SOURCES}"
            self.description = f"{self.manual.about}\n\n{textwrap.fill(sources, HELP_WIDTH, break_on_hyphens=False)}"
        print(self.format_help(), end="")


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Texts of options are wrapped; description and examples stay as they are."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34)


def knob_values(kind: type[BaseModel], options: argparse.Namespace) -> dict[str, Any]:
    """The knobs that the command line sets, nested by group as settings are.

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
        inner[name] = _parsed_value(knob, getattr(options, knob.name))
    return values


def parse_storage_options(text: str) -> StorageOptions:
    """The value of `--storage-options` of a command that has no other knobs, over that of the environment.

    Raises:
        SettingsError: one of them is not a JSON object.
    """
    in_environment = os.environ.get(STORAGE_VARIABLE, "{}")
    options = _json_object(in_environment, name=f"environment variable {STORAGE_VARIABLE}")
    return StorageOptions(options | _json_object(text, name="--storage-options"))


def output_of(options: argparse.Namespace) -> "Location":
    """Where the run of a command's `--output` writes, reached by its `--storage-options`."""
    from memagent_batch.files.location import Location

    return Location(uri=options.output, storage_options=options.storage_options)


def _json_object(text: str, *, name: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise SettingsError(f"{name} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise SettingsError(f'{name} is not a JSON object; write it as {{"key": "value"}}')
    return value


def dashed(arguments: Sequence[str]) -> list[str]:
    """The arguments, with dashes for underscores in the names of options."""
    return [_dashed(argument) for argument in arguments]


def _dashed(argument: str) -> str:
    name, equals, value = argument.partition("=")
    return name.replace("_", "-") + equals + value if _OPTION.fullmatch(name) else argument


def remedy(name: str, names: Iterable[str], *, see: str = "--help-all") -> str:
    """What to do about an unknown name: the nearest one, or where all names are listed."""
    nearest = nearest_name(name, names)
    return f"did you mean {nearest}?" if nearest else f"see {see}"


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """The most similar name, or the only one with the same end: `--policy.chunk-tokens` for `--chunk-tokens`."""
    others = list(names)
    below = [other for other in others if other.rpartition(".")[2] == name.lstrip("-").rpartition(".")[2]]
    if len(below) == 1:
        return below[0]
    return next(iter(difflib.get_close_matches(name, others, n=1, cutoff=NAME_LIKENESS)), None)


def wants_help(arguments: Sequence[str]) -> bool:
    """Whether the arguments ask for help, of either kind."""
    return not {*HELP, HELP_ALL}.isdisjoint(arguments)


def _add_knob(parser: Any, knob: Knob, manual: Manual) -> argparse.Action:
    names = [manual.short[knob.name], knob.option] if knob.name in manual.short else [knob.option]
    text = argparse.SUPPRESS if _is_below(knob, manual.unused) else _help(knob)
    shared: dict[str, Any] = {"dest": knob.name, "default": argparse.SUPPRESS, "help": text}
    if knob.kind is bool:
        shared |= {"action": argparse.BooleanOptionalAction}
    elif knob.name == "documents":
        shared |= {"nargs": "+", "action": "extend", "metavar": _metavar(knob)}
    else:
        shared |= {"action": "append" if knob.name == "ask" else "store", "metavar": _metavar(knob)}
    action: argparse.Action = parser.add_argument(*names, **shared)
    return action


def _is_below(knob: Knob, names: Iterable[str]) -> bool:
    return any(f"{knob.name}.".startswith(f"{name}.") for name in names)


def _help(knob: Knob) -> str:
    text = " ".join((knob.info.description or "").split())
    return (text + _shown_default(knob)).replace("%", "%%")


def _shown_default(knob: Knob) -> str:
    default = knob.info.default
    if knob.info.is_required():
        return " (required)"
    if knob.kind is bool or _takes_object(knob) or default in (None, PydanticUndefined, "", ()):
        return ""
    shown = ",".join(f"{part:g}" for part in default) if isinstance(default, tuple) else default
    return f" (default: {shown})"


def _metavar(knob: Knob) -> str:
    if knob.name in PATHS:
        return "PATH"
    if seam := SEAMS.get(knob.name):
        return "|".join(seam.built_in)
    if get_origin(knob.kind) is Literal:
        return "|".join(get_args(knob.kind))
    if isinstance(knob.kind, type) and issubclass(knob.kind, StrEnum):
        return "|".join(knob.kind)
    if knob.is_list:
        return "TEXT" if knob.name == "ask" else "A,B"
    return {int: "N", float: "NUMBER", SecretStr: "SECRET"}.get(knob.kind, "JSON" if _takes_object(knob) else "TEXT")


def _parsed_value(knob: Knob, text: Any) -> Any:
    """What the settings are made of: text stays text, which they read themselves; lists and objects are parsed."""
    if not isinstance(text, str) or not (knob.is_list or _takes_object(knob)):
        return text
    if knob.is_list and not text.startswith("["):
        return text.split(",")
    try:
        return json.loads(text)
    except ValueError as error:
        example = '["a", "b"]' if knob.is_list else '{"key": "value"}'
        raise SettingsError(f"{knob.option} is not JSON ({error}); write it as {example}") from error


def _takes_object(knob: Knob) -> bool:
    return get_origin(knob.kind) is dict


def _without_none(annotation: Any) -> Any:
    """The type of a value that is there."""
    if get_origin(annotation) not in (Union, UnionType):
        return annotation
    kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
    if len(kinds) != 1:
        return annotation
    return get_args(kinds[0])[0] if get_origin(kinds[0]) is Annotated else kinds[0]

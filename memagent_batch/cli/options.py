"""The options of a command: the fields of its settings, as words of a command line and as lines of its help.

pydantic-settings has a command line of its own. It splits a question at its commas, joins places that hold commas,
takes either `--flag` or `--flag true`, and names no nearest option. So the words are read here; pydantic checks values.
"""

import argparse
import difflib
import inspect
import json
import re
import textwrap
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import chain
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from memagent_batch.cli.command import Command
from memagent_batch.cli.settings import ALL_SETTINGS, Settings
from memagent_batch.errors import SettingsError
from memagent_batch.plugins import ENGINES, NAME_LIKENESS, POLICIES, REWARDS

HELP = frozenset({"-h", "--help"})
HELP_ALL = "--help-all"
SOURCES = "can also stand in a YAML file (--config FILE) or in MEMAGENT_... variables. --no-NAME turns a flag off."
HELP_WIDTH = 100
"""Characters of a line of help that is wrapped."""

INPUT = ("documents", "questions", "ask")
"""Everyday settings: what is read."""
BOUNDS = (
    *("limit", "limit_seed", "max_tokens", "max_cost", "max_hours"),
    *("price_per_hour", "price_per_million_prompt_tokens", "price_per_million_completion_tokens"),
)
"""Settings of how much a run reads and costs."""
MODEL = ("model", "prompt_set", "window_tokens", "policy.kind", "policy.chunk_tokens", "engine")
"""Everyday settings: what reads."""

WHOLE = frozenset({"documents", "ask", "sheets", "over"})
"""Lists whose parts may hold commas."""
PATHS = frozenset(
    {"documents", "questions", "again_from", "output", "rollouts", "loop.held_out", "reference", "allowed_signers"}
    | {"over", "to", "into", "sheets", "suite", "answers", "essays", "hotpotqa", "squad", "from_questions", "variants"}
    | {"job"}
)
"""Options whose value is a path or URL."""
SHORT = {"again_where": "--where"}
"""Second names of options on the command line."""
SEAMS = {seam.knob: seam for seam in (POLICIES, ENGINES, REWARDS)}
"""Settings whose value is a kind."""
_NAME = re.compile(r"--[A-Za-z][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One value of a command, and of a job file."""

    name: str
    """Its name with that of its group, as in a job file: `policy.chunk_tokens`."""
    kind: Any
    """Its type, without None."""
    info: FieldInfo
    """Its default and description."""

    @property
    def flag(self) -> str:
        """Its name on the command line."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def flags(self) -> tuple[str, ...]:
        """All its names on the command line."""
        return (SHORT[self.name], self.flag) if self.name in SHORT else (self.flag,)

    @property
    def is_list(self) -> bool:
        """Whether it holds several values."""
        return get_origin(self.kind) is tuple

    @property
    def is_object(self) -> bool:
        """Whether its value is a JSON object."""
        return get_origin(self.kind) is dict


CONFIG = Option(
    name="config",
    kind=str,
    info=FieldInfo(
        description="A job file: YAML, `name: value` on each line; or the name of one that is shipped, such as tiny."
    ),
)
"""The option of each command with settings."""


def options_of(kind: type[BaseModel], *, below: str = "") -> Iterator[Option]:
    """All options, group by group."""
    for field, info in kind.model_fields.items():
        plain, name = _without_none(info.annotation), info.alias or field
        if isinstance(plain, type) and issubclass(plain, BaseModel):
            yield from options_of(plain, below=f"{below}{name}.")
        else:
            yield Option(name=below + name, kind=plain, info=info)


def given_values(kind: type[Command], words: Sequence[str]) -> dict[str, Any]:
    """The values that a command line sets, nested by group as settings are; `config` is the job file.

    Raises:
        SettingsError: an option is unknown, lacks its value, or its value must be JSON and is not; names it.
    """
    options, texts = _options_by_flag(kind), dict[str, list[str]]()
    rest, free = deque(words), list[str]()
    while rest:
        word = rest.popleft()
        name, equals, text = word.partition("=")
        if not word.startswith("-") or word == "-":
            free.append(word)
            continue
        flag = name.replace("_", "-")
        if flag not in options:
            flags = dict.fromkeys(option.flag for option in options.values())
            raise SettingsError(f"there is no option {flag}; {remedy(flag, flags, see=help_command(kind))}")
        option = options[flag]
        if equals and flag not in option.flags:
            raise SettingsError(f"{flag}: takes no value; see {kind.command} --help")
        values = [text] if equals else _following(option, rest, flag=flag, kind=kind)
        texts[option.name] = [*texts.get(option.name, ()), *values] if option.is_list else values
    _place_words(kind, free, texts)
    by_name = {option.name: option for option in options.values()}
    return _nested({name: _parsed(by_name[name], values) for name, values in texts.items()})


def wants_help(words: Sequence[str]) -> bool:
    """Whether the words ask for help, of either kind."""
    return not {*HELP, HELP_ALL}.isdisjoint(words)


def help_command(kind: type[Command]) -> str:
    """The command that shows all options."""
    return f"{kind.command} {HELP_ALL if kind.common else '--help'}"


def help_text(kind: type[Command], *, is_whole: bool) -> str:
    """The help of a command; of one with common settings only these, unless it is the whole."""
    more = f"all options: {help_command(kind)}; see {kind.page}" if kind.common else f"see {kind.page}"
    parser = argparse.ArgumentParser(
        prog=kind.command,
        usage=" ".join([kind.command, *(_place(kind, name) for name in kind.words), "[options]"]),
        description="\n\n".join([inspect.cleandoc(kind.__doc__ or ""), *_sources(kind)]),
        epilog="\n  ".join(["examples:", *kind.examples]) + f"\n\n{more}",
        formatter_class=partial(argparse.RawDescriptionHelpFormatter, max_help_position=34),
        add_help=False,
    )
    options = {option.name: option for option in options_of(kind) if not _is_below(option.name, kind.unused)}
    common = [options.pop(name) for name in kind.common] + ([CONFIG] if issubclass(kind, Settings) else [])
    others = sorted(options.values(), key=lambda option: option.name == "storage_options")  # last, since few need it
    for option in common or others:
        _add_help(parser, option, kind)
    group = parser.add_argument_group("all other options")
    for option in others if common and is_whole else ():
        _add_help(group, option, kind)
    return parser.format_help()


def remedy(name: str, names: Iterable[str], *, see: str = HELP_ALL) -> str:
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


def _options_by_flag(kind: type[Command]) -> dict[str, Option]:
    """The options by each of their names on the command line."""
    options = [*options_of(kind), *([CONFIG] if issubclass(kind, Settings) else [])]
    by_flag = {flag: option for option in options for flag in option.flags}
    return by_flag | {_negative(option): option for option in options if option.kind is bool}


def _negative(option: Option) -> str:
    return f"--no-{option.flag.removeprefix('--')}"


def _following(option: Option, rest: deque[str], *, flag: str, kind: type[Command]) -> list[str]:
    """The words behind an option that are its values, taken from the rest."""
    if option.kind is bool:
        is_written = flag == option.flag and rest and rest[0] in {"true", "false"}
        return [rest.popleft() if is_written else str(flag == option.flag).lower()]
    values: list[str] = []
    takes_more = option.is_list and option.name != "ask"
    while rest and (takes_more or not values) and not _NAME.fullmatch(rest[0].partition("=")[0]):
        values.append(rest.popleft())
    if not values:
        raise SettingsError(f"{flag}: expected a value; see {kind.command} --help")
    return values


def _place_words(kind: type[Command], free: list[str], texts: dict[str, list[str]]) -> None:
    """Gives the words that stand without an option to the options that take them, in their order."""
    lists = {option.name for option in options_of(kind) if option.is_list}
    for name in kind.words:
        if free and name not in texts:
            texts[name] = free[:] if name in lists else free[:1]
            del free[: len(texts[name])]
    if free:
        raise SettingsError(f"{free[0]!r} belongs to no option; quote a value that has spaces or wildcards")


def _parsed(option: Option, values: list[str]) -> Any:
    """What the settings are made of: text stays text, which they read themselves; lists and objects are parsed."""
    if option.is_object:
        return _json(values[-1], option=option, example='{"key": "value"}')
    if not option.is_list:
        return values[-1]
    if option.name in WHOLE:
        return values
    parts = [
        _json(each, option=option, example='["a", "b"]') if each[:1] == "[" else each.split(",") for each in values
    ]
    return list(chain.from_iterable(parts))


def _json(text: str, *, option: Option, example: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise SettingsError(f"{option.flag} is not JSON ({error}); write it as {example}") from error


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for path, value in values.items():
        *groups, name = path.split(".")
        inner = nested
        for group in groups:
            inner = inner.setdefault(group, {})
        inner[name] = value
    return nested


def _sources(kind: type[Command]) -> list[str]:
    """A paragraph on where else the options can stand."""
    if not issubclass(kind, Settings):
        return []
    alone = ", ".join(option.flag for option in options_of(kind) if option.name.split(".")[0] not in ALL_SETTINGS)
    text = f"Options {f'other than {alone} ' if alone else ''}{SOURCES}"
    return [textwrap.fill(text, HELP_WIDTH, break_on_hyphens=False)]


def _place(kind: type[Command], name: str) -> str:
    """A word of the usage."""
    option = next(option for option in options_of(kind) if option.name == name)
    shown = f"{name.upper()}{' ...' if option.is_list else ''}"
    return shown if option.info.is_required() else f"[{shown}]"


def _add_help(parser: Any, option: Option, kind: type[Command]) -> None:
    text = (" ".join((option.info.description or "").split()) + _shown_default(option)).replace("%", "%%")
    if option.kind is bool:
        parser.add_argument(*option.flags, action="store_true", help=text)
    else:
        parser.add_argument(*option.flags, metavar=_metavar(option, kind), help=text)


def _is_below(name: str, groups: Iterable[str]) -> bool:
    return any(f"{name}.".startswith(f"{group}.") for group in groups)


def _shown_default(option: Option) -> str:
    default = option.info.default
    if option is CONFIG:
        return ""
    if option.info.is_required():
        return " (required)"
    if option.kind is bool or option.is_object or default in (None, PydanticUndefined, "", ()):
        return ""
    shown = ",".join(part if isinstance(part, str) else f"{part:g}" for part in default) if option.is_list else default
    return f" (default: {shown})"


def _metavar(option: Option, kind: type[Command]) -> str:
    if option.name in kind.words:
        return option.name.upper()
    if choices := SEAMS[option.name].built_in if option.name in SEAMS else _choices(option.kind):
        return "|".join(choices)
    if option.name in PATHS:
        return "PATH"
    if option.is_list:
        return "TEXT" if option.name == "ask" else "A,B"
    return {int: "N", float: "NUMBER", SecretStr: "SECRET"}.get(option.kind, "JSON" if option.is_object else "TEXT")


def _choices(kind: Any) -> tuple[str, ...]:
    """The values that can be chosen, if only some can."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    return tuple(kind) if isinstance(kind, type) and issubclass(kind, StrEnum) else ()


def _without_none(annotation: Any) -> Any:
    """The type of a value that is there."""
    if get_origin(annotation) not in (Union, UnionType):
        return annotation
    kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
    if len(kinds) != 1:
        return annotation
    return get_args(kinds[0])[0] if get_origin(kinds[0]) is Annotated else kinds[0]

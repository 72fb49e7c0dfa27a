"""A command's settings: its fields as words of a command line and lines of its help; job file < environment < words.

pydantic-settings has a command line of its own. It splits a question at its commas, joins places that hold commas,
takes either `--flag` or `--flag true`, and names no nearest option. So the words are read here; pydantic checks values.
What is wrong is a SettingsError that names the option and what to do. Only this file reads settings from outside.
"""

import argparse
import inspect
import json
import logging
import os
import re
import textwrap
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial, reduce
from itertools import chain
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_origin

import yaml
from pydantic import BaseModel, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from pydantic_settings import BaseSettings, EnvSettingsSource
from pydantic_settings.exceptions import SettingsError as SourceError

from memagent_batch.cli.settings import ALL_SETTINGS, Command, Settings
from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.problems import problem_line, remedy, setting_of
from memagent_batch.config.section import ConfigT, fields_of, merged
from memagent_batch.errors import SettingsError
from memagent_batch.plugins import ENGINES, POLICIES, REWARDS

HELP = frozenset({"-h", "--help"})
HELP_ALL = "--help-all"
SOURCES = "can also stand in a YAML file (--config FILE) or in MEMAGENT_... variables. --no-NAME turns a flag off."
HELP_WIDTH = 100
"""Characters of a line of help that is wrapped."""
INPUT = ("documents", "questions", "ask")
"""Everyday settings: what is read."""
MODEL = ("model", "prompt_set", "window_tokens", "policy.kind", "policy.chunk_tokens", "engine")
"""Everyday settings: what reads."""
WHOLE = frozenset({"config", "documents", "document", "ask", "sheets", "over", "output"})
"""Lists whose parts may hold commas."""
ONE_VALUE = frozenset({"ask", "config"})
"""Lists that take one value behind each mention of the option."""
SHORT = {"again_where": "--where"}
"""Second names of options on the command line."""
SEAMS = {seam.setting: seam for seam in (POLICIES, ENGINES, REWARDS)}
"""Settings whose value is a kind."""
log = logging.getLogger(__name__)
_NAME = re.compile(r"--[A-Za-z][A-Za-z0-9_.-]*")
PACKAGE = Path(__file__).resolve().parents[1]
JOB_FILES = PACKAGE / "jobs" if (PACKAGE / "jobs").is_dir() else PACKAGE.parent / "jobs"
"""The job files that come with the project: in the package of a wheel, at the top of a checkout."""
TRAINED_WITH = {"reader-135m": "reader"}
"""Models that come with the project, with the job file that has the settings of their training."""
ENV_PREFIX = "MEMAGENT_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One value of a command, and of a job file."""

    name: str
    """Its name with that of its group, as in a job file: `policy.chunk_tokens`."""
    kind: Any
    """Its type, without None."""
    info: FieldInfo

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
        return get_origin(self.kind) in (dict, Mapping)

    @property
    def choices(self) -> tuple[str, ...]:
        """The values that it can have, if these are few words."""
        if get_origin(self.kind) is Literal:
            return get_args(self.kind)
        return tuple(self.kind) if isinstance(self.kind, type) and issubclass(self.kind, StrEnum) else ()


CONFIG = Option(
    name="config",
    kind=tuple[str, ...],
    info=FieldInfo(
        description="A job file: YAML, `name: value` on each line; or the name of one that is shipped, such as tiny. "
        "Of several, a later one goes before an earlier one, setting by setting."
    ),
)
"""The option of each command with settings."""


def options_of(kind: type[BaseModel]) -> Iterator[Option]:
    """All options, group by group."""
    for name, plain, info in fields_of(kind):
        yield Option(name=name, kind=plain, info=info)


def given_values(kind: type[Command], words: Sequence[str]) -> dict[str, Any]:
    """The values that a command line sets, nested by group as settings are; `config` has the job files."""
    options, texts = _options_by_flag(kind), dict[str, list[str]]()
    rest, free = deque(words), list[str]()
    switches: dict[str, str] = {}  # by the word behind them
    while rest:
        word = rest.popleft()
        name, equals, text = word.partition("=")
        if not word.startswith("-") or word == "-":
            free.append(word)
            continue
        flag = name.replace("_", "-")
        if flag not in options:
            names = dict.fromkeys(option.flag for option in options.values())
            raise SettingsError(f"there is no option {flag}; {remedy(flag, names, see=help_command(kind))}")
        option = options[flag]
        if equals and flag not in option.flags:
            raise SettingsError(f"{flag}: takes no value; see {kind.command} --help")
        values = [text] if equals else _following(option, rest, flag=flag, kind=kind)
        if option.kind is bool and rest:
            switches[rest[0]] = flag
        texts[option.name] = [*texts.get(option.name, ()), *values] if option.is_list else values
    _place_words(kind, free, texts, switches=switches)
    by_name = {option.name: option for option in options.values()}
    return _nested({name: _parsed_value(by_name[name], values) for name, values in texts.items()})


def help_command(kind: type[Command]) -> str:
    """The command that shows all options."""
    return f"{kind.command} {HELP_ALL if kind.common else '--help'}"


def help_text(kind: type[Command], *, is_whole: bool) -> str:
    """The help of a command; of one with common settings only these, unless it is the whole."""
    options = {option.name: option for option in options_of(kind)}
    description = [inspect.cleandoc(kind.__doc__ or "")]
    if issubclass(kind, Settings):  # where else its options can stand
        alone = ", ".join(option.flag for name, option in options.items() if name.split(".")[0] not in ALL_SETTINGS)
        text = f"Options {f'other than {alone} ' if alone else ''}{SOURCES}"
        description.append(textwrap.fill(text, HELP_WIDTH, break_on_hyphens=False))
    more = f"{f'all options: {help_command(kind)}; ' if kind.common else ''}see {' and '.join(kind.pages)}"
    parser = argparse.ArgumentParser(
        prog=kind.command,
        usage=" ".join([kind.command, *(_usage_word(options[name]) for name in kind.words), "[options]"]),
        description="\n\n".join(description),
        epilog="\n  ".join(["examples:", *kind.examples]) + f"\n\n{more}",
        formatter_class=partial(argparse.RawDescriptionHelpFormatter, max_help_position=34),
        add_help=False,
    )
    used = [option for name, option in options.items() if not _is_below(name, kind.unused) and name not in kind.common]
    used.sort(key=lambda option: option.name == "storage_options")  # last, since few need it
    common = [options[name] for name in kind.common] + ([CONFIG] if issubclass(kind, Settings) else [])
    for option in common or used:
        _add_help(parser, option, kind)
    group = parser.add_argument_group("all other options")
    for option in used if common and is_whole else ():
        _add_help(group, option, kind)
    return parser.format_help()


def _usage_word(option: Option) -> str:
    shown = f"{option.name.upper()}{' ...' if option.is_list else ''}"
    return shown if option.info.is_required() else f"[{shown}]"


def _is_below(name: str, groups: Sequence[str]) -> bool:
    """Whether a setting is one of these, or of one of these groups."""
    return f"{name}.".startswith(tuple(f"{group}." for group in groups))


def _add_help(parser: Any, option: Option, kind: type[Command]) -> None:
    text = (" ".join((option.info.description or "").split()) + _shown_default(option)).replace("%", "%%")
    if option.kind is bool:
        parser.add_argument(*option.flags, action="store_true", help=text)
    else:
        parser.add_argument(*option.flags, metavar=_metavar(option, kind), help=text)


def _shown_default(option: Option) -> str:
    default = option.info.default
    if option.info.is_required():
        return "" if option is CONFIG else " (required)"
    if option.kind is bool or option.is_object or default in (None, PydanticUndefined, "", ()):
        return ""
    shown = ",".join(part if isinstance(part, str) else f"{part:g}" for part in default) if option.is_list else default
    return f" (default: {shown})"


def _metavar(option: Option, kind: type[Command]) -> str:
    if option.name in kind.words:
        return option.name.upper()
    if choices := SEAMS[option.name].built_in if option.name in SEAMS else option.choices:
        return "|".join(choices)
    if option.is_list:
        return "TEXT" if option.name in ONE_VALUE else "TEXT ..." if option.name in WHOLE else "A,B"
    return {int: "N", float: "NUMBER", SecretStr: "SECRET"}.get(option.kind, "JSON" if option.is_object else "TEXT")


def read_settings(kind: type[ConfigT], given: Mapping[str, Any], *, configs: Sequence[str]) -> ConfigT:
    """The settings: job files, in their order < environment < words (`given`), without those of other commands."""
    names = ALL_SETTINGS if issubclass(kind, Settings) else {"storage_options"}
    if issubclass(kind, Command):
        names = names.difference(*(others for name, others in kind.replaces.items() if name in given))
    try:
        job_files = [_job_file(config, kind) for config in configs]
        outside = reduce(merged, [*job_files, _environment_settings(kind)])
        used = {name: value for name, value in outside.items() if name in names & kind.model_fields.keys()}
        return kind(**merged(used, given))
    except ValidationError as error:
        raise SettingsError(readable(error, kind=kind)) from error


def read_yaml(file: Path, *, option: str) -> Any:
    """The content of a YAML file that an option names; of `--config` also the name of a job file that is shipped."""
    shipped = JOB_FILES / f"{file}.yaml"
    if option == "--config" and not file.exists() and shipped.parent == JOB_FILES and shipped.exists():
        file = shipped
    if file.is_dir():
        raise SettingsError(f"{option}: {file} is a folder; name a YAML file in it")
    if not file.exists():
        names = ", ".join(sorted(each.stem for each in JOB_FILES.glob("*.yaml")))
        others = f"; these come with the project: {names}" if option == "--config" else ""
        raise SettingsError(f"{option}: {file} is not there{others}")
    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        raise SettingsError(f"{option}: {file} can't be read as YAML: {_without_content(error)}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsError(f"{option}: {file} can't be read as YAML: {' '.join(str(error).split())}") from error


def warn_of_untrained_policy(agent: AgentConfig) -> None:
    """Logs a warning if an included model is used with other policy settings than it was trained with."""
    if agent.model not in TRAINED_WITH:
        return
    config = TRAINED_WITH[agent.model]
    trained = read_yaml(JOB_FILES / f"{config}.yaml", option="--config")["policy"]
    others = [f"policy.{name}" for name, value in trained.items() if getattr(agent.policy, name) != value]
    if others:
        log.warning(
            f"model: {agent.model} was trained with the settings of --config {config}, and this job has others: "
            f"{', '.join(others)}; add --config {config}, and leave these out"
        )


def readable(error: ValidationError, *, kind: type[BaseModel]) -> str:
    """Each wrong setting on a line, by the name that it has in a job file, with what to do."""
    return "\n  ".join(_problem_line(problem, kind=kind) for problem in error.errors())


def _options_by_flag(kind: type[Command]) -> dict[str, Option]:
    options = [*options_of(kind), *([CONFIG] if issubclass(kind, Settings) else [])]
    by_flag = {flag: option for option in options for flag in option.flags}
    return by_flag | {f"--no-{option.flag.removeprefix('--')}": option for option in options if option.kind is bool}


def _following(option: Option, rest: deque[str], *, flag: str, kind: type[Command]) -> list[str]:
    """The words behind an option that are its values, taken from the rest."""
    if option.kind is bool:
        is_written = flag == option.flag and rest and rest[0] in {"true", "false"}
        return [rest.popleft() if is_written else str(flag == option.flag).lower()]
    values: list[str] = []
    takes_more = option.is_list and option.name not in ONE_VALUE
    while rest and (takes_more or not values) and not _NAME.fullmatch(rest[0].partition("=")[0]):
        values.append(rest.popleft())
    if not values:
        raise SettingsError(f"{flag}: expected a value; see {kind.command} --help")
    return values


def _place_words(
    kind: type[Command], free: list[str], texts: dict[str, list[str]], *, switches: Mapping[str, str]
) -> None:
    """Gives the words that stand without an option to the options that take them, in their order."""
    lists = {option.name for option in options_of(kind) if option.is_list}
    for name in kind.words:
        if free and name not in texts:
            texts[name] = free[:] if name in lists else free[:1]
            del free[: len(texts[name])]
    if free and (flag := switches.get(free[0])):
        raise SettingsError(f"{flag} takes true or false, not {free[0]!r}")
    if free:
        raise SettingsError(f"{free[0]!r} belongs to no option; quote a value that has spaces or wildcards")


def _parsed_value(option: Option, values: list[str]) -> Any:
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


def _job_file(config: str, kind: type[BaseModel]) -> dict[str, Any]:
    settings = read_yaml(Path(config), option="--config")
    if not isinstance(settings, dict | None):
        raise SettingsError(f"--config: {config} holds no settings; write one on each line, as `name: value`")
    for name in settings or ():
        if name not in ALL_SETTINGS:
            advice = remedy(str(name), [option.name for option in options_of(kind)], see=HELP_ALL)
            raise SettingsError(f"{name}: there is no such setting; {advice}")
    return settings or {}


def _environment_settings(kind: type[BaseModel]) -> dict[str, Any]:
    """The settings of the environment; a command without a job file takes only `storage_options` from there."""
    for variable in os.environ if issubclass(kind, Settings) else ():
        name = variable.removeprefix(ENV_PREFIX).split("__")[0].lower()
        if variable.startswith(ENV_PREFIX) and name not in ALL_SETTINGS:
            names = (f"{ENV_PREFIX}{option.name.upper().replace('.', '__')}" for option in options_of(kind))
            advice = remedy(variable, names, see=HELP_ALL)
            raise SettingsError(f"environment variable {variable}: there is no setting {name!r}; {advice}")
    source = EnvSettingsSource(cast(type[BaseSettings], kind), env_prefix=ENV_PREFIX, env_nested_delimiter="__")
    try:
        return source()
    except SourceError as error:
        variable = ENV_PREFIX + str(error).partition('"')[2].partition('"')[0].upper()
        raise SettingsError(f"environment variable {variable} is not JSON: {error.__cause__}") from error


def _without_content(error: yaml.MarkedYAMLError) -> str:
    """The problem and its place, without the line itself, which may hold a secret."""
    problem = (error.problem or "not YAML").partition("'")[0].strip()
    mark = error.problem_mark
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else problem


def _problem_line(problem: Mapping[str, Any], *, kind: type[BaseModel]) -> str:
    name = setting_of(problem)
    place, flag = name, f"--{name.replace('_', '-')}"
    missing = f"missing; give {flag}, or set it in the job file"
    if issubclass(kind, Command) and not (issubclass(kind, Settings) and name.split(".")[0] in ALL_SETTINGS):
        place = name.upper() if name in kind.words else flag
        missing = f"missing; see {kind.command} --help"
    return problem_line(problem, kind=kind, see=HELP_ALL, place=place, missing=missing)

"""The knobs as users write them, flat: job file (YAML) < environment (`MEMAGENT_...`) < command line.

The only place that reads knobs from the environment. What it reads becomes a plain value of `memagent_batch.config`.
"""

import os
import re
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar, cast

import yaml
from pydantic import BaseModel, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, NoDecode
from pydantic_settings.exceptions import SettingsError as SourceError

from memagent_batch.cli.options import knobs_of, nearest_name, remedy
from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import JobConfig, RunConfig
from memagent_batch.config.section import Section, TextOrTexts, merged
from memagent_batch.config.sources import SourceConfig
from memagent_batch.config.training import LearnerConfig, LoopConfig, TrainConfig, TrainLoopConfig
from memagent_batch.errors import SettingsError
from memagent_batch.plugins import ENGINES, POLICIES, REWARDS, problem_message

PACKAGE = Path(__file__).resolve().parents[1]
JOB_FILES = PACKAGE / "jobs" if (PACKAGE / "jobs").is_dir() else PACKAGE.parent / "jobs"
"""The job files that come with the project: in the package of a wheel, at the top of a checkout."""
ENV_PREFIX = "MEMAGENT_"
DOCUMENTS = SourceConfig.model_fields["documents"].description

PROBLEM_WORDS = {
    "int_parsing": "{input} is no whole number",
    "int_type": "{input} is no whole number",
    "int_from_float": "{input} is no whole number",
    "float_parsing": "{input} is no number",
    "float_type": "{input} is no number",
    "finite_number": "{input} is no number",
    "bool_parsing": "{input} is neither true nor false",
    "bool_type": "{input} is neither true nor false",
    "greater_than_equal": "{input} is below {ge}, the least",
    "greater_than": "{input} is not above {gt}",
    "less_than_equal": "{input} is above {le}, the most",
    "less_than": "{input} is not below {lt}",
    "string_too_short": "this is empty",
    "string_type": "this is no text; put it in quotes",
    "string_unicode": "this is not valid UTF-8; write it as UTF-8",
    "tuple_type": "this is no list; write it as [a, b]",
    "list_type": "this is no list; write it as [a, b]",
    "dict_type": "this holds no names with values; write them as {{name: value}}",
    "model_type": "this is a group of knobs; write them as {{name: value}}",
    "model_attributes_type": "this is a group of knobs; write them as {{name: value}}",
}
"""What pydantic's types of errors mean to a user."""
NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?")
SHOWN_CHARACTERS = 40
"""Longest value that a line shows."""
CHOICES = frozenset({"enum", "literal_error"})

ConfigT = TypeVar("ConfigT", bound=BaseModel)
SettingsT = TypeVar("SettingsT", bound="Settings")


class Settings(Section):
    """Knobs of a command, flat."""

    def part(self, kind: type[ConfigT], **others: Any) -> ConfigT:
        """The knobs of one configuration, those alone that were set, and its other parts."""
        names = self.model_fields_set & kind.model_fields.keys()
        return kind(**{name: getattr(self, name) for name in names}, **others)


class ReaderSettings(Settings, AgentConfig, RunConfig):
    """Knobs of a command that reads with an agent; the documents come from elsewhere."""

    allow_code: bool = False
    """Allows `policy.kind`, `engine` and `rollouts.reward` to name code of yours as package.module:name, which is then
    imported and run."""

    @model_validator(mode="after")
    def _check_plugins(self) -> Self:
        """Each kind is there, and code of the user's is allowed; a SettingsError, since it says all that is needed."""
        kinds = ((POLICIES, self.policy.kind), (ENGINES, self.engine), (REWARDS, self.rollouts.reward))
        for seam, kind in kinds:
            seam.require(kind, allows_code=self.allow_code)
        return self

    @property
    def agent(self) -> AgentConfig:
        """The agent."""
        return self.part(AgentConfig)


class JobSettings(ReaderSettings, SourceConfig):
    """Knobs of a job over documents."""

    documents: Annotated[
        TextOrTexts, NoDecode, Field(min_length=1, description=SourceConfig.model_fields["documents"].description)
    ]

    def job(self) -> JobConfig:
        """The job."""
        return self.part(JobConfig, agent=self.agent)


class TrainLoopSettings(JobSettings):
    """Knobs of `memagent train loop`."""

    learner: LearnerConfig = LearnerConfig()
    """How weights are updated."""
    loop: LoopConfig = LoopConfig()
    """How long it goes on, and what it keeps."""

    def training(self) -> TrainLoopConfig:
        """The loop."""
        return self.part(TrainLoopConfig, agent=self.agent, sources=self.part(SourceConfig))


class TrainSettings(Settings, TrainConfig):
    """Knobs of `memagent train`."""

    def training(self) -> TrainConfig:
        """The epoch."""
        return self.part(TrainConfig)


ALL_KNOBS = frozenset({*TrainLoopSettings.model_fields, *TrainSettings.model_fields})
"""First names of the knobs of all commands. A job file and the environment serve several commands: each passes over
the knobs that only others have."""


def job_of(**knobs: Any) -> JobConfig:
    """The job of some knobs, by the names that a job file has."""
    return JobSettings(**knobs).job()


def read_settings(kind: type[SettingsT], given: Mapping[str, Any], *, config: str | None) -> SettingsT:
    """The settings: job file (`--config`) < environment < command line. Knobs of other commands are passed over.

    Args:
        kind: The knobs of the command.
        given: Knobs of the command line, nested by group.
        config: The job file.

    Raises:
        SettingsError: a knob is unknown, missing or wrong; names it.
    """
    _require_known_environment(kind)
    try:
        source = EnvSettingsSource(cast(type[BaseSettings], kind), env_prefix=ENV_PREFIX, env_nested_delimiter="__")
        others = ALL_KNOBS - kind.model_fields.keys()
        knobs = merged(merged(_job_file(config), source()), given)
        return kind(**{name: value for name, value in knobs.items() if name not in others})
    except ValidationError as error:
        raise SettingsError(readable(error, kind=kind)) from error
    except SourceError as error:
        raise SettingsError(f"settings can't be read: {error}") from error


def config_file(config: str) -> Path:
    """The job file that `--config` names: a path, or the name of one that comes with the project, such as `tiny`."""
    shipped = JOB_FILES / f"{config}.yaml"
    return shipped if not Path(config).exists() and shipped.parent == JOB_FILES and shipped.exists() else Path(config)


def read_yaml(file: Path, *, option: str) -> Any:
    """The content of a YAML file that an option names.

    Raises:
        SettingsError: it is not there or no YAML; names the option, and the line but not its content.
    """
    if file.is_dir():
        raise SettingsError(f"{option}: {file} is a folder; name a YAML file in it")
    if not file.exists():
        raise SettingsError(f"{option}: {file} is not there{_shipped() if option == '--config' else ''}")
    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        raise SettingsError(f"{option}: {file} can't be read as YAML: {_without_content(error)}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsError(f"{option}: {file} can't be read as YAML: {' '.join(str(error).split())}") from error


def readable(error: ValidationError, *, kind: type[BaseModel]) -> str:
    """Each wrong knob on a line, by the name that it has in a job file, with what to do."""
    names = [knob.name for knob in knobs_of(kind)]
    return "\n  ".join(_problem_line(problem, names=names) for problem in error.errors())


def _job_file(config: str | None) -> dict[str, Any]:
    """The knobs of the job file."""
    if config is None:
        return {}
    knobs = read_yaml(config_file(config), option="--config")
    if not isinstance(knobs, dict | None):
        raise SettingsError(f"--config: {config} holds no knobs; write one on each line, as `name: value`")
    return knobs or {}


def _shipped() -> str:
    return f"; these come with the project: {', '.join(sorted(file.stem for file in JOB_FILES.glob('*.yaml')))}"


def _without_content(error: yaml.MarkedYAMLError) -> str:
    """The problem and its place, without the line itself, which may hold a secret."""
    problem = (error.problem or "no YAML").partition("'")[0].strip()
    mark = error.problem_mark
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else problem


def _require_known_environment(kind: type[BaseModel]) -> None:
    for name in os.environ:
        if name.startswith(ENV_PREFIX):
            knob = name.removeprefix(ENV_PREFIX).split("__")[0].lower()
            if knob not in ALL_KNOBS:
                names = [f"{ENV_PREFIX}{other.name.upper().replace('.', '__')}" for other in knobs_of(kind)]
                raise SettingsError(f"environment variable {name}: there is no knob {knob!r}; {remedy(name, names)}")


def _problem_line(problem: Mapping[str, Any], *, names: list[str]) -> str:
    named = takewhile(lambda part: isinstance(part, str), problem["loc"])  # behind a number stands the form of a value
    knob = ".".join(map(str, named))
    which = "".join(f", number {part + 1}" for part in problem["loc"] if isinstance(part, int))
    text = _explanation(problem, knob=knob, names=names)
    return f"{knob}{which}: {text}" if knob else text


def _explanation(problem: Mapping[str, Any], *, knob: str, names: list[str]) -> str:
    kind, message = problem["type"], problem_message(problem)
    if kind == "extra_forbidden":
        return f"there is no such knob; {remedy(knob, names)}"
    if kind == "missing":
        return f"missing; give --{knob.replace('_', '-')}, or set it in the job file"
    shown = _shown_input(problem["input"])
    if kind in CHOICES:
        return _choice(shown, message=message)
    return PROBLEM_WORDS[kind].format(input=shown, **problem.get("ctx", {})) if kind in PROBLEM_WORDS else message


def _choice(shown: str, *, message: str) -> str:
    """The values that may be chosen, and the nearest of them."""
    choices = message.removeprefix("Input should be ")
    nearest = nearest_name(shown.strip("'"), choices.replace(" or ", ", ").replace("'", "").split(", "))
    return f"{shown} is none of {choices}" + (f"; did you mean {nearest}?" if nearest else "")


def _shown_input(value: Any) -> str:
    """A value that was given, as far as a line has room."""
    if not isinstance(value, str | int | float) or len(str(value)) > SHOWN_CHARACTERS:
        return "this"
    return value if isinstance(value, str) and NUMBER.fullmatch(value) else repr(value)

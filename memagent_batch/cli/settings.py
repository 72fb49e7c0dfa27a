"""What a command is: its fields are its options, its docstring is its help; and the settings of jobs."""

import json
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator
from pydantic_settings import NoDecode

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.ingest import IngestConfig
from memagent_batch.config.job import JobConfig, RunConfig
from memagent_batch.config.section import ConfigT, Section, Text, TextOrTexts
from memagent_batch.config.sources import SourceConfig, Storage
from memagent_batch.masking import printable
from memagent_batch.plugins import CONVERTERS, ENGINES, POLICIES, REWARDS

if TYPE_CHECKING:
    from memagent_batch.data.store.location import Location


class Command(Section):
    """A command with its options."""

    command: ClassVar[str]
    """As it is typed: `memagent review make`."""
    examples: ClassVar[tuple[str, ...]]
    """Command lines to start from."""
    pages: ClassVar[tuple[str, ...]] = ("docs/reference/settings.md",)
    """The pages that say more."""
    words: ClassVar[tuple[str, ...]] = ()
    """Options whose values may stand without their names, in this order: `memagent page out/`."""
    common: ClassVar[tuple[str, ...]] = ()
    """Settings that stand first; `--help` shows them alone, `--help-all` the others too."""
    replaces: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Options that stand for settings of the job file, which are then not read there."""
    unused: ClassVar[tuple[str, ...]] = ()
    """Settings, and groups of them, that the command takes, so that it can share a job file, but does not use."""

    def run(self) -> None:
        """Does what the command is for."""
        raise NotImplementedError


class JsonCommand(Command):
    """A command that has lines for people, and JSON for programs."""

    as_json: bool = Field(default=False, alias="json")
    """Print JSON, as always if the output is not a terminal."""

    def report(self, values: Any, lines: Iterable[str], *, indent: int | None = 2) -> None:
        """Prints lines on a terminal, and JSON with `--json` and to anything else: a pipe, a file, a program."""
        if self.as_json or not sys.stdout.isatty():
            print(json.dumps(values, indent=indent, ensure_ascii=False))
        else:
            print("\n".join(map(printable, lines)))


class StorageCommand(Command, Storage):
    """A command that reaches files and has no settings of a job."""

    def locate(self, uri: str) -> "Location":
        """A place, reached by `--storage-options`."""
        from memagent_batch.data.store.location import Location

        return Location(uri=uri, storage_options=self.storage_options)


class OutputCommand(StorageCommand):
    """A command that looks at an output."""

    words: ClassVar[tuple[str, ...]] = ("output",)
    output: Text
    """The output of `memagent answer` or `memagent scan`: a folder or any fsspec URL."""

    @property
    def location(self) -> "Location":
        """The output."""
        return self.locate(self.output)


class OutputsCommand(StorageCommand):
    """A command that looks at one output, or at several as one scan."""

    words: ClassVar[tuple[str, ...]] = ("output",)
    output: Annotated[TextOrTexts, Field(min_length=1)]
    """The output of `memagent answer` or `memagent scan`: a folder or fsspec URL; or those of slices, as one scan."""

    @property
    def locations(self) -> "list[Location]":
        """The outputs."""
        return [self.locate(output) for output in self.output]


class Settings(Section):
    """Settings of a command, flat."""

    def part(self, kind: type[ConfigT], **others: Any) -> ConfigT:
        """The settings of one configuration, those alone that were set, and its other parts."""
        names = self.model_fields_set & kind.model_fields.keys()
        return kind(**{name: getattr(self, name) for name in names}, **others)


class ReaderSettings(Settings, AgentConfig, RunConfig):
    """Settings of a command that reads with an agent; the documents come from elsewhere."""

    allow_code: bool = False
    """Allow `policy.kind`, `engine`, `rollouts.reward` and `ingest.converter` to run your code
    (package.module:name)."""

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
    """Settings of a job over documents."""

    documents: Annotated[
        TextOrTexts, NoDecode, Field(min_length=1, description=SourceConfig.model_fields["documents"].description)
    ]

    @model_validator(mode="after")
    def _check_converters(self) -> Self:
        require_converters(self.ingest, allows_code=self.allow_code)
        return self

    def job(self) -> JobConfig:
        """The job."""
        return self.part(JobConfig, agent=self.agent)


def require_converters(ingest: IngestConfig, *, allows_code: bool) -> None:
    """Checks the names of converters.

    Raises:
        SettingsError: there is no such converter, or it is code of the user's that is not allowed.
    """
    for name in ingest.converters.values():
        CONVERTERS.require(name, allows_code=allows_code)


ALL_SETTINGS = frozenset(JobSettings.model_fields)
"""First names of the settings of all commands. A job file and the environment serve several commands: each passes over
the settings that only others have. Other options stand on the command line alone."""


def job_of(**settings: Any) -> JobConfig:
    """The job of some settings, by the names that a job file has."""
    return JobSettings(**settings).job()

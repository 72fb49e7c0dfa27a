"""What a command is: its fields are its options, its docstring is what its help says."""

from typing import TYPE_CHECKING, ClassVar

from memagent_batch.config.section import Section, Text
from memagent_batch.config.sources import Storage

if TYPE_CHECKING:
    from memagent_batch.files.location import Location


class Command(Section):
    """A command with its options."""

    command: ClassVar[str]
    """As it is typed: `memagent review make`."""
    examples: ClassVar[tuple[str, ...]]
    """Command lines to start from."""
    page: ClassVar[str] = "docs/reference/settings.md"
    """The page that says more."""
    words: ClassVar[tuple[str, ...]] = ()
    """Options whose values may stand without their names, in this order: `memagent page out/`."""
    common: ClassVar[tuple[str, ...]] = ()
    """Settings that stand first; `--help` shows them alone, `--help-all` the others too."""
    unused: ClassVar[tuple[str, ...]] = ()
    """Settings, and groups of them, that the command takes, so that it can share a job file, but does not use."""

    def run(self) -> None:
        """Does what the command is for."""
        raise NotImplementedError


class StorageCommand(Command, Storage):
    """A command that reaches files and has no settings of a job."""

    def locate(self, uri: str) -> "Location":
        """A place, reached by `--storage-options`."""
        from memagent_batch.files.location import Location

        return Location(uri=uri, storage_options=self.storage_options)


class OutputCommand(StorageCommand):
    """A command that looks at an output."""

    words: ClassVar[tuple[str, ...]] = ("output",)
    output: Text
    """The output of `memagent answer`: a folder or any fsspec URL."""

    @property
    def location(self) -> "Location":
        """The output."""
        return self.locate(self.output)

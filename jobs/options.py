"""Options of the command line: both spellings work, a mistake is one line, an unknown name gets the nearest one."""

import argparse
import difflib
import json
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from memagent_batch.errors import SettingsError
from memagent_batch.files.options import StorageOptions

HELP = frozenset({"-h", "--help"})
HELP_ALL = "--help-all"
STORAGE_VARIABLE = "MEMAGENT_STORAGE_OPTIONS"
LIKENESS = 0.6
"""How alike, from 0 to 1, a name must be to the one that was written, to be offered in its place."""

_OPTION = re.compile(r"--[A-Za-z][A-Za-z0-9_.-]*")


class OptionParser(argparse.ArgumentParser):
    """argparse as every command uses it: `--a_b` is `--a-b`, and a mistake raises a SettingsError."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=_Formatter, **arguments)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Options that are known, and what is left over."""
        return super().parse_known_args(dashed(args), namespace)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """The options.

        Raises:
            SettingsError: one is unknown, lacks its value or has a wrong one; names it.
        """
        given = dashed(args)
        names = {option for action in self._actions for option in action.option_strings}
        for argument in given:
            name = argument.split("=")[0]
            if _OPTION.fullmatch(name) and name not in names:
                raise SettingsError(
                    f"there is no option {name}; {remedy(name, names, see=f'{self.prog} {self._help_option()}')}"
                )
        options, rest = self.parse_known_args(given, namespace)
        if rest:
            raise SettingsError(f"{rest[0]!r} belongs to no option; quote a value that has spaces or wildcards")
        return options

    def add_storage_options(self) -> None:
        """Adds the option that reaches file systems which need arguments; its value is an object."""
        text = f"arguments of the fsspec file system, JSON; `ps` shows them, but not {STORAGE_VARIABLE}"
        self.add_argument("--storage-options", type=parse_storage_options, metavar="JSON", default="{}", help=text)

    def error(self, message: str) -> NoReturn:
        """Says what is wrong, in place of argparse's usage.

        Raises:
            SettingsError: always.
        """
        missing = message.removeprefix("the following arguments are required: ")
        said = f"{missing}: missing" if missing != message else message.removeprefix("argument ")
        said = re.sub(r"ignored explicit argument '.*'", "takes no value", said, flags=re.DOTALL)
        raise SettingsError(f"{said}; see {self.prog} --help")

    def _help_option(self) -> str:
        """The option that shows all others."""
        return HELP_ALL if any(HELP_ALL in action.option_strings for action in self._actions) else "--help"


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Texts of options are wrapped; description and example stay as they are."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34)


def parse_storage_options(text: str) -> StorageOptions:
    """The value of `--storage-options` of a command that has no other knobs, over that of the environment.

    Raises:
        SettingsError: one of them is not a JSON object.
    """
    in_environment = os.environ.get(STORAGE_VARIABLE, "{}")
    options = _json_object(in_environment, name=f"environment variable {STORAGE_VARIABLE}")
    return StorageOptions(options | _json_object(text, name="--storage-options"))


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
    """What to do about a name that there is not: the nearest one, or where all stand."""
    nearest = nearest_name(name, names)
    return f"did you mean {nearest}?" if nearest else f"see {see}"


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """The most similar name, or the only one with the same end: `--policy.chunk-tokens` for `--chunk-tokens`."""
    known = list(names)
    below = [other for other in known if other.rpartition(".")[2] == name.lstrip("-").rpartition(".")[2]]
    if len(below) == 1:
        return below[0]
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=LIKENESS)), None)


def wants_help(arguments: Sequence[str]) -> bool:
    """Whether the arguments ask for help, of either kind."""
    return not {*HELP, HELP_ALL}.isdisjoint(arguments)

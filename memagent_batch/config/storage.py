"""The arguments of a file system, which may hold secrets: given to the file system, and shown to nobody."""

from collections.abc import KeysView, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, SerializationInfo

from memagent_batch.masking import MASK


class StorageOptions:
    """Arguments of an fsspec file system. `dict(options)` and `**options` give them; `repr`, `str` and JSON mask them.

    Neither a Mapping nor a dataclass: reports of a run, such as the events that Ray Data exports, walk through those
    value by value, and show anything else by `str`. It pickles with its values, which workers need.
    """

    __slots__ = ("_values",)

    def __init__(self, values: "Options | None" = None) -> None:
        self._values: dict[str, Any] = {**values} if values is not None else {}

    def keys(self) -> KeysView[str]:
        """Names of the arguments; with `[]`, what `dict()` and `**` ask for."""
        return self._values.keys()

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def masked(self) -> dict[str, str]:
        """Names of the arguments, and a mask for each value."""
        return dict.fromkeys(self._values, MASK)

    def __repr__(self) -> str:
        return f"StorageOptions({self.masked()})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StorageOptions | Mapping):
            return NotImplemented
        return self._values == {**other}

    def __hash__(self) -> int:
        return hash(frozenset(self._values))


Options = StorageOptions | Mapping[str, Any]
"""What code that opens files takes."""


def _as_mapping(value: object) -> object:
    return {**(value or {})} if isinstance(value, StorageOptions | None) else value


def _dumped(value: StorageOptions, info: SerializationInfo) -> object:
    return value.masked() if info.mode_is_json() else value


if TYPE_CHECKING:
    StorageSetting = StorageOptions
else:
    # A dict for the parsers of environment and command line, which read JSON where one is asked for.
    StorageSetting = Annotated[
        dict[str, Any], BeforeValidator(_as_mapping), AfterValidator(StorageOptions), PlainSerializer(_dumped)
    ]
    """The setting `storage_options` in settings."""

"""Answers questions over documents of any length with a memory agent. The names here are loaded when they are used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memagent_batch.api import Agent, Answered, Gated, Overwrite, Retrieve, Truncate, Turn
    from memagent_batch.config import OpenAIConfig, PolicyConfig, SamplingConfig, VllmConfig
    from memagent_batch.runs.table_files import table_files

__all__ = [
    "Agent",
    "Answered",
    "Gated",
    "OpenAIConfig",
    "Overwrite",
    "PolicyConfig",
    "Retrieve",
    "SamplingConfig",
    "Truncate",
    "Turn",
    "VllmConfig",
    "table_files",
]

_PLACES = {
    **dict.fromkeys(("Agent", "Answered", "Gated", "Overwrite", "Retrieve", "Truncate", "Turn"), "api"),
    **dict.fromkeys(("OpenAIConfig", "PolicyConfig", "SamplingConfig", "VllmConfig"), "config"),
    "table_files": "runs.table_files",
}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """A public name, with its module imported."""
        if name not in _PLACES:
            raise AttributeError(f"module 'memagent_batch' has no name {name!r}")
        return getattr(import_module(f"memagent_batch.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    """The public names."""
    return __all__

"""Answers questions over documents of any length with a memory agent. The names here are loaded when they are used."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from memagent_batch.api.question import Question
    from memagent_batch.api.reader import (
        Agent,
        Answered,
        Gated,
        Heads,
        Overwrite,
        Parallel,
        PolicyConfig,
        Retrieve,
        Truncate,
        Turn,
    )
    from memagent_batch.api.run import Run
    from memagent_batch.api.stage import read
    from memagent_batch.config.agent import SamplingConfig
    from memagent_batch.config.convert import ConvertConfig
    from memagent_batch.config.engines import OpenAIConfig, VllmConfig
    from memagent_batch.config.follow_ups import FollowUpConfig
    from memagent_batch.config.job import BoundsConfig, LogConfig, PoolConfig, RolloutConfig, TableFormat
    from memagent_batch.config.sources import InputConfig
    from memagent_batch.domain.follow_ups.answer_types import Bool, Date, Json, Label, Labels, Number
    from memagent_batch.flows.from_python import answer, collect, convert_files, export, make_review, page, scan
    from memagent_batch.runs.second_pass import merged_answers
    from memagent_batch.runs.tables import table_files

_NAMES = {
    "api.question": "Question",
    "api.reader": "Agent Answered Gated Heads Overwrite Parallel PolicyConfig Retrieve Truncate Turn",
    "api.run": "Run",
    "api.stage": "read",
    "config.agent": "SamplingConfig",
    "config.convert": "ConvertConfig",
    "config.engines": "OpenAIConfig VllmConfig",
    "config.follow_ups": "FollowUpConfig",
    "config.job": "BoundsConfig LogConfig PoolConfig RolloutConfig TableFormat",
    "config.sources": "InputConfig",
    "domain.follow_ups.answer_types": "Bool Date Json Label Labels Number",
    "flows.from_python": "answer collect convert_files export make_review page scan",
    "runs.second_pass": "merged_answers",
    "runs.tables": "table_files",
}
"""The public names of each module of the package."""
_PLACES = {name: f"memagent_batch.{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "Agent",
    "Answered",
    "Bool",
    "BoundsConfig",
    "ConvertConfig",
    "Date",
    "FollowUpConfig",
    "Gated",
    "Heads",
    "InputConfig",
    "Json",
    "Label",
    "Labels",
    "LogConfig",
    "Number",
    "OpenAIConfig",
    "Overwrite",
    "Parallel",
    "PolicyConfig",
    "PoolConfig",
    "Question",
    "Retrieve",
    "RolloutConfig",
    "Run",
    "SamplingConfig",
    "TableFormat",
    "Truncate",
    "Turn",
    "VllmConfig",
    "answer",
    "collect",
    "convert_files",
    "export",
    "make_review",
    "merged_answers",
    "page",
    "read",
    "scan",
    "table_files",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """A public name, with its module imported; or the version."""
        if name == "__version__":
            return version("memagent-batch")
        if name not in _PLACES:
            raise AttributeError(f"module 'memagent_batch' has no name {name!r}")
        return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    """The public names."""
    return __all__

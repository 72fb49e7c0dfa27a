"""Answers questions over documents of any length with a memory agent. The names here are loaded when they are used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memagent_batch.api.question import Question
    from memagent_batch.api.reader import Agent, Answered, Gated, Overwrite, Parallel, Retrieve, Truncate, Turn
    from memagent_batch.api.run import Run
    from memagent_batch.api.stage import read
    from memagent_batch.config import (
        BoundsConfig,
        ClosingConfig,
        EscalateConfig,
        InputConfig,
        LogConfig,
        OpenAIConfig,
        PolicyConfig,
        PoolConfig,
        SamplingConfig,
        TableFormat,
        VllmConfig,
    )
    from memagent_batch.domain.closing.answer_types import Bool, Date, Json, Label, Labels, Number
    from memagent_batch.runs.table_files import table_files
    from pipelines.from_python import answer

_PLACES = {
    **dict.fromkeys(
        ("Agent", "Answered", "Gated", "Overwrite", "Parallel", "Retrieve", "Truncate", "Turn"),
        "memagent_batch.api.reader",
    ),
    **dict.fromkeys(
        (
            "BoundsConfig",
            "ClosingConfig",
            "EscalateConfig",
            "InputConfig",
            "LogConfig",
            "OpenAIConfig",
            "PolicyConfig",
            "PoolConfig",
            "SamplingConfig",
            "TableFormat",
            "VllmConfig",
        ),
        "memagent_batch.config",
    ),
    **dict.fromkeys(
        ("Bool", "Date", "Json", "Label", "Labels", "Number"),
        "memagent_batch.domain.closing.answer_types",
    ),
    "Question": "memagent_batch.api.question",
    "Run": "memagent_batch.api.run",
    "answer": "pipelines.from_python",
    "read": "memagent_batch.api.stage",
    "table_files": "memagent_batch.runs.table_files",
}

__all__ = [
    "Agent",
    "Answered",
    "Bool",
    "BoundsConfig",
    "ClosingConfig",
    "Date",
    "EscalateConfig",
    "Gated",
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
    "Run",
    "SamplingConfig",
    "TableFormat",
    "Truncate",
    "Turn",
    "VllmConfig",
    "answer",
    "read",
    "table_files",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """A public name, with its module imported."""
        if name not in _PLACES:
            raise AttributeError(f"module 'memagent_batch' has no name {name!r}")
        return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    """The public names."""
    return __all__

"""Answers questions over documents of any length with a memory agent. The names here are loaded when they are used."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from memagent_batch.apps.api.commands import answer as answer
    from memagent_batch.apps.api.commands import collect as collect
    from memagent_batch.apps.api.commands import export as export
    from memagent_batch.apps.api.commands import ingest_files as ingest_files
    from memagent_batch.apps.api.commands import make_review as make_review
    from memagent_batch.apps.api.commands import page as page
    from memagent_batch.apps.api.commands import scan as scan
    from memagent_batch.apps.api.inputs import Question as Question
    from memagent_batch.apps.api.reader import Agent as Agent
    from memagent_batch.apps.api.reader import Answered as Answered
    from memagent_batch.apps.api.reader import Gated as Gated
    from memagent_batch.apps.api.reader import Overwrite as Overwrite
    from memagent_batch.apps.api.reader import Parallel as Parallel
    from memagent_batch.apps.api.reader import PolicyConfig as PolicyConfig
    from memagent_batch.apps.api.reader import Retrieve as Retrieve
    from memagent_batch.apps.api.reader import Truncate as Truncate
    from memagent_batch.apps.api.reader import Turn as Turn
    from memagent_batch.apps.api.run import Run as Run
    from memagent_batch.apps.api.settings import FollowUpConfig as FollowUpConfig
    from memagent_batch.apps.api.settings import IngestConfig as IngestConfig
    from memagent_batch.apps.api.settings import InputConfig as InputConfig
    from memagent_batch.apps.api.settings import LogConfig as LogConfig
    from memagent_batch.apps.api.settings import OpenAIConfig as OpenAIConfig
    from memagent_batch.apps.api.settings import PoolConfig as PoolConfig
    from memagent_batch.apps.api.settings import RolloutConfig as RolloutConfig
    from memagent_batch.apps.api.settings import SamplingConfig as SamplingConfig
    from memagent_batch.apps.api.settings import VllmConfig as VllmConfig
    from memagent_batch.apps.api.stage import read as read
    from memagent_batch.loop.follow_ups.answer_types import Bool as Bool
    from memagent_batch.loop.follow_ups.answer_types import Date as Date
    from memagent_batch.loop.follow_ups.answer_types import Json as Json
    from memagent_batch.loop.follow_ups.answer_types import Label as Label
    from memagent_batch.loop.follow_ups.answer_types import Labels as Labels
    from memagent_batch.loop.follow_ups.answer_types import Number as Number
    from memagent_batch.run.second_pass import merged_answers as merged_answers
    from memagent_batch.run.tables import dataset as dataset
    from memagent_batch.run.tables import table as table

_NAMES = {
    "apps.api.inputs": "Question",
    "apps.api.reader": "Agent Answered Gated Overwrite Parallel PolicyConfig Retrieve Truncate Turn",
    "apps.api.run": "Run",
    "apps.api.settings": "FollowUpConfig IngestConfig InputConfig LogConfig OpenAIConfig PoolConfig RolloutConfig "
    "SamplingConfig VllmConfig",
    "apps.api.stage": "read",
    "loop.follow_ups.answer_types": "Bool Date Json Label Labels Number",
    "apps.api.commands": "answer collect export ingest_files make_review page scan",
    "run.second_pass": "merged_answers",
    "run.tables": "dataset table",
}
"""The public names of each module of the package."""
_PLACES = {name: f"memagent_batch.{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_PLACES)


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

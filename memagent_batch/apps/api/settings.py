"""The groups of settings as Python calls them: a mistake in a call is a SettingsError with the nearest name."""

from memagent_batch.config import agent, engines, follow_ups, ingest, job, sources
from memagent_batch.config.problems import CheckedCall


class SamplingConfig(CheckedCall, agent.SamplingConfig):
    """How tokens are drawn."""


class VllmConfig(CheckedCall, engines.VllmConfig):
    """vLLM inside the actor."""


class OpenAIConfig(CheckedCall, engines.OpenAIConfig):
    """An OpenAI-compatible endpoint."""


class FollowUpConfig(CheckedCall, follow_ups.FollowUpConfig):
    """What is asked after each answer; a value of a type is asked for where a question has one."""


class IngestConfig(CheckedCall, ingest.IngestConfig):
    """How document files become text, each in its own process."""


class InputConfig(CheckedCall, sources.InputConfig):
    """Where texts stand in the input."""


class LogConfig(CheckedCall, job.LogConfig):
    """The turn log. A crash costs at most one flush interval of model calls."""


class PoolConfig(CheckedCall, job.PoolConfig):
    """The actor pool: one engine an actor."""


class RolloutConfig(CheckedCall, job.RolloutConfig):
    """What `ma.collect` makes of sampled readings."""

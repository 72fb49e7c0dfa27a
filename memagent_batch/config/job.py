"""A job: an agent, what it reads, and a run that writes the answers."""

import re
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.engines import BATCH_ENGINE
from memagent_batch.config.follow_ups import FollowUpConfig
from memagent_batch.config.ingest import IngestConfig
from memagent_batch.config.section import Count, Price, Seconds, Section, Text, TextOrTexts
from memagent_batch.config.sources import InputConfig, SourceConfig, Storage


class LogFormat(StrEnum):
    """How a run writes what happens on stderr."""

    TEXT = "text"
    """Lines for people."""
    JSON = "json"
    """One JSON object a line, with run and reading ids."""


class ExecutorKind(StrEnum):
    """Where a job's work is done; its tables are the same."""

    AUTO = "auto"
    """Local for a job of one replica over at most 64 MiB in at most 2,000 files, unless RAY_ADDRESS is set or Ray runs
    in this process; else Ray."""
    LOCAL = "local"
    """In this process, without Ray."""
    RAY = "ray"
    """On the cluster of RAY_ADDRESS, or on a Ray that is started on this machine."""


class Overlong(StrEnum):
    """How a sample is rewarded when one of its turns was cut at its budget."""

    KEEP = "keep"
    """It is rewarded like any other."""
    ZERO = "zero"
    """Its reward is 0."""
    MASK = "mask"
    """It has no reward and no advantage, and its tokens are masked out (DAPO's overlong filtering)."""


class Advantage(StrEnum):
    """How rewards become advantages."""

    CENTRED = "centred"
    """Reward minus the group's mean reward: the published form."""
    STANDARDISED = "standardised"
    """The same, divided by the group's standard deviation (of a sample, n - 1) plus 1e-6: GRPO's form."""
    LEAVE_ONE_OUT = "leave_one_out"
    """Reward minus the mean reward of the others: RLOO's form."""


class PoolConfig(Section):
    """The actor pool: one engine an actor."""

    replicas: Count = 1
    """Actors at the start, each with an engine."""
    max_replicas: Count | None = None
    """Largest number of actors, if the cluster has room. Defaults to `replicas`."""
    gpus_per_replica: Annotated[float, Field(ge=0)] | None = None
    """GPUs of one actor. Defaults to tensor times pipeline parallel size, or 0 with vLLM for CPU."""
    cpus_per_replica: Annotated[float, Field(ge=0)] = 0.5
    """CPUs that Ray reserves for one actor; fewer if all actors together would leave none for tasks."""
    readings_in_flight: Count = 64
    """Readings in progress at once in one actor. Defaults to 2000 with engine `openai-batch`."""
    turns_in_flight: Count | None = None
    """Turns in progress at once in one actor. Defaults to 256, or to `readings_in_flight` if that is more; with engine
    `openai-batch` to 10000."""

    @property
    def most_replicas(self) -> int:
        """Actors that read side by side, at most."""
        return self.max_replicas or self.replicas


CONTAINMENT_METRICS = ("sub_em", "ruler_all", "memagent_sub_em")
"""Metrics by which an answer that lists many candidates is right."""
FLUSH_SECONDS = 5.0
"""Longest time that a finished turn waits for its file, where few replicas write."""
MAX_FLUSHES_PER_SECOND = 20
"""Flushes of all replicas together: more files make listings of the log slow."""


class LogConfig(Section):
    """The turn log. A crash costs at most one flush interval of model calls."""

    flush_seconds: Seconds | None = None
    """Longest time until a finished turn is written. Defaults to 5 s; with more than 100 replicas, a 20th of a second
    each: 50 s with 1,000."""
    outage_seconds: Annotated[float, Field(ge=0)] = 300.0
    """How long a failing write is tried again, while turns wait; then the run stops."""
    keep_days: Annotated[float, Field(ge=0)] = 90.0
    """Days for which `memagent vacuum` keeps turns of documents and agents that are no longer in `answers`."""

    def paced(self, replicas: int) -> float:
        """Seconds that a finished turn waits at most, where so many write."""
        return self.flush_seconds or max(FLUSH_SECONDS, replicas / MAX_FLUSHES_PER_SECOND)


class DriverConfig(Section):
    """The process that plans a run."""

    memory_gib: Annotated[float, Field(gt=0)] = 0.9
    """Memory of the database that joins documents, questions and log, GiB. Beyond it, temporary files are used
    (`TMPDIR`)."""


class RecordConfig(Section):
    """The tables that a run leaves."""

    keep_days: Annotated[float, Field(ge=0)] = 30.0
    """Days that earlier versions of the tables stay readable. Files of an unfinished run are kept longer."""
    partition_by: TextOrTexts = ()
    """Carried columns by which `answers` and `results` are partitioned. Empty text becomes null."""


class RolloutConfig(Section):
    """What `memagent collect` makes of sampled readings."""

    group_size: Annotated[int, Field(ge=2)] = 8
    """Samples of each document and question."""
    reward: str = "boxed"
    """`boxed` (as in the published training), `boxed_normalised`, a metric (em, f1, hotpotqa_f1), or your function: an
    installed name or `package.module:function`."""
    reward_timeout_seconds: Seconds = 10
    """Time limit of your function for one sample, which has no reward if it takes longer."""
    advantage: Advantage = Advantage.CENTRED
    """How rewards become advantages."""
    overlong: Overlong = Overlong.KEEP
    """Reward of a sample with a turn that was cut at its budget: as usual, 0, or none."""
    drop_equal: bool = False
    """Leave out groups whose rewards are all equal."""
    data_source: str = ""
    """Text for the column `data_source` of the rollouts."""

    @field_validator("reward")
    @classmethod
    def _refuse_containment(cls, reward: str) -> str:
        if reward in CONTAINMENT_METRICS:
            raise ValueError(
                f"{reward!r} can't be a reward: a policy would learn to list many candidates; "
                "use boxed, boxed_normalised, em or f1"
            )
        return reward


class AcceptedUnread(Section):
    """What a job knows of a source that is not read to its end."""

    source: Text
    """The file: its path below the folder of the documents, a document's id, a glob of these, or its SHA-256."""
    unread: Text | None = None
    """What is not read, as column `source_unread` says it: the whole text, or a glob of it. Not for a SHA-256."""
    reason: Text
    """Why, for pages and summary."""

    @model_validator(mode="after")
    def _check_unread(self) -> Self:
        if (self.unread is None) == (re.fullmatch("[0-9a-f]{64}", self.source) is None):
            raise ValueError("a source by its path needs `unread`, one by its SHA-256 does not take it")
        return self


class PricesConfig(Section):
    """List prices of a million tokens, in any one currency; without them, nothing is said of money."""

    input: Price | None = None
    """Price of prompt tokens."""
    cached_input: Price | None = None
    """Price of prompt tokens that the server took from its cache, if it says so. Defaults to `input`."""
    output: Price | None = None
    """Price of completion tokens, thoughts included."""
    batch_discount: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of these prices that is saved with engine `openai-batch`."""

    @model_validator(mode="after")
    def _check_both(self) -> Self:
        if (self.input is None) != (self.output is None) or (self.input is None and self.cached_input is not None):
            raise ValueError("prices.input and prices.output belong together: give both")
        return self

    def cost(
        self, *, prompt_tokens: int, cached_tokens: int = 0, completion_tokens: int, in_batches: bool
    ) -> float | None:
        """What tokens cost; None without prices. `cached_tokens` are among those of the prompts."""
        if self.input is None or self.output is None:
            return None
        cached = self.input if self.cached_input is None else self.cached_input
        prompts = (prompt_tokens - cached_tokens) * self.input + cached_tokens * cached
        share = 1 - self.batch_discount if in_batches else 1.0
        return share * (prompts + completion_tokens * self.output) / 1_000_000


class RunConfig(Storage):
    """Where a run writes and how it goes: everything but its inputs and the agent."""

    output: Text
    """Folder or fsspec URL for the tables and the turn log. A run with the same output continues there."""
    executor: ExecutorKind = ExecutorKind.AUTO
    """In this process (`local`) or by Ray. `auto` takes `local` for one replica over at most 64 MiB in at most 2,000
    files, unless RAY_ADDRESS is set or Ray runs in this process."""
    pool: PoolConfig = PoolConfig()
    """The actor pool."""
    log: LogConfig = LogConfig()
    """The turn log."""
    driver: DriverConfig = DriverConfig()
    """The process that plans a run."""
    record: RecordConfig = RecordConfig()
    """The tables that a run leaves."""
    follow_ups: FollowUpConfig = FollowUpConfig()
    """What is asked after each answer."""

    rollouts: RolloutConfig = RolloutConfig()
    """Settings of `memagent collect`."""

    retry_failed: bool = False
    """Read failed readings again, and nothing else that is done."""
    max_tokens: Count | None = None
    """Stop with exit code 6 after this many tokens of prompts and completions."""
    max_hours: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Stop with exit code 6 after this many hours."""
    prices: PricesConfig = PricesConfig()
    """What tokens cost: for `memagent plan`, `max_cost` and what a run says that it has spent."""
    max_cost: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Stop with exit code 6 when tokens of this cost by `prices` are spent."""
    max_failed_share: Annotated[float, Field(ge=0, le=1)] = 0.05
    """Largest share of failed readings. Above it, and if all failed, the command ends with exit code 4."""
    max_removed_share: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of the last run's documents that may be gone. Above it `answer` and `scan` end with exit code 4, once. With
    `adopt_output`, and in a second pass, all may be gone."""
    accepted_unread: tuple[AcceptedUnread, ...] = ()
    """Known losses that do not change the exit code, in a job file: groups of `source`, `unread` and `reason`."""
    adopt_output: bool = False
    """Take over an output that was written for other documents or questions."""
    log_format: LogFormat = LogFormat.TEXT
    """Format of the events on stderr."""

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.pool.max_replicas is not None and self.pool.max_replicas < self.pool.replicas:
            raise ValueError("pool.max_replicas must not be below pool.replicas")
        if self.max_cost is not None and self.prices.input is None:
            raise ValueError("max_cost needs prices.input and prices.output")
        return self


class JobConfig(SourceConfig, RunConfig):
    """A whole job: an agent, what it reads, and a run that writes the answers."""

    agent: AgentConfig = AgentConfig()
    """What reads."""

    def with_agent(self, agent: AgentConfig) -> Self:
        """The same job for another agent."""
        return self.model_copy(update={"agent": agent})

    def cost(self, *, prompt_tokens: int, cached_tokens: int = 0, completion_tokens: int) -> float | None:
        """What tokens cost by the prices of the job, with the discount of its engine; see `PricesConfig.cost`."""
        return self.prices.cost(
            prompt_tokens=prompt_tokens,
            cached_tokens=cached_tokens,
            completion_tokens=completion_tokens,
            in_batches=self.agent.engine == BATCH_ENGINE,
        )


class IngestJob(Storage):
    """All settings of `memagent ingest`."""

    documents: Annotated[TextOrTexts, Field(min_length=1)]
    """Files, folders or globs on one file system, as paths or fsspec URLs; or one table (delta:// or iceberg://)."""
    output: Text
    """Folder or fsspec URL for the tables `documents` and `sources`."""
    input: InputConfig = InputConfig()
    """Where texts stand in the input."""
    ingest: IngestConfig = IngestConfig()
    """How document files become text."""
    retry_failed: bool = False
    """Read files again if something in them failed."""
    max_failed_share: Annotated[float, Field(ge=0, le=1)] = 1.0
    """End with exit code 4 if a larger share of the sources failed, from 0 to 1."""
    executor: ExecutorKind = ExecutorKind.AUTO
    """In this process (`local`) or by Ray. `auto` takes `local` for at most 64 MiB in at most 100 document files or
    2,000 data files."""

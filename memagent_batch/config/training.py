"""How weights are trained."""

from typing import Annotated, Literal

from pydantic import Field

from memagent_batch.config.agent import AgentTask
from memagent_batch.config.job import LogFormat, PoolConfig, RolloutConfig
from memagent_batch.config.section import Count, Section, Text
from memagent_batch.config.sources import SourceConfig
from memagent_batch.config.storage import StorageOptions, StorageSetting


class LearnerConfig(Section):
    """How weights are updated: Multi-Conv DAPO with AdamW. Defaults are the published ones if there are such."""

    questions_per_optimiser_step: Count = 8
    """Questions (groups) whose samples make one step of the optimiser."""
    clip_low: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """How far below 1 the ratio of a token's probabilities, now to when it was drawn, still counts."""
    clip_high: Annotated[float, Field(gt=0)] = 0.2
    """How far above 1 it still counts."""
    dual_clip: Annotated[float, Field(gt=1)] | None = 3.0
    """Largest ratio that counts where the advantage is negative (dual clip); null for no limit."""
    kl_weight: Annotated[float, Field(ge=0)] = 0.001
    """Weight of the divergence from the reference, which is a second model in memory; 0 loads none."""
    kl_limit: Annotated[float, Field(gt=0)] | None = 10.0
    """Largest estimate of a token's divergence that counts, nats; null for no limit."""
    learning_rate: Annotated[float, Field(gt=0)] = 1e-6
    """Learning rate after the warm-up."""
    warmup_steps: Annotated[int, Field(ge=0)] = 20
    """Steps of the optimiser in which the learning rate rises evenly to its full height."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay of AdamW's two averages."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    """AdamW's weight decay."""
    clip_norm: Annotated[float, Field(gt=0)] = 1.0
    """Largest norm of a step's gradient."""
    batch_tokens: Count = 16384
    """Tokens that go through the network at once, padding included; bounds memory, and changes no gradient."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the network is updated; `auto` takes a GPU if the machine has one."""
    bf16: bool = False
    """Compute in bfloat16 (autocast); weights, gradients and log-probabilities stay in float32."""


class LoopConfig(Section):
    """How long `memagent train loop` goes on, and what it keeps."""

    questions_per_step: Count = 128
    """Questions whose samples are collected before the weights are updated, by a step of the optimiser for every
    `learner.questions_per_optimiser_step` of them."""
    max_steps: Count | None = None
    """Steps after which it ends; those of earlier runs of the same command count."""
    max_minutes: Annotated[float, Field(gt=0)] | None = None
    """Time after which it begins no further step, minutes; earlier runs of the same command count."""
    held_out: str | None = None
    """Question list, bound to documents of the same input, that is never learnt from and read greedily every
    `evaluate_every` steps."""
    evaluate_every: Count = 10
    """Steps between two readings of the held-out questions."""
    keep_every: Count | None = None
    """Steps between two models that are kept; the last one is always kept."""
    seed: int = 0
    """Source of the order in which questions are taken."""


class TrainConfig(Section):
    """One epoch over a rollouts table."""

    rollouts: str
    """Output of `memagent collect`: a folder or any fsspec URL."""
    storage_options: StorageSetting = StorageOptions()
    """Arguments of the fsspec file system of the rollouts. Never recorded."""
    model: str
    """Folder of the model that the rollouts were drawn with; `tiny` is the policy that comes with the project."""
    reference: str | None = None
    """Folder of the reference model, for the divergence of the policy; by default `model`."""
    output: str
    """Folder for the new model; must not be there."""
    weights_version: str | None = None
    """What the rollouts call the weights of `model`, where they were given a name of their own."""
    allow_other_weights: bool = False
    """Learn from rollouts of other weights than `model` has."""
    learner: LearnerConfig = LearnerConfig()
    """How weights are updated."""
    log_format: LogFormat = LogFormat.TEXT
    """How run start and end, progress, failed readings and engine deaths are written on stderr."""


class TrainLoopConfig(AgentTask):
    """Collect, update, collect again with the new weights, from those of the agent on."""

    sources: SourceConfig | None = None
    """Documents and questions; None where the tasks are made."""
    output: Text
    """Folder of the loop. The same output again goes on where it stopped."""
    pool: PoolConfig = PoolConfig()
    """Readings in flight at once; the one engine runs in the process of the loop."""
    rollouts: RolloutConfig = RolloutConfig()
    """Groups and rewards."""
    learner: LearnerConfig = LearnerConfig()
    """How weights are updated."""
    loop: LoopConfig = LoopConfig()
    """How long it goes on, and what it keeps."""
    log_format: LogFormat = LogFormat.TEXT
    """How run start and end, progress, failed readings and engine deaths are written on stderr."""

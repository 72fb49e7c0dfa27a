"""How weights are trained."""

from typing import Annotated, Literal

from pydantic import Field

from memagent_batch.config.job import LogFormat
from memagent_batch.config.section import Count, Section
from memagent_batch.config.storage import StorageOptions, StorageSetting


class LearnerConfig(Section):
    """How weights are updated: Multi-Conv DAPO with AdamW. Defaults are the published ones if there are such."""

    questions_per_optimiser_step: Count = 8
    """Questions (groups) whose samples make one step of the optimiser, at most. The steps of an epoch are about equal,
    since one of a single question moves the weights as far as one of many."""
    clip_low: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """How far below 1 the ratio of a token's probabilities, now to when it was drawn, still counts."""
    clip_high: Annotated[float, Field(gt=0)] = 0.2
    """How far above 1 it still counts."""
    dual_clip: Annotated[float, Field(gt=1)] | None = 3.0
    """Largest ratio that counts if the advantage is negative (dual clip); null for no limit."""
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


class TrainConfig(Section):
    """One epoch over a rollouts table."""

    rollouts: str
    """Output of `memagent collect`: a folder or any fsspec URL."""
    storage_options: StorageSetting = StorageOptions()
    """Arguments of the fsspec file system. Never recorded."""
    model: str
    """Folder of the model that the rollouts were drawn with; `tiny` is the policy that comes with the project."""
    reference: str | None = None
    """Folder of the reference model, for the divergence of the policy; by default `model`."""
    output: str
    """Folder for the new model; must not be there."""
    weights_version: str | None = None
    """What the rollouts call the weights of `model`, if they were given a name."""
    allow_other_weights: bool = False
    """Learn from rollouts of other weights than `model` has."""
    keep_optimiser: bool = False
    """Go on with the optimiser that `model` holds, if it does, and keep it in the new model as `optimiser.state`."""
    learner: LearnerConfig = LearnerConfig()
    """How weights are updated."""
    log_format: LogFormat = LogFormat.TEXT
    """Format of the events on stderr."""

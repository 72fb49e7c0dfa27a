"""What settings are made of: the base of every group of knobs, and the groups of knobs that belong to learning."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    YamlConfigSettingsSource,
)

from memagent_batch.domain.advantages import Advantage
from memagent_batch.domain.rewards import BUILT_IN_REWARDS, Overlong
from memagent_batch.masking import shown

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]


def _as_several(value: Any) -> Any:
    """One text as the only one of several."""
    return (value,) if isinstance(value, str) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(_as_several)]
"""One text or several."""


class LogFormat(StrEnum):
    """How a run writes what happens on stderr."""

    TEXT = "text"
    """Lines for people."""
    JSON = "json"
    """One JSON object a line, with run and reading ids."""


class Section(BaseModel):
    """A group of knobs; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True)

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """The knobs for `repr` and `str`; URLs without secrets."""
        return _shown_knobs(super().__repr_args__())


class JobSettings(BaseSettings):
    """The knobs of a command: job file (YAML) < environment (`MEMAGENT_...`) < command line."""

    model_config = SettingsConfigDict(
        env_prefix="MEMAGENT_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
        protected_namespaces=(),
    )

    log_format: LogFormat = LogFormat.TEXT
    """How run start and end, progress, failed readings and engine deaths are written on stderr."""

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """The knobs for `repr` and `str`; URLs without secrets."""
        return _shown_knobs(super().__repr_args__())

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments and command line first, then environment, then the job file of `model_config["yaml_file"]`."""
        return init_settings, env_settings, YamlConfigSettingsSource(settings_cls)


class RolloutSettings(Section):
    """What `memagent collect` makes of sampled readings."""

    group_size: Annotated[int, Field(ge=1)] = 8
    """Samples of each document and question; they form a group."""
    reward: str = "boxed"
    """`boxed` (the boxed text is a reference but for case, spaces and a little LaTeX: the published training's),
    `boxed_normalised` (they are equal when both are normalised), a metric (all, any, em, f1, hotpotqa_f1,
    sub_em, sub_em_either), or a function of yours as `package.module:function`, from (response, references) to a
    number."""
    allow_reward_code: bool = False
    """Allows `reward` to name a function of yours, which is then imported and run."""
    reward_timeout_seconds: Seconds = 10
    """Longest time that a function of yours may take for one sample, which then has no reward."""
    advantage: Advantage = Advantage.CENTRED
    """How rewards become advantages."""
    overlong: Overlong = Overlong.KEEP
    """What becomes of a sample of which a turn was cut at its budget."""
    drop_equal: bool = False
    """Leave out groups whose rewards are all equal, which teach nothing (dynamic sampling); they are counted."""
    data_source: str = ""
    """Free text for the column `data_source`, by which trainers tell their data apart."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.reward not in BUILT_IN_REWARDS and ":" not in self.reward:
            names = ", ".join(BUILT_IN_REWARDS)
            raise ValueError(f"reward: there is no {self.reward!r}; take one of {names}, or package.module:function")
        if self.reward not in BUILT_IN_REWARDS and not self.allow_reward_code:
            raise ValueError(f"reward: {self.reward!r} is code of yours; say --rollouts.allow-reward-code to run it")
        return self


class LearnerSettings(Section):
    """How weights are updated: Multi-Conv DAPO with AdamW. Defaults are the published ones where there are such."""

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
    """Largest estimate of a token's divergence that counts, nats; above it the token has no gradient from it. Null for
    no limit."""
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
    sure_above: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Turns whose every token was drawn with a higher probability than this do not go through the network, since such
    tokens have next to no gradient; they count as ones whose probability has not changed. 1 leaves out none; less asks
    for `kl_weight` 0, since a sure turn may be far from the reference all the same."""
    batch_tokens: Count = 16384
    """Tokens that go through the network at once, padding included; bounds memory, and changes no gradient. A
    conversation that is longer goes alone."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the network is updated; `auto` takes a GPU where there is one."""
    bf16: bool = False
    """Compute in bfloat16 (autocast); weights, gradients and log-probabilities stay in float32."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.sure_above < 1 and self.kl_weight > 0:
            raise ValueError(
                f"sure_above {self.sure_above:g} leaves turns out of the divergence from the reference; say kl_weight "
                "0, or leave out sure_above"
            )
        return self


class LoopSettings(Section):
    """How long `memagent train loop` goes on, and what it keeps."""

    questions_per_step: Count = 128
    """Questions whose samples are collected before the weights are updated; all where there are fewer. The update is a
    step of the optimiser for every `learner.questions_per_optimiser_step` of them."""
    max_steps: Count | None = None
    """Steps after which it ends; those of earlier runs of the same command are counted."""
    max_minutes: Annotated[float, Field(gt=0)] | None = None
    """Time after which it begins no further step, minutes; that of steps which earlier runs of the same command ended
    is counted."""
    held_out: str | None = None
    """Question list, bound to documents of the same input, that is never learnt from and read greedily every
    `evaluate_every` steps."""
    evaluate_every: Count = 10
    """Steps between two readings of the held-out questions."""
    keep_every: Count | None = None
    """Keep the model of every so manieth step; the last one is always kept."""
    seed: int = 0
    """Source of the order in which questions are taken."""


def _shown_knobs(knobs: Iterable[tuple[str | None, Any]]) -> Iterable[tuple[str | None, Any]]:
    return [(name, _shown(value)) for name, value in knobs]


def _shown(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_shown, value))
    return shown(value) if type(value) is str else value

"""The agent: all that decides a result."""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, JsonValue, model_validator

from memagent_batch.config.engines import ENDPOINT_ENGINES, EndpointApi, OpenAIConfig, SimulatedConfig, VllmConfig
from memagent_batch.config.section import Count, Section, Text


class BreakAt(StrEnum):
    """Where a chunk closes before it is full, when what comes next would not fit."""

    SENTENCES = "sentences"
    """At the end of a sentence. A longer sentence closes between words, and never inside a number that fits."""
    ROWS = "rows"
    """At the end of a row of a document of many rows; a longer row at the end of a sentence."""
    LINES = "lines"
    """At the end of a line of the text; a longer line at the end of a sentence."""
    LENGTH = "length"
    """Nowhere: its length alone decides, as in the published code."""


class Extraction(StrEnum):
    """How the answer is taken out of the response."""

    AUTO = "auto"
    """Boxed if there is a box, else the sentence."""
    BOXED = "boxed"
    r"""The content of the last complete `\boxed{...}`."""
    SENTENCE = "sentence"
    """What follows the last "the answer is", up to the end of its line, without Markdown emphasis and full stop; the
    next line that says anything where a colon ends that one."""
    RAW = "raw"
    """The whole response, without a thought and white space around it."""


class SamplingConfig(Section):
    """How tokens are drawn."""

    temperature: Annotated[float, Field(ge=0)] = 0.0
    """0 is greedy: the same answers every night."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Nucleus sampling: draw from the most likely tokens with this total probability."""
    top_k: Annotated[int, Field(ge=-1)] = -1
    """Number of tokens to draw from; -1 for all."""
    seed: int = 0
    """Each turn draws with a seed made from this one, its reading and its path."""
    logprobs: bool = False
    """Keep the log-probability of each token in the turn log."""
    samples: Count = 1
    """Readings per document and question; more than one needs a temperature above 0."""

    @model_validator(mode="after")
    def _check_samples(self) -> Self:
        if self.samples > 1 and self.temperature == 0:
            raise ValueError(
                f"samples: {self.samples} greedy samples are all the same, at {self.samples} times the cost, and their "
                "votes on a value say nothing; set temperature above 0, or samples to 1"
            )
        return self


class PolicyConfig(Section):
    """How a document is read. Budgets in tokens; together with the prompt's own text they must fit `window_tokens`."""

    kind: Text = "overwrite"
    """How a document is read. `overwrite` rewrites the memory at each chunk; `gated` can keep it; `parallel` reads all
    chunks side by side and merges their notes; `truncate` (head and tail) and `retrieve` (best passages) answer from
    one prompt. Or your own: an installed name or package.module:Class."""
    chunk_tokens: Count = 5000
    """Tokens of the document in one prompt. The default shrinks with a short window."""
    overlap_tokens: Annotated[int, Field(ge=0)] = 0
    """Tokens that a chunk or passage shares with the one before it; fewer if a sentence (`break_at`) begins there."""
    break_at: BreakAt | None = None
    """Where chunks close: after whole `sentences`, `rows` (of documents of many rows) or `lines`, or by `length` alone.
    Defaults to `sentences`; with an imported prompt set to `length`."""
    passage_tokens: Count = 256
    """Tokens of a passage, for `retrieve`."""
    question_tokens: Count = 1024
    """Longest question, tokens. A longer one is a `failed` row."""
    memory_tokens: Count = 1024
    """Budget of the memory, tokens. `memory_truncations` counts those that were cut."""
    answer_tokens: Count = 1024
    """Budget of the answer, tokens. One that is cut has finish_reason `length`."""
    rounds: Count = 3
    """Largest number of rounds over the chunks, for `parallel`."""
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    """Further settings of your own policy."""


class AgentConfig(Section):
    """All that decides a result: model, prompts, policy, sampling and engine. Needs no documents and no questions."""

    model: str = "tiny"
    """Model folder, GGUF file of a Llama model, hub name, `tiny` (included), or `reader-135m` and `smollm2-135m` after
    `memagent models install`. For an endpoint: the name that it serves."""
    tokenizer: str | None = None
    """Folder or hub name of the tokeniser, if it is not the model's."""
    weights_version: str = ""
    """Name of the weights of an endpoint, which can't be hashed, for the fingerprint."""
    window_tokens: Count = 8192
    """Tokens that prompt and completion may have together. Defaults to the model's window if that is shorter. Budgets
    of `policy` that you did not set then shrink with it."""
    prompt_set: str | None = None
    """Built-in prompt set or prompt set file (docs/how-to/prompts.md). By default that of the policy; for `overwrite`,
    `section-first` if the output's first run asks several questions per document."""
    chat_template_kwargs: dict[str, JsonValue] = Field(default_factory=dict)
    """Arguments of the chat template. `enable_thinking` is `false` by default, if the template knows it."""
    extraction: Extraction = Extraction.AUTO
    """How the answer is taken out of the response."""
    policy: PolicyConfig = PolicyConfig()
    """How a document is read."""
    sampling: SamplingConfig = SamplingConfig()
    """How tokens are drawn."""

    engine: Text = "vllm"
    """`vllm`, `openai` (an endpoint), `openai-batch` (its batches: half the price, but hours instead of minutes), or
    `simulated` (no model, for measurements). Or your own engine: an installed name or package.module:Class."""
    engine_options: dict[str, JsonValue] = Field(default_factory=dict, repr=False)
    """Settings of your own engine."""
    vllm: VllmConfig = VllmConfig()
    """Settings of engine `vllm`."""
    openai: OpenAIConfig = OpenAIConfig()
    """Settings of the engines `openai` and `openai-batch`."""
    simulated: SimulatedConfig = SimulatedConfig()
    """Settings of engine `simulated`."""

    @model_validator(mode="after")
    def _check_policy(self) -> Self:
        if self.policy.overlap_tokens >= self.policy.chunk_tokens:
            raise ValueError("policy.overlap_tokens must be below policy.chunk_tokens")
        return self

    @model_validator(mode="after")
    def _check_chat(self) -> Self:
        if self.engine in ENDPOINT_ENGINES and self.openai.api is not EndpointApi.COMPLETIONS and not self.tokenizer:
            raise ValueError(
                "tokenizer must be set where openai.api is chat or messages, since chunks and budgets are counted in "
                "its tokens: the folder or hub name of the served model's, or `tiny`, which comes with the project and "
                "counts more tokens than any large model"
            )
        return self

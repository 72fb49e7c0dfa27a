"""The agent: all that decides a result."""

from typing import Annotated, Self

from pydantic import Field, JsonValue, model_validator

from memagent_batch.config.engines import EndpointApi, OpenAIConfig, SimulatedConfig, VllmConfig
from memagent_batch.config.section import Count, Section, Text
from memagent_batch.types import BreakAt, Extraction


class SamplingConfig(Section):
    """How tokens are drawn."""

    temperature: Annotated[float, Field(ge=0)] = 0.0
    """0 is greedy: the same answers every night."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Nucleus: smallest set of tokens with this probability."""
    top_k: Annotated[int, Field(ge=-1)] = -1
    """Number of tokens to draw from; -1 for all."""
    seed: int = 0
    """Each turn draws with a seed made from this one, its reading and its turn path."""
    logprobs: bool = False
    """Keep the log-probability of each token in the turn log."""
    samples: Count = 1
    """Readings of each document and question; several need a temperature above 0."""

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
    """How a document is read: `overwrite` writes the memory again after each chunk; `gated` keeps it by a word if a
    chunk says nothing new; `parallel` reads all chunks side by side and merges their notes; `truncate` (head and tail)
    and `retrieve` (the best passages by BM25) answer from one prompt. Or a policy of yours: the name of an installed
    one, or package.module:Class."""
    chunk_tokens: Count = 5000
    """Tokens of the document that one prompt shows; by default fewer if the window is short."""
    overlap_tokens: Annotated[int, Field(ge=0)] = 0
    """Tokens that a chunk or passage shares with the one before it; less if a sentence (`break_at`) begins there."""
    break_at: BreakAt | None = None
    """Where a chunk closes if what follows would not fit: at the end of `sentences`, `rows` (of documents of many rows)
    or `lines`, where a longer one closes between words and outside of numbers; or by its `length` alone. By default
    `sentences`; `length` with an imported prompt set, whose checkpoints were trained so."""
    passage_tokens: Count = 256
    """Tokens of a passage, for `retrieve`."""
    question_tokens: Count = 1024
    """Longest question, tokens; a longer one is a failed row."""
    memory_tokens: Count = 1024
    """Budget of the memory, tokens; one that is cut there is counted in `memory_truncations`."""
    answer_tokens: Count = 1024
    """Budget of the answer, tokens; one that is cut there has finish_reason `length`."""
    rounds: Count = 3
    """Most rounds over the chunks, for `parallel`."""
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    """Settings of a policy of yours, beside those above that it has too."""


class AgentConfig(Section):
    """All that decides a result: model, prompts, policy, sampling and engine. Needs no documents and no questions."""

    model: str = "tiny"
    """Model folder, GGUF file of a Llama model, or hub name; `tiny` comes with the project, and `memagent models
    install` adds `reader-135m` and `smollm2-135m`. For an endpoint: the name served."""
    tokenizer: str | None = None
    """Folder or hub name of the tokeniser, if it is not the model's."""
    weights_version: str = ""
    """Free text in the fingerprint; for endpoints, whose weights can't be hashed from here."""
    window_tokens: Count = 8192
    """Window that prompts and completions must fit, tokens. By default that of the model if it is shorter; then the
    budgets of `policy` that are not set shrink with it."""
    prompt_set: str | None = None
    """Name of a built-in prompt set, or a prompt set file (docs/how-to/prompts.md). By default the set of the policy;
    for `overwrite`, `section-first` if the output's first run asks several questions of a document, else
    `default`."""
    chat_template_kwargs: dict[str, JsonValue] = Field(default_factory=dict)
    """Arguments of the chat template; one that knows `enable_thinking` gets `false` by default."""
    extraction: Extraction = Extraction.AUTO
    """How the answer is taken out of the response."""
    policy: PolicyConfig = PolicyConfig()
    """How a document is read."""
    sampling: SamplingConfig = SamplingConfig()
    """How tokens are drawn."""

    engine: Text = "vllm"
    """What turns prompts into completions: `vllm` inside the actor, `openai` (an endpoint), or `simulated` (without a
    model, for measuring). Or an engine of yours: the name of an installed one, or package.module:Class."""
    engine_options: dict[str, JsonValue] = Field(default_factory=dict, repr=False)
    """Settings of an engine of yours."""
    vllm: VllmConfig = VllmConfig()
    """Settings of engine `vllm`."""
    openai: OpenAIConfig = OpenAIConfig()
    """Settings of engine `openai`."""
    simulated: SimulatedConfig = SimulatedConfig()
    """Settings of engine `simulated`."""

    @model_validator(mode="after")
    def _check_policy(self) -> Self:
        if self.policy.overlap_tokens >= self.policy.chunk_tokens:
            raise ValueError("policy.overlap_tokens must be below policy.chunk_tokens")
        return self

    @model_validator(mode="after")
    def _check_chat(self) -> Self:
        if self.engine == "openai" and self.openai.api is EndpointApi.CHAT and not self.tokenizer:
            raise ValueError(
                "tokenizer must be set where openai.api is chat, since chunks and budgets are counted in its tokens: "
                "the folder or hub name of the served model's, or `tiny`, which comes with the project and counts more "
                "tokens than any large model"
            )
        return self

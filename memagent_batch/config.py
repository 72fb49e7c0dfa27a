"""Every knob, on one page: what an agent is, and what a job does with it.

Plain values; no field can be set. Built in Python they hold what the call says and the defaults, and never look at the
environment; `jobs/` alone reads job files, `MEMAGENT_...` variables and options, and makes these values of them.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from string import Formatter
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    SecretStr,
    Tag,
    field_serializer,
    field_validator,
    model_validator,
)

from memagent_batch.domain.advantages import Advantage
from memagent_batch.domain.answers import Extraction
from memagent_batch.domain.document import BreakAt
from memagent_batch.domain.escalation import Doubt
from memagent_batch.domain.prompts import AnswerForm
from memagent_batch.domain.rewards import Overlong
from memagent_batch.files.options import StorageKnob, StorageOptions
from memagent_batch.masking import shown

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]


def _as_tuple(value: Any) -> Any:
    """One text or group as the only one of several."""
    return (value,) if isinstance(value, str | dict) else value


Text = Annotated[str, Field(min_length=1)]
"""A text that is not empty."""
TextOrTexts = Annotated[tuple[Text, ...], BeforeValidator(_as_tuple)]
"""One text or several."""


def _question_form(question: Any) -> str:
    """Which of its two forms a question has."""
    return "row" if isinstance(question, dict) else "text"


_Question = Annotated[
    Annotated[Text, Tag("text")] | Annotated[dict[str, JsonValue], Tag("row")], Discriminator(_question_form)
]
Asked = Annotated[tuple[_Question, ...], BeforeValidator(_as_tuple)]
"""One question or several: texts, or rows of a question list."""


class LogFormat(StrEnum):
    """How a run writes what happens on stderr."""

    TEXT = "text"
    """Lines for people."""
    JSON = "json"
    """One JSON object a line, with run and reading ids."""


class TableFormat(StrEnum):
    """File format of `answers` and `memories`."""

    PARQUET = "parquet"
    """Parquet, zstd."""
    ARROW = "arrow"
    """Arrow IPC file, zstd."""


class Speculation(StrEnum):
    """How an engine guesses tokens ahead. What it writes stays the same: only guesses that it would write are kept."""

    AUTO = "auto"
    """`ngram` where vLLM runs on CPU, `none` elsewhere."""
    NONE = "none"
    """One token at a time."""
    NGRAM = "ngram"
    """What followed the same words earlier in the prompt; a new memory is mostly a copy of the last."""
    TAIL = "tail"
    """The same on a GPU, while few requests run: at the end of a run, and not while the engine is full."""


class Reread(StrEnum):
    """Chunks that a round of policy `parallel` after the first reads again."""

    ALL = "all"
    """Every chunk."""
    NOMINATED = "nominated"
    """Chunks that had a note in an earlier round, and those that BM25 ranks nearest to the question and the memory."""


class OnBadFile(StrEnum):
    """How a run treats a file that can't be read: malformed, or with an ending that is not known."""

    FAIL = "fail"
    """The run is refused, and the file named."""
    RECORD = "record"
    """The file, or each bad line or row of it, becomes `failed` rows; all other documents are read."""


class Section(BaseModel):
    """A group of knobs; unknown ones are refused."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
        protected_namespaces=(),
    )

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """The knobs for `repr` and `str`; URLs without secrets."""
        return [(name, _masked_value(value)) for name, value in super().__repr_args__()]


class PolicyConfig(Section):
    """How a document is read. Budgets in tokens; together with the prompt's own text they must fit `window_tokens`."""

    kind: Text = "overwrite"
    """The policy: `overwrite` writes the memory again after each chunk; `gated` keeps it with a word where a chunk says
    nothing new; `parallel` reads all chunks side by side and merges their notes; `shared` and `shared-parallel` do as
    `overwrite` and `parallel`, with one memory for a whole question list; `truncate` (head and tail of the document)
    and `retrieve` (the passages nearest to the question by BM25) answer from one prompt, to compare with. Or one of
    yours: the name that an installed package gives it, or package.module:Class (with --allow-code)."""
    chunk_tokens: Count = 5000
    """Tokens of a chunk: all that one prompt shows of the document; by default fewer where the window is short."""
    overlap_tokens: Annotated[int, Field(ge=0)] = 0
    """Tokens that a chunk or passage shares with the one before it."""
    break_at: BreakAt | None = None
    """Closes a chunk at the end of a row (`rows`, of documents of many rows) or of a line (`lines`) when the next one
    would not fit; one that is longer than a chunk is cut. By default chunks have `chunk_tokens` each. For the
    policies that read chunks; `truncate` and `retrieve` have none."""
    passage_tokens: Count = 256
    """Tokens of a passage, for `retrieve`."""
    question_tokens: Count = 1024
    """Longest question, tokens; a longer one becomes a failed row. For `shared` and `shared-parallel`:
    longest question list."""
    memory_tokens: Count = 1024
    """Budget of the memory, tokens; a memory cut there is counted in `memory_truncations`."""
    answer_tokens: Count = 1024
    """Budget of the answer, tokens; an answer cut there has finish_reason `length`."""
    rounds: Count = 3
    """Most rounds over the chunks, for `parallel` and `shared-parallel`."""
    reread: Reread = Reread.ALL
    """Chunks that a round after the first reads again, for `parallel` and `shared-parallel`: `all`, or `nominated`
    (those that had a note, and the nearest others by BM25)."""
    knobs: dict[str, JsonValue] = Field(default_factory=dict)
    """Knobs of a policy of yours, beside those above that it has too."""


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
    """Readings of each document and question."""
    thinking_tokens: Annotated[int, Field(ge=0)] | None = None
    """Most tokens of a thought, for models that think: then it is closed, and the memory or answer follows. By default
    a thought may take the whole budget of its turn. For engine `vllm`, and for endpoints of vLLM's server."""


class VllmConfig(Section):
    """vLLM inside the actor."""

    dtype: str = "auto"
    """Number format of weights and activations; `auto` takes the model's own."""
    tensor_parallel_size: Count = 1
    """GPUs that share each layer."""
    pipeline_parallel_size: Count = 1
    """Groups of GPUs that share the layers."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of a GPU's memory for weights and KV cache."""
    cpu_kv_cache_gib: Count = 2
    """KV cache where vLLM runs on CPU, GiB a replica."""
    max_num_seqs: Count = 256
    """Most requests in one engine step."""
    speculation: Speculation = Speculation.AUTO
    """Guesses tokens ahead where decoding is greedy, no log-probabilities are kept and thoughts have no budget; draws
    are never guessed."""
    reproducible: bool = False
    """On a GPU, vLLM's batch-invariant mode: a completion does not depend on what else is in flight. Costs speed, and
    is part of the reader fingerprint."""
    turn_timeout_seconds: Seconds = 1800
    """A turn that takes longer means a hanging engine: the actor stops and is replaced."""
    engine_args: dict[str, JsonValue] = Field(default_factory=dict, repr=False)
    """Further arguments of vLLM's AsyncEngineArgs, as they are. Of secrets such as `hf_token` a hash is recorded."""


class EndpointApi(StrEnum):
    """What an endpoint is sent."""

    COMPLETIONS = "completions"
    """Token ids, at /completions: no text becomes a control token."""
    CHAT = "chat"
    """Messages, at /chat/completions: the server parses their text, in which the markers of chat templates are made
    harmless."""


class OpenAIConfig(Section):
    """An OpenAI-compatible endpoint."""

    api: EndpointApi = EndpointApi.COMPLETIONS
    """`completions` sends token ids to /completions, as the servers of vLLM and SGLang take them. `chat` sends messages
    to /chat/completions, for hosted models: texts are parsed by the server, so that markers of chat templates in them
    are made harmless (`‹|im_start|›`), and `tokenizer` must be set, if only to `tiny`."""
    base_url: str = "http://127.0.0.1:8000/v1"
    """Address up to /v1; a query in it, such as `?api-version=`, goes with every request."""
    api_key: SecretStr | None = None
    """Bearer token; better given as MEMAGENT_OPENAI__API_KEY than in a file. Never recorded."""
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    """Further headers of every request, such as `api-key`; better given as MEMAGENT_OPENAI__HEADERS (a JSON object)
    than in a file. Never recorded."""
    timeout_seconds: Seconds = 600
    """Longest time for one response, from its request to its last byte."""
    max_retries: Annotated[int, Field(ge=0)] = 6
    """Tries of a request after the first, on 408, 409, 5xx, cut connections and time-outs, while the endpoint answers
    others; then its reading fails."""
    backoff_seconds: Seconds = 1.0
    """First pause between tries; doubled each time up to 60 s, with jitter; `Retry-After` goes before it."""
    outage_seconds: Annotated[float, Field(ge=0)] = 1800.0
    """Longest time that all readings wait for an endpoint that is away, restarts or is out of quota (429). What is left
    then is not read, and the next run reads it."""
    extra_body: dict[str, JsonValue] = Field(default_factory=dict, repr=False)
    """Further fields of every request body, as they are; they go before those of each request, and null leaves a field
    out. A hash of them is recorded."""

    @field_validator("base_url")
    @classmethod
    def _check_base_url(cls, url: str) -> str:
        try:
            _ = urlsplit(url).port
        except ValueError:  # its message quotes a part of the password
            raise ValueError("is no URL; write / and @ of a password as %2F and %40") from None
        return url


class SimulatedConfig(Section):
    """An engine without a model, for measuring."""

    turn_seconds: Annotated[float, Field(ge=0)] = 0.0
    """Time of one turn, seconds."""
    completion_tokens: Count = 16
    """Tokens of each completion (fewer where the budget is smaller)."""


class AgentConfig(Section):
    """All that decides a result: model, prompts, policy, sampling and engine. Needs no documents and no questions."""

    model: str = "tiny"
    """Model folder or hub name; `tiny` is the policy that comes with the project. For an endpoint: the name served."""
    tokenizer: str | None = None
    """Folder or hub name of the tokeniser, where it is not the model's."""
    weights_version: str = ""
    """Free text that is part of the reader fingerprint; for endpoints, whose weights can't be hashed from here."""
    window_tokens: Count = 8192
    """Context window that prompts and completions must fit, tokens. By default that of the model where it is shorter;
    then the budgets of `policy` that are not given shrink with it."""
    prompt_set: str | None = None
    """Name of a built-in prompt set, or a file that `memagent prompts import` wrote. By default `gated` for the policy
    of that name, else `default`."""
    chat_template_kwargs: dict[str, JsonValue] = Field(default_factory=dict)
    """What the chat template is given, by its own words. `enable_thinking: false` is given where it knows that word,
    unless another value stands here."""
    answer_form: AnswerForm = AnswerForm.BOXED
    """How the model is asked to mark its answer."""
    extraction: Extraction = Extraction.AUTO
    """How the answer is taken out of the response."""
    policy: PolicyConfig = PolicyConfig()
    """How a document is read."""
    sampling: SamplingConfig = SamplingConfig()
    """How tokens are drawn."""

    engine: Text = "vllm"
    """What turns prompts into completions: `vllm` inside the actor, `openai` (an endpoint, for prompts of token ids or
    for messages), or `simulated` (answers by rule, to measure everything else). Or one of yours: the name that an
    installed package gives it, or package.module:Class (with --allow-code)."""
    engine_knobs: dict[str, JsonValue] = Field(default_factory=dict, repr=False)
    """Knobs of an engine of yours."""
    vllm: VllmConfig = VllmConfig()
    """Knobs of engine `vllm`."""
    openai: OpenAIConfig = OpenAIConfig()
    """Knobs of engine `openai`."""
    simulated: SimulatedConfig = SimulatedConfig()
    """Knobs of engine `simulated`."""

    def with_knobs(self, knobs: Mapping[str, Any]) -> "AgentConfig":
        """The agent with these knobs over those that were set; raises a ValidationError as any other.

        Key and headers of an endpoint are its own: they go with no request to another server.
        """
        own = self.model_dump(exclude_unset=True)
        agent = AgentConfig(**merged(own, knobs))
        if self.engine == "openai" and _server(agent.openai.base_url) != _server(self.openai.base_url):
            own["openai"] = {name: own["openai"][name] for name in own.get("openai", {}).keys() - _CREDENTIALS}
            agent = AgentConfig(**merged(own, knobs))
        return agent

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


class ClosingConfig(Section):
    """What is asked after each answer; a value of a type is asked for where a question has one."""

    evidence: bool = False
    """Ask which sentences of the document the answer rests on; they are rows of the table `evidence`."""
    support: bool = False
    """Ask whether these sentences bear the answer; needs `closing.evidence`."""
    evidence_tokens: Count | None = None
    """Sentences that are shown to choose from, tokens at most; by default a quarter of `policy.chunk_tokens`, but
    at least 256 where a chunk is longer, and at most 1,024."""
    json_tokens: Count = 512
    """Budget of a JSON value, tokens."""

    @model_validator(mode="after")
    def _check_support(self) -> Self:
        if self.support and not self.evidence:
            raise ValueError("closing.support is asked of the sentences that closing.evidence finds; set both")
        return self


class TargetConfig(Section):
    """How much of what is looked for must be found, or looked at again."""

    recall: float = Field(gt=0, lt=1)
    """Share of what is looked for that is answered by yes or looked at again, at least."""
    delta: float = Field(default=0.05, gt=0, lt=1)
    """How often a learnt threshold may miss that."""
    truth: Literal["labels"] = "labels"
    """What says what is right: the labels of `memagent review`."""


class EscalateConfig(Section):
    """Which readings are looked at again, and by whom."""

    when: Annotated[tuple[Doubt, ...], BeforeValidator(_as_tuple)] = ()
    """What makes an answer doubtful, one or several: `failed`; `invalid` or `not_stated` (its value); `answer` (it is
    one of `escalate.answers`); `weak_support` (its sentences do not bear it); `low_confidence` (see
    `escalate.confidence_below`); `target`, which `escalate.target` adds. None by default."""
    confidence_below: Annotated[float, Field(gt=0, le=1)] | None = None
    """Confidence below this is low, for `low_confidence`."""
    answers: TextOrTexts = ()
    """Doubtful answers, for `answer`; case and white space do not count."""
    target: TargetConfig | None = None
    """Looks again at each "no" that is not sure enough, as `memagent review calibrate` has learnt from labels."""
    to: dict[str, JsonValue] = Field(default_factory=dict, repr=False)
    """Knobs of the second reader over those of the first: `policy`, `model`, `engine`, `prompt_set` and others of the
    agent, as in a job file. Without them a person looks: rows have `needs_review`."""

    @property
    def reasons(self) -> tuple[Doubt, ...]:
        """What makes an answer doubtful, with what the target adds."""
        return self.when if self.target is None else tuple(dict.fromkeys((*self.when, Doubt.TARGET)))

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.to and not self.reasons:
            raise ValueError(f"escalate.when: choose from {', '.join(Doubt)}")
        if Doubt.TARGET in self.when and self.target is None:
            raise ValueError("escalate.target: say what recall is wanted, such as {recall: 0.95}")
        for doubt, name in ((Doubt.LOW_CONFIDENCE, "confidence_below"), (Doubt.ANSWER, "answers")):
            if (doubt in self.when) != bool(getattr(self, name)):
                raise ValueError(f"escalate.{name} and the reason {doubt.value!r} in escalate.when need each other")
        return self


class InputConfig(Section):
    """Where texts and questions stand in the input."""

    document_id_column: str = "document_id"
    """Column with the id of a document: unique, unless `order_columns` are given."""
    text_column: str = "text"
    """Column with the text of a document."""
    question_column: str | None = None
    """Column of the documents that holds a question beside each text; none by default."""
    question_type: dict[str, JsonValue] = Field(default_factory=dict)
    """Type that the questions of that column ask for, by the columns of a question list: answer_type, and labels,
    schema, unit or not_stated; none by default."""
    carry_columns: TextOrTexts = ()
    """Columns of the documents to carry into `answers`, as text."""
    format: Literal["auto", "parquet", "jsonl", "csv", "arrow", "text"] = "auto"
    """File format of the documents; `auto` goes by the file ending, and leaves out text files beside files with
    columns unless `documents` names them."""
    where: Text | None = None
    """Filter of the rows, as in SQL: `year >= 2026 and kind in ('contract', 'offer')`. Partitions and row groups that
    it rules out are not read. All rows by default."""
    order_columns: TextOrTexts = ()
    """Columns that put the rows of a document in order; then a document is all rows of one id, such as pages. By
    default each row is a document."""
    locator: Text | None = None
    """What names the place of a row in its source, with columns in braces: `page {page}`. For `order_columns`."""
    header: Text | None = None
    """Line above the text of each row, with columns in braces: `{sender}, {sent_at}`. For `order_columns`."""
    separator: str = "\n\n"
    """Text between the rows of a document. For `order_columns`."""
    on_bad_file: OnBadFile = OnBadFile.FAIL
    """Treatment of a file, line or row that can't be read: `fail` refuses the run, `record` makes `failed` rows of it.
    A store that does not answer stops the run either way."""

    @field_validator("locator", "header")
    @classmethod
    def _check_template(cls, template: str | None) -> str | None:
        """Columns in braces are names and nothing else, so that a template shows values as they are."""
        try:
            parts = list(Formatter().parse(template or ""))
        except ValueError as error:
            raise ValueError(f"{error}; write columns in braces, and a brace itself twice") from None
        for _, name, form, conversion in parts:
            if name is not None and (not name or set("[].") & set(name) or name.isdigit() or form or conversion):
                raise ValueError(f"{{{name}}} names no column; write columns in braces, such as {{page}}")
        return template

    @model_validator(mode="after")
    def _check_rows(self) -> Self:
        if not self.order_columns and (self.locator or self.header):
            raise ValueError("input.locator and input.header are for documents of many rows: name input.order_columns")
        return self


class Storage(Section):
    """How files are reached."""

    storage_options: StorageKnob = StorageOptions()
    """Arguments of the fsspec file system, such as endpoint_url or key, for inputs and output. Never recorded; secrets
    are better given as MEMAGENT_STORAGE_OPTIONS (JSON) or in the job file than on the command line."""


class SourceConfig(Storage):
    """The documents and the questions, and how to open them."""

    documents: Annotated[TextOrTexts, Field(min_length=1)]
    """Documents: one or several files, folders or globs of Parquet, JSONL, CSV, Arrow or text files; paths or any
    fsspec URLs, all on one file system. Or one table: delta://FOLDER or iceberg://CATALOG/DATABASE.TABLE, with @VERSION
    behind it where you want. Ids of text files are their paths below the folder that holds all of them."""
    questions: str | None = None
    """Question list: a Parquet, JSONL, CSV, Arrow or text file (one question a line). Rows with a `document_id` are
    bound to that document, the others are asked of every document."""
    limit: Count | None = None
    """Takes this many of the documents, as a fair sample by permanent random number: a larger limit takes the same ones
    and more. By default all."""
    limit_seed: int = 0
    """Another seed takes another sample."""
    ask: Asked = ()
    """A question for every document, given here; can be repeated. In a job file it may be a group with the columns of a
    question list, such as question and answer_type."""
    input: InputConfig = InputConfig()
    """Where texts and questions stand in the input."""

    @field_serializer("documents")
    def _documents(self, documents: tuple[str, ...]) -> str | list[str]:
        """One place as itself, as records of earlier versions have it."""
        return documents[0] if len(documents) == 1 else list(documents)

    @model_validator(mode="after")
    def _check_questions(self) -> Self:
        if not (self.questions or self.ask or self.input.question_column):
            raise ValueError("no question: give --questions, --ask or --input.question-column")
        return self


class PoolConfig(Section):
    """The actor pool: one engine an actor."""

    replicas: Count = 1
    """Actors at the start."""
    max_replicas: Count | None = None
    """Most actors, where the cluster has room; as many as at the start by default."""
    gpus_per_replica: Annotated[float, Field(ge=0)] | None = None
    """GPUs of one actor; by default tensor times pipeline parallel where Ray sees GPUs, else 0."""
    cpus_per_replica: Annotated[float, Field(ge=0)] = 0.5
    """CPUs that Ray sets aside for one actor."""
    readings_in_flight: Count = 64
    """Readings that one actor keeps going at once."""
    turns_in_flight: Count | None = None
    """Turns that one actor keeps going at once; readings share them fairly. By default 256, or `readings_in_flight`
    where that is more: policies but `parallel` ask one turn of a reading at a time."""


class LogConfig(Section):
    """The turn log. A crash costs at most one flush interval of model calls."""

    flush_seconds: Seconds = 5.0
    """Longest time that a finished turn waits for its file."""
    flush_bytes: Count = 4 * 1024 * 1024
    """A flush comes earlier when this many bytes wait."""
    outage_seconds: Annotated[float, Field(ge=0)] = 300.0
    """Longest time that a failing flush is tried again; turns wait meanwhile, and then the run stops."""


class RolloutConfig(Section):
    """What `memagent collect` makes of sampled readings."""

    group_size: Annotated[int, Field(ge=1)] = 8
    """Samples of each document and question; they form a group."""
    reward: str = "boxed"
    """`boxed` (the boxed text is a reference but for case, spaces and a little LaTeX: the published training's),
    `boxed_normalised` (they are equal when both are normalised), a metric (all, any, em, f1, hotpotqa_f1,
    sub_em, sub_em_either), or a function of yours, from (response, references)
    to a number: the name that an installed package gives it, or `package.module:function` (with --allow-code)."""
    reward_timeout_seconds: Seconds = 10
    """Longest time that a function of yours may take for one sample, which then has no reward."""
    advantage: Advantage = Advantage.CENTRED
    """How rewards become advantages."""
    overlong: Overlong = Overlong.KEEP
    """Reward of a sample with a turn that was cut at its budget: as any other, 0, or none."""
    drop_equal: bool = False
    """Leave out groups whose rewards are all equal, which teach nothing (dynamic sampling); they are counted."""
    data_source: str = ""
    """Free text for the column `data_source`, by which trainers tell their data apart."""


Bound = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""A bound or a price."""


class BoundsConfig(Section):
    """What one run may take at most. A run that meets a bound ends with exit code 4, and the same command goes on.

    The bounds are of one run: a command that is started again has all of them again.
    """

    max_tokens: Count | None = None
    """Most tokens of prompts and completions that the run's turns take; what the log holds takes none."""
    max_cost: Bound | None = None
    """Most that the run costs, by `price_per_million_prompt_tokens` and `price_per_million_completion_tokens`, or by
    `price_per_hour`."""
    max_hours: Bound | None = None
    """Longest time of the run, hours: a turn that would end later, by the longest of late, is not started."""
    price_per_hour: Bound | None = None
    """Price of one replica's machine for an hour, in any currency."""
    price_per_million_prompt_tokens: Bound | None = None
    """Price of a million prompt tokens, as of an endpoint."""
    price_per_million_completion_tokens: Bound | None = None
    """Price of a million completion tokens."""

    @model_validator(mode="after")
    def _check_prices(self) -> Self:
        of_tokens = (self.price_per_million_prompt_tokens, self.price_per_million_completion_tokens)
        if self.price_per_hour is not None and any(of_tokens):
            raise ValueError(
                "price_per_hour is that of machines, price_per_million_prompt_tokens and "
                "price_per_million_completion_tokens that of an endpoint; set the one or the others"
            )
        if self.max_cost is not None and self.price_per_hour is None and not any(of_tokens):
            raise ValueError(
                "max_cost needs a price: price_per_million_prompt_tokens and price_per_million_completion_tokens of an "
                "endpoint, or price_per_hour of a replica's machine"
            )
        return self


class RunConfig(BoundsConfig, Storage):
    """Where a run writes and how it goes: everything but its inputs and the agent."""

    output: Text
    """Where log, tables and manifest go: a folder or any fsspec URL. A run with the same output continues there."""
    pool: PoolConfig = PoolConfig()
    """The actor pool."""
    log: LogConfig = LogConfig()
    """The turn log."""
    closing: ClosingConfig = ClosingConfig()
    """What is asked after each answer."""
    escalate: EscalateConfig = EscalateConfig()
    """Which readings a second reader reads again."""

    rollouts: RolloutConfig = RolloutConfig()
    """Knobs of `memagent collect`."""

    table_format: TableFormat = TableFormat.PARQUET
    """File format of `answers` and `memories`."""
    retry_failed: bool = False
    """Read failed readings again, and nothing else that is done."""
    max_failed_share: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Largest share of failed readings with which the command ends well; above it, or where all failed, it writes its
    tables and ends with exit code 4."""
    adopt_output: bool = False
    """Take over an output that was written for other documents or questions; what still fits is not read again."""
    log_format: LogFormat = LogFormat.TEXT
    """How run start and end, progress, failed readings and engine deaths are written on stderr."""

    @model_validator(mode="after")
    def _check_pool(self) -> Self:
        if self.pool.max_replicas is not None and self.pool.max_replicas < self.pool.replicas:
            raise ValueError("pool.max_replicas must not be below pool.replicas")
        return self


class AgentTask(Section):
    """A task for an agent."""

    agent: AgentConfig = AgentConfig()
    """What reads."""

    def with_agent(self, agent: AgentConfig) -> Self:
        """The same task for another agent."""
        return self.model_copy(update={"agent": agent})


class JobConfig(AgentTask, SourceConfig, RunConfig):
    """A whole job: an agent, what it reads, and a run that writes the answers."""


class LearnerConfig(Section):
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
    """Leaves out of the network the turns in which every token was drawn with a higher probability than this: such
    tokens have next to no gradient. They count as if their probability had not changed. 1 leaves out none; a lower
    value needs `kl_weight` 0, since a sure turn may still be far from the reference."""
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


class LoopConfig(Section):
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
    """Steps between two models that are kept; the last one is always kept."""
    seed: int = 0
    """Source of the order in which questions are taken."""


class TrainConfig(Section):
    """One epoch over a rollouts table."""

    rollouts: str
    """Output of `memagent collect`: a folder or any fsspec URL."""
    storage_options: StorageKnob = StorageOptions()
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
    """Readings under way at once; the one engine runs in the process of the loop."""
    rollouts: RolloutConfig = RolloutConfig()
    """Groups and rewards."""
    learner: LearnerConfig = LearnerConfig()
    """How weights are updated."""
    loop: LoopConfig = LoopConfig()
    """How long it goes on, and what it keeps."""
    log_format: LogFormat = LogFormat.TEXT
    """How run start and end, progress, failed readings and engine deaths are written on stderr."""


_CREDENTIALS = frozenset({"api_key", "headers"})
"""Knobs of an endpoint that only its own server may see."""


def _server(url: str) -> tuple[str, str | None, int | None]:
    """Scheme, host and port of a URL: what a credential is for."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Knobs with others over them, group by group."""
    result = dict(base)
    for name, value in over.items():
        below = base.get(name)
        result[name] = merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return result


def _masked_value(value: Any) -> Any:
    """A knob for `repr`: a URL without its secrets."""
    if isinstance(value, tuple):
        return tuple(map(_masked_value, value))
    return shown(value) if type(value) is str else value

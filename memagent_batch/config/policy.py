"""How a document is read."""

from typing import Annotated, Any

from pydantic import Field, JsonValue, model_validator

from memagent_batch.config.section import Count, Section, Text
from memagent_batch.domain.document import BreakAt


class PolicyConfig(Section):
    """How a document is read. Budgets in tokens; together with the prompt's own text they must fit `window_tokens`."""

    kind: Text = "overwrite"
    """How a document is read: `overwrite` writes the memory again after each chunk; `gated` keeps it by a word if a
    chunk says nothing new; `parallel` reads all chunks side by side and merges their notes; `truncate` (head and tail)
    and `retrieve` (the passages nearest to the question by BM25) answer from one prompt. Or a policy of yours: the name
    of an installed one, or package.module:Class."""
    chunk_tokens: Count = 5000
    """Tokens of a chunk, all that one prompt shows of the document; by default fewer if the window is short."""
    overlap_tokens: Annotated[int, Field(ge=0)] = 0
    """Tokens that a chunk or passage shares with the one before it."""
    break_at: BreakAt | None = None
    """Closes a chunk at the end of a row (of documents of many rows) or of a line if the next one would not fit; one
    that is longer than a chunk is cut. For policies that read chunks."""
    passage_tokens: Count = 256
    """Tokens of a passage, for `retrieve`."""
    question_tokens: Count = 1024
    """Longest question, tokens; a longer one becomes a failed row."""
    memory_tokens: Count = 1024
    """Budget of the memory, tokens; a memory cut there is counted in `memory_truncations`."""
    answer_tokens: Count = 1024
    """Budget of the answer, tokens; an answer cut there has finish_reason `length`."""
    rounds: Count = 3
    """Most rounds over the chunks, for `parallel`."""
    knobs: dict[str, JsonValue] = Field(default_factory=dict)
    """Settings of a policy of yours, beside those above that it has too."""

    @model_validator(mode="before")
    @classmethod
    def _drop_reread(cls, values: Any) -> Any:
        """Takes the settings of runs that are older than this version, which had `reread: all` by default."""
        if not isinstance(values, dict) or "reread" not in values:
            return values
        if values["reread"] != "all":
            raise ValueError("reread was removed; leave it out, or install a policy such as `nominated` of the example")
        return {name: value for name, value in values.items() if name != "reread"}

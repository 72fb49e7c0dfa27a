"""Many questions, one pass: as `overwrite`, with one memory for a whole question list, and an answer turn for each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from memagent_batch.domain.chunking import Chunk
from memagent_batch.domain.prompts import Memory, PromptTokens
from memagent_batch.domain.turns import Prompt
from memagent_batch.policies.overwrite import OverwritePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPolicy(OverwritePolicy):
    """Each question has its own reading; their `update` turns show the list, so they are the same, and run once."""

    kind: ClassVar[str] = "shared"

    question_list: Sequence[int] = ()
    """The list that the `update` turns show, token ids; without one, they show the question itself."""

    def for_list(self, question_list: Sequence[int]) -> "SharedPolicy":
        """The policy for the readings of one question list."""
        return replace(self, question_list=question_list)

    def _update(self, prompts: PromptTokens, question: Sequence[int], memory: Memory, chunk: Chunk) -> Prompt:
        return replace(
            OverwritePolicy._update(self, prompts, self.question_list or question, memory, chunk), shared=True
        )


def question_list(questions: Iterable[str]) -> str:
    """The text of a question list: each question once, numbered, on a line of its own; a single one as it stands."""
    distinct = list(dict.fromkeys(questions))
    if len(distinct) == 1:
        return distinct[0]
    return "\n".join(f"{number}. {question}" for number, question in enumerate(distinct, start=1))

"""Many questions, one pass: as `overwrite`, with one memory for a whole question list, and an answer turn for each."""

from dataclasses import dataclass, replace
from typing import ClassVar

from memagent_batch.domain.document import Chunk
from memagent_batch.domain.prompts import Memory, PromptTokens
from memagent_batch.domain.readings import QuestionTokens
from memagent_batch.domain.turns import Prompt, Scope
from memagent_batch.policies.overwrite import OverwritePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPolicy(OverwritePolicy):
    """Each question has its own reading; their `update` turns show the list, so they are the same, and run once."""

    kind: ClassVar[str] = "shared"
    reads_lists: ClassVar[bool] = True

    def _update(self, prompts: PromptTokens, question: QuestionTokens, memory: Memory, chunk: Chunk) -> Prompt:
        whole = QuestionTokens(token_ids=question.list_token_ids or question.token_ids)
        return replace(OverwritePolicy._update(self, prompts, whole, memory, chunk), scope=Scope.LIST)

"""Many questions, one pass: one memory for a whole question list, and an answer turn for each question."""

from dataclasses import dataclass, replace
from typing import ClassVar

from memagent_batch.domain.document import Chunk
from memagent_batch.domain.prompts import Memory, PromptTokens
from memagent_batch.domain.readings import QuestionTokens
from memagent_batch.domain.turns import Prompt, Scope
from memagent_batch.policies.overwrite import OverwritePolicy
from memagent_batch.policies.parallel import ParallelPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPolicy(OverwritePolicy):
    """As `overwrite`. Each question has its own reading; their `update` turns show the list, so they run once."""

    kind: ClassVar[str] = "shared"
    reads_lists: ClassVar[bool] = True

    def _update(self, prompts: PromptTokens, question: QuestionTokens, memory: Memory, chunk: Chunk) -> Prompt:
        update = OverwritePolicy._update(self, prompts, question.whole_list, memory, chunk)
        return replace(update, scope=Scope.LIST)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedParallelPolicy(ParallelPolicy):
    """As `parallel`. The `read` and `merge` turns show the list, so they run once for all its readings."""

    kind: ClassVar[str] = "shared-parallel"
    reads_lists: ClassVar[bool] = True

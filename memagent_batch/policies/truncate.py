"""A baseline: head and tail of the document in one prompt, and nothing of its middle."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from memagent_batch.domain.document import Document
from memagent_batch.domain.prompts import PromptTokens
from memagent_batch.policies.direct import DirectPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncatePolicy(DirectPolicy):
    """One `direct` turn with the first and the last half of what it may show; all of a document that fits."""

    kind: ClassVar[str] = "truncate"

    async def parts(
        self, document: Document, question: Sequence[int], *, prompts: PromptTokens
    ) -> list[tuple[int, int]]:
        """The head and the tail of the document."""
        room = self.chunk_tokens - len(prompts.gap)
        tail = room // 2
        return [(0, room - tail), (document.num_tokens - tail, document.num_tokens)]

    def identity(self) -> Mapping[str, Any]:
        """Kind and knobs; no chunk shares anything with another one here."""
        return {name: value for name, value in DirectPolicy.identity(self).items() if name != "overlap_tokens"}

"""The policy `overwrite` with a gate: where a chunk says nothing new, a turn costs one word, and the memory stays."""

from dataclasses import dataclass
from typing import ClassVar

from memagent_batch.policies.overwrite import OverwritePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedPolicy(OverwritePolicy):
    """The same turns. The gate is in the prompt set, whose `keep_word` the model writes to keep its memory."""

    kind: ClassVar[str] = "gated"
    prompt_set: ClassVar[str] = "gated"

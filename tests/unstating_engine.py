"""The simulated engine, which says of every question that the document does not state the answer."""

from typing import ClassVar

from memagent_batch.loop.engines.simulated import SimulatedEngine
from memagent_batch.loop.follow_ups.answer_types import NOT_STATED_ENTRY
from memagent_batch.loop.follow_ups.prompts import VALUE
from memagent_batch.types import ANSWER, DIRECT, Prompt

KIND = f"{__name__}:Unstating"
"""Its name as a plug-in, which needs `allow_code`."""
UNSTATED_ANSWER = r"\boxed{It does not say.}"


class Unstating(SimulatedEngine):
    """Writes "not stated" for each value that need not be a choice; its answers say so in other words."""

    kind: ClassVar[str] = "unstating"

    def _written(self, prompt: Prompt) -> tuple[list[int], str]:
        if prompt.kind == VALUE:
            return self._tokenizer.encode(NOT_STATED_ENTRY), NOT_STATED_ENTRY
        if prompt.kind in (ANSWER, DIRECT):
            return self._tokenizer.encode(UNSTATED_ANSWER), UNSTATED_ANSWER
        return super()._written(prompt)

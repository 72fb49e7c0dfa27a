"""The simulated engine, which says of every typed question that the document does not state it."""

from typing import ClassVar

from memagent_batch.domain.follow_ups.answer_types import NOT_STATED_ENTRY
from memagent_batch.domain.follow_ups.prompts import VALUE
from memagent_batch.domain.turns import Prompt
from memagent_batch.engines.simulated import SimulatedEngine

KIND = f"{__name__}:Unstating"
"""Its name as a plug-in, which needs `allow_code`."""


class Unstating(SimulatedEngine):
    """Writes "not stated" wherever a value is asked for that need not be a choice."""

    kind: ClassVar[str] = "unstating"

    def _written(self, prompt: Prompt) -> tuple[list[int], str]:
        if prompt.kind != VALUE:
            return super()._written(prompt)
        return self._tokenizer.encode(NOT_STATED_ENTRY), NOT_STATED_ENTRY

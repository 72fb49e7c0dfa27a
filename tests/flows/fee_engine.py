"""The simulated engine, which notes the fee that a prompt names and answers with it."""

import re
from typing import ClassVar

from memagent_batch.domain.follow_ups.answer_types import NOT_STATED_ENTRY
from memagent_batch.domain.follow_ups.prompts import VALUE
from memagent_batch.domain.turns import Prompt
from memagent_batch.engines.simulated import SimulatedEngine

KIND = f"{__name__}:FeeFinder"
"""Its name as a plug-in, which needs `allow_code`."""
_FEE = re.compile(r"fee is ([0-9]+) euros")


class FeeFinder(SimulatedEngine):
    """Writes "the fee is N euros" of the last such words in the prompt, and as a value N."""

    kind: ClassVar[str] = "fee-finder"

    def _written(self, prompt: Prompt) -> tuple[list[int], str]:
        found = _FEE.findall(self._tokenizer.decode(list(prompt.token_ids)))
        fee = found[-1] if found else None
        if prompt.kind == VALUE:
            text = NOT_STATED_ENTRY if fee is None else fee
        elif prompt.guide is not None:
            return super()._written(prompt)
        else:
            text = f"fee is {fee} euros" if fee else "not said"
            text = text if prompt.writes else f"\\boxed{{{text}}}"
        return self._tokenizer.encode(text), text

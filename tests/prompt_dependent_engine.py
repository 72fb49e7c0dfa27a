"""The simulated engine, whose texts are made of the hash of the prompt: another prompt, another text."""

from typing import ClassVar

from memagent_batch.loop.addresses import token_hash
from memagent_batch.loop.engines.simulated import SimulatedEngine
from memagent_batch.types import Prompt

KIND = f"{__name__}:PromptDependent"
"""Its name as a plug-in, which needs `allow_code`."""


class PromptDependent(SimulatedEngine):
    """Answers with digits of the prompt's hash; all but a guided turn."""

    kind: ClassVar[str] = "prompt-dependent"

    def _written(self, prompt: Prompt) -> tuple[list[int], str]:
        if prompt.guide is not None:
            return super()._written(prompt)
        text = f"\\boxed{{{token_hash(prompt.token_ids)[:6]}}}"
        return self._tokenizer.encode(text), text

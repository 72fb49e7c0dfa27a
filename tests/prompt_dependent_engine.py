"""The simulated engine, whose texts are made of the hash of the prompt: another prompt, another text."""

from typing import ClassVar

from memagent_batch.domain.addresses import token_hash
from memagent_batch.domain.turns import Prompt
from memagent_batch.engines.engine import Engine, EngineContext
from memagent_batch.engines.simulated import Simulated, SimulatedEngine

KIND = f"{__name__}:PromptDependent"
"""Its name as a plug-in, which needs `allow_code`."""


class PromptDependent(Simulated):
    """The engine with the knobs of the simulated one; without the length, which follows from the prompt's budget."""

    kind: ClassVar[str] = "prompt-dependent"

    def open(self, context: EngineContext) -> Engine:
        """The engine, not started."""
        return PromptDependentEngine(self, window_tokens=context.window_tokens, tokenizer=context.load_tokenizer())


class PromptDependentEngine(SimulatedEngine):
    """Answers with digits of the prompt's hash; all but a guided turn."""

    def _written(self, prompt: Prompt) -> tuple[list[int], str]:
        if prompt.guide is not None:
            return super()._written(prompt)
        text = f"\\boxed{{{token_hash(prompt.token_ids)[:6]}}}"
        return self._tokenizer.encode(text), text

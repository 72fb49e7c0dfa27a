"""The simulated engine, which draws what it writes by the seed of the turn and gives log-probabilities."""

from dataclasses import replace
from random import Random
from typing import ClassVar

from memagent_batch.loop.engines.simulated import SimulatedEngine
from memagent_batch.types import Completion, Prompt

KIND = f"{__name__}:Drawing"
"""Its name as a plug-in, which needs `allow_code`."""
RIGHT = "right"
"""What an answer in two is."""


class Drawing(SimulatedEngine):
    """A chunk in two has news, a merge writes a memory of its own, and an answer in two is right."""

    kind: ClassVar[str] = "drawing"

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        """Writes what the seed says; each token has the same probability."""
        completion = await super().complete(prompt, seed=seed)
        draw = Random(seed)
        texts = {"read": ["none", f"note {draw.random():.3f}"], "merge": [f"memory {draw.random():.3f}"]}
        text = draw.choice(texts.get(prompt.kind, [f"\\boxed{{{RIGHT}}}", "\\boxed{wrong}"]))
        token_ids = self._tokenizer.encode(text)
        return replace(completion, token_ids=token_ids, text=text, logprobs=[-0.5] * len(token_ids))

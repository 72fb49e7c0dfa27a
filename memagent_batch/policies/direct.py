"""The turn that answers from parts of the document itself: all that the policies without a memory do."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from memagent_batch.domain.prompts import Memory, PromptTokens, Slot
from memagent_batch.domain.readings import Cost, Outcome
from memagent_batch.domain.turns import Generate, Prompt, TurnKind

NO_MEMORY = Memory(token_ids=(), text="")


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectTurn:
    """One prompt with parts of the document that together have at most `chunk_tokens`."""

    chunk_tokens: int
    """Tokens of the document that the prompt shows, at most."""
    answer_tokens: int
    """Budget of the answer, tokens."""

    async def ask(
        self, parts: Iterable[Sequence[int]], question: Sequence[int], *, prompts: PromptTokens, generate: Generate
    ) -> Outcome:
        """Shows the parts (token ids) with a gap between each two, and asks."""
        shown: list[int] = []
        for part in parts:
            shown += [*(prompts.gap if shown else ()), *part]
        prompt = Prompt(
            path="direct",
            kind=TurnKind.DIRECT,
            token_ids=prompts.direct.fill({Slot.QUESTION: question, Slot.CHUNK: shown}),
            max_tokens=self.answer_tokens,
        )
        completion = await generate(prompt)
        return Outcome(response=prompts.response(completion), finish_reason=completion.finish_reason, memory=NO_MEMORY)

    def largest_turns(self, prompts: PromptTokens) -> Mapping[TurnKind, int]:
        """The one turn."""
        return {TurnKind.DIRECT: prompts.direct.num_fixed_tokens + self.chunk_tokens + self.answer_tokens}

    def cost(self, prompts: PromptTokens, *, num_chunk_tokens: int) -> Cost:
        """The same for every document that is longer than the prompt shows."""
        return Cost(
            num_turns=1,
            num_prompt_tokens=prompts.direct.num_fixed_tokens + min(num_chunk_tokens, self.chunk_tokens),
            num_completion_tokens=self.answer_tokens,
        )

"""The memory after a `merge` turn, which has seen the notes of many chunks: a model that says nothing loses none."""

from memagent_batch.domain.prompts import Memory, PromptTokens
from memagent_batch.domain.turns import Completion
from memagent_batch.errors import MergeError


def merged_memory(prompts: PromptTokens, memory: Memory, completion: Completion, *, path: str) -> Memory:
    """What a `merge` turn wrote; the memory as it was where the model wrote the keep word.

    An `update` turn that writes nothing loses the news of one chunk, which `memories.changed` shows. A `merge` turn
    would lose those of all its notes, so here the reading fails.

    Raises:
        MergeError: the turn wrote nothing, or only a thought.
    """
    if not prompts.response(completion).strip():
        raise MergeError(
            f"turn {path} wrote no memory, so the notes that it was to merge would be lost; for a model that "
            "thinks, raise policy.memory_tokens; else take another model or prompt set"
        )
    return prompts.remember(memory, completion)

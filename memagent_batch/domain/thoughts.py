"""Thoughts of reasoning models. Stands between a completion and the memory or answer that it says after thinking."""

OPENING = "<think>"
"""Begins a thought."""
THOUGHT_END = "</think>"
"""Ends a thought."""


def after_thoughts(text: str, *, opens_thought: bool = False) -> str | None:
    """What a completion says after its thoughts; the whole text where it has none.

    A thought begins where the completion begins. Tags that a memory or answer only mentions further on change nothing,
    so that a document about such tags loses no notes.

    Args:
        text: text of the completion, tags included.
        opens_thought: whether the prompt ended inside a thought, so that the completion begins there.

    Returns:
        The text, without white space around it where a thought was cut off; None where the completion ends inside one.
    """
    if not (opens_thought or _begins(text)):
        return text
    _, closing, answer = text.rpartition(THOUGHT_END)
    if not closing or _begins(answer):
        return None
    return answer.strip()


def ends_in_thought(prompt: str) -> bool:
    """Whether the end of a prompt, after the user's message, leaves a thought open."""
    return prompt.rfind(OPENING) > prompt.rfind(THOUGHT_END)


def _begins(text: str) -> bool:
    return text.lstrip().startswith(OPENING)

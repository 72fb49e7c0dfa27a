"""Thoughts of reasoning models. Stands between a completion and the memory or answer that it says after thinking."""

import re

OPENING = "<think>"
THOUGHT_END = "</think>"

THOUGHT_TAGS = re.compile(
    r"<[|/]*(?:\w+[:_])?(?:think(?:ing)?|thought|channel)\|?>"  # Seed-OSS, EXAONE Deep, Command A, gpt-oss, Gemma 4
    r"|(?-i:\[/?THINK\])"  # Mistral
    r"|◁/?think▷",  # Kimi
    re.IGNORECASE,
)
"""Tags of thoughts and channels, by the names that families of models give them."""


def after_thoughts(text: str, *, opens_thought: bool = False) -> str | None:
    """What a completion says after its thoughts; the whole text where it has none.

    A thought begins where the completion begins, and ends at the first `</think>`. Another may follow it at once. Tags
    that a memory or answer only mentions further on change nothing, so that a document about such tags loses no notes.

    `opens_thought`: whether the prompt ended inside a thought, so that the completion begins there.

    Returns:
        The text, without white space around it where a thought was cut off; None where the completion ends inside one.
    """
    while opens_thought or text.lstrip().startswith(OPENING):
        _, follow_ups, answer = text.partition(THOUGHT_END)
        if not follow_ups:
            return None
        text, opens_thought = answer.strip(), False
    return text


def ends_in_thought(prompt: str) -> bool:
    """Whether the end of a prompt, after the user's message, leaves a thought open."""
    return prompt.rfind(OPENING) > prompt.rfind(THOUGHT_END)


def other_thought_tags(template: str) -> list[str]:
    """Tags in the text of a chat template that mark thoughts or channels in another way than `<think>`."""
    return sorted({tag for tag in THOUGHT_TAGS.findall(template) if tag not in (OPENING, THOUGHT_END)})

"""Makes the markers of chat templates harmless in a text that a server parses itself. Pure.

A marker keeps its letters: its first and last characters become brackets that are part of no marker, so that
`<|im_start|>` is sent as `‹|im_start|›`, and `[INST]` as `⟦INST⟧`. People and models read the same word, and the
exchange can be undone.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

BRACKETS = {"<": "‹", ">": "›", "[": "⟦", "]": "⟧"}
"""What stands for the first and last character of a marker."""

MARKER_BREAK = "·"
"""Goes behind the first character of a marker that begins with none of these."""

FAMILIES = (
    r"<\|[^\s<>|]{1,60}\|>",  # ChatML, Llama 3, Phi, GLM, Command R, Granite, Harmony
    r"<｜[^\s<>｜]{1,60}｜>",  # DeepSeek
    r"\[\|[^\s\[\]|]{1,60}\|\]",  # EXAONE
    r"</?(?:start_of_turn|end_of_turn|start_of_image|end_of_image|image_soft_token|unused[0-9]+)>",  # Gemma
    r"</?(?:s|bos|eos|pad|unk|mask|sop|eop|eoh|eoa|image|video|audio|extra_id_[0-9]+|reserved_[0-9]+)>",
    r"<</?SYS>>",  # Llama 2
    r"\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|ARGS|CALL_ID|THINK|IMG|IMG_BREAK"
    r"|IMG_END|gMASK|MASK|CLS|SEP|PAD|UNK)\]",  # Mistral, GLM, BERT
    r"</?(?:think|thinking|tool_call|tool_response|tools|function_call)>",  # thoughts and tools
    r"<0x[0-9A-Fa-f]{2}>",  # bytes, in tokenisers of SentencePiece
)
"""Markers of the model families that are known, as regular expressions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neutralised:
    """A text without markers."""

    text: str
    """The text as it is sent."""
    num_markers: int
    """Markers that were exchanged in it."""


class Markers:
    """The markers of the known families, and those of one tokeniser."""

    def __init__(self, own: Collection[str] = ()) -> None:
        """Takes the markers of the tokeniser, as texts; one character alone marks nothing."""
        own_markers = [re.escape(marker) for marker in own if len(marker.strip()) > 1]
        self._pattern = re.compile("|".join([*sorted(own_markers, key=len, reverse=True), *FAMILIES]))

    def neutralise(self, text: str) -> Neutralised:
        """The text with each marker made harmless."""
        harmless, num_markers = self._pattern.subn(_harmless, text)
        return Neutralised(text=harmless, num_markers=num_markers)


def _harmless(match: re.Match[str]) -> str:
    marker = match[0]
    first, last = BRACKETS.get(marker[0], marker[0] + MARKER_BREAK), BRACKETS.get(marker[-1], marker[-1])
    return first + marker[1:-1] + last

"""The texts of the closing turns, in the project's own wording: short, for a tiny policy as for an instruct model."""

from collections.abc import Mapping

from memagent_batch.domain.addresses import fingerprint
from memagent_batch.domain.closing.evidence import MAX_CHOSEN, MAX_SOURCES
from memagent_batch.domain.closing.plan import EVIDENCE, SUPPORT, SUPPORT_MENU, VALUE

VERSION = "1"
"""Changes with every change of a text."""

CLOSING_TEXTS: Mapping[str, str] = {
    VALUE: (
        "Give the answer as a value.\n\n"
        "<question>\n{question}\n</question>\n\n"
        "<memory>\n{memory}\n</memory>\n\n"
        "<answer>\n{answer}\n</answer>\n\n"
        "{form}"
    ),
    EVIDENCE: (
        "Which sentences does the answer rest on?\n\n"
        "<question>\n{question}\n</question>\n\n"
        "<answer>\n{answer}\n</answer>\n\n"
        "<sentences>\n{sentences}</sentences>\n\n"
        "Write the numbers of up to five sentences, the best first, or none."
    ),
    SUPPORT: (
        "Do the sentences support the answer?\n\n"
        "<question>\n{question}\n</question>\n\n"
        "<answer>\n{answer}\n</answer>\n\n"
        "<sentences>\n{sentences}</sentences>\n\n"
        "Write one number:\n" + "\n".join(f"{number} = {support}" for number, support in SUPPORT_MENU.items())
    ),
}
"""Text of each kind of turn; slots as in a prompt set."""


def closing_text_sha256(kind: str) -> str:
    """What decides a closing turn beside reader, question, document and settings, as 64 hex digits."""
    return fingerprint(
        {"version": VERSION, "kind": kind, "text": CLOSING_TEXTS[kind], "caps": [MAX_SOURCES, MAX_CHOSEN]}
    )

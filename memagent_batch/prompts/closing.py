"""The texts of the closing turns, in the project's own wording: short, for a tiny policy as for an instruct model."""

from memagent_batch.domain.closing.plan import EVIDENCE, SUPPORT, SUPPORT_MENU, VALUE, ClosingSet

CLOSING_PROMPTS = ClosingSet(
    version="1",
    texts={
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
    },
)
"""The closing turns of every agent."""

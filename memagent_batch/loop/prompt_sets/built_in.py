"""The prompt sets that come with the project, in its own wording."""

from memagent_batch.loop.prompts import PromptSet

DEFAULT_PROMPTS = PromptSet(
    name="default",
    version="1",
    first_memory="Nothing noted yet.",
    update=(
        "You are reading a long document section by section. You see a question, your memory of the sections before, "
        "and the next section. Write your memory anew: keep everything in it that helps to answer the question, and "
        "add what this section says about it. What you leave out is forgotten.\n\n"
        "<question>\n{question}\n</question>\n\n"
        "<memory>\n{memory}\n</memory>\n\n"
        "<section>\n{chunk}\n</section>\n\n"
        "The new memory:"
    ),
    answer=(
        "You have read a long document section by section. Answer the question from your memory of it.\n\n"
        "<question>\n{question}\n</question>\n\n"
        "<memory>\n{memory}\n</memory>\n\n"
        "Write the answer in \\boxed{{}}."
    ),
    note="The project's own wording, for any instruct model; fields in the published order.",
)

GATED_PROMPTS = PromptSet(
    name="gated",
    version="2",
    first_memory=DEFAULT_PROMPTS.first_memory,
    update=(
        "You are reading a long document section by section. You see the next section, a question, and your memory of "
        "the sections before. If this section says nothing new about the question, write only the word keep. Else "
        "write your memory anew: keep everything in it that helps to answer the question, and add what this section "
        "says about it. What you leave out is forgotten.\n\n"
        "<section>\n{chunk}\n</section>\n\n"
        "<question>\n{question}\n</question>\n\n"
        "<memory>\n{memory}\n</memory>\n\n"
        "keep, or the new memory:"
    ),
    answer=DEFAULT_PROMPTS.answer,
    keep_word="keep",
    note=(
        "The project's own wording, for any instruct model; a section without news costs one word. The section comes "
        "first: a model that reads the question after it has looked for the answer before it writes that word."
    ),
)

SECTION_FIRST_PROMPTS = PromptSet(
    name="section-first",
    version="1",
    first_memory=DEFAULT_PROMPTS.first_memory,
    update=(
        "Below is one section of a long document that you are reading section by section, then a question, and your "
        "memory of the sections before.\n\n"
        "<section>\n{chunk}\n</section>\n\n"
        "<question>\n{question}\n</question>\n\n"
        "<memory>\n{memory}\n</memory>\n\n"
        "Write your memory anew: keep everything in it that helps to answer the question, and add what the section "
        "says about it. What you leave out is forgotten.\n\n"
        "The new memory:"
    ),
    answer=DEFAULT_PROMPTS.answer,
    note="The project's own wording, for any instruct model; the prefix cache serves a section to all questions.",
)

PARALLEL_PROMPTS = PromptSet(
    name="parallel",
    version="1",
    first_memory=DEFAULT_PROMPTS.first_memory,
    update=(
        "Below is one section of a long document, then a question, and the memory: what other sections say about "
        "it.\n\n"
        "<section>\n{chunk}\n</section>\n\n"
        "<question>\n{question}\n</question>\n\n"
        "<memory>\n{memory}\n</memory>\n\n"
        "If this section says nothing about the question that the memory does not hold, write only the word none. Else "
        "note what it says.\n\n"
        "none, or the note:"
    ),
    merge=(
        "You have read a long document section by section. You see a question, your memory, and notes of its "
        "sections, in the order of the document. Write one memory: everything in the old one and in the notes that "
        "helps to answer the question. What you leave out is forgotten.\n\n"
        "<question>\n{question}\n</question>\n\n"
        "<memory>\n{memory}\n</memory>\n\n"
        "<notes>\n{notes}\n</notes>\n\n"
        "The new memory:"
    ),
    answer=DEFAULT_PROMPTS.answer,
    keep_word="none",
    note=(
        "The project's own wording, for any instruct model; sections are read side by side. The section comes first, "
        "so that further rounds and questions find it in the prefix cache."
    ),
)

BUILT_IN_PROMPTS = {
    prompts.name: prompts
    for prompts in (
        DEFAULT_PROMPTS,
        GATED_PROMPTS,
        SECTION_FIRST_PROMPTS,
        PARALLEL_PROMPTS,
    )
}
"""Prompt sets that need no file, by name."""

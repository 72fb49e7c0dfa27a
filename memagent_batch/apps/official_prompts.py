"""Imports the exact prompts of the published checkpoints from a file of their own code.

The texts are not part of this project: they are string constants of the user's own checkout, recognised by their
hashes. The file is parsed and never run.
"""

import ast
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from memagent_batch.errors import PromptSetError
from memagent_batch.loop.prompt_sets.files import read_prompt_file
from memagent_batch.loop.prompts import PUBLISHED, PromptSet


class OfficialText(StrEnum):
    """The texts of the official code that a prompt set is made of."""

    UPDATE = "update"
    MERGE = "merge"
    """The turn that makes one memory of the notes of several chunks."""
    ANSWER = "boxed answer"
    r"""The trainer shows the constant unchanged, with `\boxed{{}}`; the official evaluator shows `\boxed{}`."""


PUBLISHED_FIRST_MEMORY = "No previous memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """The texts of one published agent."""

    checkpoints: tuple[str, ...]
    """Checkpoints that were trained on the texts and on the first memory."""
    source: str
    """Repository and file that hold the texts."""
    sha256: Mapping[OfficialText, str]
    """SHA-256 of the texts in UTF-8, as the constants stand, with their own slots and doubled braces."""
    keep_word: str = ""
    """What the model writes to keep its memory; empty if it always writes a new one."""


MEMAGENT = Publication(
    checkpoints=("RL-MemoryAgent-7B", "RL-MemoryAgent-14B"),
    source="recurrent/impls/memory.py of BytedTsinghua-SIA/MemAgent",
    sha256={
        OfficialText.UPDATE: "49fa58187bb7d23e58b08ed1a15732c71008196a1f633be2b4a3be507ee366b3",
        OfficialText.ANSWER: "ac0d288bd6ca474b7061bab361aafa585425bc81faf19cfcf29d30749e44990c",
    },
)
"""For policy `overwrite`."""

PI_MEM = Publication(
    checkpoints=("PI-Mem-7B", "PI-Mem-35B-A3B"),
    source="recurrent/impls/memory.py of JetAstra/PI-Mem",
    sha256={
        OfficialText.UPDATE: "c2cc096659d3563ba08c252da660b88eb22ff9cf6ebc6395a39cecb721d606a9",
        OfficialText.MERGE: "91697fc85f281fc472a14c571fa7cad89e67af8c1d3885bcf0ab350705358efc",
        OfficialText.ANSWER: "07cf6917341da39284bb3162950fd25d28901e3b7e3f44c05c478d41539059c5",
    },
    keep_word="<check>no</check>",
)
"""For policy `parallel`."""

PUBLICATIONS = (MEMAGENT, PI_MEM)


def import_official(
    path: Path, *, name: str | None = None, publications: Sequence[Publication] = PUBLICATIONS
) -> PromptSet:
    """Makes a prompt set of the published texts in a Python file, by default of the file's name without its ending.

    Raises:
        PromptSetError: it is not a UTF-8 file of Python code, or lacks one of the published texts.
    """
    constants = _strings_by_sha256(path)
    found = [
        {text: _own_slots(constants[sha256]) for text, sha256 in each.sha256.items() if sha256 in constants}
        for each in publications
    ]
    published, texts = max(zip(publications, found, strict=True), key=lambda each: len(each[1]))
    if missing := [text.value for text in published.sha256 if text not in texts]:
        sources = [published.source] if texts else [each.source for each in publications]
        raise PromptSetError(
            f"{path} lacks published texts: {', '.join(missing)}; give {' or '.join(sources)}, or write texts of your "
            "own into a prompt set file (docs/how-to/prompts.md)"
        )
    as_shown = texts[OfficialText.ANSWER].replace("{{", "{{{{").replace("}}", "}}}}")
    return PromptSet(
        name=name or path.stem,
        version=PUBLISHED,
        first_memory=PUBLISHED_FIRST_MEMORY,
        update=texts[OfficialText.UPDATE],
        answer=as_shown,
        keep_word=published.keep_word,
        merge=texts.get(OfficialText.MERGE, ""),
        note=f"Imported from {path.name}: the texts as {', '.join(published.checkpoints)} saw them in training.",
    )


def _strings_by_sha256(path: Path) -> dict[str, str]:
    text = read_prompt_file(path)
    try:
        module = ast.parse(text, filename=str(path))
    except SyntaxError as error:
        raise PromptSetError(f"{path} is not Python code: line {error.lineno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise PromptSetError(f"{path} is not Python code: {error}") from error
    values = [node.value for node in ast.walk(module) if isinstance(node, ast.Constant)]
    strings = [value for value in values if isinstance(value, str)]
    return {hashlib.sha256(each.encode("utf-8", "surrogatepass")).hexdigest(): each for each in strings}


def _own_slots(text: str) -> str:
    """A published text with the slot names of this project."""
    return text.replace("{prompt}", "{question}").replace("{memories}", "{notes}")

"""Imports the exact prompts of the published checkpoints from a file of the official MemAgent code.

The texts themselves are not part of this project: they are taken from the user's own checkout, by parsing the file,
never by running it, and are checked against the hashes of the published ones.
"""

import ast
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from string import Formatter

from memagent_batch.domain.prompts import (
    ANSWER_SLOTS,
    UPDATE_SLOTS,
    AnswerForm,
    PromptSet,
    Slot,
    require_slots,
)
from memagent_batch.errors import PromptSetError
from memagent_batch.storage.prompt_files import read_prompt_file


class OfficialText(StrEnum):
    """The texts of the official code that a prompt set is made of."""

    UPDATE = "update"
    """The turn that writes the memory anew."""
    BOXED = "boxed answer"
    r"""The answer turn that asks for `\boxed{...}`."""
    SENTENCE = "sentence answer"
    """The answer turn that asks for "the answer is"."""
    FIRST_MEMORY = "first memory"
    """The memory before the first chunk."""


PUBLISHED_SHA256: Mapping[OfficialText, str] = {
    OfficialText.UPDATE: "49fa58187bb7d23e58b08ed1a15732c71008196a1f633be2b4a3be507ee366b3",
    OfficialText.BOXED: "ac0d288bd6ca474b7061bab361aafa585425bc81faf19cfcf29d30749e44990c",
    OfficialText.SENTENCE: "76c0395b111bb18000345701c14ceaafc8a9776fb76577676df0c15274d1235e",
    OfficialText.FIRST_MEMORY: "1dd86650b232de2f2d2cb11bab363c49d658e706f1accecb39f7b3e7c1272608",
}
"""SHA-256 of the published texts in UTF-8, as the constants stand, with their own slots and doubled braces."""

CHECKPOINTS = ("RL-MemoryAgent-7B", "RL-MemoryAgent-14B")
"""Checkpoints that were trained on the published texts."""

CONSTANTS: Mapping[str, OfficialText] = {
    "TEMPLATE": OfficialText.UPDATE,
    "TEMPLATE_FINAL": OfficialText.SENTENCE,
    "TEMPLATE_FINAL_BOXED": OfficialText.BOXED,
    "NO_MEMORY": OfficialText.FIRST_MEMORY,
    "NO_PREVIOUS_MEMORY": OfficialText.FIRST_MEMORY,
    "INITIAL_MEMORY": OfficialText.FIRST_MEMORY,
    "FIRST_MEMORY": OfficialText.FIRST_MEMORY,
}
"""Which text a constant of the official code holds."""

PUBLISHED_FIRST_MEMORY = "No previous memory"
"""First memory of the published agent; its code does not always hold it as a constant."""

OFFICIAL_SLOTS: Mapping[str, Slot] = {"prompt": Slot.QUESTION, "memory": Slot.MEMORY, "chunk": Slot.CHUNK}
"""What the official slots are called here."""

ANSWER_TEXTS: Mapping[AnswerForm, OfficialText] = {
    AnswerForm.BOXED: OfficialText.BOXED,
    AnswerForm.SENTENCE: OfficialText.SENTENCE,
}
"""Which text asks for which answer form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCheck:
    """How one imported text compares with the published one."""

    text: OfficialText
    """The text."""
    source: str
    """Constant and line that it was taken from, or why there is none."""
    sha256: str
    """Hash of the text as it stands in the official code, 64 hex digits."""
    is_published: bool
    """Whether it is the published text, byte for byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfficialImport:
    """A prompt set made from official code, and what is known of its texts."""

    prompts: PromptSet
    """The prompt set, with the project's own slot names."""
    checks: tuple[TextCheck, ...]
    """One for each text."""
    checkpoints: tuple[str, ...]
    """Checkpoints that were trained on these texts; none where a text differs from the published one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Constant:
    """A string constant of the file."""

    value: str
    place: str
    """Name and line."""


def import_official(
    path: Path, *, name: str | None = None, published: Mapping[OfficialText, str] = PUBLISHED_SHA256
) -> OfficialImport:
    """Makes a prompt set from the constants of a Python file, which is parsed and never run.

    Args:
        path: the Python file.
        name: name of the prompt set; the file's own name without ending where it is not given.
        published: SHA-256 of each published text, 64 hex digits.

    Raises:
        PromptSetError: no UTF-8 file, no Python, a constant is missing or not a plain string, or a text lacks a slot.
    """
    constants = _constants(path)
    _require_texts(constants, path=path)
    texts = {text: _own_slots(text, constant, path=path) for text, constant in constants.items()}
    checks = tuple(_check(text, constants[text], published=published) for text in OfficialText if text in constants)
    checkpoints = CHECKPOINTS if all(check.is_published for check in checks) else ()
    prompts = PromptSet(
        name=name or path.stem,
        version=_version(texts),
        first_memory=texts[OfficialText.FIRST_MEMORY],
        update=texts[OfficialText.UPDATE],
        answers={form: texts[text] for form, text in ANSWER_TEXTS.items() if text in texts},
        note=_note(checks, checkpoints, path=path),
    )
    return OfficialImport(prompts=prompts, checks=checks, checkpoints=checkpoints)


def _constants(path: Path) -> dict[OfficialText, _Constant]:
    """Texts that the file's top level assigns; of two assignments the last one holds, as when Python runs it."""
    found: dict[OfficialText, _Constant] = {}
    for statement in _parse(path).body:
        for name, value in _assignments(statement):
            if name in CONSTANTS:
                found[CONSTANTS[name]] = _constant(name, value, path=path)
    default = _Constant(value=PUBLISHED_FIRST_MEMORY, place="not in the file; the published words are taken")
    found.setdefault(OfficialText.FIRST_MEMORY, default)
    return found


def _parse(path: Path) -> ast.Module:
    text = read_prompt_file(path)
    try:
        return ast.parse(text, filename=str(path))
    except SyntaxError as error:
        raise PromptSetError(f"{path} is not Python code: line {error.lineno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise PromptSetError(f"{path} is not Python code: {error}") from error


def _assignments(statement: ast.stmt) -> list[tuple[str, ast.expr]]:
    if isinstance(statement, ast.Assign):
        return [(target.id, statement.value) for target in statement.targets if isinstance(target, ast.Name)]
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
        return [(statement.target.id, statement.value)]
    return []


def _constant(name: str, value: ast.expr, *, path: Path) -> _Constant:
    if not isinstance(value, ast.Constant) or not isinstance(value.value, str):
        raise PromptSetError(
            f"{path}, line {value.lineno}: {name} is not a plain string; f-strings, calls and sums are not run, "
            "so write the whole text as one string"
        )
    return _Constant(value=value.value, place=f"{name}, line {value.lineno}")


def _require_texts(constants: Mapping[OfficialText, _Constant], *, path: Path) -> None:
    if OfficialText.UPDATE not in constants:
        raise PromptSetError(f"{path} has no constant TEMPLATE at its top level, the text of an update turn")
    if not any(text in constants for text in ANSWER_TEXTS.values()):
        raise PromptSetError(
            f"{path} has neither TEMPLATE_FINAL nor TEMPLATE_FINAL_BOXED at its top level, the text of the answer turn"
        )


def _own_slots(text: OfficialText, constant: _Constant, *, path: Path) -> str:
    """The text with the project's slot names, its braces still doubled; the first memory as it is."""
    if text is OfficialText.FIRST_MEMORY:
        return constant.value
    place = f"{path}, {constant.place}"
    own = "".join(_own_piece(*piece, place=place) for piece in _pieces(constant.value, place=place))
    names = {slot: name for name, slot in OFFICIAL_SLOTS.items()}
    slots = UPDATE_SLOTS if text is OfficialText.UPDATE else ANSWER_SLOTS
    missing = sorted(f"{{{names[slot]}}}" for slot in slots if f"{{{slot}}}" not in own)
    if missing:
        raise PromptSetError(f"{place}: the text lacks the slot {', '.join(missing)}")
    require_slots(own, slots, place=place)
    return own


def _pieces(text: str, *, place: str) -> list[tuple[str, str | None, str | None, str | None]]:
    try:
        return list(Formatter().parse(text))
    except ValueError as error:
        raise PromptSetError(
            f"{place}: the text can't be parsed: {error}; braces that are no slot are doubled"
        ) from error


def _own_piece(literal: str, name: str | None, spec: str | None, conversion: str | None, *, place: str) -> str:
    fixed = literal.replace("{", "{{").replace("}", "}}")
    if name is None:
        return fixed
    if spec or conversion:
        raise PromptSetError(f"{place}: the slot {{{name}}} has a format; a slot is a name in braces and nothing else")
    if name not in OFFICIAL_SLOTS:
        known = ", ".join(f"{{{slot}}}" for slot in OFFICIAL_SLOTS)
        raise PromptSetError(f"{place}: unknown slot {{{name}}}; known are {known}")
    return f"{fixed}{{{OFFICIAL_SLOTS[name]}}}"


def _check(text: OfficialText, constant: _Constant, *, published: Mapping[OfficialText, str]) -> TextCheck:
    sha256 = hashlib.sha256(constant.value.encode("utf-8", "surrogatepass")).hexdigest()
    return TextCheck(text=text, source=constant.place, sha256=sha256, is_published=sha256 == published.get(text))


def _version(texts: Mapping[OfficialText, str]) -> str:
    """Twelve hex digits: short enough to read in a table, and different wherever a text is."""
    return hashlib.sha256(json.dumps(sorted(texts.items()), ensure_ascii=True).encode()).hexdigest()[:12]


def _note(checks: tuple[TextCheck, ...], checkpoints: tuple[str, ...], *, path: Path) -> str:
    if checkpoints:
        return f"Imported from {path.name}. Every text is the published one; trained on it: {', '.join(checkpoints)}."
    differing = ", ".join(check.text for check in checks if not check.is_published)
    return f"Imported from {path.name}. Differs from the published texts: {differing}. No published checkpoint fits."

"""Imports the exact prompts of the published checkpoints from a file of the official MemAgent code.

The texts themselves are not part of this project: they are taken from the user's own checkout, by parsing the file,
never by running it, and are checked against the hashes of the published ones.
"""

import ast
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence, Set
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
    split_slots,
)
from memagent_batch.errors import PromptSetError
from memagent_batch.prompts.files import read_prompt_file


@dataclass(frozen=True, slots=True, kw_only=True)
class StringConstant:
    """A text that a file has under a name."""

    name: str
    """The name; empty for a text that is not in the file."""
    value: str
    place: str
    """Name and line, or why there is none."""

    @property
    def sha256(self) -> str:
        """Hash of the text in UTF-8, 64 hex digits."""
        return hashlib.sha256(self.value.encode("utf-8", "surrogatepass")).hexdigest()


class PythonFile:
    """A file of Python code.

    Raises:
        PromptSetError: it is no UTF-8 file, or no Python.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        text = read_prompt_file(path)
        try:
            self._module = ast.parse(text, filename=str(path))
        except SyntaxError as error:
            raise PromptSetError(f"{path} is not Python code: line {error.lineno}: {error.msg}") from error
        except (ValueError, RecursionError) as error:
            raise PromptSetError(f"{path} is not Python code: {error}") from error

    def constants(self, *, names: Set[str]) -> list[StringConstant]:
        """Strings that the top level assigns; of two assignments the last one holds, as when Python runs it.

        Raises:
            PromptSetError: one of these names is assigned something else.
        """
        assigned = {target.id: value for target, value in self._assignments()}
        return [
            self._constant(name, value)
            for name, value in assigned.items()
            if name in names or _string(value) is not None
        ]

    def require_whole(self, names: Set[str]) -> None:
        """Checks that nothing but assignments at the top level sets these names, so that what was read holds.

        Raises:
            PromptSetError: names the line.
        """
        whole = {id(target) for target, _ in self._assignments()}
        for node in ast.walk(self._module):
            if id(node) in whole or not names & _bound(node):
                continue
            name = min(names & _bound(node))
            raise PromptSetError(
                f"{self._path}, line {getattr(node, 'lineno', '?')}: {name} is not set as one whole text at the top "
                f"level; the file is not run, so give one in which a single assignment sets {name}"
            )

    def _assignments(self) -> list[tuple[ast.Name, ast.expr]]:
        found: list[tuple[ast.Name, ast.expr]] = []
        for statement in self._module.body:
            if isinstance(statement, ast.Assign):
                found += [(target, statement.value) for target in statement.targets if isinstance(target, ast.Name)]
            elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
                found.append((statement.target, statement.value))
        return found

    def _constant(self, name: str, value: ast.expr) -> StringConstant:
        text = _string(value)
        if text is None:
            raise PromptSetError(
                f"{self._path}, line {value.lineno}: {name} is not a plain string; f-strings, calls and sums are not "
                "run, so write the whole text as one string"
            )
        return StringConstant(name=name, value=text, place=f"{name}, line {value.lineno}")


def _string(value: ast.expr) -> str | None:
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None


def _bound(node: ast.AST) -> set[str]:
    """Names that a part of the code binds or unbinds."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            return {name}
        case ast.Global(names=names):
            return set(names)
        case ast.alias(name=name, asname=asname):
            return {asname or name}
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
    return set()


class OfficialText(StrEnum):
    """The texts of the official code that a prompt set is made of."""

    UPDATE = "update"
    """The turn that writes the next memory."""
    BOXED = "boxed answer"
    r"""The answer turn that asks for `\boxed{...}`."""
    MERGE = "merge"
    """The turn that makes one memory of the notes of several chunks."""
    SENTENCE = "sentence answer"
    """The answer turn that asks for "the answer is"."""
    FIRST_MEMORY = "first memory"
    """The memory before the first chunk."""


PUBLISHED_FIRST_MEMORY = "No previous memory"
"""First memory of the published agents; their code does not always hold it as a constant."""

FIRST_MEMORY_SHA256 = "1dd86650b232de2f2d2cb11bab363c49d658e706f1accecb39f7b3e7c1272608"

OFFICIAL_BOX = "\\boxed"
"""Stands in every text that asks for a boxed answer."""

FIRST_MEMORY_NAMES = ("NO_MEMORY", "NO_PREVIOUS_MEMORY", "INITIAL_MEMORY", "FIRST_MEMORY")


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """The texts of one published agent."""

    checkpoints: tuple[str, ...]
    """Checkpoints that were trained on update, boxed answer, first memory, and merge where there is one."""
    sha256: Mapping[OfficialText, str]
    """SHA-256 of the published texts in UTF-8, as the constants stand, with their own slots and doubled braces."""
    constants: Mapping[str, OfficialText]
    """Which text a constant holds that is not a published one, which is known by its hash."""
    keep_word: str = ""
    """What the model writes to keep its memory; empty where it always writes a new one."""

    def is_in(self, constants: Sequence[StringConstant]) -> bool:
        """Whether one of the constants is this agent's `update` or `merge` text, by its name or hash."""
        texts = (OfficialText.UPDATE, OfficialText.MERGE)
        hashes = {self.sha256[text] for text in texts if text in self.sha256}
        return any(constant.sha256 in hashes or self.constants.get(constant.name) in texts for constant in constants)

    def name_of(self, text: OfficialText) -> str:
        """The constant that holds a text in the agent's own code."""
        return next(name for name, held in self.constants.items() if held is text)


MEMAGENT = Publication(
    checkpoints=("RL-MemoryAgent-7B", "RL-MemoryAgent-14B"),
    sha256={
        OfficialText.UPDATE: "49fa58187bb7d23e58b08ed1a15732c71008196a1f633be2b4a3be507ee366b3",
        OfficialText.BOXED: "ac0d288bd6ca474b7061bab361aafa585425bc81faf19cfcf29d30749e44990c",
        OfficialText.SENTENCE: "76c0395b111bb18000345701c14ceaafc8a9776fb76577676df0c15274d1235e",
        OfficialText.FIRST_MEMORY: FIRST_MEMORY_SHA256,
    },
    constants={
        "TEMPLATE": OfficialText.UPDATE,
        "TEMPLATE_FINAL": OfficialText.SENTENCE,
        "TEMPLATE_FINAL_BOXED": OfficialText.BOXED,
        **dict.fromkeys(FIRST_MEMORY_NAMES, OfficialText.FIRST_MEMORY),
    },
)
"""For policy `overwrite`. The official evaluator alone uses the sentence answer; the trainer showed the boxed one as
the constant stands, its braces doubled."""

PI_MEM = Publication(
    checkpoints=("PI-Mem-7B", "PI-Mem-35B-A3B"),
    sha256={
        OfficialText.UPDATE: "c2cc096659d3563ba08c252da660b88eb22ff9cf6ebc6395a39cecb721d606a9",
        OfficialText.MERGE: "91697fc85f281fc472a14c571fa7cad89e67af8c1d3885bcf0ab350705358efc",
        OfficialText.BOXED: "07cf6917341da39284bb3162950fd25d28901e3b7e3f44c05c478d41539059c5",
        OfficialText.FIRST_MEMORY: FIRST_MEMORY_SHA256,
    },
    constants={
        "TEMPLATE_CHUNK": OfficialText.UPDATE,
        "TEMPLATE_MERGE": OfficialText.MERGE,
        "TEMPLATE_FINAL_BOXED": OfficialText.BOXED,
        **dict.fromkeys(FIRST_MEMORY_NAMES, OfficialText.FIRST_MEMORY),
    },
    keep_word="<check>no</check>",
)
"""For policy `parallel`."""

PUBLICATIONS = (MEMAGENT, PI_MEM)

OFFICIAL_SLOTS: Mapping[str, Slot] = {
    "prompt": Slot.QUESTION,
    "memory": Slot.MEMORY,
    "chunk": Slot.CHUNK,
    "memories": Slot.NOTES,
}
"""What the official slots are called here."""

SLOTS: Mapping[OfficialText, frozenset[Slot]] = {
    OfficialText.UPDATE: UPDATE_SLOTS,
    OfficialText.MERGE: frozenset({Slot.QUESTION, Slot.NOTES}),
    OfficialText.BOXED: ANSWER_SLOTS,
    OfficialText.SENTENCE: ANSWER_SLOTS,
}
"""The slots of each text."""

ANSWER_TEXTS: Mapping[AnswerForm, OfficialText] = {
    AnswerForm.BOXED: OfficialText.BOXED,
    AnswerForm.SENTENCE: OfficialText.SENTENCE,
}
"""Which text asks for which answer form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCheck:
    """How one imported text compares with the published one."""

    text: OfficialText
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
    checkpoints: tuple[str, ...]
    """Checkpoints that were trained on these texts, with the answer form `boxed-as-trained`; none where a text differs
    from the published one, or the boxed answer is missing."""

    @property
    def is_published(self) -> bool:
        """Whether every text is the published one."""
        return all(check.is_published for check in self.checks)


def import_official(
    path: Path, *, name: str | None = None, publications: Sequence[Publication] = PUBLICATIONS
) -> OfficialImport:
    """Makes a prompt set from the constants of a Python file, which is parsed and never run.

    Args:
        path: the Python file.
        name: name of the prompt set; the file's own name without ending where it is not given.
        publications: the published agents; a file that holds the texts of none is taken for the first one's.

    Raises:
        PromptSetError: no UTF-8 file, no Python, a constant is missing or not a plain string, or a text lacks a slot.
    """
    published, constants = _texts_of(path, publications=publications)
    _require_texts(constants, published=published, path=path)
    texts = {text: _own_slots(text, constant, path=path) for text, constant in constants.items()}
    checks = tuple(_check(text, constants[text], published=published) for text in OfficialText if text in constants)
    answers = {form: texts[text] for form, text in ANSWER_TEXTS.items() if text in texts}
    if any(check.is_published for check in checks if check.text is OfficialText.BOXED):
        answers[AnswerForm.BOXED_AS_TRAINED] = _as_trained(answers[AnswerForm.BOXED])
    is_trained = AnswerForm.BOXED_AS_TRAINED in answers and all(check.is_published for check in checks)
    checkpoints = published.checkpoints if is_trained else ()
    prompts = PromptSet(
        name=name or path.stem,
        version=_version([*texts.items(), *answers.items()]),
        first_memory=texts[OfficialText.FIRST_MEMORY],
        update=texts[OfficialText.UPDATE],
        answers=answers,
        keep_word=published.keep_word,
        merge=texts.get(OfficialText.MERGE, ""),
        note=_note(checks, checkpoints, path=path),
    )
    return OfficialImport(prompts=prompts, checks=checks, checkpoints=checkpoints)


def _texts_of(
    path: Path, *, publications: Sequence[Publication]
) -> tuple[Publication, dict[OfficialText, StringConstant]]:
    """The agent whose code it is, and its texts."""
    file = PythonFile(path)
    names = {name for publication in publications for name in publication.constants}
    constants = file.constants(names=names)
    published = next((each for each in publications if each.is_in(constants)), publications[0])
    by_hash = {sha256: text for text, sha256 in published.sha256.items()}
    found: dict[OfficialText, StringConstant] = {}
    for constant in constants:
        text = by_hash.get(constant.sha256) or _text_by_name(constant, published=published)
        if text is None:
            continue
        if text in found and found[text].value != constant.value:
            raise PromptSetError(
                f"{path}: {found[text].place}, and {constant.place}, are two texts for the {text}; leave one of them"
            )
        found.setdefault(text, constant)
    file.require_whole(published.constants.keys() | {constant.name for constant in found.values()})
    default = StringConstant(
        name="", value=PUBLISHED_FIRST_MEMORY, place="not in the file; the published words are taken"
    )
    found.setdefault(OfficialText.FIRST_MEMORY, default)
    return published, found


def _text_by_name(constant: StringConstant, *, published: Publication) -> OfficialText | None:
    """Which text a constant holds that is none of the published ones."""
    text = published.constants.get(constant.name)
    return OfficialText.BOXED if text is OfficialText.SENTENCE and OFFICIAL_BOX in constant.value else text


def _require_texts(constants: Mapping[OfficialText, StringConstant], *, published: Publication, path: Path) -> None:
    for text in (OfficialText.UPDATE, OfficialText.MERGE):
        if text in published.sha256 and text not in constants:
            name = published.name_of(text)
            raise PromptSetError(f"{path} has no constant {name} at its top level, the text of the {text} turn")
    if not any(text in constants for text in ANSWER_TEXTS.values()):
        answers = [name for name, text in published.constants.items() if text in ANSWER_TEXTS.values()]
        names = f"neither {' nor '.join(answers)}" if len(answers) > 1 else f"no {answers[0]}"
        raise PromptSetError(f"{path} has {names} at its top level, the text of the answer turn")


def _own_slots(text: OfficialText, constant: StringConstant, *, path: Path) -> str:
    """The text with the project's slot names, its braces still doubled; the first memory as it is."""
    if text is OfficialText.FIRST_MEMORY:
        return constant.value
    place = f"{path}, {constant.place}"
    own = "".join(_own_piece(*piece, place=place) for piece in _pieces(constant.value, place=place))
    names = {slot: name for name, slot in OFFICIAL_SLOTS.items()}
    slots = SLOTS[text]
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


def _check(text: OfficialText, constant: StringConstant, *, published: Publication) -> TextCheck:
    is_published = constant.sha256 == published.sha256.get(text)
    return TextCheck(text=text, source=constant.place, sha256=constant.sha256, is_published=is_published)


def _as_trained(boxed: str) -> str:
    """The boxed answer with the braces that the official trainer shows: it fills slots, but undoubles no brace."""
    pieces = split_slots(boxed)
    return "".join(
        f"{{{piece}}}" if isinstance(piece, Slot) else piece.replace("{", "{{{{").replace("}", "}}}}")
        for piece in pieces
    )


def _version(texts: Iterable[tuple[str, str]]) -> str:
    """Twelve hex digits: short enough to read in a table, and different wherever a text is."""
    return hashlib.sha256(json.dumps(sorted(texts), ensure_ascii=True).encode()).hexdigest()[:12]


def _note(checks: tuple[TextCheck, ...], checkpoints: tuple[str, ...], *, path: Path) -> str:
    differing = ", ".join(check.text for check in checks if not check.is_published)
    if differing:
        return (
            f"Imported from {path.name}. Differs from the published texts: {differing}. No published checkpoint fits."
        )
    if not checkpoints:
        return (
            f"Imported from {path.name}. Every text is the published one; of the answer text, which the official "
            "evaluator uses, no checkpoint is known that was trained on it."
        )
    return (
        f"Imported from {path.name}. Every text is the published one; trained on them, with the answer form "
        f"{AnswerForm.BOXED_AS_TRAINED}: {', '.join(checkpoints)}."
    )

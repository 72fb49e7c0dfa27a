"""Prompt sets by name or as files: what `prompt_set` in the settings names, before a run starts."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from memagent_batch.domain.prompts import AnswerForm, PromptSet
from memagent_batch.errors import OutputError, PromptSetError
from memagent_batch.prompts.built_in import BUILT_IN_PROMPTS

REQUIRED_KEYS = ("name", "version", "first_memory", "update", "answers")
"""Keys that a prompt set file must have."""

PROMPT_KEYS = (*REQUIRED_KEYS, "direct", "keep_word", "merge", "note")
"""Keys that a prompt set file may have."""

FORM_KEYS = frozenset({"answers", "direct"})
"""Keys that hold a text for each answer form."""

HOW_TO_IMPORT = "`memagent prompts import FILE` makes a prompt set file from the official MemAgent code"
"""The remedy that errors name."""


def load_prompt_set(name_or_path: str) -> PromptSet:
    """The prompt set of this name, or the one in this JSON or YAML file.

    Raises:
        PromptSetError: there is no such set, or the file does not hold one; says which key is wrong and what to do.
    """
    if name_or_path in BUILT_IN_PROMPTS:
        return BUILT_IN_PROMPTS[name_or_path]
    path = Path(name_or_path)
    if path.is_file():
        return _parse(_load_file(path), place=f"prompt set file {path}")
    built_in = ", ".join(sorted(BUILT_IN_PROMPTS))
    raise PromptSetError(
        f"prompt_set: {name_or_path!r} is neither a built-in prompt set ({built_in}) nor a file; {HOW_TO_IMPORT}"
    )


def save_prompt_set(prompts: PromptSet, path: Path) -> None:
    """Writes the prompt set as a JSON file that `load_prompt_set` reads back unchanged.

    Raises:
        OutputError: the file can't be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(prompt_set_json(prompts), encoding="utf-8")
    except OSError as error:
        raise OutputError(
            f"prompt set file {path} can't be written: {error.strerror}; give another --output"
        ) from error


def prompt_set_json(prompts: PromptSet) -> str:
    """The prompt set as the text of its file."""
    content = {
        "name": prompts.name,
        "version": prompts.version,
        "first_memory": prompts.first_memory,
        "update": prompts.update,
        "answers": {form.value: text for form, text in sorted(prompts.answers.items())},
        "direct": {form.value: text for form, text in sorted(prompts.direct.items())},
        "keep_word": prompts.keep_word,
        **({"merge": prompts.merge} if prompts.merge else {}),
        "note": prompts.note,
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def read_prompt_file(path: Path) -> str:
    """The text of a file, line ends as they are.

    Raises:
        PromptSetError: it is not a file, can't be read, or is not UTF-8 (says at which byte).
    """
    if not path.is_file():
        raise PromptSetError(f"{path} is not a file; give the path of a file that holds prompts")
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PromptSetError(f"{path} is not UTF-8: byte {error.start} is wrong; save it as UTF-8") from error
    except OSError as error:
        raise PromptSetError(f"{path} can't be read: {error.strerror}") from error


def _load_file(path: Path) -> Any:
    """What the file says: YAML where the name ends so, else JSON."""
    text = read_prompt_file(path)
    if path.suffix == ".py":
        raise PromptSetError(f"{path} is Python code, not a prompt set file; {HOW_TO_IMPORT}")
    try:
        return yaml.safe_load(text) if path.suffix in {".yaml", ".yml"} else json.loads(text)
    except (json.JSONDecodeError, yaml.YAMLError) as error:
        where = " ".join(str(error).split())
        raise PromptSetError(f"prompt set file {path} can't be parsed: {where}") from error


def _parse(content: Any, *, place: str) -> PromptSet:
    if not isinstance(content, Mapping):
        raise PromptSetError(f"{place}: must hold a mapping with the keys {', '.join(PROMPT_KEYS)}")
    _require_keys(content, place=place)
    given = [key for key in PROMPT_KEYS if key in content]
    texts: Any = {key: _required_text(content[key], place=f"{place}, {key}") for key in given if key not in FORM_KEYS}
    if not texts["name"].strip():
        raise PromptSetError(f"{place}, name: is empty; give the set a name")
    forms: Any = {key: _parse_forms(content[key], place=f"{place}, {key}") for key in given if key in FORM_KEYS}
    return PromptSet(**texts, **forms)


def _require_keys(content: Mapping[Any, Any], *, place: str) -> None:
    unknown = [repr(key) for key in content if key not in PROMPT_KEYS]
    if unknown:
        raise PromptSetError(f"{place}: unknown key {', '.join(unknown)}; known are {', '.join(PROMPT_KEYS)}")
    missing = [key for key in REQUIRED_KEYS if key not in content]
    if missing:
        raise PromptSetError(f"{place}: missing key {', '.join(missing)}")


def _parse_forms(answers: Any, *, place: str) -> dict[AnswerForm, str]:
    forms = [form.value for form in AnswerForm]
    if not isinstance(answers, Mapping) or not answers:
        raise PromptSetError(f"{place}: must hold a text for at least one of the forms {', '.join(forms)}")
    unknown = [repr(form) for form in answers if form not in forms]
    if unknown:
        raise PromptSetError(f"{place}: unknown form {', '.join(unknown)}; known are {', '.join(forms)}")
    return {AnswerForm(form): _required_text(text, place=f"{place}, {form}") for form, text in answers.items()}


def _required_text(value: Any, *, place: str) -> str:
    if not isinstance(value, str):
        raise PromptSetError(f"{place}: must be text, is {type(value).__name__}; put quotes around it")
    return value

"""Prompt sets by name or as files: what `prompt_set` in the settings names, before a run starts."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memagent_batch.config.problems import explanation
from memagent_batch.errors import OutputError, PromptSetError
from memagent_batch.loop.prompt_sets.built_in import BUILT_IN_PROMPTS
from memagent_batch.loop.prompts import DIRECT_TEXT, PromptSet

HOW_TO_IMPORT = "`memagent prompts import FILE` makes a prompt set file from the official MemAgent code"
ONE_ANSWER = (
    '`answers` is now `answer`, one text: write "answer": "... {question} ... {memory} ..." with the text that you '
    "used, and `direct` in the same way; for an official set run `memagent prompts import` again"
)
"""What to do with a file that has a text for each form of answer."""


class _File(BaseModel):
    """A prompt set as its file has it: the fields of `PromptSet`."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(pattern=r"\S")]
    version: str
    first_memory: str
    update: str
    answer: str
    direct: str = DIRECT_TEXT
    keep_word: str = ""
    merge: str = ""
    note: str = ""


def load_prompt_set(name_or_path: str) -> PromptSet:
    """The prompt set of this name, or the one in this JSON or YAML file.

    Raises:
        PromptSetError: there is no such set, or the file does not hold one; says which key is wrong and what to do.
    """
    if name_or_path in BUILT_IN_PROMPTS:
        return BUILT_IN_PROMPTS[name_or_path]
    path = Path(name_or_path)
    if not path.is_file():
        built_in = ", ".join(sorted(BUILT_IN_PROMPTS))
        raise PromptSetError(
            f"prompt_set: {name_or_path!r} is neither a built-in prompt set ({built_in}) nor a file; {HOW_TO_IMPORT}"
        )
    text = read_prompt_file(path)
    if path.suffix == ".py":
        raise PromptSetError(f"{path} is Python code, not a prompt set file; {HOW_TO_IMPORT}")
    try:
        content = yaml.safe_load(text) if path.suffix in {".yaml", ".yml"} else json.loads(text)
    except (json.JSONDecodeError, yaml.YAMLError) as error:
        where = " ".join(str(error).split())
        raise PromptSetError(f"prompt set file {path} can't be parsed: {where}") from error
    return _parse(content, place=f"prompt set file {path}")


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
    return json.dumps(asdict(prompts), indent=2, ensure_ascii=False) + "\n"


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


def _parse(content: Any, *, place: str) -> PromptSet:
    if isinstance(content, dict) and "answers" in content:
        raise PromptSetError(f"{place}: {ONE_ANSWER}")
    try:
        file = _File.model_validate(content)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        keys = ", ".join(_File.model_fields)
        if missing := [str(each["loc"][0]) for each in problems if each["type"] == "missing"]:
            raise PromptSetError(f"{place}: missing key {', '.join(missing)}") from error
        where = ", ".join([place, *map(str, problems[0]["loc"])])
        raise PromptSetError(
            f"{where}: {explanation(problems[0])}; a prompt set is a mapping with the keys {keys}"
        ) from error
    return PromptSet(**file.model_dump())

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from memagent_batch.errors import OutputError, PromptSetError
from memagent_batch.loop.prompt_sets.built_in import BUILT_IN_PROMPTS, DEFAULT_PROMPTS
from memagent_batch.loop.prompt_sets.files import load_prompt_set, prompt_set_json, save_prompt_set
from memagent_batch.loop.prompts import PromptSet

PROMPTS = PromptSet(
    name="mine",
    version="3",
    first_memory="nichts — 🏔",
    update="{question}\n\t{memory} {chunk} {{braces}}\r\n",
    answer="{question} {memory} \\boxed{{}}",
    note="A note.",
)
CONTENT: dict[str, Any] = json.loads(prompt_set_json(PROMPTS))


def write(folder: Path, content: Any) -> str:
    path = folder / "set.json"
    path.write_text(json.dumps(content))
    return str(path)


def test_load_prompt_set_by_name_gives_the_built_in_one() -> None:
    assert {name: load_prompt_set(name) for name in BUILT_IN_PROMPTS} == BUILT_IN_PROMPTS


@pytest.mark.parametrize("prompts", [PROMPTS, DEFAULT_PROMPTS, replace(PROMPTS, note="")])
def test_load_prompt_set_of_a_saved_file_gives_the_same_set(tmp_path: Path, prompts: PromptSet) -> None:
    path = tmp_path / "folder" / "set.json"
    save_prompt_set(prompts, path)
    assert load_prompt_set(str(path)) == prompts
    assert load_prompt_set(str(path)).sha256 == prompts.sha256


def test_load_prompt_set_of_yaml_gives_the_same_set_and_without_a_note_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "set.yaml"
    path.write_text(yaml.safe_dump(CONTENT, allow_unicode=True), encoding="utf-8")
    assert load_prompt_set(str(path)) == PROMPTS
    content = {key: value for key, value in CONTENT.items() if key != "note"}
    assert load_prompt_set(write(tmp_path, content)).note == ""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperature": 1}, r"set\.json, temperature: Extra inputs are not permitted; .* the keys name, version"),
        ({"version": 3}, "version: this is not a text"),
        ({"answers": {"boxed": "{question} {memory}"}}, r"set\.json: `answers` is now `answer`, one text: write "),
        ({"answer": {"boxed": "{question} {memory}"}}, "answer: this is not a text"),
        ({"answer": "{memory}"}, "answer text.*{question}"),
        ({"direct": "{question}"}, "direct text.*{chunk}"),
        ({"update": "{question} {memory}"}, "update text.*{chunk}"),
        ({"update": "{question} {memory} {chunk} {"}, "update text.*can't be parsed"),
        ({"first_memory": "\ud800"}, "surrogate"),
    ],
)
def test_load_prompt_set_of_a_wrong_file_names_what_is_wrong(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(PromptSetError, match=message):
        load_prompt_set(write(tmp_path, CONTENT | change))


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("code.py", b"TEMPLATE = ''", "memagent prompts import"),
        ("set.json", b'{\n"name": ', "line 2"),
        ("set.yaml", b"name: [1\nb: }", "line 2"),
        ("set.json", b'{"name": "\xff"}', "byte 10"),
        *(("set.json", data, "a prompt set is a mapping with the keys") for data in (b"[]", b'"text"', b"null", b"3")),
    ],
)
def test_load_prompt_set_of_a_file_that_holds_none_says_why(
    tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(PromptSetError, match=message):
        load_prompt_set(str(tmp_path / name))


def test_save_prompt_set_where_it_can_not_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="can't be written"):
        save_prompt_set(PROMPTS, tmp_path / "file" / "set.json")

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from memagent_batch.apps.official_prompts import MEMAGENT, PI_MEM, OfficialText, Publication, import_official
from memagent_batch.errors import PromptSetError
from memagent_batch.loop.prompt_sets.files import load_prompt_set, save_prompt_set

UPDATE = "Q {prompt}\nM {memory}\nC {chunk}\n{{set}}"
BOXED = "Q {prompt}\nM {memory}\nin \\boxed{{}}"
SENTENCE = "Q {prompt}\nM {memory}\nsay it"
READ = "Q {prompt}\nM {memory}\nC {chunk}\n<check>"
MERGE = "Q {prompt}\nN {memories}"
CODE = f"""
import does_not_exist

raise SystemExit("never run")
TEMPLATE = {UPDATE!r}
TEMPLATE_FINAL = {SENTENCE!r}
TEMPLATE_FINAL_BOXED: str = {BOXED!r}
"""
PARALLEL_CODE = f"TEMPLATE_CHUNK = {READ!r}\nTEXTS = {{'merge': {MERGE!r}, 'final': {BOXED + '?'!r}}}\n"


def standing_in(published: Publication, **texts: str) -> Publication:
    """The publication with the hashes of these texts, by the names of `OfficialText`."""
    sha256 = {OfficialText[name]: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    return replace(published, sha256=sha256)


STAND_INS = (
    standing_in(MEMAGENT, UPDATE=UPDATE, ANSWER=BOXED),
    standing_in(PI_MEM, UPDATE=READ, MERGE=MERGE, ANSWER=BOXED + "?"),
)


def write(folder: Path, code: str) -> Path:
    path = folder / "official.py"
    path.write_text(code, encoding="utf-8")
    return path


def test_import_official_takes_the_texts_with_our_slot_names(tmp_path: Path) -> None:
    prompts = import_official(write(tmp_path, CODE), publications=STAND_INS)
    assert (prompts.name, prompts.first_memory, prompts.keep_word) == ("official", "No previous memory", "")
    assert prompts.update == "Q {question}\nM {memory}\nC {chunk}\n{{set}}"
    assert prompts.answer.format(question="{q}", memory="m") == "Q {q}\nM m\nin \\boxed{{}}"  # as its trainer shows it
    assert "RL-MemoryAgent-14B" in prompts.note
    save_prompt_set(prompts, tmp_path / "saved.json")
    assert load_prompt_set(str(tmp_path / "saved.json")) == prompts


def test_import_official_of_the_parallel_agent_has_its_merge_text_and_tag(tmp_path: Path) -> None:
    prompts = import_official(write(tmp_path, PARALLEL_CODE), name="mine", publications=STAND_INS)
    assert prompts.update == "Q {question}\nM {memory}\nC {chunk}\n<check>"
    assert prompts.merge == "Q {question}\nN {notes}"
    assert (prompts.keep_word, prompts.first_memory) == ("<check>no</check>", "No previous memory")
    assert prompts.answer == "Q {question}\nM {memory}\nin \\boxed{{{{}}}}?"
    assert "PI-Mem-35B-A3B" in prompts.note
    save_prompt_set(prompts, tmp_path / "mine.json")
    assert load_prompt_set(str(tmp_path / "mine.json")) == prompts


def test_import_official_reads_joined_strings_with_windows_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "official.py"
    code = 'def build():\n    return ("""Q {prompt}\nM {memory}\n"""\n        "C {chunk}\\n{{set}}")\n'
    path.write_bytes(b"\xef\xbb\xbf" + f"{code}ANSWER = {BOXED!r}\n".replace("\n", "\r\n").encode())
    assert import_official(path, publications=STAND_INS).update == "Q {question}\nM {memory}\nC {chunk}\n{{set}}"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("x = 1", "update, .*boxed answer.*MemAgent or .*PI-Mem"),
        (CODE.replace(repr(BOXED), "''"), "published texts: boxed answer; give .*MemAgent, or"),
        (CODE.replace("{chunk}", "{chunk} "), "published texts: update; give .*MemAgent"),
        (PARALLEL_CODE.replace("{memories}", "{memories}!"), "published texts: merge; give .*PI-Mem"),
        ("a = 1\nTEMPLATE = (", "not Python code: line 2"),
        ("TEMPLATE = '\0'", "not Python code"),
    ],
)
def test_import_official_of_code_that_lacks_a_text_names_it_and_its_source(
    tmp_path: Path, code: str, message: str
) -> None:
    with pytest.raises(PromptSetError, match=message):
        import_official(write(tmp_path, code), publications=STAND_INS)

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from memagent_batch.domain.prompts import AnswerForm, split_slots
from memagent_batch.errors import PromptSetError
from memagent_batch.prompts.files import load_prompt_set, save_prompt_set
from memagent_batch.prompts.official import (
    MEMAGENT,
    PI_MEM,
    PUBLICATIONS,
    PUBLISHED_FIRST_MEMORY,
    OfficialText,
    Publication,
    import_official,
)

TRAINED = AnswerForm.BOXED_AS_TRAINED
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
NO_MEMORY = "nothing"
"""


def standing_in(published: Publication, **texts: str) -> Publication:
    """The publication with the hashes of these texts, by the names of `OfficialText`."""
    sha256 = {OfficialText[name]: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    return replace(published, sha256=sha256)


STAND_INS = (
    standing_in(MEMAGENT, UPDATE=UPDATE, BOXED=BOXED, SENTENCE=SENTENCE, FIRST_MEMORY="nothing"),
    standing_in(PI_MEM, UPDATE=READ, MERGE=MERGE, BOXED=BOXED + "?", FIRST_MEMORY=PUBLISHED_FIRST_MEMORY),
)


def write(folder: Path, code: str) -> Path:
    path = folder / "official.py"
    path.write_text(code, encoding="utf-8")
    return path


def test_import_official_takes_the_texts_with_our_slot_names(tmp_path: Path) -> None:
    prompts = import_official(write(tmp_path, CODE)).prompts
    assert prompts.name == "official"
    assert prompts.first_memory == "nothing"
    assert prompts.update == "Q {question}\nM {memory}\nC {chunk}\n{{set}}"
    assert prompts.answers == {
        AnswerForm.BOXED: "Q {question}\nM {memory}\nin \\boxed{{}}",
        AnswerForm.SENTENCE: "Q {question}\nM {memory}\nsay it",
    }


@pytest.mark.parametrize("name", ["TEMPLATE_FINAL", "TEMPLATE_FINAL_BOXED", "PROMPT_OF_THE_LAST_TURN"])
def test_import_official_knows_a_published_text_by_its_hash_under_any_name(tmp_path: Path, name: str) -> None:
    code = f"TEMPLATE = {UPDATE!r}\n{name} = {BOXED!r}\nNO_MEMORY = 'nothing'\n"
    imported = import_official(write(tmp_path, code), publications=STAND_INS)
    assert [check.text for check in imported.checks if check.is_published] == [
        OfficialText.UPDATE,
        OfficialText.BOXED,
        OfficialText.FIRST_MEMORY,
    ]
    assert imported.checkpoints == MEMAGENT.checkpoints
    assert set(imported.prompts.answers) == {AnswerForm.BOXED, AnswerForm.BOXED_AS_TRAINED}


def test_import_official_of_another_text_that_boxes_is_the_boxed_answer_whatever_its_name(tmp_path: Path) -> None:
    code = f"TEMPLATE = {UPDATE!r}\nTEMPLATE_FINAL = {BOXED + ' please'!r}\n"
    imported = import_official(write(tmp_path, code), publications=STAND_INS)
    assert set(imported.prompts.answers) == {AnswerForm.BOXED}
    assert imported.checkpoints == ()


def test_import_official_of_the_published_boxed_text_offers_the_braces_that_training_showed(tmp_path: Path) -> None:
    prompts = import_official(write(tmp_path, CODE), publications=STAND_INS).prompts
    shown = ["".join(map(str, split_slots(prompts.answers[form]))) for form in (AnswerForm.BOXED, TRAINED)]
    assert [text.split("in ")[1] for text in shown] == ["\\boxed{}", "\\boxed{{}}"]
    assert prompts.answers[TRAINED].startswith("Q {question}\nM {memory}\n")


def test_import_official_of_a_sentence_text_alone_is_published_and_not_called_trained_on(tmp_path: Path) -> None:
    code = f"TEMPLATE = {UPDATE!r}\nTEMPLATE_FINAL = {SENTENCE!r}\nNO_MEMORY = 'nothing'\n"
    imported = import_official(write(tmp_path, code), publications=STAND_INS)
    assert imported.is_published
    assert imported.checkpoints == ()
    assert "RL-MemoryAgent" not in imported.prompts.note


@pytest.mark.parametrize(
    "line",
    [
        "TEMPLATE += ' more'",
        "if True:\n    TEMPLATE = 'other'",
        "TEMPLATE, other = 'one', 'two'",
        "for TEMPLATE in ['other']:\n    pass",
        "print(TEMPLATE := 'other')",
        "del TEMPLATE",
        "from elsewhere import TEMPLATE",
        "import elsewhere as TEMPLATE",
        "def change():\n    global TEMPLATE",
        "def TEMPLATE():\n    pass",
        "OTHER_NAME += ' more'",
    ],
)
def test_import_official_of_a_constant_that_is_changed_elsewhere_is_refused_by_name(tmp_path: Path, line: str) -> None:
    code = CODE.replace("TEMPLATE_FINAL_BOXED: str", "OTHER_NAME: str")
    name = "OTHER_NAME" if "OTHER_NAME" in line else "TEMPLATE"
    with pytest.raises(PromptSetError, match=rf"line (9|10|11): {name} is not set as one whole text"):
        import_official(write(tmp_path, f"{code}{line}\n"), publications=STAND_INS)


def test_import_official_of_two_boxed_texts_names_both(tmp_path: Path) -> None:
    code = CODE.replace(repr(SENTENCE), repr(BOXED + "!"))
    with pytest.raises(PromptSetError, match="TEMPLATE_FINAL, line 6, and TEMPLATE_FINAL_BOXED, line 7, are two texts"):
        import_official(write(tmp_path, code), publications=STAND_INS)


def test_import_official_of_the_published_texts_names_their_checkpoints(tmp_path: Path) -> None:
    imported = import_official(write(tmp_path, CODE), publications=STAND_INS)
    assert imported.checkpoints == MEMAGENT.checkpoints == ("RL-MemoryAgent-7B", "RL-MemoryAgent-14B")
    assert {check.text: check.is_published for check in imported.checks} == dict.fromkeys(MEMAGENT.sha256, True)
    assert "RL-MemoryAgent-14B" in imported.prompts.note


@pytest.mark.parametrize("text", [UPDATE, BOXED, SENTENCE])
def test_import_official_of_one_other_text_names_it_and_no_checkpoint(tmp_path: Path, text: str) -> None:
    code = CODE.replace(repr(text), repr(text + " "))
    imported = import_official(write(tmp_path, code), publications=STAND_INS)
    differing = [check for check in imported.checks if not check.is_published]
    assert [check.sha256 for check in differing] == [hashlib.sha256(f"{text} ".encode()).hexdigest()]
    assert imported.checkpoints == ()
    assert differing[0].text in imported.prompts.note
    assert "RL-MemoryAgent" not in imported.prompts.note


def test_import_official_of_other_texts_has_another_version(tmp_path: Path) -> None:
    first = import_official(write(tmp_path, CODE)).prompts
    second = import_official(write(tmp_path, CODE.replace("say it", "write it"))).prompts
    assert first.version != second.version
    assert import_official(write(tmp_path, CODE), name="mine").prompts.version == first.version


def test_import_official_without_a_first_memory_takes_the_published_one(tmp_path: Path) -> None:
    imported = import_official(write(tmp_path, CODE.replace("NO_MEMORY", "OTHER")))
    assert imported.prompts.first_memory == PUBLISHED_FIRST_MEMORY
    assert [check.is_published for check in imported.checks if check.text is OfficialText.FIRST_MEMORY] == [True]


def test_import_official_reads_joined_and_bracketed_strings_and_the_last_assignment(tmp_path: Path) -> None:
    code = f"TEMPLATE = 'old'\nTEMPLATE = ('{{prompt}} '\n  \"{{memory}} {{chunk}}\")\nTEMPLATE_FINAL = {SENTENCE!r}\n"
    assert import_official(write(tmp_path, code)).prompts.update == "{question} {memory} {chunk}"


def test_import_official_keeps_a_doubled_brace_around_a_slot_name(tmp_path: Path) -> None:
    code = CODE.replace("{{set}}", "{{prompt}}")
    assert import_official(write(tmp_path, code)).prompts.update.endswith("{{prompt}}")


def test_import_official_with_windows_line_ends_gives_the_same_texts(tmp_path: Path) -> None:
    path = tmp_path / "official.py"
    code = 'TEMPLATE = """{prompt}\n{memory}\n{chunk}"""\nTEMPLATE_FINAL = """{prompt}\n{memory}"""\n'
    path.write_bytes(b"\xef\xbb\xbf" + code.replace("\n", "\r\n").encode())
    assert import_official(path).prompts.update == "{question}\n{memory}\n{chunk}"


def test_import_official_saved_and_loaded_is_the_same_set(tmp_path: Path) -> None:
    prompts = import_official(write(tmp_path, CODE), name="mine").prompts
    save_prompt_set(prompts, tmp_path / "mine.json")
    assert load_prompt_set(str(tmp_path / "mine.json")) == prompts


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("x = 1", "no constant TEMPLATE"),
        (f"TEMPLATE = {UPDATE!r}", "neither TEMPLATE_FINAL nor TEMPLATE_FINAL_BOXED"),
        (f"\nTEMPLATE = f{UPDATE!r}", "line 2: TEMPLATE is not a plain string"),
        (f"TEMPLATE = str({UPDATE!r})", "line 1: TEMPLATE is not a plain string"),
        (f"TEMPLATE = {UPDATE!r} + ''", "line 1: TEMPLATE is not a plain string"),
        ("TEMPLATE = 3", "line 1: TEMPLATE is not a plain string"),
        (CODE.replace("{chunk}", "chunk"), r"TEMPLATE, line 5: the text lacks the slot \{chunk\}"),
        (CODE.replace("say it", "{prompt}"), "TEMPLATE_FINAL, line 6"),
        (CODE.replace("say it", "{chunk}"), r"TEMPLATE_FINAL, line 6.*\{chunk\}"),
        (CODE.replace("say it", "{other}"), r"TEMPLATE_FINAL, line 6: unknown slot \{other\}"),
        (CODE.replace("say it", "{"), "TEMPLATE_FINAL, line 6: the text can't be parsed"),
        (CODE.replace("{memory}", "{memory!r}"), "has a format"),
        ("a = 1\nTEMPLATE = (", "not Python code: line 2"),
        ("TEMPLATE = '\0'", "not Python code"),
    ],
)
def test_import_official_of_code_that_does_not_fit_says_what_and_where(tmp_path: Path, code: str, message: str) -> None:
    with pytest.raises(PromptSetError, match=message):
        import_official(write(tmp_path, code))


def test_import_official_of_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "gone.py"):
        with pytest.raises(PromptSetError, match="is not a file"):
            import_official(path)


PARALLEL_CODE = f"TEMPLATE_CHUNK = {READ!r}\nTEMPLATE_MERGE = {MERGE!r}\nTEMPLATE_FINAL_BOXED = {BOXED + '?'!r}\n"


def test_import_official_of_the_parallel_agent_has_its_merge_text_and_tag(tmp_path: Path) -> None:
    imported = import_official(write(tmp_path, PARALLEL_CODE), publications=STAND_INS)
    prompts = imported.prompts
    assert imported.checkpoints == PI_MEM.checkpoints == ("PI-Mem-7B", "PI-Mem-35B-A3B")
    assert (prompts.update, prompts.merge) == (
        "Q {question}\nM {memory}\nC {chunk}\n<check>",
        "Q {question}\nN {notes}",
    )
    assert (prompts.keep_word, prompts.first_memory) == ("<check>no</check>", "No previous memory")
    assert set(prompts.answers) == {AnswerForm.BOXED, TRAINED}
    save_prompt_set(prompts, tmp_path / "parallel.json")
    assert load_prompt_set(str(tmp_path / "parallel.json")) == prompts


def test_import_official_of_the_parallel_agent_without_a_merge_text_is_refused(tmp_path: Path) -> None:
    code = PARALLEL_CODE.replace("TEMPLATE_MERGE", "OTHER").replace("{memories}", "{memories}!")
    with pytest.raises(PromptSetError, match="no constant TEMPLATE_MERGE at its top level, the text of the merge turn"):
        import_official(write(tmp_path, code), publications=STAND_INS)


@pytest.mark.parametrize("published", PUBLICATIONS)
def test_published_hashes_are_whole_and_that_of_the_first_memory_fits(published: Publication) -> None:
    assert {len(bytes.fromhex(sha256)) for sha256 in published.sha256.values()} == {32}
    assert set(published.sha256) == set(published.constants.values())
    first_memory = hashlib.sha256(PUBLISHED_FIRST_MEMORY.encode()).hexdigest()
    assert published.sha256[OfficialText.FIRST_MEMORY] == first_memory

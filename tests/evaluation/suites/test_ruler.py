import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.evaluation.suites.ruler import Separation, SplitPrompt, split_prompt

HAYSTACK = "Some special magic numbers are hidden in here.\nNoise.\nQuestion: is this noise? Yes.\n\nMore noise."
ONE = "What is the special magic number for red-cat mentioned in the provided text?"
MANY = "What are all the special magic words for red-cat, and blue-dog mentioned in the provided text?"
TRACKED = "Find all variables that are assigned the value 12345 in the text above."
COMMON = "What are the 10 most common words in the above list?"
FREQUENT = "Do not provide any explanation. What are the three most frequently appeared words in the above coded text?"
WHO = "Who wrote it: A, or B?"


@pytest.mark.parametrize(
    ("tail", "question"),
    [
        (f"\n{ONE}", ONE),
        (f"\n{MANY}", MANY),
        (f"\n{ONE} The special magic number for red-cat mentioned in the provided text is", ONE),
        (f"\nQuestion: {TRACKED}", TRACKED),
        (f"\nQuestion: {TRACKED} Answer: According to the chain(s) above, 5 variables are, they are: ", TRACKED),
        (f"\nQuestion: {COMMON}", COMMON),
        (f"\nQuestion: {COMMON} Answer: The top 10 words that appear most often are:", COMMON),
        (f"\nQuestion: {FREQUENT}", FREQUENT),
        (f"\n\nQuestion: {WHO}", WHO),
        (f"\n\nQuestion: {WHO} Answer:", WHO),
        (f"\n\nQuestion: {WHO} [/INST] Answer:", WHO),
        (f"\n\nQuestion: {WHO}\n\n", WHO),
    ],
)
def test_split_prompt_templates_of_ruler_are_known_by_their_question(tail: str, question: str) -> None:
    assert split_prompt(HAYSTACK + tail) == SplitPrompt(
        document=HAYSTACK + tail[: tail.rstrip().rindex("\n")], question=question, split=Separation.TEMPLATE
    )


def test_split_prompt_answer_prefix_is_no_part_of_either() -> None:
    parts = split_prompt(f"{HAYSTACK}\nTell me. It is", answer_prefix=" It is")
    assert parts is not None
    assert parts.question == "More noise.\nTell me."
    assert parts.split is Separation.LAST_PARAGRAPH


def test_split_prompt_worked_example_before_the_real_question_stays_in_the_document() -> None:
    example = f"VAR A = 1\nQuestion: {TRACKED} Answer: A\n\n"
    parts = split_prompt(f"{example}{'VAR B = 2. ' * 200}\nQuestion: {TRACKED}")
    assert parts is not None
    assert parts.document.startswith(example)
    assert parts.split is Separation.TEMPLATE


def test_split_prompt_question_in_the_middle_is_no_question() -> None:
    parts = split_prompt(f"Noise.\nQuestion: {WHO}\nMore noise.\n\nTell me all.")
    assert parts is not None
    assert (parts.question, parts.split) == ("Tell me all.", Separation.LAST_PARAGRAPH)


@pytest.mark.parametrize(
    ("prompt", "document", "question"),
    [("one\n\ntwo\nthree", "one", "two\nthree"), ("one\ntwo\nthree", "one\ntwo", "three")],
)
def test_split_prompt_unknown_template_takes_the_last_paragraph_and_says_so(
    prompt: str, document: str, question: str
) -> None:
    assert split_prompt(prompt) == SplitPrompt(document=document, question=question, split=Separation.LAST_PARAGRAPH)


@pytest.mark.parametrize("prompt", ["", "one line", "\n\nonly", f"\n{ONE}", f"Question: {WHO}"])
def test_split_prompt_nothing_before_the_question_is_refused(prompt: str) -> None:
    assert split_prompt(prompt) is None


@given(st.text(min_size=1))
def test_split_prompt_document_is_the_beginning_unchanged(prompt: str) -> None:
    parts = split_prompt(prompt)
    if parts is not None:
        assert prompt.startswith(parts.document)
        assert parts.question in prompt[len(parts.document) :]

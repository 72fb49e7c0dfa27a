import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.config.agent import Extraction
from memagent_batch.loop.completions import after_thoughts, ends_in_thought, extract_answer, other_thought_tags

PLAIN_TEXT = st.text(alphabet=st.characters(blacklist_characters="{}\\"), max_size=40)


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"So \boxed{42}.", "42"),
        (r"\boxed{\frac{1}{2}} is it", r"\frac{1}{2}"),
        (r"first \boxed{a}, then \boxed{b}", "b"),
        (r"\boxed{whole} and \boxed{cut", "whole"),
        (r"\boxed{北京 🗼}", "北京 🗼"),
        ("\\boxed{two\nlines}", "two\nlines"),
        (r"\boxed{outer \boxed{inner}}", "inner"),
        (r"\boxed{", None),
        (r"\boxed{cut {deeper}", None),
        (r"\boxed{  }", None),
        ("no box", None),
        ("", None),
    ],
)
def test_extract_answer_boxed_takes_the_last_box_that_closes(response: str, answer: str | None) -> None:
    assert extract_answer(response, extraction=Extraction.BOXED) == answer


@given(before=PLAIN_TEXT, answer=PLAIN_TEXT, after=PLAIN_TEXT)
def test_extract_answer_boxed_in_any_text_returns_what_was_boxed(before: str, answer: str, after: str) -> None:
    response = f"{before}\\boxed{{{answer}}}{after}"
    assert extract_answer(response, extraction=Extraction.BOXED) == (answer.strip() or None)


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("The answer is Paris.", "Paris"),
        ("the ANSWER is: Paris", "Paris"),
        ("The answer is 1. No, wait: the answer is 2.", "2"),
        ("The answer is 3.5.", "3.5"),
        ("**The answer is:** Paris", "Paris"),
        ("The answer is **Paris**.", "Paris"),
        ("The answer is Paris. So the answer is", "Paris. So"),
        ("The answer is\nParis", None),
        ("Therefore, the answer is:\n\nParis.", "Paris"),
        ("**The answer is:**\r\n\r\n**Paris**\r\nI am sure.", "Paris"),
        ("The answer is: 1.\n2", "1"),
        ("The answer is 1. The answer is:\n", "1"),
        ("The answer is:\nthe answer is 2", "2"),
        ("The answer is .", None),
        ("Paris", None),
        ("", None),
    ],
)
def test_extract_answer_sentence_takes_the_last_one_to_the_end_of_its_line(response: str, answer: str | None) -> None:
    assert extract_answer(response, extraction=Extraction.SENTENCE) == answer


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"The answer is 1. \boxed{2}", "2"),
        (r"\boxed{2} The answer is 1.", "2"),
        (r"\boxed{ The answer is 1.", "1"),
        ("The answer is 1.", "1"),
        ("1", None),
    ],
)
def test_extract_answer_auto_prefers_the_box(response: str, answer: str | None) -> None:
    assert extract_answer(response, extraction=Extraction.AUTO) == answer


@pytest.mark.parametrize(("response", "answer"), [("  Paris \n", "Paris"), (" \n", None), ("", None)])
def test_extract_answer_raw_keeps_the_whole_response(response: str, answer: str | None) -> None:
    assert extract_answer(response, extraction=Extraction.RAW) == answer


@pytest.mark.parametrize("extraction", Extraction)
@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("<think>\\boxed{Lyon}, or the answer is Lyon</think> I do not know", None),
        ("<think>\\boxed{Lyon}, or the answer is Lyon", None),
        ("<think>\\boxed{Lyon}</think>\n\nThe answer is \\boxed{Paris}", "Paris"),
    ],
)
def test_extract_answer_takes_nothing_out_of_a_thought(
    response: str, answer: str | None, extraction: Extraction
) -> None:
    extracted = extract_answer(response, extraction=extraction)
    assert "Lyon" not in (extracted or "")
    assert answer is None or answer in (extracted or "")


@given(response=st.text(max_size=80), extraction=st.sampled_from(Extraction))
def test_extract_answer_of_any_text_is_none_or_not_empty(response: str, extraction: Extraction) -> None:
    answer = extract_answer(response, extraction=extraction)
    assert answer is None or answer.strip() == answer != ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<think>\nWell.\n</think>\n\nnotes\n", "notes"),
        ("<think>a</think>\n\n<think>b</think> c", "c"),
        ("<think></think>" * 2000 + "c", "c"),
        ("<think>a</think>b<think>c</think> d", "b<think>c</think> d"),
        ("<think>look</think>The code is 7. A </think> ends it.", "The code is 7. A </think> ends it."),
        ("<think>a</think>\n\n", ""),
        ("<think>a</think>notes on the tag <think>", "notes on the tag <think>"),
        ("<think>cut off", None),
        ("<think>a</think>\n<think>cut off", None),
    ],
)
def test_after_thoughts_of_a_completion_that_begins_with_a_thought_is_what_follows_its_end(
    text: str, said: str | None
) -> None:
    assert after_thoughts(text) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Well.\n</think>\n\nnotes", "notes"),
        ("<think>twice</think>notes", "notes"),
        ("a</think><think>b</think>c", "c"),
        ("cut off", None),
        ("", None),
    ],
)
def test_after_thoughts_of_a_thought_that_the_prompt_opened_is_what_follows_its_end(
    text: str, said: str | None
) -> None:
    assert after_thoughts(text, opens_thought=True) == said


@pytest.mark.parametrize("text", ["notes on <think> and </think>", " notes ", "", "</think> ends it", "think>"])
def test_after_thoughts_of_a_text_that_only_mentions_the_tags_is_that_text(text: str) -> None:
    assert after_thoughts(text) == text


@pytest.mark.parametrize(
    ("prompt", "is_open"),
    [
        ("<|im_start|>assistant\n", False),
        ("<|im_start|>assistant\n<think>\n", True),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
    ],
)
def test_ends_in_thought_of_a_prompt_tells_whether_its_last_thought_is_open(prompt: str, is_open: bool) -> None:
    assert ends_in_thought(prompt) is is_open


@pytest.mark.parametrize(
    ("template", "tags"),
    [
        ("{{ '<|start|>assistant<|channel|>analysis<|message|>' }}", ["<|channel|>"]),
        ("{%- if message['thinking'] %}[THINK]{{ message['thinking'] }}[/THINK]{% endif %}", ["[/THINK]", "[THINK]"]),
        ('{%- set think_begin = "<seed:think>" %}', ["<seed:think>"]),
        ("{{ '<thought>' }}{{ content.split('</thought>')[-1] }}", ["</thought>", "<thought>"]),
        ("<|START_THINKING|><|END_THINKING|>", ["<|END_THINKING|>", "<|START_THINKING|>"]),
        ("<|channel>thought", ["<|channel>"]),
        ("<think>{{ x[thinking] }}</think>/nothink {{ message.channel }} {{ m['channel'] }}", []),
    ],
)
def test_other_thought_tags_of_a_template_are_those_that_are_not_think(template: str, tags: list[str]) -> None:
    assert other_thought_tags(template) == tags

import pytest

from memagent_batch.loop.thoughts import after_thoughts, ends_in_thought, other_thought_tags


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

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.errors import PromptSetError
from memagent_batch.loop.prompts import (
    UPDATE_SLOTS,
    Memory,
    PromptSet,
    PromptTokens,
    Slot,
    TokenTemplate,
    require_slots,
    split_slots,
)
from memagent_batch.types import Completion, FinishReason

CONTROL = 99
PROMPTS = PromptSet(
    name="mine",
    version="1",
    first_memory="none",
    update="{question} {memory} {chunk}",
    answer="{question} {memory} \\boxed{{}}",
)
TOKENS = PromptTokens(
    update=TokenTemplate(pieces=((1,), Slot.QUESTION, Slot.MEMORY, (2, 3), Slot.CHUNK)),
    answer=TokenTemplate(pieces=(Slot.QUESTION, (4,), Slot.MEMORY)),
    direct=TokenTemplate(pieces=(Slot.QUESTION, (4,), Slot.CHUNK)),
    first_memory=Memory(token_ids=(7,), text="none"),
    control_token_ids=frozenset({CONTROL}),
    encode=str.encode,
    decode=str,
)


def completion(token_ids: list[int], text: str) -> Completion:
    return Completion(token_ids=token_ids, text=text, finish_reason=FinishReason.STOP)


@given(fixed=st.text(max_size=40))
def test_split_slots_of_doubled_braces_gives_single_ones(fixed: str) -> None:
    pieces = split_slots(fixed.replace("{", "{{").replace("}", "}}") + "{memory}")
    assert "".join(pieces[:-1]) == fixed
    assert pieces[-1] is Slot.MEMORY


@pytest.mark.parametrize("text", ["{other}", "{}", "{memory", "memory}", "{memory!r}", "{memory:>4}", "{memory.text}"])
def test_split_slots_of_an_unknown_or_broken_slot_is_refused(text: str) -> None:
    with pytest.raises(PromptSetError, match=r"slots are \{question\}, \{memory\}, \{chunk\}"):
        split_slots(text)


@pytest.mark.parametrize("text", ["{question} {memory}", "{question} {memory} {chunk} {chunk}", "", "{x}"])
def test_require_slots_of_a_text_without_each_once_names_the_place(text: str) -> None:
    with pytest.raises(PromptSetError, match="my text"):
        require_slots(text, UPDATE_SLOTS, place="my text")


def test_template_without_a_text_is_never_an_empty_prompt() -> None:
    absent = replace(TOKENS.merge, place="prompt set 'mine', merge text")
    with pytest.raises(PromptSetError, match="prompt set 'mine', merge text: empty"):
        absent.fill({Slot.QUESTION: [1], Slot.NOTES: [2]})
    with pytest.raises(PromptSetError, match="prompt set 'mine', merge text: empty"):
        _ = absent.num_fixed_tokens


@pytest.mark.parametrize("name", ["first_memory", "direct", "note"])
def test_prompt_set_with_a_lone_surrogate_is_refused(name: str) -> None:
    with pytest.raises(PromptSetError, match="surrogate"):
        replace(PROMPTS, **{name: getattr(PROMPTS, name) + "\ud800"})


def test_prompt_set_hash_changes_with_each_text_and_not_with_the_note() -> None:
    changed = [
        replace(PROMPTS, name="other"),
        replace(PROMPTS, version="2"),
        replace(PROMPTS, first_memory="nothing"),
        replace(PROMPTS, update="{question} {memory} {chunk}!"),
        replace(PROMPTS, answer="{question} {memory}"),
        replace(PROMPTS, direct="{question} {chunk}"),
        replace(PROMPTS, keep_word="keep"),
        replace(PROMPTS, merge="{question} {notes}"),
    ]
    assert len({prompts.sha256 for prompts in [PROMPTS, *changed]}) == 9
    assert replace(PROMPTS, note="a").sha256 == PROMPTS.sha256


def test_remember_a_completion_takes_its_tokens_without_control_tokens() -> None:
    memory = TOKENS.remember(TOKENS.first_memory, completion([5, CONTROL, 6, CONTROL], "new"))
    assert (list(memory.token_ids), memory.text) == ([5, 6], "new")


@pytest.mark.parametrize(("token_ids", "text"), [([], ""), ([CONTROL], ""), ([1, 2], " \n")])
def test_remember_a_completion_without_text_keeps_the_memory(token_ids: list[int], text: str) -> None:
    before = Memory(token_ids=[5], text="notes")
    assert TOKENS.remember(before, completion(token_ids, text)) == before


def test_remember_a_completion_that_begins_in_the_thought_of_its_prompt_takes_what_follows() -> None:
    before, thinking = Memory(token_ids=[5], text="notes"), replace(TOKENS, opens_thought=True)
    assert thinking.remember(before, completion([1], "hm</think>news")).text == "news"
    assert thinking.remember(before, completion([1], "hm")) == before
    assert TOKENS.remember(before, completion([1], "hm")).text == "hm"


@pytest.mark.parametrize(
    "said",
    [
        "keep",
        " Keep.\n",
        "<think>Nothing new.</think>\n\nkeep",
        "<think>a</think>`keep`",
        "keep\n\nThis section says nothing new.",
        "**keep**\nThe section is about tides.",
        "**keep**: no news",
        "**Keep:** no news",
        "Keep!",
        "keep. The section says nothing new.",
        "Keep - nothing new",
        "keep — nothing new",
        "keep (nothing new)",
    ],
)
def test_remember_the_keep_word_alone_explained_or_after_a_thought_keeps_the_memory(said: str) -> None:
    before, gated = Memory(token_ids=[5], text="notes"), replace(TOKENS, keep_word="keep")
    assert gated.remember(before, completion([1], said)) == before
    assert TOKENS.remember(before, completion([1], said)) != before


@pytest.mark.parametrize(
    "said",
    [
        "Keep receipts for 7 years.",
        "keep-alive: 30 s",
        "keep.alive is 30 s",
        "Keeper: Ada",
        "The code is 12.\nkeep",
        "Nothing new: keep",
    ],
)
def test_remember_a_note_with_the_keep_word_in_it_replaces_the_memory(said: str) -> None:
    before, gated = Memory(token_ids=[5], text="notes"), replace(TOKENS, keep_word="keep")
    assert gated.remember(before, completion([1], said)).text == said


@pytest.mark.parametrize(
    ("said", "keeps"),
    [("<check>no</check>", True), (" <CHECK>no</check> nothing new", True), ("It quotes <check>no</check>.", False)],
)
def test_remember_a_tag_keeps_the_memory_where_it_comes_first(said: str, keeps: bool) -> None:
    before, tagged = Memory(token_ids=[5], text="notes"), replace(TOKENS, keep_word="<check>no</check>")
    assert (tagged.remember(before, completion([1], said)) == before) == keeps

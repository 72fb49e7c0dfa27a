"""The policy `reread`: rounds, what each turn shows, and how a reading goes on from its log."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from memagent_example.reread import ASK, MERGE_NOTES, Reread

from memagent_batch.domain.prompts import Memory, PromptTokens
from memagent_batch.domain.readings import Outcome, QuestionTokens
from memagent_batch.domain.turns import Completion, FinishReason, Prompt, Writes
from memagent_batch.testing import PROMPTS, document_of


class PlainBytes:
    """Text of tokens that are bytes."""

    def __call__(self, token_ids: Any) -> str:
        return bytes(token for token in token_ids if 20 < token < 99).decode()


TEXTS: PromptTokens = replace(
    PROMPTS, keep_word="keep", first_memory=Memory(token_ids=tuple(b"M0"), text="M0"), decode=PlainBytes()
)
ASKED = QuestionTokens(token_ids=tuple(b"WHO?"))
POLICY = Reread(chunk_tokens=5, question_tokens=8, memory_tokens=6, answer_tokens=6)
FIRST_ROUND = ["update/1/0", "update/1/1"]

Rule = Callable[[Prompt], str | None]


def rule_of(texts: Mapping[str, str]) -> Rule:
    """A model that writes these texts, by path or by kind; in other turns the path."""
    return lambda prompt: texts.get(prompt.path, texts.get(prompt.kind, prompt.path.upper()))


def completion_of(text: str, *, is_cut: bool = False) -> Completion:
    reason = FinishReason.LENGTH if is_cut else FinishReason.STOP
    return Completion(token_ids=[*text.encode(), 99], text=text, finish_reason=reason)


async def read(
    texts: Mapping[str, str], *, policy: Reread = POLICY, num_tokens: int = 9, cut: str = ""
) -> tuple[Outcome, dict[str, Prompt]]:
    """Reads a document of two chunks; the prompts by path, in the order in which they were asked."""
    prompts: dict[str, Prompt] = {}
    rule = rule_of(texts)

    async def turns(prompt: Prompt) -> Completion:
        prompts[prompt.path] = prompt
        return completion_of(rule(prompt) or "", is_cut=prompt.path == cut)

    outcome = await policy.read(document_of(num_tokens), ASKED, prompts=TEXTS, turns=turns)
    return outcome, prompts


async def test_reading_whose_memory_lacks_nothing_takes_one_round_and_asks_once() -> None:
    outcome, prompts = await read({"update/1/1": "M1", "decompose": "Keep."})
    assert list(prompts) == [*FIRST_ROUND, "decompose/2", "answer"]
    assert bytes(prompts["decompose/2"].token_ids) == b"\x0dWHO?\x0eM1\x0f" + ASK.encode() + b"\x10"
    assert (outcome.memory.text, outcome.response) == ("M1", "ANSWER")
    slots = sum(len(shown) for shown in (b"WHO?M0", b"WHO?UPDATE/1/0", b"WHO?M1", b"WHO?M1"))
    shown = sum(len(prompt.token_ids) for prompt in prompts.values()) - slots
    assert shown == POLICY.cost(TEXTS, num_tokens=9).min_prompt_tokens


async def test_document_is_read_again_for_what_is_missing_and_the_answer_is_to_the_question() -> None:
    policy = replace(POLICY, rounds=2)
    texts = {"update/1/1": "M1", "decompose": "WHERE?", "update/2/0": "N1", "update/2/1": "N2", "merge": "M2"}
    outcome, prompts = await read(texts, policy=policy)
    assert list(prompts) == [*FIRST_ROUND, "decompose/2", "update/2/0", "update/2/1", "merge/2", "answer"]
    assert bytes(prompts["update/2/0"].token_ids) == b"\x01WHERE?\x02M0\x03defgh\x04"
    assert bytes(prompts["update/2/1"].token_ids) == b"\x01WHERE?\x02N1\x03ijkl\x04"
    merged = b"\x0dWHO?\x0eM1\x0f" + MERGE_NOTES.encode() + b"\n[Read again for]:\nWHERE?\n[Found]:\nN2\x10"
    assert bytes(prompts["merge/2"].token_ids) == merged
    assert bytes(prompts["answer"].token_ids) == b"\x05WHO?\x06M2\x07"
    writes = {path: prompt.writes for path, prompt in prompts.items()}
    assert {path for path, each in writes.items() if each is Writes.MEMORY} == {*FIRST_ROUND, "merge/2"}
    assert {path for path, each in writes.items() if each is None} == {"answer"}
    assert outcome.memory.text == "M2"
    assert policy.cost(TEXTS, num_tokens=9).num_turns == len(prompts)

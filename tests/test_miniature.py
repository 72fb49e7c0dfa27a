"""MemAgent in miniature: one text, a tokeniser of words, and an engine that writes the numbers that it is shown."""

import re
from collections.abc import Sequence

from memagent_batch.loop.addresses import ReadingAddress
from memagent_batch.loop.policies.overwrite import OverwritePolicy
from memagent_batch.loop.prompts import Memory, PromptTokens, Slot, TokenTemplate, split_slots
from memagent_batch.run.reading.agent import LoadedAgent
from memagent_batch.run.reading.read import ReadingTurns, read
from memagent_batch.types import Completion, Document, FinishReason, Prompt, Question, Status

TEXT = "The first gate has the code 17 . Nothing else is here , and the last gate has 4 ."
vocabulary: list[str] = []


def encode(text: str) -> list[int]:
    vocabulary.extend(word for word in text.split() if word not in vocabulary)
    return [vocabulary.index(word) for word in text.split()]


def decode(token_ids: Sequence[int]) -> str:
    return " ".join(vocabulary[token_id] for token_id in token_ids)


def template(text: str) -> TokenTemplate:
    pieces = (each if isinstance(each, Slot) else tuple(encode(each)) for each in split_slots(text))
    return TokenTemplate(pieces=tuple(pieces))


PROMPTS = PromptTokens(
    update=template("Question: {question} Memory: {memory} Section: {chunk} New memory:"),
    answer=template("Question: {question} Memory: {memory} Answer:"),
    direct=template("Question: {question} Section: {chunk} Answer:"),
    first_memory=Memory(token_ids=encode("nothing"), text="nothing"),
    control_token_ids=frozenset(),
    encode=encode,
    decode=decode,
)


class NumberEngine:
    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        numbers = " ".join(dict.fromkeys(re.findall(r"\b\d+\b", decode(prompt.token_ids)))) or "nothing"
        return Completion(token_ids=encode(numbers), text=numbers, finish_reason=FinishReason.STOP)


async def test_memagent_carries_its_memory_from_chunk_to_chunk_and_answers_from_it() -> None:
    policy = OverwritePolicy(chunk_tokens=8, memory_tokens=5, answer_tokens=5)
    agent = LoadedAgent(policy=policy, prompts=PROMPTS, encode=encode, question_tokens=9, model="miniature")
    starts = [word.start() for word in re.finditer(r"\S+", TEXT)]
    document = Document(token_ids=encode(TEXT), token_chars=starts, num_chars=len(TEXT))
    address = ReadingAddress(document_hash="d", question_hash="q", sample=0, fingerprint="f")
    turns, completions = ReadingTurns(engine=NumberEngine(), address=address, seed=0), list[tuple[str, str]]()
    turns.observe = lambda prompt, completion: completions.append((prompt.path, completion.text))
    reading = await read(document, Question(question_id="codes", text="Which codes?"), agent=agent, turns=turns)
    assert completions == [("update/0", "17"), ("update/1", "17"), ("update/2", "17 4"), ("answer", "17 4")]
    assert (reading.status, reading.response, reading.num_chunks) == (Status.OK, "17 4", 3)

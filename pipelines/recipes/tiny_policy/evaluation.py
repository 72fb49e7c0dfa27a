"""The memory loop, greedily, on held-out words and texts: how many documents end with the right answer."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from memagent_batch.domain.answers import Extraction, extract_answer
from memagent_batch.domain.document import token_windows
from memagent_batch.domain.prompts import AnswerForm, PromptTokens, Slot
from memagent_batch.engines.tokenizer import Tokenizer
from memagent_batch.evaluation.needles.facts import Split, make_needle
from memagent_batch.evaluation.needles.tasks import Haystack, NeedleTask, make_task
from memagent_batch.prompts.built_in import DEFAULT_PROMPTS
from pipelines.recipes.tiny_policy.examples import Example, pad_examples
from pipelines.recipes.tiny_policy.network import logits_at
from pipelines.recipes.tiny_policy.training import exact_rows

BATCH_TURNS = 12
"""Turns in one forward."""

BLOCK_TOKENS = 300
"""Tokens by which a document may exceed its requested length; subtracted beforehand."""

LONGEST_COMPLETION_TOKENS = 128
"""Budget of a memory and of an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One kind of document to be read."""

    haystack: Haystack
    """What the needle is hidden in."""
    num_chunks: int
    """Length of the documents, in chunks."""
    num_distractors: int
    """Other needles in the document."""
    near: bool
    """Whether these are made to be mixed up with the needle, or random as in RULER."""
    chunk_tokens: int
    """Length of a chunk."""
    overlap_tokens: int
    """Tokens that a chunk shares with the one before."""
    num_documents: int
    """Documents that are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationFigures:
    """Results over the documents of a setting."""

    right: float
    """Share of documents with the reference as answer."""
    noted: float
    """Share of documents whose last memory is the note of the needle, word for word."""
    exact_turns: float
    """Share of turns whose completion equals the target, token for token."""
    cut: float
    """Share of documents in which no chunk holds the whole needle."""


@dataclass(slots=True, kw_only=True)
class Reading:
    """A document on its way through the loop."""

    task: NeedleTask
    """Document, question and reference."""
    question: list[int]
    """Tokens of the question."""
    note: list[int]
    """Tokens of the memory once the needle was met."""
    blank: list[int]
    """Tokens of the memory before that."""
    chunks: list[list[int]]
    """Tokens of the chunks."""
    holding: list[bool]
    """Whether the needle lies whole in each chunk."""
    memory: list[int]
    """The memory as it stands."""


class Evaluator:
    """Reads documents with a network, many at a time."""

    def __init__(self, network: Any, tokenizer: Tokenizer) -> None:
        """Takes a `Qwen2ForCausalLM` and the tokeniser of its folder."""
        self._network = network
        self._tokenizer = tokenizer
        self._prompts: PromptTokens = tokenizer.prompt_tokens(DEFAULT_PROMPTS, answer_form=AnswerForm.BOXED)
        self._end = tokenizer.end_token_id or 0

    def evaluate(self, setting: Setting, *, seed: int) -> EvaluationFigures:
        """Reads the documents of a setting to their answers."""
        with torch.inference_mode():
            return self._evaluate(setting, seed=seed)

    def _evaluate(self, setting: Setting, *, seed: int) -> EvaluationFigures:
        readings = [self._start(random.Random(f"{seed} {index}"), setting) for index in range(setting.num_documents)]
        num_turns = num_exact = 0
        for index in range(max(len(reading.chunks) for reading in readings)):
            open_readings = [reading for reading in readings if index < len(reading.chunks)]
            wanted = [_wanted_memory(reading, index) for reading in open_readings]
            completions = self._complete(
                [self._update(*pair, index) for pair in zip(open_readings, wanted, strict=True)]
            )
            num_turns += len(completions)
            num_exact += sum(memory == want for memory, want in zip(completions, wanted, strict=True))
            for reading, memory in zip(open_readings, completions, strict=True):
                reading.memory = memory
        answers = self._complete([self._answer(reading) for reading in readings])
        texts = [self._tokenizer.decode(answer) for answer in answers]
        return EvaluationFigures(
            right=_share(
                extract_answer(text, extraction=Extraction.BOXED) == reading.task.answer
                for text, reading in zip(texts, readings, strict=True)
            ),
            noted=_share(reading.memory == reading.note for reading in readings),
            exact_turns=num_exact / num_turns,
            cut=_share(not any(reading.holding) for reading in readings),
        )

    def _start(self, rng: random.Random, setting: Setting) -> Reading:
        needle = make_needle(rng, split=Split.HELD_OUT)
        task = make_task(
            rng,
            needle=needle,
            length=setting.num_chunks * setting.chunk_tokens - BLOCK_TOKENS,
            length_of=lambda text: len(self._tokenizer.encode(text)),
            haystack=setting.haystack,
            num_distractors=setting.num_distractors,
            near=setting.near,
            split=Split.HELD_OUT,
        )
        document = self._tokenizer.encode_document(task.document)
        windows = token_windows(
            len(document.token_ids), chunk_tokens=setting.chunk_tokens, overlap_tokens=setting.overlap_tokens
        )
        first_char = round(task.position * len(task.document))
        start, end = document.token_chars.searchsorted([first_char, first_char + len(task.needle)])
        return Reading(
            task=task,
            question=self._tokenizer.encode(task.question),
            note=self._tokenizer.encode(needle.note),
            blank=self._tokenizer.encode(needle.blank),
            chunks=[document.token_ids[low:high].tolist() for low, high in windows],
            holding=[bool(low <= start and end <= high) for low, high in windows],
            memory=list(self._prompts.first_memory.token_ids),
        )

    def _update(self, reading: Reading, wanted: list[int], index: int) -> Example:
        values = {Slot.QUESTION: reading.question, Slot.MEMORY: reading.memory, Slot.CHUNK: reading.chunks[index]}
        return Example(kind="update", prompt=self._prompts.update.fill(values), target=[*wanted, self._end])

    def _answer(self, reading: Reading) -> Example:
        values = {Slot.QUESTION: reading.question, Slot.MEMORY: reading.memory}
        wanted = self._tokenizer.encode(f"\\boxed{{{reading.task.answer}}}")
        return Example(kind="answer", prompt=self._prompts.answer.fill(values), target=[*wanted, self._end])

    def _complete(self, turns: Sequence[Example]) -> list[list[int]]:
        """Greedy completions, without the end token.

        Where every token of the target is the likeliest after those before it, greedy decoding writes the target: one
        forward shows it. Only the other turns are decoded token by token.
        """
        completions: list[list[int]] = []
        for batch in _parts(turns, BATCH_TURNS):
            arrays = pad_examples(batch)
            exact = exact_rows(logits_at(self._network, arrays.tokens, arrays.places), arrays).tolist()
            completions += [
                list(turn.target[:-1]) if right else self._decode(turn.prompt)
                for turn, right in zip(batch, exact, strict=True)
            ]
        return completions

    def _decode(self, prompt: Sequence[int]) -> list[int]:
        tokens = torch.tensor([list(prompt)])
        whole = self._network.generate(
            tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=LONGEST_COMPLETION_TOKENS, do_sample=False
        )
        completion: list[int] = whole[0, len(prompt) :].tolist()
        return [token for token in completion if token not in self._prompts.control_token_ids]


def _wanted_memory(reading: Reading, index: int) -> list[int]:
    """The note from the chunk on that holds the needle, a blank one before."""
    return reading.note if any(reading.holding[: index + 1]) else reading.blank


def _share(flags: Iterable[bool]) -> float:
    counted = list(flags)
    return sum(counted) / len(counted)


def _parts(turns: Sequence[Example], size: int) -> Iterator[Sequence[Example]]:
    for start in range(0, len(turns), size):
        yield turns[start : start + size]

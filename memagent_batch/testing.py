"""Contract suites: what every policy and every engine promises, to hold a plug-in to with pytest.

    class TestFirstMatch(PolicyContract):
        def policy(self, chunk_tokens: int) -> Policy:
            return FirstMatch(chunk_tokens=chunk_tokens, answer_tokens=6)

`run_policy(policy, document_of(23))` reads a document with a fake model; it returns the outcome and the prompts.
"""

import asyncio
import json
import math
import operator
import pickle
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import ClassVar

from memagent_batch.data.store.turn_log.rows import turn_memory, turn_row
from memagent_batch.errors import PromptTooLongError
from memagent_batch.loop.addresses import ReadingAddress
from memagent_batch.loop.engines.engine import Engine, EngineContext
from memagent_batch.loop.guides import choice_guide, json_guide, regex_guide
from memagent_batch.loop.prompts import Memory, PromptTokens, Slot, TokenTemplate
from memagent_batch.plugins import setting_names
from memagent_batch.types import Completion, Document, FinishReason, Outcome, Policy, Prompt, QuestionTokens

LENGTHS = (0, 1, 2, 7, 12, 13, 40)
"""Documents that policies are tried with, tokens."""
CHUNKS = (1, 2, 5, 12)
ASKED_TOKENS = QuestionTokens(token_ids=(50, 51, 52))
"""A question of three tokens."""
ADDRESS = ReadingAddress(document_hash="d", question_hash="q", sample=0, fingerprint="f")
PROMPTS = PromptTokens(
    update=TokenTemplate(pieces=((1,), Slot.QUESTION, (2,), Slot.MEMORY, (3,), Slot.CHUNK, (4,))),
    answer=TokenTemplate(pieces=((5,), Slot.QUESTION, (6,), Slot.MEMORY, (7,))),
    direct=TokenTemplate(pieces=((10,), Slot.QUESTION, (11,), Slot.CHUNK, (12,))),
    merge=TokenTemplate(pieces=((13,), Slot.QUESTION, (14,), Slot.MEMORY, (15,), Slot.NOTES, (16,))),
    first_memory=Memory(token_ids=(8, 9), text="none"),
    control_token_ids=frozenset({99}),
    encode=str.encode,
    decode=str,
)
"""A prompt set whose texts are single tokens."""


class FakeModel:
    """Writes tokens that depend on its prompt alone, and keeps the prompts that it saw."""

    def __init__(self) -> None:
        """No prompt was seen yet."""
        self.prompts: list[Prompt] = []
        self.completions: dict[str, Completion] = {}
        """What it wrote, by turn path."""

    async def complete(self, prompt: Prompt) -> Completion:
        """Two tokens, the second of them the end."""
        self.prompts.append(prompt)
        await asyncio.sleep(0)
        token_ids = [1000 + sum(prompt.token_ids) % 997, 99]
        completion = Completion(token_ids=token_ids, text=f"text {token_ids[0]}", finish_reason=FinishReason.STOP)
        self.completions[prompt.path] = completion
        return completion


class PolicyContract(ABC):
    """What every policy promises. A subclass, whose name begins with `Test`, makes the policy."""

    @abstractmethod
    def policy(self, chunk_tokens: int) -> Policy:
        """The policy, with prompts that show so many tokens of the document at once."""

    def test_policy_asked_twice_asks_for_the_same_turns_each_with_a_path_of_its_own(self) -> None:
        """Replay finds each turn by its path."""
        for num_tokens, chunk_tokens in product(LENGTHS, CHUNKS):
            first, prompts = run_policy(self.policy(chunk_tokens), document_of(num_tokens))
            second, others = run_policy(self.policy(chunk_tokens), document_of(num_tokens))
            tried = f"{num_tokens} tokens, chunks of {chunk_tokens}"
            assert first == second, f"{tried}: two outcomes of one document"
            assert sorted(prompts, key=str) == sorted(others, key=str), f"{tried}: other prompts at the second time"
            paths = [prompt.path for prompt in prompts]
            assert len(set(paths)) == len(paths) > 0, f"{tried}: no turn, or a path twice: {paths}"

    def test_policy_never_asks_for_more_than_it_said_it_would(self) -> None:
        """`largest_turns` and `cost` bound what comes."""
        for num_tokens, chunk_tokens in product(LENGTHS, CHUNKS):
            policy, tried = self.policy(chunk_tokens), f"{num_tokens} tokens, chunks of {chunk_tokens}"
            _, prompts = run_policy(policy, document_of(num_tokens))
            largest = {kind: sum(parts.values()) for kind, parts in policy.largest_turns(PROMPTS).items()}
            for prompt in prompts:
                size = len(prompt.token_ids) + prompt.max_tokens - len(ASKED_TOKENS.token_ids)
                most = largest[prompt.kind]
                assert size <= most, f"{tried}: turn {prompt.path} has {size} tokens, largest_turns() says {most}"
                assert prompt.max_tokens > 0, f"{tried}: turn {prompt.path} has no room for a completion"
            cost = policy.cost(PROMPTS, num_tokens=num_tokens, breaks=())
            assert cost.num_turns >= len(prompts), f"{tried}: {len(prompts)} turns, cost() says {cost.num_turns}"
            budget = sum(prompt.max_tokens for prompt in prompts)
            assert cost.num_completion_tokens >= budget, (
                f"{tried}: completions of {budget} tokens, cost() says {cost.num_completion_tokens}"
            )

    def test_policy_answers_a_document_without_tokens(self) -> None:
        """There is a row for every reading."""
        outcome, _ = run_policy(self.policy(max(CHUNKS)), document_of(0))
        assert outcome.response.startswith("text "), f"its response is not a completion: {outcome.response!r}"

    def test_policy_answers_from_the_memory_that_the_tables_show_last(self) -> None:
        """Tables and evidence know of a memory what `Prompt.kind`, `writes` and `memory_after` say."""
        for num_tokens, chunk_tokens in product(LENGTHS, CHUNKS):
            policy, model = self.policy(chunk_tokens), FakeModel()
            outcome = asyncio.run(
                policy.read(document_of(num_tokens), ASKED_TOKENS, prompts=PROMPTS, turns=model.complete)
            )
            memory = PROMPTS.first_memory.text
            for prompt in model.prompts:
                row = turn_row(ADDRESS, prompt, model.completions[prompt.path], run_id="run")
                memory = turn_memory(row, memory, keep_word=PROMPTS.keep_word, opens_thought=False).memory
            assert outcome.memory.text == memory, "give Prompt.memory_after, or kind DIRECT if there is no memory"

    def test_policy_whose_model_fails_lets_the_error_through(self) -> None:
        """What a failed turn means is not the policy's to decide."""

        async def fail(prompt: Prompt) -> Completion:
            raise TimeoutError(prompt.path)

        try:
            asyncio.run(self.policy(5).read(document_of(9), ASKED_TOKENS, prompts=PROMPTS, turns=fail))
        except TimeoutError:
            return
        except ExceptionGroup as group:  # of turns side by side
            if group.subgroup(TimeoutError) is not None:
                return
        raise AssertionError("the policy swallowed the error of its model")

    def test_policy_is_a_frozen_value_that_pickles(self) -> None:
        """It goes to actors, and is the same there."""
        policy = self.policy(5)
        assert pickle.loads(pickle.dumps(policy)) == policy
        name = min(setting_names(type(policy)))
        try:
            setattr(policy, name, getattr(policy, name))
        except AttributeError:
            return
        raise AssertionError(f"the setting {name} can be set")

    def test_policy_identity_is_json_that_tells_its_kind_and_differs_with_its_settings(self) -> None:
        """It is hashed: two policies that read differently have two identities."""
        identity = self.policy(5).identity()
        assert identity["kind"]
        assert json.loads(json.dumps(identity)) == identity == self.policy(5).identity()
        assert identity != self.policy(6).identity()


GUIDES = (
    choice_guide("1", "2", "3"),
    choice_guide("10", "11", "12"),
    choice_guide("yes", "not stated"),
    regex_guide("(none|[1-9](, [1-9]){0,2})", example="none"),
    regex_guide(r"(-?(0|[1-9][0-9]{0,5})(\.[0-9]{1,3})?|not stated)", example="0"),
    json_guide(
        {
            "type": "object",
            "properties": {
                "day": {"type": "string", "format": "date"},
                "names": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1, "maxItems": 3},
                "is_late": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
            },
            "required": ["day", "names", "is_late"],
            "additionalProperties": False,
        }
    ),
)
"""Guides that engines are tried with; the first one is a menu of single tokens in every tokeniser."""
GUIDED_TOKENS = 96
"""Budget of a guided turn, tokens: more than any of these texts takes."""


class EngineContract(ABC):
    """What every engine promises. A subclass, whose name begins with `Test`, makes its configuration."""

    takes_messages: ClassVar[bool] = False
    """Whether prompts become messages, whose tokens are those that a server makes of them, its template's included."""

    @abstractmethod
    def config(self) -> Engine:
        """The engine with its settings, not opened."""

    @abstractmethod
    def context(self) -> EngineContext:
        """A model to try it with."""

    def test_engine_before_it_is_opened_is_a_value_that_pickles_and_names_its_secrets(self) -> None:
        """It goes to actors; a record leaves its secrets out."""
        config = self.config()
        assert pickle.loads(pickle.dumps(config)) == config
        assert config.kind
        assert config.secrets <= setting_names(type(config))

    def test_engine_identity_is_json_without_secrets(self) -> None:
        """It is hashed and recorded."""
        identity = self.config().identity()
        assert json.loads(json.dumps(identity)) == identity
        assert not self.config().secrets & identity.keys()

    def test_engine_takes_no_less_than_nothing(self) -> None:
        """Ray sets aside what it says."""
        assert self.config().num_gpus >= 0

    def test_engine_answers_many_prompts_at_once_as_one_at_a_time(self) -> None:
        """A greedy completion does not depend on what else is in flight, and keeps to its budget."""
        prompts = self._prompts()
        together, alone = asyncio.run(self._complete(prompts))
        assert [each.token_ids for each in together] == [each.token_ids for each in alone]
        assert all(0 < len(each.token_ids) <= prompt.max_tokens for each, prompt in zip(together, prompts, strict=True))
        counted, sent = ([each.num_prompt_tokens for each in together], [len(prompt.token_ids) for prompt in prompts])
        assert all(map(operator.gt, counted, sent)) if self.takes_messages else counted == sent

    def test_engine_refuses_a_prompt_that_exceeds_the_window(self) -> None:
        """It is never cut."""
        context = self.context()
        long = prompt_of([context.load_tokenizer().encode("a")[0]] * 8, max_tokens=context.window_tokens)
        try:
            asyncio.run(self._complete([long]))
        except PromptTooLongError:
            return
        raise AssertionError("a prompt above the window was taken")

    def _prompts(self, max_tokens: int = 8) -> list[Prompt]:
        tokenizer = self.context().load_tokenizer()
        texts = [f"The number of amber-falcon is {number}." for number in range(4)]
        return [prompt_of(tokenizer.encode(text), max_tokens=max_tokens) for text in texts]

    async def _complete(self, prompts: Sequence[Prompt]) -> tuple[list[Completion], list[Completion]]:
        engine = self.config().open(self.context())
        await engine.start()
        try:
            await engine.require_guides({prompt.guide.kind for prompt in prompts if prompt.guide})
            together = await asyncio.gather(*(engine.complete(prompt, seed=1) for prompt in prompts))
            return list(together), [await engine.complete(prompt, seed=1) for prompt in prompts]
        finally:
            await engine.stop()


class GuidedEngineContract(EngineContract):
    """What an engine promises too that obeys guides: without it there are no follow-up questions and no typed
    answers.
    """

    def test_engine_obeys_guides_and_ends_where_they_are_met(self) -> None:
        """A guided completion is one of the texts that are allowed, whatever the prompt says."""
        prompts = [replace(prompt, guide=guide) for guide in GUIDES for prompt in self._prompts(GUIDED_TOKENS)]
        together, _ = asyncio.run(self._complete(prompts))
        for prompt, completion in zip(prompts, together, strict=True):
            assert prompt.guide is not None
            assert completion.finish_reason is FinishReason.STOP, completion.text
            assert prompt.guide.allows(completion.text), completion.text

    def test_engine_gives_log_probabilities_over_a_menu_of_single_tokens(self) -> None:
        """They are a distribution, and what was written is its mode."""
        prompts = [replace(prompt, guide=GUIDES[0]) for prompt in self._prompts(GUIDED_TOKENS)]
        for completion in asyncio.run(self._complete(prompts))[0]:
            menu = completion.menu_logprobs
            assert menu is not None
            assert len(menu) == len(GUIDES[0].choices)
            assert abs(sum(map(math.exp, menu)) - 1) < 1e-3
            assert menu[GUIDES[0].choices.index(completion.text)] == max(menu)


def run_policy(policy: Policy, document: Document) -> tuple[Outcome, list[Prompt]]:
    """The outcome of a reading by the fake model, and the prompts that it saw."""
    model = FakeModel()
    outcome = asyncio.run(policy.read(document, ASKED_TOKENS, prompts=PROMPTS, turns=model.complete))
    return outcome, model.prompts


def document_of(num_tokens: int) -> Document:
    """A document whose tokens are one character each."""
    token_ids = list(range(100, 100 + num_tokens))
    return Document(token_ids=token_ids, token_chars=range(num_tokens), num_chars=num_tokens)


def prompt_of(token_ids: Sequence[int], *, max_tokens: int) -> Prompt:
    """An answer turn."""
    return Prompt(path="answer", kind="answer", token_ids=list(token_ids), max_tokens=max_tokens)

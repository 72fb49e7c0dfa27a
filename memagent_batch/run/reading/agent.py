"""What a process needs of an agent to read with it: everything but the engine; and the questions of its run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from memagent_batch.config.agent import AgentConfig
from memagent_batch.data.documents.questions import value_types
from memagent_batch.errors import QuestionTooLongError
from memagent_batch.loop.addresses import ReadingAddress
from memagent_batch.loop.follow_ups.answer_types import ValueType
from memagent_batch.loop.prompts import PromptTokens
from memagent_batch.plugins import make_policy
from memagent_batch.run.wiring import ReaderFiles, load_files, make_prompt_tokens, model_name
from memagent_batch.types import Cost, Document, Policy, Question, QuestionTokens

KEPT_QUESTIONS = 4096
"""Questions whose tokens are kept: all of a list that every document is asked, and a bounded part of a longer one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedAgent:
    """Policy, prompts and tokeniser in this process."""

    policy: Policy
    prompts: PromptTokens
    encode: Callable[[str], Sequence[int]]
    """Token ids of a question; keeps those that it has tokenised."""
    question_tokens: int
    model: str

    def cost(self, document: Document) -> Cost:
        """What a reading of a document costs."""
        return self.policy.cost(self.prompts, num_tokens=document.num_tokens, breaks=document.breaks)

    def tokenise(self, question: Question) -> QuestionTokens:
        """The question as its policy sees it.

        Raises:
            QuestionTooLongError: names the question, its length and the setting.
        """
        token_ids = self.encode(question.text)
        if len(token_ids) > self.question_tokens:
            which = f"question {question.question_id!r}" if question.question_id else "the question"
            raise QuestionTooLongError(
                f"{which} has {len(token_ids)} tokens, policy.question_tokens is {self.question_tokens}; shorten it or "
                "raise the setting"
            )
        return QuestionTokens(token_ids=token_ids)


def make_agent(agent: AgentConfig, files: ReaderFiles | None = None) -> LoadedAgent:
    """The agent that a configuration describes."""
    files = files or load_files(agent)
    return LoadedAgent(
        policy=make_policy(agent),
        prompts=make_prompt_tokens(agent, files),
        encode=lru_cache(maxsize=KEPT_QUESTIONS)(files.tokenizer.encode),
        question_tokens=agent.policy.question_tokens,
        model=model_name(agent),
    )


class Questions:
    """Questions, and the addresses of their readings."""

    def __init__(self, asked: pa.Table, *, fingerprint: str) -> None:
        """Takes the question list (`PlannedQuestions.hashed`) and the reader, which is part of every address."""
        self._asked = asked
        self._reader_fingerprint = fingerprint
        self.types: list[ValueType | None] = value_types(asked)
        """The type that the question in each row asks for."""

    def __getitem__(self, row: int) -> Question:
        return Question(question_id=self._asked["question_id"][row].as_py(), text=self._asked["question"][row].as_py())

    def address(self, row: int, *, document_hash: str, sample: int) -> ReadingAddress:
        """Where the log keeps the reading of this question."""
        return ReadingAddress(
            document_hash=document_hash,
            question_hash=self._asked["question_hash"][row].as_py(),
            sample=sample,
            fingerprint=self._reader_fingerprint,
        )

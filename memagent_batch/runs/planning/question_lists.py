"""The ways to ask a question list of the same documents, and what each would cost: what `memagent plan` advises from.

Estimates, not bounds: they take a memory as half full, and of the chunks one in twenty as news for a question.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.policy import PolicyConfig
from memagent_batch.domain.document import token_windows
from memagent_batch.domain.prompts import PromptTokens, Slot
from memagent_batch.errors import SettingsError
from memagent_batch.plugins import make_policy
from memagent_batch.wiring import make_prompt_set, make_prompt_tokens, require_window

NEWS_SHARE = 0.05
"""Share of the chunks that say something about a question, where few do; such a chunk costs a note or a memory."""
KEEP_TOKENS = 2
"""Completion of a turn that says that there is nothing new: a word and its end."""
ROUNDS = 2
"""Rounds that a reading of `parallel` takes, as published for PI-Mem."""
COMPLETION_WEIGHT = 6
"""Prompt tokens that an engine computes in the time of one completion token; derived for 7 billion parameters on an
H100, where many requests run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to ask a list."""

    policy: str
    """Kind of the policy."""
    prompt_set: str | None = None
    """Prompt set, where it is not the policy's own."""
    keeps_one_memory: bool = False
    """Whether one memory serves the list."""
    why: str
    """Why it may be the cheapest, in the words of the advice."""


WAYS = (
    Way(policy="overwrite", why="each question has its own pass, and nothing is shared"),
    Way(
        policy="overwrite",
        prompt_set="section-first",
        why="each question has its own memory, and the prefix cache serves a section to all of them",
    ),
    Way(
        policy="gated",
        why="each question has its own memory, the prefix cache serves a section to all of them, and a section without "
        "news costs a word",
    ),
    Way(
        policy="parallel",
        why="each question has its own memory, and the prefix cache serves a section to all of them and to every round",
    ),
    Way(
        policy="shared",
        keeps_one_memory=True,
        why="one pass serves the whole list; its memory must hold what all questions need",
    ),
    Way(
        policy="shared-parallel",
        keeps_one_memory=True,
        why="one set of rounds serves the whole list, and a section without news costs a word; its memory must hold "
        "what all questions need",
    ),
)
"""The built-in ways."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedDocument:
    """A document and what is asked of it."""

    num_tokens: int
    """Its length."""
    questions: Sequence[int]
    """Length of each question of a reading to do, tokens; one for each sample."""
    num_lists: int
    """Passes that serve all of them where lists are shared: one for each list and sample."""


class WayCost(TypedDict):
    """What a way costs over all documents."""

    policy: str
    prompt_set: str
    turns: int
    prompt_tokens: int
    computed_prompt_tokens: int
    completion_tokens: int


class QuestionLists(TypedDict):
    """The ways and what they cost, and which one to take."""

    ways: list[WayCost]
    advice: str


def compare_ways(documents: Sequence[AskedDocument], agent: AgentConfig) -> QuestionLists | None:
    """What each way would cost; None where no document is asked more than one question.

    Args:
        documents: The documents to read.
        agent: What reads; its budgets and model are those of every way.
    """
    if all(len(document.questions) < 2 for document in documents):
        return None
    costs = {way: cost for way in WAYS if (cost := _cost(way, documents, agent)) is not None}
    return {"ways": list(costs.values()), "advice": _advice({way: _weight(cost) for way, cost in costs.items()})}


def _advice(weights: Mapping[Way, float]) -> str:
    """Which way to take for this list, and why."""
    ranked = sorted(weights, key=lambda way: weights[way])
    if not ranked:
        return "no built-in way fits the window with this list"
    first, dearest = ranked[0], ranked[-1]
    advice = (
        f"{_name(first)} is the cheapest, at {weights[first] / weights[dearest]:.0%} of {_name(dearest)}: {first.why}"
    )
    own = next((way for way in ranked if not way.keeps_one_memory), first)
    if own is not first:
        advice += f". With a memory for each question: {_name(own)}, at {weights[own] / weights[dearest]:.0%}"
    return advice


def _cost(way: Way, documents: Sequence[AskedDocument], agent: AgentConfig) -> WayCost | None:
    """The cost of a way; None where its prompts don't fit the window, or a list not its place in them."""
    policy = agent.policy.model_copy(update={"kind": way.policy, "knobs": {}})
    agent = agent.model_copy(update={"policy": policy, "prompt_set": way.prompt_set})
    reader = _Reader(policy=policy, shares=make_policy(agent).reads_lists, prompts=make_prompt_tokens(agent))
    if not all(reader.takes(document) for document in documents):
        return None
    try:
        require_window(agent, prompts=reader.prompts)
    except SettingsError:
        return None
    parts = [part for document in documents for part in (reader.rounds(document), reader.answers(document))]
    return {
        "policy": way.policy,
        "prompt_set": make_prompt_set(agent).name,
        "turns": round(sum(part.turns for part in parts)),
        "prompt_tokens": round(sum(part.prompt_tokens for part in parts)),
        "computed_prompt_tokens": round(sum(part.prompt_tokens - part.reused_tokens for part in parts)),
        "completion_tokens": round(sum(part.completion_tokens for part in parts)),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What some turns of a document cost."""

    turns: float
    prompt_tokens: float
    reused_tokens: float = 0.0
    """Prompt tokens that the prefix cache holds."""
    completion_tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """How a way reads."""

    policy: PolicyConfig
    """The budgets."""
    shares: bool
    """Whether one pass serves a list."""
    prompts: PromptTokens
    """The texts."""

    def takes(self, document: AskedDocument) -> bool:
        """Whether the lists of a document fit their place in its prompts."""
        return not self.shares or self._asked_tokens(document) <= self.policy.question_tokens

    def rounds(self, document: AskedDocument) -> _Part:
        """The turns that show chunks and notes."""
        prompts, memory = self.prompts, self._memory_tokens
        windows = token_windows(
            document.num_tokens, chunk_tokens=self.policy.chunk_tokens, overlap_tokens=self.policy.overlap_tokens
        )
        merges = bool(prompts.merge.pieces and len(windows))
        passes = self._num_passes(document) * (min(ROUNDS, self.policy.rounds) if merges else 1)
        asked = self._asked_tokens(document) + memory
        news = self._news_share(document)
        chunks = windows.num_shown_tokens + len(windows) * (prompts.update.num_fixed_tokens + asked)
        notes = prompts.merge.num_fixed_tokens + asked + news * len(windows) * memory if merges else 0
        head = tokens_before_question(prompts)
        again = 0 if head is None else windows.num_shown_tokens + len(windows) * head
        written = len(windows) * (news * memory + (1 - news) * KEEP_TOKENS) + merges * memory
        return _Part(
            turns=passes * (len(windows) + merges),
            prompt_tokens=passes * (chunks + notes),
            reused_tokens=max(0, passes - 1) * again,
            completion_tokens=passes * written,
        )

    def answers(self, document: AskedDocument) -> _Part:
        """The answer turns."""
        num_readings = len(document.questions)
        fixed = self.prompts.answer.num_fixed_tokens + self._memory_tokens
        return _Part(
            turns=num_readings,
            prompt_tokens=sum(document.questions) + num_readings * fixed,
            completion_tokens=num_readings * self.policy.answer_tokens / 2,
        )

    @property
    def _memory_tokens(self) -> float:
        return self.policy.memory_tokens / 2

    def _num_passes(self, document: AskedDocument) -> int:
        return document.num_lists if self.shares else len(document.questions)

    def _asked_tokens(self, document: AskedDocument) -> float:
        """Length of what a pass is asked: a question, or a list."""
        return sum(document.questions) / max(1, self._num_passes(document))

    def _news_share(self, document: AskedDocument) -> float:
        """Share of the chunks at which a pass writes more than a word."""
        if not self.prompts.keep_word:
            return 1.0
        num_asked = len(document.questions) / max(1, self._num_passes(document))
        return 1.0 - math.pow(1.0 - NEWS_SHARE, num_asked)


def tokens_before_question(prompts: PromptTokens) -> int | None:
    """Fixed tokens before question and memory, where the chunk stands before these too; None where it doesn't."""
    pieces = list(prompts.update.pieces)
    shared = pieces[: min(pieces.index(Slot.QUESTION), pieces.index(Slot.MEMORY))]
    return sum(len(piece) for piece in shared if piece is not Slot.CHUNK) if Slot.CHUNK in shared else None


def _weight(cost: WayCost) -> float:
    """What an engine has to do, in prompt tokens that it computes."""
    return cost["computed_prompt_tokens"] + COMPLETION_WEIGHT * cost["completion_tokens"]


def _name(way: Way) -> str:
    return f"policy {way.policy}" + (f" with prompt set {way.prompt_set}" if way.prompt_set else "")

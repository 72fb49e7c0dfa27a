"""The memory loop over prompts as text, as datatrove runs it in its own environment. Standard library only."""

import argparse
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

Ask = Callable[[str, int], Awaitable[str]]
"""One turn: a user message and the most tokens of its completion in, the text of the completion out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDocument:
    """One reading."""

    question_id: str
    """Its question; no other reading has it."""
    question: str
    chunks: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A corpus and how to ask, cut and rendered as text."""

    update: str
    """Text of an `update` turn, with slots for `str.format`."""
    answer: str
    """Text of an `answer` turn, likewise."""
    first_memory: str
    memory_tokens: int
    answer_tokens: int
    documents: list[TextDocument]
    """All readings, in input order."""

    def update_message(self, document: TextDocument, index: int, memory: str) -> str:
        """The user message of the turn that reads chunk `index`."""
        return self.update.format(question=document.question, memory=memory, chunk=document.chunks[index])

    def answer_message(self, document: TextDocument, memory: str) -> str:
        """The user message of the last turn."""
        return self.answer.format(question=document.question, memory=memory)


@dataclass(slots=True, kw_only=True)
class Clock:
    """From the first request to the last response. Mutable: the running extent of one run."""

    began: float = field(default=float("inf"))
    """When the first request was sent, Unix time."""
    ended: float = field(default=0.0)
    """When the last response was there, Unix time."""
    num_turns: int = field(default=0)

    async def time(self, ask: Ask, message: str, max_tokens: int) -> str:
        """One turn, counted."""
        self.began = min(self.began, time.time())
        text = await ask(message, max_tokens)
        self.ended = time.time()
        self.num_turns += 1
        return text

    def result(self, responses: dict[str, str]) -> "PeerResult":
        """The run's result, when all is read."""
        return PeerResult(seconds=self.ended - self.began, num_turns=self.num_turns, responses=responses)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerResult:
    """What a run brings back."""

    seconds: float
    """From the first request to the last result."""
    num_turns: int
    responses: dict[str, str]
    """Text of the answer turn by question id."""


async def read(document: TextDocument, work: Work, *, ask: Ask) -> str:
    """Reads a document chunk by chunk and returns the response of the answer turn, as the policy `overwrite` does."""
    memory = work.first_memory
    for index in range(len(document.chunks)):
        written = await ask(work.update_message(document, index, memory), work.memory_tokens)
        memory = written if written.strip() else memory
    return await ask(work.answer_message(document, memory), work.answer_tokens)


def run_as_command(description: str | None, run: Callable[[Work, argparse.Namespace], PeerResult]) -> None:
    """The command of a peer: reads the work, runs it, and writes the result."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--work", type=Path, required=True, help="the work, as JSON")
    parser.add_argument("--url", required=True, help="address of the server, up to the port")
    parser.add_argument("--model", required=True, help="name that the server gives the model")
    parser.add_argument("--concurrency", type=int, help="most requests at once; the peer's own default without it")
    parser.add_argument("--output", type=Path, required=True, help="where the result goes")
    options = parser.parse_args()
    work = json.loads(options.work.read_text(encoding="utf-8"))
    documents = [TextDocument(**document) for document in work["documents"]]
    save(run(Work(**work | {"documents": documents}), options), options.output)


def save(value: Work | PeerResult, path: Path) -> None:
    """Writes it as JSON."""
    path.write_text(json.dumps(asdict(value)), encoding="utf-8")


def load_result(path: Path) -> PeerResult:
    """The result of a JSON file."""
    return PeerResult(**json.loads(path.read_text(encoding="utf-8")))

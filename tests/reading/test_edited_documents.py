"""Documents that are edited, moved about, read under other ids and cut off: the log costs nothing in answers."""

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memagent_batch.config.job import LogConfig
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.index import reading_key
from memagent_batch.data.store.turn_log.turns import DocumentTurns, read_turns
from memagent_batch.data.store.turn_log.writer import TurnLogWriter
from memagent_batch.errors import EngineUnavailableError
from memagent_batch.loop.addresses import ReadingAddress, text_hash, token_hash
from memagent_batch.loop.policies.overwrite import GatedPolicy, OverwritePolicy
from memagent_batch.loop.policies.parallel import ParallelPolicy
from memagent_batch.run.reading.agent import LoadedAgent
from memagent_batch.run.reading.read import Reading, ReadingTurns, ReplayOnly, read
from memagent_batch.types import Completion, Document, FinishReason, Policy, Prompt, Question, Status
from tests.policies.token_documents import PROMPTS

WHO = Question(question_id="who", text="Who?")
PARAGRAPH_TOKENS = 5
BUDGETS: dict[str, Any] = {"chunk_tokens": PARAGRAPH_TOKENS, "memory_tokens": 6, "answer_tokens": 6}
POLICIES: list[Policy] = [
    OverwritePolicy(**BUDGETS),
    GatedPolicy(**BUDGETS),
    ParallelPolicy(**BUDGETS, rounds=2),
]
Paragraphs = list[int]
Edit = tuple[str, int, int]


@dataclass(frozen=True)
class Night:
    """One document is edited and read; the engine fails after some turns, if it does."""

    document_id: str
    edits: list[Edit]
    takes_other: bool
    """Whether it first becomes the text of the other document."""
    num_turns: int | None


EDITS = st.tuples(st.sampled_from(["put in", "take out", "move"]), st.integers(0, 9), st.integers(0, 3))
NIGHTS = st.builds(
    Night,
    document_id=st.sampled_from("ab"),
    edits=st.lists(EDITS, max_size=3),
    takes_other=st.sampled_from([False, False, True]),
    num_turns=st.none() | st.integers(0, 5),
)


def edited(paragraphs: Paragraphs, edits: list[Edit]) -> Paragraphs:
    paragraphs = [*paragraphs]
    for kind, place, paragraph in edits:
        place %= len(paragraphs) + 1
        taken = paragraphs.pop(place) if kind != "put in" and place < len(paragraphs) else paragraph
        if kind != "take out":
            paragraphs.insert(paragraph if kind == "move" else place, taken)
    return paragraphs


class PromptDependent(ReplayOnly):
    """Writes a hash of the prompt, and of the seed if it is sampled, or that nothing is new; fails after some turns."""

    def __init__(self, num_turns: int | None = None, *, is_sampled: bool = False) -> None:
        self.asked: list[tuple[str, str]] = []
        self._num_turns, self._is_sampled = num_turns, is_sampled

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        if len(self.asked) == self._num_turns:
            raise EngineUnavailableError("away")
        prompt_hash = token_hash(prompt.token_ids)
        self.asked.append((prompt.kind, prompt_hash))
        await asyncio.sleep(0)
        text = text_hash(f"{prompt_hash} {seed if self._is_sampled else ''}")[: min(6, prompt.max_tokens)]
        text = "keep" if prompt.writes is not None and text[0] in "0123" else text
        return Completion(token_ids=tuple(text.encode()), text=text, finish_reason=FinishReason.STOP)


def document_of(paragraphs: Paragraphs) -> Document:
    token_ids = [300 + paragraph for paragraph in paragraphs for _ in range(PARAGRAPH_TOKENS)]
    return Document(token_ids=token_ids, token_chars=range(len(token_ids)), num_chars=len(token_ids))


def address_of(paragraphs: Paragraphs) -> ReadingAddress:
    hashes = {"document_hash": text_hash(str(paragraphs)), "question_hash": text_hash(WHO.text)}
    return ReadingAddress(**hashes, sample=0, fingerprint="f")


class Log:
    """A turn log in a folder, and the readings of one question over it."""

    def __init__(self, folder: Path, policy: Policy, *, is_sampled: bool) -> None:
        self.output = Location(uri=str(folder))
        prompts = replace(PROMPTS, keep_word="keep")
        self.agent = LoadedAgent(policy=policy, prompts=prompts, encode=str.encode, question_tokens=10, model="m")
        self.is_sampled = is_sampled

    @property
    def files(self) -> list[str]:
        return (self.output / "log/turns").files()

    def rows(self) -> list[dict[str, Any]]:
        return pa.concat_tables(map(pq.read_table, self.files)).to_pylist() if self.files else []

    async def read(self, paragraphs: Paragraphs, engine: ReplayOnly, **settings: Any) -> tuple[Reading, ReadingTurns]:
        own: dict[str, Any] = {"address": address_of(paragraphs), "seed": 1, "is_sampled": self.is_sampled}
        turns = ReadingTurns(engine=engine, **own, **settings)
        return await read(document_of(paragraphs), WHO, agent=self.agent, turns=turns), turns

    async def night(self, run_id: str, document_id: str, paragraphs: Paragraphs, engine: ReplayOnly) -> Reading:
        log = TurnLogWriter(self.output, run_id=run_id, writer_id="w", settings=LogConfig(flush_seconds=0.001))
        address = address_of(paragraphs)
        names = {"document_hash": address.document_hash, "document_id": document_id}
        logged = DocumentTurns(self.output, self.files, fingerprints=["f"], **names).of_reading(
            address.question_hash, 0
        )
        reading, _ = await self.read(paragraphs, engine, from_log=logged, log=log, document_id=document_id)
        await log.flush()
        return reading

    async def replay(self, paragraphs: Paragraphs, outcome: Any) -> tuple[Reading, list[str]]:
        """Reads from the rows of this text alone that the outcome names; with the paths of these rows."""
        address = address_of(paragraphs)
        hashes = [address.document_hash]
        readings = read_turns(self.output, self.files, fingerprints=["f"], document_hashes=hashes)["f"]
        logged = readings[reading_key(address)].of_outcome(outcome)
        reading, _ = await self.read(paragraphs, ReplayOnly(), from_log={"f": logged})
        return reading, sorted(logged.by_path())


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
@pytest.mark.parametrize("is_sampled", [False, True])
@given(nights=st.lists(NIGHTS, min_size=2, max_size=6))
@settings(max_examples=15, deadline=None)
def test_any_edit_script_asks_only_prompts_that_were_never_asked_and_answers_as_a_fresh_log(
    policy: Policy, nights: list[Night], tmp_path_factory: pytest.TempPathFactory, *, is_sampled: bool
) -> None:
    log = Log(tmp_path_factory.mktemp("log"), policy, is_sampled=is_sampled)
    asyncio.run(_read_nights(log, nights))


async def _read_nights(log: Log, nights: list[Night]) -> None:
    texts: dict[str, Paragraphs] = {"a": [0, 1, 2], "b": [2, 3]}
    for number, night in enumerate(nights):
        other = texts["b" if night.document_id == "a" else "a"]
        text = edited(other if night.takes_other else texts[night.document_id], night.edits)
        texts[night.document_id] = text
        known = {
            (row["kind"], row["prompt_hash"])
            for row in log.rows()
            if row["document_hash"] == text_hash(str(text))
            or (row["document_id"] == night.document_id and not log.is_sampled)
        }
        engine = PromptDependent(night.num_turns, is_sampled=log.is_sampled)
        reading = await log.night(f"run {number}", night.document_id, text, engine)
        if not log.is_sampled:
            assert known.isdisjoint(engine.asked)
        if reading.status is not Status.OK:
            assert reading.status is Status.NOT_READ
            continue
        fresh, turns = await log.read(text, PromptDependent(is_sampled=log.is_sampled))
        assert (reading.response, reading.memory) == (fresh.response, fresh.memory)
        assert list(reading.turn_hashes) == turns.turn_hashes
        outcome = {"turn_hashes": reading.turn_hashes, "run_id": f"run {number}"}
        replayed, paths = await log.replay(text, outcome)
        assert (replayed.response, replayed.counts.num_turns) == (fresh.response, fresh.counts.num_turns)
        assert len(paths) == fresh.counts.num_turns

"""A policy of the example package whose memory has several parts: what tables and evidence say of it."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.config.agent import AgentConfig, PolicyConfig
from memagent_batch.domain.addresses import ReadingAddress, text_hash
from memagent_batch.domain.readings import Policy
from memagent_batch.domain.turns import Completion, FinishReason, Prompt
from memagent_batch.errors import SettingsError
from memagent_batch.plugins import make_policy
from memagent_batch.reading.follow_ups import Tracer
from memagent_batch.reading.read import Reading, read
from memagent_batch.reading.suspects import Suspects
from memagent_batch.reading.turns import Journal, ReadingTurns, ReplayOnly
from memagent_batch.store.turn_log.turns import read_turns
from memagent_batch.wiring import identify_reader
from tests.policies.token_documents import PROMPTS, document_of
from tests.reading.test_read import AGENT, WHO
from tests.runs.test_tables import FIRST_MEMORY, RecordedRun

SOURCE = Path(__file__).parent / "example" / "src" / "memagent_example"
DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "plugins.md"
PROMPTS_OF_RUN = replace(PROMPTS, first_memory=replace(PROMPTS.first_memory, text=FIRST_MEMORY))
WRITTEN = ["shelf 8603172", "signed by Ann", "", "rent 400"]
"""What the model writes at each chunk."""
MEMORIES = [
    "shelf 8603172",
    "shelf 8603172\nsigned by Ann",
    "shelf 8603172\nsigned by Ann",
    "signed by Ann\nrent 400",
    "signed by Ann\nrent 400",
]
"""The memory of two heads after each turn, the answer included."""


@pytest.fixture
def heads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Policy]:
    monkeypatch.syspath_prepend(str(SOURCE.parent))
    settings: dict[str, Any] = {"chunk_tokens": 5, "memory_tokens": 40, "answer_tokens": 8, "settings": {"heads": 2}}
    yield make_policy(AgentConfig(model="tiny", policy=PolicyConfig(kind="memagent_example.heads:Heads", **settings)))
    for name in [name for name in sys.modules if name.startswith("memagent_example")]:
        del sys.modules[name]


class Writer(ReplayOnly):
    """Writes a text for each chunk, and what it sees for an answer."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        text = self._texts[prompt.span.index] if prompt.span else "\\boxed{42}"
        return Completion(token_ids=tuple(text.encode()), text=text, finish_reason=FinishReason.STOP)


def address_of(name: str) -> ReadingAddress:
    return ReadingAddress(document_hash=text_hash(name), question_hash=text_hash("why?"), sample=0, fingerprint="f")


async def read_in(run: RecordedRun, name: str, policy: Policy, **settings: Any) -> Reading:
    """A reading of 20 tokens whose turns and end are logged."""
    journal = Journal(log=run.writer, suspects=Suspects())
    turns = ReadingTurns(address=address_of(name), seed=0, journal=journal, **settings)
    agent = replace(AGENT, policy=policy, prompts=PROMPTS_OF_RUN)
    reading = await read(document_of(20), WHO, agent=agent, turns=turns)
    await run.writer.record_outcome(turns.address, reading.to_row())
    return reading


def rows_of(run: RecordedRun, name: str) -> list[tuple[str, bool]]:
    rows: list[Mapping[str, Any]] = run.tables().memories.to_pylist()
    return [(row["memory"], row["changed"]) for row in rows if row["document_id"] == name]


async def test_memories_show_all_heads_after_each_turn_and_end_with_the_memory_of_the_answer(
    heads: Policy, tmp_path: Path
) -> None:
    run = RecordedRun(tmp_path, documents=["a"])
    reading = await read_in(run, "a", heads, engine=Writer(WRITTEN))
    assert rows_of(run, "a") == list(zip(MEMORIES, [True, True, False, True, False], strict=True))
    assert reading.memory == MEMORIES[-1]


async def test_memories_are_the_same_where_turns_come_from_the_log_or_from_an_earlier_version(
    heads: Policy, tmp_path: Path
) -> None:
    run = RecordedRun(tmp_path, documents=["a", "b"])
    await read_in(run, "a", heads, engine=Writer(WRITTEN))
    await run.writer.flush()
    files = (run.output / "log" / "turns").files()
    logged = read_turns(run.output, files, fingerprint="f", document_hashes=[text_hash("a")])
    replayed = await read_in(run, "a", heads, engine=ReplayOnly(), from_log=logged)
    changed = await read_in(run, "b", heads, engine=ReplayOnly(), from_log=logged, last_hashes=[text_hash("a")])
    assert (replayed.error, changed.error) == (None, None)
    assert [memory for memory, _ in rows_of(run, "a")] == [memory for memory, _ in rows_of(run, "b")] == MEMORIES


async def test_evidence_leads_to_the_chunk_that_brought_each_head(heads: Policy) -> None:
    tracer = Tracer(PROMPTS)
    turns = ReadingTurns(engine=Writer(WRITTEN[:2]), address=address_of("a"), seed=0, observe=tracer)
    await read(document_of(10), WHO, agent=replace(AGENT, policy=heads, prompts=PROMPTS), turns=turns)
    sources = tracer.trace.sources(question="What is the shelf?", answer="8603172")
    assert [source.chunk_index for source in sources] == [0, 1]


def test_edited_code_of_a_policy_makes_another_reader(text_model: str, heads: Policy, tmp_path: Path) -> None:
    def fingerprint() -> str:
        small = {"chunk_tokens": 100, "question_tokens": 50, "memory_tokens": 40, "answer_tokens": 40}
        policy = PolicyConfig(kind="edited_heads:Heads", **small)
        agent = AgentConfig(model=text_model, engine="simulated", window_tokens=1000, policy=policy)
        return identify_reader(agent).fingerprint

    source = (SOURCE / "heads.py").read_text()
    for number, text in enumerate([source, source, source.replace("heads[1:]", "heads[:-1]")]):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "edited_heads.py").write_text(text)
        (folder / "heads.json").write_text((SOURCE / "heads.json").read_text())
    found = []
    for number in range(3):
        sys.path.insert(0, str(tmp_path / str(number)))
        found.append(fingerprint())
        sys.path.pop(0)
        del sys.modules["edited_heads"]
    assert found[0] == found[1] != found[2]


def test_policy_without_a_setting_of_how_documents_are_cut_refuses_it(heads: Policy) -> None:
    policy = PolicyConfig.model_validate({"kind": "memagent_example.heads:Heads", "break_at": "lines"})
    with pytest.raises(SettingsError, match=r"policy\.break_at: the policy 'memagent_example\.heads:Heads' does not"):
        make_policy(AgentConfig(model="tiny", policy=policy))


def test_policy_in_the_docs_is_that_of_the_example() -> None:
    blocks = DOCS.read_text().split("```python\n")[1:]
    shown = next(block.split("```")[0] for block in blocks if "class Heads" in block)
    assert shown in (SOURCE / "heads.py").read_text()
    assert json.loads((SOURCE / "heads.json").read_text())["name"] == "heads"

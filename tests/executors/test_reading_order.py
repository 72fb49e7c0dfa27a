"""`memories` shows the turns in the order of reading, whatever the policy: here one that reads from the end."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.cli.settings import job_of
from memagent_batch.config.job import JobConfig
from memagent_batch.domain.document import Chunk, Document
from memagent_batch.domain.prompts import PromptTokens
from memagent_batch.domain.readings import Outcome, QuestionTokens
from memagent_batch.domain.turns import Completion, FinishReason, Prompt, Turns
from memagent_batch.errors import EngineRequestError
from memagent_batch.executors import actor
from memagent_batch.policies.overwrite import OverwritePolicy
from memagent_batch.reading import agent
from memagent_batch.runs.parts import plan_parts
from memagent_batch.runs.projection import Projection, project
from memagent_batch.store.turn_log.index import scan_log
from memagent_batch.wiring import identify_reader, make_output, make_prompt_set
from tests.engine_context import MadeEngine
from tests.executors.test_reader import planned, read_pending, statuses_in


class BackwardDocument(Document):
    """A document that is cut from its end."""

    def chunks(self, size_tokens: int, *, overlap_tokens: int = 0) -> Sequence[Chunk]:  # type: ignore[override]
        return Document.chunks(self, size_tokens, overlap_tokens=overlap_tokens)[::-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardPolicy(OverwritePolicy):
    """Reads the chunks from the last to the first."""

    async def read(
        self, document: Document, question: QuestionTokens, *, prompts: PromptTokens, turns: Turns
    ) -> Outcome:
        backwards = BackwardDocument(
            token_ids=document.token_ids, token_chars=document.token_chars, num_chars=document.num_chars
        )
        return await OverwritePolicy.read(self, backwards, question, prompts=prompts, turns=turns)


class NotingEngine(MadeEngine):
    """Notes the path of each turn; refuses one of them."""

    def __init__(self, *, refused: str = "") -> None:
        self._refused = refused

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        if prompt.path == self._refused:
            raise EngineRequestError(f"turn {prompt.path}: refused")
        return Completion(token_ids=[7], text=f"\\boxed{{{prompt.path}}}", finish_reason=FinishReason.STOP)


@pytest.fixture
def job(text_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobConfig:
    pq.write_table(
        pa.table({"document_id": ["d"], "text": ["some text to read " * 30]}), tmp_path / "documents.parquet"
    )
    policy = {"chunk_tokens": 30, "question_tokens": 60, "memory_tokens": 40, "answer_tokens": 40}
    monkeypatch.setattr(
        agent,
        "make_policy",
        lambda settings: BackwardPolicy(chunk_tokens=30, memory_tokens=40, answer_tokens=40),
    )
    return job_of(
        documents=str(tmp_path / "documents.parquet"),
        output=str(tmp_path / "run"),
        ask=("Who?",),
        model=text_model,
        engine="simulated",
        window_tokens=1000,
        retry_failed=True,
        policy=policy,
        log={"flush_seconds": 0.05},
    )


def read_with(engine: NotingEngine, job: JobConfig, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(actor, "make_engine", lambda job: engine)
    return statuses_in(read_pending(job))


def memories_of(job: JobConfig) -> list[dict[str, Any]]:
    output, identity = make_output(job), identify_reader(job.agent)
    (part,) = plan_parts(planned(job), scan_log(output, fingerprint=identity.fingerprint))
    projection = Projection(
        output=output,
        run_id="r",
        fingerprint=identity.fingerprint,
        model="m",
        first_memory=make_prompt_set(job.agent).first_memory,
        keep_word="",
        extraction=job.agent.extraction,
        table_format=job.table_format,
    )
    rows: list[dict[str, Any]] = project(part, projection=projection).memories.to_pylist()
    return rows


def trail_of(rows: list[dict[str, Any]]) -> list[tuple[int, int | None, str, bool]]:
    return [(row["turn"], row["chunk_index"], row["memory"], row["changed"]) for row in rows]


def backwards(num_chunks: int) -> list[tuple[int, int | None, str, bool]]:
    trail: list[tuple[int, int | None, str, bool]] = [
        (turn, chunk, f"\\boxed{{update/{chunk}}}", True) for turn, chunk in enumerate(reversed(range(num_chunks)))
    ]
    return [*trail, (num_chunks, None, "\\boxed{update/0}", False)]


def test_memories_of_a_policy_that_reads_backwards_are_in_its_order(
    job: JobConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_with(NotingEngine(), job, monkeypatch) == ["ok"]
    rows = memories_of(job)
    assert len(rows) > 4
    assert trail_of(rows) == backwards(len(rows) - 1)


def test_memories_of_a_reading_that_was_cut_off_and_goes_on_from_the_log_are_in_its_order(
    job: JobConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_with(NotingEngine(refused="update/2"), job, monkeypatch) == ["failed"]
    assert read_with(NotingEngine(), job, monkeypatch) == ["ok"]
    rows = memories_of(job)
    assert trail_of(rows) == backwards(len(rows) - 1)

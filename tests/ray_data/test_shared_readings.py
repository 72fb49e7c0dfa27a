"""Many questions over one document with one memory: what the readings share, and what each has for itself."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.cli.settings import job_of
from memagent_batch.config.job import JobConfig, RunConfig
from memagent_batch.domain.turns import Completion, FinishReason, Prompt
from memagent_batch.engines.engine import Engine
from memagent_batch.errors import EngineRequestError, SettingsError
from memagent_batch.files.location import Location
from memagent_batch.flows.answer import answer
from memagent_batch.flows.check import check
from memagent_batch.flows.collect import sampled_job
from memagent_batch.flows.plan import plan_checked
from memagent_batch.inputs.documents import index_shard
from memagent_batch.inputs.questions import read_questions
from memagent_batch.inputs.shards import list_shards
from memagent_batch.log.index import scan_log
from memagent_batch.log.question_list import write_asked
from memagent_batch.ray_data import actor
from memagent_batch.ray_data.actor import ReaderTask
from memagent_batch.ray_data.progress.board import ProgressBoard
from memagent_batch.ray_data.reader import Reader
from memagent_batch.ray_data.tokenise import tokenise
from memagent_batch.runs.manifest import Manifest
from memagent_batch.runs.planning.plan import Plan
from memagent_batch.wiring import identify_reader, make_output
from tests.engine_context import MadeEngine

RUN_ID = "20260101T000000.000Z"
QUESTIONS = ("Who?", "Where?", "When?")
PATIENCE_SECONDS = 120.0
"""Longest wait for turns in the log."""


class ScriptedEngine(MadeEngine):
    """Writes the number of the turn that it is asked for; at one path it does something else first."""

    def __init__(self, *, stop_at: str = "", fail: bool = False) -> None:
        self.paths: list[str] = []
        self.stopped = asyncio.Event()
        self._stop_at, self._fail = stop_at, fail

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        self.paths.append(prompt.path)
        if prompt.path == self._stop_at and self._fail:
            raise EngineRequestError(f"turn {prompt.path}: refused")
        if prompt.path == self._stop_at:
            self.stopped.set()
            await asyncio.Event().wait()
        text = f"\\boxed{{{prompt.path}}}"
        return Completion(
            token_ids=[7], text=text, finish_reason=FinishReason.STOP, num_prompt_tokens=len(prompt.token_ids)
        )


@pytest.fixture
def job(text_model: str, tmp_path: Path) -> JobConfig:
    rows = [{"document_id": "d", "text": "some text to read " * 30}, {"document_id": "e", "text": "more of it " * 20}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "documents.parquet")
    knobs: dict[str, Any] = {"simulated": {"completion_tokens": 4}, "log": {"flush_seconds": 0.05}}
    return job_of(
        documents=str(tmp_path / "documents.parquet"),
        output=str(tmp_path / "run"),
        ask=QUESTIONS,
        model=text_model,
        engine="simulated",
        window_tokens=1000,
        policy={
            "kind": "shared",
            "chunk_tokens": 30,
            "question_tokens": 60,
            "memory_tokens": 40,
            "answer_tokens": 40,
        },
        **knobs,
    )


async def read_with(
    engine: Engine, job: JobConfig, monkeypatch: pytest.MonkeyPatch, *, num_documents: int = 1
) -> list[str]:
    """Statuses of what one reader with this engine reads of what is left to do."""
    monkeypatch.setattr(actor, "make_engine", lambda job: engine)
    output = make_output(job)
    (shard,) = list_shards(Location(uri=job.documents[0]), settings=job.input)
    index = pa.concat_tables(index_shard(shard, settings=job.input, storage_options={}))
    plan = Plan(index.slice(0, num_documents), read_questions(None, ask=job.ask), samples=1, as_lists=True)
    write_asked(output, plan.asked.hashed, run_id=RUN_ID)
    log = scan_log(output, reader_fingerprint=identify_reader(job.agent).fingerprint)
    task = ReaderTask.of_job(
        job, run_id=RUN_ID, reader_fingerprint=identify_reader(job.agent).fingerprint, board=ProgressBoard()
    )
    reading = Reader(task)
    bundles = plan.pending(log, retry_failed=job.retry_failed)
    documents = [document for bundle in bundles for document in tokenise(bundle, agent=job.agent, sources=job)]
    tables = await asyncio.gather(*map(reading, documents))
    return [status for table in tables for status in table["status"].to_pylist()]


def rows_in(run: RunConfig, folder: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(Path(run.output) / folder).to_pylist()
    return rows


def wait_until_logged(run: RunConfig, *, num_turns: int) -> None:
    folder = Path(run.output) / "log" / "turns"
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not folder.exists() or len(rows_in(run, "log/turns")) < num_turns:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def side_by_side(job: JobConfig) -> JobConfig:
    """The same job with policy `shared-parallel`."""
    policy = job.agent.policy.model_copy(update={"kind": "shared-parallel", "rounds": 2})
    return job.with_agent(job.agent.model_copy(update={"policy": policy}))


def update_paths(num: int) -> list[str]:
    return [f"update/{index}" for index in range(num)]


async def test_shared_reading_killed_in_mid_document_goes_on_without_repeating_a_turn(
    job: JobConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = ScriptedEngine(stop_at="update/3")
    attempt = asyncio.create_task(read_with(killed, job, monkeypatch))
    await killed.stopped.wait()
    await asyncio.to_thread(wait_until_logged, job, num_turns=3)
    attempt.cancel()
    engine = ScriptedEngine()
    assert await read_with(engine, job, monkeypatch) == ["ok"] * 3
    assert killed.paths == update_paths(4)
    num_chunks = rows_in(job, "log/outcomes")[0]["num_chunks"]
    assert engine.paths == [*update_paths(num_chunks)[3:], "answer", "answer", "answer"]


async def test_shared_update_that_fails_fails_every_reading_of_its_list_with_a_row_each(
    job: JobConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = ScriptedEngine(stop_at="update/2", fail=True)
    assert await read_with(broken, job, monkeypatch) == ["failed"] * 3
    assert broken.paths == update_paths(3)
    rows = rows_in(job, "log/outcomes")
    assert {row["error_message"] for row in rows} == {"turn update/2: refused"}
    assert sorted(row["num_turns"] for row in rows) == [0, 0, 2]
    mended = ScriptedEngine()
    again = job.model_copy(update={"retry_failed": True})
    assert await read_with(mended, again, monkeypatch) == ["ok"] * 3
    assert mended.paths[0] == "update/2"


async def test_shared_answer_that_fails_fails_its_reading_alone(
    job: JobConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Choosy(ScriptedEngine):
        async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
            if self.paths.count("answer") == 1:
                self._stop_at, self._fail = "answer", True
            else:
                self._stop_at = ""
            return await super().complete(prompt, seed=seed)

    assert Counter(await read_with(Choosy(), job, monkeypatch)) == {"ok": 2, "failed": 1}


async def test_shared_readings_that_wait_for_their_list_keep_no_place_from_another_document(
    job: JobConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Meeting(ScriptedEngine):
        async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
            if prompt.path == "update/0":
                await self.both.wait()
            return await super().complete(prompt, seed=seed)

        async def start(self) -> None:
            self.both = asyncio.Barrier(2)

    two_places = job.model_copy(update={"pool": job.pool.model_copy(update={"readings_in_flight": 2})})
    async with asyncio.timeout(60):
        assert await read_with(Meeting(), two_places, monkeypatch, num_documents=2) == ["ok"] * 6


@pytest.mark.ray
@pytest.mark.usefixtures("ray_here")
def test_shared_run_has_a_row_for_each_question_and_makes_each_update_once(job: JobConfig) -> None:
    planned = plan_checked(check(job))
    assert planned["question_lists"] is not None
    shared = next(way for way in planned["question_lists"]["ways"] if way["policy"] == "shared")
    assert shared["turns"] == planned["turns"]
    manifest = answer(job)
    answers, turns, memories = (rows_in(job, folder) for folder in ("answers", "log/turns", "memories"))
    assert Counter((row["document_id"], row["question"]) for row in answers) == Counter(
        (document, question) for document in "de" for question in QUESTIONS
    )
    assert {(row["status"], row["answer"]) for row in answers} == {("ok", "simulated")}
    chunks = {row["document_id"]: row["num_chunks"] for row in answers}
    assert Counter(row["kind"] for row in turns) == {"update": sum(chunks.values()), "answer": 6}
    assert planned["turns"] == manifest["totals"]["num_turns"] == len(turns)
    assert manifest["totals"]["num_prompt_tokens"] == sum(row["num_prompt_tokens"] for row in turns)
    assert manifest["totals"]["num_completion_tokens"] == sum(len(row["token_ids"]) for row in turns)
    shown = Counter((row["document_id"], row["question_id"]) for row in memories)
    assert shown == {
        (document, row["question_id"]): num + 1
        for document, num in chunks.items()
        for row in answers
        if row["document_id"] == document
    }
    logged = {(row["document_hash"], row["question_hash"], row["sample"]) for row in turns}
    for table in (answers, memories):
        assert {(row["document_hash"], row["question_hash"], row["sample"]) for row in table} <= logged


async def test_shared_parallel_read_that_fails_fails_its_list_and_the_next_run_repeats_no_other_turn(
    job: JobConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = side_by_side(job)
    broken = ScriptedEngine(stop_at="read/1/2", fail=True)
    assert await read_with(broken, job, monkeypatch) == ["failed"] * 3
    assert Counter(broken.paths) == dict.fromkeys(broken.paths, 1)
    assert {row["error_message"] for row in rows_in(job, "log/outcomes")} == {"turn read/1/2: refused"}
    mended = ScriptedEngine()
    again = job.model_copy(update={"retry_failed": True})
    assert await read_with(mended, again, monkeypatch) == ["ok"] * 3
    assert [path for path in mended.paths if path in broken.paths] == ["read/1/2"]


async def test_turns_asked_beside_one_that_failed_have_ended_and_are_kept_when_the_document_is_done(
    job: JobConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(ScriptedEngine):
        ended = 0

        async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
            completion = await super().complete(prompt, seed=seed)
            await asyncio.sleep(0.4)
            self.ended += 1
            return completion

    broken = Slow(stop_at="read/1/2", fail=True)
    assert await read_with(broken, side_by_side(job), monkeypatch) == ["failed"] * 3
    assert broken.ended == len(broken.paths) - 1 > 1, "no turn is under way"
    assert {row["path"] for row in rows_in(job, "log/turns")} == {*broken.paths} - {"read/1/2"}


@pytest.mark.ray
@pytest.mark.usefixtures("ray_here")
def test_shared_parallel_run_makes_each_turn_of_its_rounds_once_and_an_answer_for_each_question(job: JobConfig) -> None:
    job = side_by_side(job)
    manifest = answer(job)
    answers, turns, memories = (rows_in(job, folder) for folder in ("answers", "log/turns", "memories"))
    assert {(row["status"], row["answer"]) for row in answers} == {("ok", "simulated")}
    of_lists = [(row["document_hash"], row["path"]) for row in turns if row["kind"] != "answer"]
    assert len(of_lists) == len(set(of_lists)) == len(turns) - 6
    chunks = {row["document_hash"]: row["num_chunks"] for row in answers}
    first_round = Counter(hash_ for hash_, path in of_lists if path.startswith("read/1/"))
    assert first_round == chunks
    assert manifest["totals"]["num_turns"] == len(turns)
    assert manifest["totals"]["num_prompt_tokens"] == sum(row["num_prompt_tokens"] for row in turns)
    assert len(memories) == len(QUESTIONS) * len(of_lists) + 6


@pytest.mark.ray
@pytest.mark.usefixtures("ray_here")
def test_shared_run_with_one_question_changed_reads_its_list_again_and_no_other(job: JobConfig, tmp_path: Path) -> None:
    def ask(questions: Sequence[str]) -> Manifest:
        bound = {"question_id": "bound", "document_id": "e", "question": "Why?"}
        rows = [{"question_id": f"q{row}", "document_id": None, "question": text} for row, text in enumerate(questions)]
        pq.write_table(pa.Table.from_pylist([bound, *rows]), tmp_path / "questions.parquet")
        return answer(job.model_copy(update={"ask": (), "questions": str(tmp_path / "questions.parquet")}))

    first = ask(QUESTIONS)
    assert ask(QUESTIONS)["changes"]["readings"]["read"] == 0
    second = ask([*QUESTIONS[:2], "How?"])
    run_ids = {(row["document_id"], row["question_id"]): row["run_id"] for row in rows_in(job, "answers")}
    assert run_ids.pop(("e", "bound")) == first["run_id"]
    assert set(run_ids.values()) == {second["run_id"]}
    assert len(run_ids) == 6


@pytest.mark.ray
@pytest.mark.usefixtures("ray_here")
def test_shared_question_list_over_its_budget_is_refused_with_the_remedy(job: JobConfig) -> None:
    with pytest.raises(SettingsError, match=r"the list for every document has \d+ tokens.*split it.*raise the knob"):
        plan_checked(check(job.model_copy(update={"ask": tuple(f"What is the number {n}?" for n in range(30))})))


def test_shared_rollouts_are_refused(job: JobConfig) -> None:
    with pytest.raises(SettingsError, match=r"the turns of 'shared' belong to several questions.*'overwrite'"):
        sampled_job(job)

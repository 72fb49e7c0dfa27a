"""The reader on its own event loop, without Ray: what one fault costs."""

import asyncio
import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import JobConfig, RunConfig
from memagent_batch.data.documents.questions import read_questions
from memagent_batch.data.documents.stored import StoredDocuments
from memagent_batch.data.store.delta import RunNumber
from memagent_batch.data.store.turn_log.index import scan_log
from memagent_batch.data.store.turn_log.question_list import read_asked, write_asked
from memagent_batch.errors import EngineUnavailableError, MemagentError
from memagent_batch.logs import EventKind
from memagent_batch.loop.engines.simulated import SimulatedEngine
from memagent_batch.loop.policies.overwrite import OverwritePolicy
from memagent_batch.loop.prompts import PromptTokens
from memagent_batch.run.executors import reader
from memagent_batch.run.executors.local import LocalExecutor
from memagent_batch.run.executors.reader import Reader, ReaderTask
from memagent_batch.run.executors.reports import ActorReport, Board, Event, Reporter
from memagent_batch.run.executors.tokenise import tokenise
from memagent_batch.run.ingest import ingest
from memagent_batch.run.plan import CALL_COLUMN, Plan, count_pending
from memagent_batch.run.reading import agent
from memagent_batch.run.sources import find_sources
from memagent_batch.run.wiring import identify_reader, make_output
from memagent_batch.types import Completion, Document, Outcome, Prompt, QuestionTokens, Turns
from tests.engine_context import context_of
from tests.jobs import put_documents, small_job

RUN_ID = "20260101T000000.000Z"
TEXTS = {"fine": "some text to read " * 30, "cursed": "two words", "other": "more text to read " * 20}


class SlowBoard(Board):
    """A board that is in no hurry."""

    async def put(self, report: ActorReport) -> None:
        await asyncio.sleep(0.2)
        await super().put(report)


@dataclass(frozen=True, slots=True, kw_only=True)
class CursedPolicy(OverwritePolicy):
    """Reads like `overwrite`, but breaks at a document of one chunk."""

    async def read(
        self, document: Document, question: QuestionTokens, *, prompts: PromptTokens, turns: Turns
    ) -> Outcome:
        if len(list(document.chunks(self.chunk_tokens))) == 1:
            raise ZeroDivisionError("a bug in the policy")
        return await OverwritePolicy.read(self, document, question, prompts=prompts, turns=turns)


def cursed_policy(agent: AgentConfig) -> CursedPolicy:
    return CursedPolicy(chunk_tokens=agent.policy.chunk_tokens, memory_tokens=40, answer_tokens=40)


@pytest.fixture
def job(text_model: str, tmp_path: Path) -> JobConfig:
    speed = {"simulated": {"turn_seconds": 0.01}, "log": {"flush_seconds": 0.05}, "policy": {"chunk_tokens": 30}}
    return small_job(tmp_path, text_model, documents=put_documents(tmp_path, TEXTS), ask=("Who?",), **speed)


def planned(job: JobConfig) -> Plan:
    """The plan of a job, into whose output the documents are read first."""
    made = ingest(
        find_sources(job, make_output(job)), executor=LocalExecutor(), run=RunNumber(number=1, run_id="ingest")
    )
    stored = StoredDocuments(output=made.output, version=made.documents_version)
    index = stored.read_index(job.input).taken
    return Plan(index, read_questions(None, ask=job.ask), samples=1, stored=stored)


def task_of(job: JobConfig, *, board: Board) -> ReaderTask:
    asked_id = write_asked(make_output(job), planned(job).asked.hashed)
    return ReaderTask(
        agent=job.agent,
        pool=job.pool,
        run_id=RUN_ID,
        fingerprint=identify_reader(job.agent).fingerprint,
        board=board,
        place=job,
        log=job.log,
        load_questions=partial(read_asked, make_output(job), asked_id=asked_id),
    )


def read_pending(
    job: JobConfig, *, board: SlowBoard | None = None, together: bool = False
) -> list[pa.Table | BaseException]:
    """What one reader returns or raises for each document of the plan, or for all that go together in a call."""
    plan, task = planned(job), task_of(job, board=board or SlowBoard())
    index = scan_log(make_output(job), fingerprint=task.fingerprint)
    bundles = list(plan.pending(index, retry_failed=job.retry_failed))
    if together:
        bundles = [bundle.append_column(CALL_COLUMN, pa.array([0] * bundle.num_rows)) for bundle in bundles]
    documents = [
        document for bundle in bundles for document in tokenise(bundle, agent=job.agent, documents=plan.stored)
    ]

    async def read() -> list[pa.Table | BaseException]:
        return await asyncio.gather(*map(Reader(task), documents), return_exceptions=True)

    return asyncio.run(read())


def statuses_in(results: Sequence[pa.Table | BaseException]) -> list[str]:
    tables = [result for result in results if isinstance(result, pa.Table)]
    assert len(tables) == len(results)
    return [status for table in tables for status in table["status"].to_pylist()]


def outcomes_of(run: RunConfig) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(Path(run.output) / "log" / "outcomes").to_pylist()
    return rows


@pytest.mark.parametrize("kind", ["overwrite", "parallel", "truncate"])
def test_reader_counts_what_the_plan_counts_and_all_of_it_at_the_end_alone(
    job: JobConfig, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"document_id": name, "text": text.replace("text", "текст")} for name, text in TEXTS.items()]
    pq.write_table(pa.Table.from_pylist(rows), job.documents[0])
    policy = job.agent.policy.model_copy(update={"kind": kind, "rounds": 3, "overlap_tokens": 5})
    job = job.with_agent(job.agent.model_copy(update={"policy": policy}))
    counted, under_way = list[int](), list[int]()

    class RecordingReporter(Reporter):
        def count_read(self, num_bytes: int) -> None:
            counted.append(num_bytes)

        def count_turn(self, prompt: Prompt, completion: Completion) -> None:
            under_way.append(sum(counted))

    monkeypatch.setattr(reader, "Reporter", RecordingReporter)
    index = scan_log(make_output(job), fingerprint=identify_reader(job.agent).fingerprint)
    pending = count_pending(planned(job).pending(index, retry_failed=False))
    statuses = statuses_in(read_pending(job))
    assert statuses == ["ok"] * len(TEXTS)
    assert sum(counted) == pending.num_bytes
    assert under_way == sorted(under_way)
    assert under_way[-1] < pending.num_bytes
    assert len(set(under_way)) > (kind != "truncate")


async def test_collection_of_garbage_looks_at_nothing_that_was_there_before_the_first_document(job: JobConfig) -> None:
    started, before = Reader(task_of(job, board=Board())), gc.get_freeze_count()
    await started.start()
    assert gc.get_freeze_count() > before + len(gc.get_objects())
    await started.close()
    assert gc.get_freeze_count() == 0


def test_reader_takes_small_documents_together_and_one_that_breaks_fails_alone(
    job: JobConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {"fine": "1" * 31, "cursed": "2" * 16, "other": "3" * 31}  # a digit is a token
    rows = [{"document_id": name, "text": text} for name, text in texts.items()]
    pq.write_table(pa.Table.from_pylist(rows), job.documents[0])
    monkeypatch.setattr(agent, "make_policy", cursed_policy)
    settings = {"policy": job.agent.policy.model_copy(update={"chunk_tokens": 20})}
    (call,) = read_pending(job.with_agent(job.agent.model_copy(update=settings)), together=True)
    assert isinstance(call, pa.Table)
    statuses = {row["document_id"]: row["status"] for row in call.to_pylist()}
    assert statuses == {"fine": "ok", "cursed": "failed", "other": "ok"}
    assert len(outcomes_of(job)) == 3


def test_reader_reports_to_the_board_what_it_did_and_what_failed(
    job: JobConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "make_policy", cursed_policy)
    board = SlowBoard()
    read_pending(job, board=board)
    report = board.take()
    sums, turns = report.counts, pq.read_table(Path(job.output) / "log" / "turns").to_pylist()
    files = [path for path in (Path(job.output) / "log").glob("[tok]*/*") if path.is_file()]
    asked = [turn for turn in turns if not turn["is_copy"]]  # the others had the prompt of another document
    assert (sums["readings"], sums["failed"], sums["turns"]) == (3, 1, len(asked))
    assert sums["prompt_tokens"] == sum(turn["num_prompt_tokens"] for turn in asked)
    assert sums["completion_tokens"] == sum(len(turn["token_ids"]) for turn in asked)
    assert sums["log_bytes"] == sum(path.stat().st_size for path in files)
    assert sums["engine_restarts"] == 0
    (event,) = report.events
    assert (event.kind, event.fields["document_id"], event.fields["run_id"]) == ("reading_failed", "cursed", RUN_ID)
    assert "ZeroDivisionError: a bug in the policy" in event.message


def test_reader_retrying_after_the_policy_was_fixed_reads_what_failed(
    job: JobConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(agent, "make_policy", cursed_policy)
        read_pending(job)
    assert read_pending(job) == []
    assert statuses_in(read_pending(job.model_copy(update={"retry_failed": True}))) == ["ok"]
    index = scan_log(make_output(job), fingerprint=identify_reader(job.agent).fingerprint)
    assert index.outcomes["status"].to_pylist() == ["ok"] * 3


def unfetched(document: str) -> Event:
    """What a reader reports of a document that could not be fetched."""
    fields = {"error_type": "EngineUnavailableError", "error_message": f"{document}: can't be fetched"}
    return Event(kind=EventKind.READING_NOT_READ, message=f"{document} not read", fields=fields)


async def test_board_keeps_the_first_reading_not_read_for_each_reason_and_every_failed_one() -> None:
    board = Board()
    failed = Event(kind=EventKind.READING_FAILED, message="failed")
    await board.put(ActorReport(counts={}, events=[unfetched("a/1.txt"), unfetched("a/2.txt"), failed]))
    await board.put(ActorReport(counts={}, events=[unfetched("a/3.txt"), failed]))
    assert [event.message for event in board.take().events] == ["a/1.txt not read", "failed", "failed"]


class TroubledEngine(SimulatedEngine):
    """Raises an error at the second turn of the document with many chunks."""

    error: ClassVar[MemagentError]

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        if prompt.path == "update/1":
            raise self.error
        return await super().complete(prompt, seed=seed)


def troubled(error: MemagentError) -> Callable[..., TroubledEngine]:
    def make(agent: AgentConfig, **_: int) -> TroubledEngine:
        TroubledEngine.error = error
        return TroubledEngine(**dict(agent.simulated)).open(context_of(agent.model, window_tokens=agent.window_tokens))

    return make


def test_reader_whose_engine_is_away_keeps_the_turns_and_reads_the_rest_later(
    job: JobConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = list[int]()
    with monkeypatch.context() as away:
        away.setattr(reader, "make_engine", troubled(EngineUnavailableError("the endpoint is away")))
        away.setattr(Reporter, "count_read", lambda _, num_bytes: counted.append(num_bytes))
        assert sorted(statuses_in(read_pending(job))) == ["not_read", "not_read", "ok"]
    assert [row["status"] for row in outcomes_of(job)] == ["ok"]
    assert sum(counted) < sum(len(text) for text in TEXTS.values()), "what is not read is still to do"
    turns = pq.read_table(Path(job.output) / "log" / "turns").to_pylist()
    assert [turn["path"] for turn in turns].count("update/0") == 3
    assert statuses_in(read_pending(job)) == ["ok", "ok"]
    first, *later = sorted(row["num_replayed_turns"] for row in outcomes_of(job))
    assert first == 0
    assert all(number >= 1 for number in later), "the turns of the first run, and those with an equal prompt"

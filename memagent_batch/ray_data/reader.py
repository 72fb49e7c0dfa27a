"""The actor: one engine, many readings at once on one event loop, everything that ends kept in the turn log."""

import asyncio
import contextlib
import os
import threading
import uuid
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa
import ray

from memagent_batch.domain.addresses import ReadingAddress
from memagent_batch.domain.readings import Policy, Status
from memagent_batch.engines.engine import Engine, RemoteEngine
from memagent_batch.errors import (
    DocumentError,
    EngineDeadError,
    EngineRefusedError,
    LogRowError,
    MemagentError,
    NotReadError,
    QuestionTooLongError,
    ReadingError,
    StorageError,
    TextUnavailableError,
)
from memagent_batch.events import Event, EventKind
from memagent_batch.log.index import ReadingKey, Row, read_turns, scan_turn_files
from memagent_batch.log.question_list import LIST_HASH, first_questions, question_lists, read_asked
from memagent_batch.log.writer import TurnLogWriter, require_outcome
from memagent_batch.policies.shared import SharedPolicy
from memagent_batch.ray_data.leaving import heed_actor_sigterm
from memagent_batch.ray_data.progress import REPORT_SECONDS
from memagent_batch.ray_data.reporter import Reporter, is_replacement
from memagent_batch.reading.documents import DocumentChunks, PlannedDocument, planned_documents
from memagent_batch.reading.generation import Numbering, Recording, Sharing, Tally
from memagent_batch.reading.logged_turns import LoggedTurns, SharedTurns
from memagent_batch.reading.once import Once
from memagent_batch.reading.suspects import Suspects
from memagent_batch.runs.parts import ENDED
from memagent_batch.settings import Settings
from memagent_batch.wiring import (
    make_engine,
    make_output,
    make_policy,
    make_prompt_tokens,
    make_tokenizer,
    require_reader,
)

BOARD_SECONDS = 30.0
"""Longest wait for the board's word on whether the run is under way."""
LAST_FLUSH_SECONDS = 30.0
"""Longest wait for the log's last flush when the engine has died."""
LAST_STOP_SECONDS = 20.0
"""Longest wait for the end of its processes: vLLM asks them to leave, and kills them after 5 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderTask:
    """What every reader of a run knows."""

    settings: Settings
    """All knobs."""
    run_id: str
    """The run."""
    reader_fingerprint: str
    """The reader's identity, part of every address."""
    board: Any
    """Actor handle of the ProgressBoard."""


class Reader:
    """Ray Data UDF: tokenised documents in, one row for each ended reading out. Lives as long as its engine."""

    def __init__(self, task: ReaderTask) -> None:
        """Takes the task; all that may fail begins with the first document, since Ray loses what is raised here."""
        self._task = task
        self._settings = task.settings
        self._output = make_output(self._settings)
        self._writer = writer_before_restarts()
        self._writer_id = f"{self._writer}{uuid.uuid4().hex[:12]}"
        self._started = Once(self._start)
        self._kept = Once(self._keep)
        self._loop: asyncio.AbstractEventLoop | None = None
        heed_actor_sigterm(self._leave)

    async def __call__(self, batch: pa.Table) -> pa.Table:
        """Reads a document, or some small ones, for all their questions; in: a row of `CALL`, out: rows of `ENDED`.

        Never raises for what concerns a reading alone.
        """
        engine = await self._started()
        readings = []
        for document in planned_documents(batch):
            held = Once(partial(self._held, document))
            shared = defaultdict[ReadingAddress, SharedTurns](SharedTurns)
            for question, sample in document.readings:
                readings.append(self._read(engine, document, held, shared, question, sample))
        return pa.Table.from_pylist(await asyncio.gather(*readings), schema=ENDED)

    async def _start(self) -> Engine:
        settings = self._settings
        self._loop = asyncio.get_running_loop()
        self._load()
        self._slots = asyncio.Semaphore(settings.pool.readings_in_flight)
        self._log = TurnLogWriter(
            self._output, run_id=self._task.run_id, writer_id=self._writer_id, settings=settings.log
        )
        self._reporter = Reporter(settings, board=self._task.board, log=self._log)
        self._suspects = Suspects(output=self._output, run_id=self._task.run_id)
        await asyncio.to_thread(self._suspects.load)
        self._run_files = await asyncio.to_thread(
            scan_turn_files,
            self._output,
            reader_fingerprint=self._task.reader_fingerprint,
            begins=f"{self._task.run_id}-{self._writer}",
        )
        engine = make_engine(settings)
        if isinstance(engine, RemoteEngine) and await self._is_under_way():
            await engine.rejoin()
        else:
            await engine.start()
        self._reporter.count_engine_start(engine, run_id=self._task.run_id)
        self._background = [
            asyncio.create_task(self._reporter.report()),
            asyncio.create_task(self._flush_when_left()),
        ]
        return engine

    async def _is_under_way(self) -> bool:
        """Whether the run has an engine that was up: in this actor before a restart, or in another one."""
        if is_replacement():
            return True
        with contextlib.suppress(ray.exceptions.RayError, TimeoutError):
            sums = await asyncio.wait_for(self._task.board.sums.remote(), BOARD_SECONDS)
            return bool(sums["turns"])
        return False

    def _load(self) -> None:
        """Tokeniser, prompts, policy and questions."""
        require_reader(self._settings, fingerprint=self._task.reader_fingerprint)
        self._tokenizer = make_tokenizer(self._settings)
        self._prompts = make_prompt_tokens(self._settings)
        self._policy = make_policy(self._settings)
        self._questions = read_asked(self._output, run_id=self._task.run_id)
        listed = LIST_HASH in self._questions.schema.names
        self._lists = question_lists(self._questions) if listed else {}
        self._first_questions = first_questions(self._questions) if listed else frozenset()

    async def _held(self, document: PlannedDocument) -> dict[ReadingKey, dict[str, Row]]:
        """Turns of the document that the log holds: of earlier runs, and of this run's actors before this one."""
        files = sorted({*document.turn_files, *self._run_files.get(document.document_hash, ())})
        if not files:
            return {}
        read = partial(
            read_turns, reader_fingerprint=self._task.reader_fingerprint, document_hashes=[document.document_hash]
        )
        return await asyncio.to_thread(read, self._output, files)

    async def _read(
        self,
        engine: Engine,
        document: PlannedDocument,
        held: "Once[dict[ReadingKey, dict[str, Row]]]",
        shared: defaultdict[ReadingAddress, SharedTurns],
        question: int,
        sample: int,
    ) -> Row:
        reporter, address = self._reporter, self._address(document, question, sample)
        list_address = self._list_address(address, question)
        reporter.waiting += 1
        async with shared[list_address].place(self._slots):
            reporter.waiting -= 1
            reporter.in_flight += 1
            logged = LoggedTurns(
                engine=engine, log=self._log, suspects=self._suspects, seed=self._settings.sampling.seed
            )
            turns = await held()
            generate = Sharing(
                own=logged.at(address, turns),
                shared=logged.at(list_address, turns),
                turns=shared[list_address].by_path,
            )
            tally = Tally(generate=generate, with_shared=address.question_hash in self._first_questions)
            result = await self._result(engine, document, question, tally, address=address)
            reporter.in_flight -= 1
        return await self._ended(document, address, result, question=question)

    async def _ended(
        self, document: PlannedDocument, address: ReadingAddress, result: dict[str, Any], *, question: int
    ) -> Row:
        """Keeps and tells how a reading ended; returns its row of `ENDED` when that and its turns are durable."""
        reporter, status = self._reporter, result["status"]
        read = status != Status.NOT_READ
        durable = asyncio.ensure_future(self._log.record_outcome(address, result) if read else self._log.settle())
        if reporter.in_flight == 0:
            self._log.flush_soon()
        await durable
        reporter.count_reading(status)
        if status != Status.OK:
            reporter.tell(self._without_answer(document, result, question=question, sample=address.sample))
        if reporter.in_flight == 0:
            await reporter.settle()
        row = None if read else {"run_id": self._task.run_id, **asdict(address), **result}
        return {"document_id": document.document_id, "status": str(status), "not_read": row}

    def _address(self, document: PlannedDocument, question: int, sample: int) -> ReadingAddress:
        return ReadingAddress(
            document_hash=document.document_hash,
            question_hash=self._questions["question_hash"][question].as_py(),
            sample=sample,
            reader_fingerprint=self._task.reader_fingerprint,
        )

    def _list_address(self, address: ReadingAddress, question: int) -> ReadingAddress:
        """Where the log keeps what the reading shares with others; its own address where it shares nothing."""
        if not self._lists:
            return address
        return replace(address, question_hash=self._questions[LIST_HASH][question].as_py())

    async def _result(
        self, engine: Engine, document: PlannedDocument, question: int, tally: Tally, *, address: ReadingAddress
    ) -> dict[str, Any]:
        """The reading's row of the outcome log. The one place where an exception becomes the end of a reading."""
        generate = Numbering(generate=Recording(generate=tally, record=self._reporter.count_turn))
        started_at = datetime.now(UTC)
        found: dict[str, Any] = {"status": Status.OK}
        try:
            outcome = await self._policy_for(question).read(
                self._chunks(document), self._question(question), prompts=self._prompts, generate=generate
            )
            found |= {
                "response": outcome.response,
                "memory": outcome.memory.text,
                "finish_reason": outcome.finish_reason,
            }
        except EngineDeadError as error:
            await self._die(engine, error)
        except ReadingError as error:
            found = failure(error)
        except NotReadError as error:
            found = failure(error) | {"status": Status.NOT_READ}
        except EngineRefusedError:
            await self._kept()
            raise
        except MemagentError:
            raise
        except Exception as error:  # noqa: BLE001 - a policy's own fault concerns the reading alone; its row shows it
            found = failure(error)
        result = {
            **found,
            **tally.counts(),
            "num_document_tokens": document.chunks.num_tokens,
            "num_chunks": len(document.chunks),
            "started_at": started_at,
            "finished_at": datetime.now(UTC),
            "model": self._settings.model,
        }
        return fitting(result, address=address)

    def _chunks(self, document: PlannedDocument) -> DocumentChunks:
        if document.error is not None:
            raise (TextUnavailableError if document.is_unavailable else DocumentError)(document.error)
        return document.chunks

    def _policy_for(self, row: int) -> Policy:
        if not isinstance(self._policy, SharedPolicy):
            return self._policy
        text = self._lists[self._questions["document_id"][row].as_py()]
        return self._policy.for_list(self._tokenizer.encode(text))

    def _question(self, row: int) -> list[int]:
        token_ids = self._tokenizer.encode(self._questions["question"][row].as_py())
        budget = self._settings.policy.question_tokens
        if len(token_ids) > budget:
            raise QuestionTooLongError(
                f"question {self._questions['question_id'][row].as_py()!r} has {len(token_ids)} tokens, "
                f"policy.question_tokens is {budget}; shorten it or raise the knob"
            )
        return token_ids

    def _without_answer(
        self, document: PlannedDocument, result: dict[str, Any], *, question: int, sample: int
    ) -> Event:
        question_id = self._questions["question_id"][question].as_py()
        error = f"{result['error_type']}: {result['error_message']}"
        not_read = result["status"] == Status.NOT_READ
        end = "not read" if not_read else "failed"
        return Event(
            kind=EventKind.READING_NOT_READ if not_read else EventKind.READING_FAILED,
            message=f"reading {end}: document {document.document_id!r}, question {question_id!r}: {error}",
            fields={
                "run_id": self._task.run_id,
                "document_id": document.document_id,
                "question_id": question_id,
                "sample": sample,
                "error_type": result["error_type"],
                "error_message": result["error_message"],
            },
        )

    async def _keep(self) -> None:
        """Before the run stops: has all readers flush their logs, as when the driver is about to leave."""
        with contextlib.suppress(ray.exceptions.RayError, TimeoutError):
            await asyncio.wait_for(self._task.board.leave.remote(), LAST_FLUSH_SECONDS)
        with contextlib.suppress(StorageError, TimeoutError):  # the run stops for another reason, which is reported
            await asyncio.wait_for(self._log.flush(), LAST_FLUSH_SECONDS)

    async def _flush_when_left(self) -> None:
        """Keeps what is finished when the driver is about to leave, which ends this process."""
        board, is_leaving = self._task.board, False
        while not is_leaving:
            try:
                is_leaving = await board.is_leaving.remote(self._writer_id)
            except ray.exceptions.RayError:  # the board restarts
                await asyncio.sleep(REPORT_SECONDS)
        await self._log.flush()
        board.say_flushed.remote(self._writer_id)

    def _leave(self) -> None:
        """Called by SIGTERM, in the main thread."""
        if self._loop is None:
            os._exit(1)
        asyncio.run_coroutine_threadsafe(self._flush_and_exit(), self._loop)

    async def _die(self, engine: Engine, error: EngineDeadError) -> None:
        """Keeps what is finished, and which turns were under way; then stops the engine and the process."""
        self._reporter.count_engine_death(error, run_id=self._task.run_id)
        try:
            await asyncio.to_thread(self._suspects.save, writer_id=self._writer_id)
            await asyncio.wait_for(self._log.close(), timeout=LAST_FLUSH_SECONDS)
        finally:
            threading.Timer(LAST_STOP_SECONDS, os._exit, args=(1,)).start()
            await engine.stop()  # one that hangs guards itself no more, and would outlive this process
            os._exit(1)

    async def _flush_and_exit(self) -> None:
        """Keeps what is finished, then stops the process: Ray starts another one and gives it the same documents."""
        try:
            await asyncio.wait_for(self._log.close(), timeout=LAST_FLUSH_SECONDS)
        finally:
            os._exit(1)


def writer_before_restarts() -> str:
    """What begins the names of this actor's log files before and after a restart; empty outside an actor.

    Ray gives a restarted actor the documents that it had, so these are all the files of the run that it needs: with a
    thousand actors beside it, the others' files are too many to look through.
    """
    actor_id = ray.get_runtime_context().get_actor_id() if ray.is_initialized() else None
    return f"{actor_id}-" if actor_id else ""


def failure(error: Exception) -> dict[str, Any]:
    """What a failed row says."""
    message = str(error).encode(errors="replace").decode()
    return {"status": Status.FAILED, "error_type": type(error).__name__, "error_message": message}


def fitting(result: dict[str, Any], *, address: ReadingAddress) -> dict[str, Any]:
    """The outcome; a failed one where the log could not hold what the policy brought."""
    try:
        require_outcome(address, result)
    except LogRowError as error:
        return {**result, **dict.fromkeys(("response", "memory", "finish_reason")), **failure(error)}
    return result

"""Nights of a scan without Ray and without an engine: whole runs, whose readings are written into the log by hand."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, cast
from unittest.mock import patch

import pyarrow as pa
import pyarrow.dataset as ds

from memagent_batch.cli.settings import job_of
from memagent_batch.config.job import JobConfig, LogConfig
from memagent_batch.data.documents.document_index import CARRY_PREFIX, INDEX_SCHEMA, with_missing
from memagent_batch.data.documents.questions import QUESTION_SCHEMA, missing_documents, type_fields
from memagent_batch.data.documents.stored import StoredDocuments
from memagent_batch.data.store.delta import OutputTable
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.parquet import parquet_bytes
from memagent_batch.data.store.turn_log.files import FOLLOW_UPS_FOLDER
from memagent_batch.data.store.turn_log.index import LogIndex
from memagent_batch.data.store.turn_log.rows import FOLLOW_UP_LOG, OUTCOME_LOG, hash_turn
from memagent_batch.data.store.turn_log.writer import TurnLogWriter
from memagent_batch.loop.addresses import ReadingAddress, text_hash
from memagent_batch.loop.follow_ups.answer_types import ValueType
from memagent_batch.run.executors.local import LocalExecutor
from memagent_batch.run.flows import answer as answer_flow
from memagent_batch.run.flows.answer import ReadPlan, answer_plan
from memagent_batch.run.flows.check import CheckedJob
from memagent_batch.run.flows.plan import scan_plan
from memagent_batch.run.history import PastRun, find_run
from memagent_batch.run.manifest import Manifest
from memagent_batch.run.plan import Plan
from memagent_batch.run.reading.follow_ups import FollowUps
from memagent_batch.run.run import ActiveRun
from memagent_batch.run.tables import LATEST, READING_TABLES
from memagent_batch.run.wiring import ReaderIdentity
from memagent_batch.types import Completion, FinishReason, Prompt, Status, Writes
from tests.store.turn_log.logs import outcome_row
from tests.tables import table_rows

FAILS = "fails"
"""A document with this in its text is read to no end."""
AWAY = "away"
"""A document with this in its text can't be read in a night in which the endpoint is away."""


NO_DOCUMENTS = StoredDocuments(output=Location(uri="memory://no-documents"), version=0)
"""Where plans have their documents that no night opens."""


def tables_without_documents(run: PastRun) -> dict[str, ds.Dataset]:
    """The tables of a run as `verify` opens them, without `documents`, which these nights do not have."""
    return {name: run.dataset(name) for name in run.manifest["table_versions"]}


class Killed(Exception):  # noqa: N818 - not an error
    """Stands for `kill -9`."""


class Nights:
    """A scan into one output. A reading's answer is its document's text; its memory is `noted: ` and the text."""

    def __init__(self, output: Location) -> None:
        """Begins without a run."""
        self.output = output

    def run(
        self,
        documents: Mapping[str, str | None],
        questions: Mapping[str, str],
        *,
        bound: Mapping[tuple[str, str], str] | None = None,
        outside: Mapping[str, str | None] = MappingProxyType({}),
        carried: Mapping[str, Mapping[str, str | None]] = MappingProxyType({}),
        value_type: ValueType | None = None,
        reader: str = "f",
        killed_at: str = "",
        retried: bool = False,
        away: bool = False,
        **settings: Any,
    ) -> Manifest:
        """One night. A document whose text is None can't be read.

        Args:
            documents: Texts by document_id.
            questions: Questions for every document, by question_id.
            bound: Questions for one document, by document_id and question_id.
            outside: Documents that are there, and that a limit leaves out.
            carried: Values of carried columns, by column and document_id.
            value_type: Type that the questions ask for.
            reader: The fingerprint.
            killed_at: Where the run dies: "reading", "tables" (before the first commit), or after the commit of the
                table of this name.
            retried: Whether failed readings are read again, with success.
            away: Whether documents with `AWAY` in their texts can't be read.
            settings: Further settings.

        Raises:
            Killed: at the point `killed_at`.
        """
        settings = {"input": {"carry_columns": tuple(carried)}, **settings}
        job = job_of(documents="docs", questions="list", output=self.output.uri, **settings)
        plan = plan_of(documents, questions, bound=bound, samples=job.agent.sampling.samples, value_type=value_type)
        plan.outside = index_of(outside) if outside else None
        for name, values in carried.items():
            column = pa.array([values.get(each) for each in plan.documents["document_id"].to_pylist()], pa.string())
            plan.documents = plan.documents.append_column(CARRY_PREFIX + name, column)
        texts = {text_hash(text): text for text in documents.values() if text}
        return self.run_plan(plan, texts, job=job, reader=reader, killed_at=killed_at, retried=retried, away=away)

    def run_plan(
        self,
        plan: Plan,
        texts: Mapping[str, str],
        *,
        job: JobConfig,
        reader: str = "f",
        killed_at: str = "",
        retried: bool = False,
        away: bool = False,
        values: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ) -> Manifest:
        """One night of a plan; `texts` are those of its documents, by hash.

        `values`: columns of what follow-up questions bring, by the text of the document.
        """
        job = job.model_copy(update={"retry_failed": retried})

        def read(plan: Plan, index: LogIndex, bundles: list[pa.Table], *, run: ActiveRun, **_: Any) -> ReadPlan:
            not_read = self._read(run, plan, texts, bundles, retried=retried, away=away)
            self._close(run, plan, texts, values=values, retried=retried)
            _die_at("reading", killed_at)
            return ReadPlan(index=self._scan(plan, reader=reader), not_read=not_read)

        checked = CheckedJob(
            job=job,
            inputs=cast("Any", None),  # they are in the plan
            executor=LocalExecutor(),
            reader=ReaderIdentity(fingerprint=reader, parts={}),
            follow_ups=plan.asked.follow_ups,
        )
        with patch.object(answer_flow, "read_plan", read), dying_at(killed_at) if killed_at else nullcontext():
            return answer_plan(plan, checked)

    def last(self) -> PastRun:
        return find_run(self.output, LATEST)

    def table(self, name: str, *, run_id: str = LATEST) -> list[dict[str, Any]]:
        return table_rows(self.output.uri, name, run_id=run_id)

    def answers(self) -> dict[tuple[str, str], Any]:
        return {(row["document_id"], row["question_id"]): row["answer"] for row in self.table("answers")}

    def files(self, name: str) -> set[str]:
        return set(OutputTable(output=self.output, name=name).files())

    def _scan(self, plan: Plan, *, reader: str) -> LogIndex:
        return scan_plan(self.output, plan, fingerprint=reader, executor=LocalExecutor())

    def _read(
        self,
        run: ActiveRun,
        plan: Plan,
        texts: Mapping[str, str],
        bundles: list[pa.Table],
        *,
        retried: bool,
        away: bool,
    ) -> pa.Table:
        questions = plan.asked.hashed.to_pylist()
        read: list[tuple[ReadingAddress, str]] = []
        not_read: list[dict[str, Any]] = []
        for document in (row for bundle in bundles for row in bundle.to_pylist()):
            text = texts[document["document_hash"]]
            for reading in document["readings"]:
                address = ReadingAddress(
                    document_hash=document["document_hash"],
                    question_hash=questions[reading["question"]]["question_hash"],
                    sample=reading["sample"],
                    fingerprint=run.reader.fingerprint,
                )
                if away and AWAY in text:
                    not_read.append({"run_id": run.run_id, **asdict(address), **_not_read(text)})
                else:
                    read.append((address, text))
        asyncio.run(self._log(read, run_id=run.run_id, retried=retried))
        return pa.Table.from_pylist(not_read, schema=OUTCOME_LOG)

    async def _log(self, readings: list[tuple[ReadingAddress, str]], *, run_id: str, retried: bool) -> None:
        """Logs a turn and the end of each reading."""
        writer = TurnLogWriter(self.output, run_id=run_id, writer_id="w", settings=LogConfig(flush_seconds=60))
        ended = []
        for address, text in readings:
            prompt = Prompt(path="update/0", kind="update", token_ids=(1,), max_tokens=4, writes=Writes.MEMORY)
            completion = Completion(token_ids=(7,), text=f"noted: {text}", finish_reason=FinishReason.STOP)
            writer.record_turn(address, prompt, completion)
            row = _outcome(text, failed=FAILS in text and not retried)
            row |= {"turn_hashes": [hash_turn(prompt, completion)], "num_turns": 1}
            ended.append(asyncio.create_task(writer.record_outcome(address, row)))
        await asyncio.sleep(0)
        await writer.flush()
        await asyncio.gather(*ended)

    def _close(
        self,
        run: ActiveRun,
        plan: Plan,
        texts: Mapping[str, str],
        *,
        values: Mapping[str, Mapping[str, Any]],
        retried: bool,
    ) -> None:
        """Writes what closes the readings that are answered and open."""
        index = self._scan(plan, reader=run.reader.fingerprint)
        questions = plan.asked.hashed.to_pylist()
        rows = [
            {
                **dict.fromkeys(FOLLOW_UP_LOG.names),
                **dict.fromkeys(("num_turns", "num_prompt_tokens", "num_completion_tokens"), 0),
                "run_id": run.run_id,
                "document_hash": document["document_hash"],
                "question_hash": questions[reading["question"]]["question_hash"],
                "sample": reading["sample"],
                "fingerprint": questions[reading["question"]]["follow_up_fingerprint"],
                "is_failed": False,
                "finished_at": datetime.now(UTC),
                **values[texts[document["document_hash"]]],
            }
            for bundle in plan.pending(index, retry_failed=retried)
            for document in bundle.to_pylist()
            for reading in document["follow_ups"]
        ]
        if rows:
            name = f"{FOLLOW_UPS_FOLDER}/{run.run_id}-w-000002.parquet"
            (self.output / name).write_bytes(parquet_bytes(pa.Table.from_pylist(rows, schema=FOLLOW_UP_LOG)))


def index_of(documents: Mapping[str, str | None]) -> pa.Table:
    """The index of documents by their texts; one without a text can't be read."""
    place = {"file": "p.parquet", "row_group": 0, "row": 0, "num_bytes": 9}
    rows = [
        {
            "document_id": name,
            "document_hash": None if text is None else text_hash(text),
            "error": "p: the text is null" if text is None else None,
            **place,
        }
        for name, text in documents.items()
    ]
    return pa.Table.from_pylist(rows, schema=INDEX_SCHEMA)


def plan_of(
    documents: Mapping[str, str | None],
    questions: Mapping[str, str],
    *,
    bound: Mapping[tuple[str, str], str] | None = None,
    samples: int = 1,
    value_type: ValueType | None = None,
    follow_ups: FollowUps | None = None,
) -> Plan:
    """The plan that asks `questions`, all of one type, of every document, and those that are bound of theirs."""
    asked = [{"question_id": name, "question": text, **type_fields(value_type)} for name, text in questions.items()]
    asked += [
        {"question_id": name, "question": text, "document_id": document_id}
        for (document_id, name), text in (bound or {}).items()
    ]
    index, listed = index_of(documents), pa.Table.from_pylist(asked, schema=QUESTION_SCHEMA)
    documents_there = with_missing(index, missing_documents(listed["document_id"].drop_null(), index))
    return Plan(documents_there, listed, samples=samples, follow_ups=follow_ups, stored=NO_DOCUMENTS)


def _outcome(text: str, *, failed: bool) -> Any:
    began: dict[str, Any] = {"started_at": datetime.now(UTC), "engine_seconds": 0.0}
    if failed:
        return outcome_row(Status.FAILED, error_type="E", error_message="the engine refused it", **began)
    return outcome_row(response=f"\\boxed{{{text}}}", memory=f"noted: {text}", **began)


def _not_read(text: str) -> dict[str, Any]:
    said = {"error_type": "EngineUnavailableError", "error_message": f"'{text}' is away"}
    return dict(outcome_row(Status.NOT_READ, **said))


def _die_at(point: str, killed_at: str) -> None:
    if point == killed_at:
        raise Killed


@contextmanager
def dying_at(point: str) -> Iterator[None]:
    """A run dies here before its first commit (`tables`), or after the commit of the table of this name."""
    commit = OutputTable.commit

    def commit_and_die(table: OutputTable, **arguments: Any) -> int:
        if table.name in READING_TABLES:
            _die_at("tables", point)
        version = commit(table, **arguments)
        _die_at(table.name, point)
        return version

    with patch.object(OutputTable, "commit", commit_and_die):
        yield

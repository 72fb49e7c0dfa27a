"""Finished runs whose tables are written by hand, for tests of what shows and reviews them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, cast

import pyarrow as pa

from memagent_batch.cli.settings import job_of
from memagent_batch.data.documents.document_index import SOURCE_COLUMNS
from memagent_batch.data.documents.questions import read_questions
from memagent_batch.data.store.delta import OutputTable, RunNumber, write_table_files
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.question_list import with_hashes, write_asked
from memagent_batch.loop.addresses import text_hash
from memagent_batch.run.history import PastRun, find_run, finish, last_run, open_run
from memagent_batch.run.manifest import FORMAT, AnswerSums, Manifest, RunRecord, Spent, public_settings
from memagent_batch.run.tables import ANSWERS, EVIDENCE, MEMORIES, RUNS_TABLE
from tests.documents.stored_documents import store_documents, stored_row

Row = dict[str, Any]
Answers = Mapping[str, str | None] | Mapping[str, str]
"""By question; None where the reading failed."""
SCHEMAS = {"answers": pa.schema([*ANSWERS, *SOURCE_COLUMNS]), "memories": MEMORIES, "evidence": EVIDENCE}


def write_run(
    output: Location,
    *parts: Mapping[str, Sequence[Row] | pa.Table],
    run_id: str,
    questions: pa.Table,
    texts: Mapping[str, str] | None = None,
    schemas: Mapping[str, pa.Schema] | None = None,
    **manifest: Any,
) -> PastRun:
    """Writes a finished run that replaces the rows of all tables.

    Args:
        output: Its output.
        parts: Rows by table; those of one part go into files of the same stem.
        run_id: Its id.
        questions: The question list, with hashes.
        texts: Texts by document_id, as the run read them; by default the documents stay as they are.
        schemas: Schemas of tables, where they differ from those that every run writes.
        manifest: Parts of the manifest that differ from the usual ones; `since` for that of its changes.
    """
    before = last_run(output)
    number = OutputTable(output=output, name=RUNS_TABLE).run_number("memagent") + 1
    run = RunNumber(number=number, run_id=run_id)
    versions = {
        name: _replace_rows(output, name, [part[name] for part in parts], run, {**SCHEMAS, **(schemas or {})}[name])
        for name in parts[0]
    }
    documents: Any = before.manifest["documents_table"] if before else {"output": None, "version": 0}
    if texts is not None:
        rows = [stored_row(name, text) for name, text in texts.items()]
        documents = {"output": None, "version": store_documents(output, rows, number=number)}
    statuses = Counter(row["status"] for part in parts for row in _rows(part["answers"]))
    whole: Any = {
        "format": FORMAT,
        "run_id": run_id,
        "counts": _counts(statuses, memories=sum(len(_rows(part.get("memories", ()))) for part in parts)),
        "unread": {"num_unread": 0, "num_unread_documents": 0, "num_unread_failed": 0},
        "totals": dict.fromkeys(AnswerSums.__annotations__, 0),
        "spent": dict.fromkeys(Spent.__annotations__, 0),
        "fingerprint": "f" * 64,
        "settings": public_settings(job_of(documents="docs", ask="Who?", output=output.uri)),
        "started_at": "2026-11-22T01:00:00+00:00",
        "finished_at": "2026-11-22T01:07:12+00:00",
        "seconds": 432.0,
        "changes": _changes(manifest.pop("since", before and before.run_id), kept=statuses.total()),
        "table_versions": versions,
        "digest": "d",
        "digest_before": "",
        "asked_id": write_asked(output, questions),
        "documents_table": documents,
        **manifest,
    }
    finish(output, run, record_of(whole), cast(Manifest, whole), has_begun=False)
    return open_run(output, run_id)


def rewrite_answers(
    output: Location, run_id: str, change: Callable[[list[Row]], list[Row]], **manifest: Any
) -> PastRun:
    """Writes a run with the tables of the last one, but for rows of `answers`; returns it."""
    before = find_run(output)
    tables = {name: before.dataset(name).to_table().to_pylist() for name in before.manifest["table_versions"]}
    tables["answers"] = change(tables["answers"])
    schemas = {name: before.dataset(name).schema for name in tables}
    kept = {name: before.manifest[name] for name in ("settings", "fingerprint")}
    return write_run(output, tables, run_id=run_id, questions=before.questions, schemas=schemas, **kept | manifest)


def record_of(manifest: Mapping[str, Any]) -> RunRecord:
    """The record of a run with this manifest."""
    return RunRecord(
        run_id=manifest["run_id"],
        started_at=manifest["started_at"],
        documents="docs",
        questions=[],
        asked=manifest["counts"]["asked"],
        fingerprint=manifest["fingerprint"],
        settings=manifest["settings"],
        documents_table=manifest["documents_table"],
        asked_id=manifest["asked_id"],
    )


def answer_row(document_id: str, question_id: str, *, run_id: str, text: str, question: str, **columns: Any) -> Row:
    """A row of `answers`, with an answer if `columns` have one."""
    row: Row = dict.fromkeys(ANSWERS.names)
    row |= {name: 0 for name in ANSWERS.names if name.startswith("num_") and name not in {"num_evidence", "num_chunks"}}
    row |= {
        "run_id": run_id,
        "read_run_id": run_id,
        "document_id": document_id,
        "question_id": question_id,
        "sample": 0,
        "question": question,
        "status": "ok",
        "memory_truncations": 0,
        "engine_seconds": 0.0,
        "finished_at": datetime(2026, 11, 22, 1, 7, tzinfo=UTC),
        "document_hash": text_hash(text),
        "question_hash": text_hash(question),
        "fingerprint": "f" * 64,
        "model": "tiny",
        "inputs_hash": "0",
        "source": document_id,
        "source_read": 1.0,
        "source_unread": None,
    }
    return row | columns


def _rows(rows: Sequence[Row] | pa.Table) -> Sequence[Row]:
    return rows.to_pylist() if isinstance(rows, pa.Table) else rows


def _replace_rows(
    output: Location, name: str, parts: Sequence[Sequence[Row] | pa.Table], run: RunNumber, schema: pa.Schema
) -> int:
    table = OutputTable(output=output, name=name)
    files = [
        file
        for number, rows in enumerate(parts)
        for file in write_table_files(
            table.place, _sorted_table(rows, schema), stem=f"part-{number:05d}-{run.run_id}", row_group_rows=1000
        )
    ]
    return table.commit(run=run, schema=schema, add=files, replaces_all=True)


def _sorted_table(rows: Sequence[Row] | pa.Table, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(sorted(_rows(rows), key=lambda row: row["document_id"]), schema=schema)


def _counts(statuses: Counter[str], *, memories: int) -> dict[str, int]:
    named = {name: statuses[name] for name in ("ok", "failed", "not_read")}
    return {"asked": statuses.total(), **named, "answers_rows": statuses.total(), "memories_rows": memories}


def _changes(since: str | None, *, kept: int) -> dict[str, Any]:
    return {
        "since": since,
        "answers": 0,
        "documents": {"added": 0, "changed": 0, "removed": 0, "unchanged": 1},
        "questions": {"added": 0, "changed": 0, "removed": 0, "unchanged": 1},
        "readings": {"read": 0, "kept": kept, "unreadable": 0, "not_read": 0},
    }


def questions_of(questions: Mapping[str, str], **columns: Any) -> pa.Table:
    """A question list by ids, whose rows have these columns, too."""
    return with_hashes(
        read_questions(
            None, ask=[{"question_id": name, "question": text, **columns} for name, text in questions.items()]
        )
    )


def write_answers(
    output: Location,
    answers: Mapping[str, Answers],
    *,
    run_id: str,
    questions: Mapping[str, str],
    texts: Mapping[str, str] | None = None,
    columns: Mapping[str, Any] = MappingProxyType({}),
) -> PastRun:
    """Writes a run of free answers by document and question; None where the reading failed.

    A document without an entry in `texts` has its first answer as its text.
    """
    read = {name: next((answer for answer in of.values() if answer), "") for name, of in answers.items()}
    read |= texts or {}
    failed = {"status": "failed", "error_type": "E", "error_message": "the engine refused it"}
    rows = [
        answer_row(name, each, run_id=run_id, text=read[name], question=questions[each])
        | ({"answer": answer, "response": answer, "memory": f"noted: {answer}"} if answer else failed)
        | dict(columns)
        for name, of_document in answers.items()
        for each, answer in of_document.items()
    ]
    return write_run(
        output, {"answers": rows, "memories": []}, run_id=run_id, questions=questions_of(questions), texts=read
    )

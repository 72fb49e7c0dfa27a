"""CPU tasks after the engine: parts of the plan in, files of the tables out."""

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import cast

import pyarrow as pa

from memagent_batch.documents.converted import SOURCE_UNREAD
from memagent_batch.documents.document_index import UNREAD_SOURCE
from memagent_batch.domain.readings import Status
from memagent_batch.domain.reasons import Reason, most_frequent
from memagent_batch.runs.claim import claimed_files
from memagent_batch.runs.manifest import PART_REPORT, FileHash, PartReport, ReasonRow, reason_rows, rows_of_files
from memagent_batch.runs.parts import PART_COLUMN, detach_not_read, part_key
from memagent_batch.runs.projection import PartTables, Projection, project
from memagent_batch.runs.tables import (
    ANSWERS_FOLDER,
    EVIDENCE_FOLDER,
    MEMORIES_FOLDER,
    RESULTS_FOLDER,
    count_rows,
    table_bytes,
)
from memagent_batch.store.database import run_query
from memagent_batch.store.errors import storage_errors

LASTING = frozenset({Status.OK, Status.FAILED})
"""Statuses of rows that the next run makes the same; other rows are of this run alone."""
KEPT_REASONS = 20
"""Reasons that a part reports, the most frequent ones; those of all parts are added up."""
FAILED_FOLLOW_UP = r"^[A-Z]\w*Error: "
"""How `follow_up_error` begins where a follow-up question failed; else it says why a value is invalid."""
_SUMMED = ("document_tokens", "turns", "prompt_tokens", "cached_prompt_tokens", "completion_tokens")
_SUMS = f"""
select count(*) as num_answers, count(*) filter (status = 'ok') as num_ok,
       count(*) filter (status = 'not_read') as num_not_read,
       count(*) filter (status = 'ok' and (answer is null or value_status = 'invalid')) as num_unusable,
       count(*) filter (status = 'ok' and regexp_matches(follow_up_error, '{FAILED_FOLLOW_UP}'))
           as num_follow_ups_failed,
       count(*) filter (value_status = 'not_read') as num_unread,
       count(distinct document_id) filter ({SOURCE_UNREAD} is not null) as num_unread_documents,
       count(*) filter ({SOURCE_UNREAD} is not null and error_type = $unread_source) as num_unread_failed,
       coalesce(sum(memory_truncations), 0)::bigint as memory_truncations,
       {", ".join(f"coalesce(sum(num_{name}), 0)::bigint as num_{name}" for name in _SUMMED)}
from answers
"""


def write_tables(part: pa.Table, *, projection: Projection, kept: Mapping[str, PartReport]) -> pa.Table:
    """Ray Data UDF: one part of the plan in, its files written, one row of `PART_REPORT` out.

    Nothing is written where `kept` (reports by key) has files of the same part, and they are whole. A part
    has the same file names at every try, so a repeated task replaces its own files; two runs share no name.

    Raises:
        SupersededError: a newer attempt holds the claim; no file is left.
    """
    planned, not_read = detach_not_read(part)
    key = part_key(planned, projection=projection)
    if not not_read and key in kept and _is_complete(kept[key], projection=projection):
        return pa.Table.from_pylist([{**kept[key], "missing": []}], schema=PART_REPORT)
    tables = project(planned, projection=projection, not_read=not_read)
    name = f"part-{part[PART_COLUMN][0].as_py():05d}-{projection.run_id}.{projection.table_format.value}"
    written = {
        ANSWERS_FOLDER: tables.answers,
        MEMORIES_FOLDER: tables.memories,
        EVIDENCE_FOLDER: tables.evidence,
        RESULTS_FOLDER: tables.results,
    }
    files = {folder: f"{folder}/{name}" for folder, table in written.items() if table is not None}
    hashes = _write_part({file: written[folder] for folder, file in files.items()}, projection=projection)
    report = _part_report(tables, files, key=key if _lasts(tables) else None, hashes=hashes)
    return pa.Table.from_pylist([report], schema=PART_REPORT)


def _part_report(
    tables: PartTables, files: Mapping[str, str], *, key: str | None, hashes: list[FileHash]
) -> PartReport:
    """What a written part reports; `files` are named by the folders of the tables."""
    answers = tables.answers
    if SOURCE_UNREAD not in answers.schema.names:
        answers = answers.append_column(SOURCE_UNREAD, pa.nulls(answers.num_rows, pa.string()))
    (sums,) = run_query(_SUMS, {"answers": answers}, unread_source=UNREAD_SOURCE).to_pylist()
    report = {
        **sums,
        "key": key,
        "answers_file": files[ANSWERS_FOLDER],
        "memories_file": files[MEMORIES_FOLDER],
        "evidence_file": files.get(EVIDENCE_FOLDER),
        "results_file": files.get(RESULTS_FOLDER),
        "num_memories": tables.memories.num_rows,
        "num_evidence": tables.evidence.num_rows if tables.evidence is not None else 0,
        "num_results": tables.results.num_rows if tables.results is not None else 0,
        "follow_up_reasons": _follow_up_reasons(answers),
        "failed_reasons": _part_reasons(answers, status=Status.FAILED),
        "not_read_reasons": _part_reasons(answers, status=Status.NOT_READ),
        "missing": tables.missing,
        "hashes": hashes,
    }
    return cast("PartReport", report)


def _lasts(tables: PartTables) -> bool:
    """Whether the next run makes the same rows of the same log."""
    is_read = set(tables.answers["status"].to_pylist()) <= LASTING
    return is_read and not tables.missing


def _is_complete(report: PartReport, *, projection: Projection) -> bool:
    files = rows_of_files(report).items()
    with storage_errors(projection.output.uri):
        return all(count_rows(projection.output / name) == num_rows for name, num_rows in files)


def _part_reasons(answers: pa.Table, *, status: Status) -> list[ReasonRow]:
    rows = answers.select(["status", "error_type", "error_message"]).to_pylist()
    reasons = (
        Reason(error_type=row["error_type"], error_message=row["error_message"])
        for row in rows
        if row["status"] == status
    )
    return reason_rows(most_frequent(reasons, limit=KEPT_REASONS))


def _follow_up_reasons(answers: pa.Table) -> list[ReasonRow]:
    errors = (error for error in answers["follow_up_error"].to_pylist() if error and re.match(FAILED_FOLLOW_UP, error))
    parts = (error.partition(": ") for error in errors)
    reasons = (Reason(error_type=kind, error_message=message) for kind, _, message in parts)
    return reason_rows(most_frequent(reasons, limit=KEPT_REASONS))


def _write_part(files: Mapping[str, pa.Table], *, projection: Projection) -> list[FileHash]:
    hashes: list[FileHash] = []
    with claimed_files(projection.output, run_id=projection.run_id) as written:
        for name, table in files.items():
            data = table_bytes(table, table_format=projection.table_format)
            (projection.output / name).write_bytes(data)
            written.append(name)
            hashes.append({"file": name, "sha256": sha256(data).hexdigest()})
    return hashes

"""`memagent ingest`: brings the documents of an output up to date, and says what was read and what was not."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypedDict

import pyarrow.compute as pc

from memagent_batch.config.job import IngestJob
from memagent_batch.config.sources import InputConfig, SourceConfig
from memagent_batch.data.documents.formats.formats import is_data_file
from memagent_batch.data.documents.lake.table import table_name
from memagent_batch.data.ingest.readers.converter import PartStatus
from memagent_batch.data.ingest.source_rows import last_place
from memagent_batch.data.ingest.tables import DOCUMENTS_TABLE, SOURCES_TABLE
from memagent_batch.data.store.database import run_query
from memagent_batch.data.store.delta import OutputTable, RunNumber
from memagent_batch.data.store.errors import output_errors
from memagent_batch.data.store.location import Location
from memagent_batch.errors import NotReadError, OutputError, TooManyFailedError
from memagent_batch.logs import EventKind, log_step
from memagent_batch.loop.texts.shares import quantity
from memagent_batch.run.claim import require_disjoint
from memagent_batch.run.executors.executor import LOCAL_FILES, Executor, choose_executor
from memagent_batch.run.history import next_number, require_readable
from memagent_batch.run.ingest import ingest
from memagent_batch.run.retention import remove_leftovers
from memagent_batch.run.run import WRITER
from memagent_batch.run.sources import FoundSources, find_sources, sources_place

MAX_LOCAL_FILES = 100
"""Most document files that `executor: auto` reads one after another in this process, some 0.2 s each."""
LOGGED_FILES = 10

log = logging.getLogger(__name__)


class IngestReport(TypedDict):
    """What an ingest did."""

    run_id: str
    seconds: float
    counts: Mapping[str, int]
    left_out: list[str]


def ingest_documents(job: IngestJob) -> IngestReport:
    """Reads what is new or changed, and returns the counts.

    Raises:
        UsageError: the user's mistake.
        SupersededError: a newer run has committed to the output.
        NotReadError: some sources could not be read now.
        TooManyFailedError: more sources failed than are allowed, or all.
    """
    began = time.monotonic()
    sources = SourceConfig(
        documents=job.documents,
        ask=("-",),
        input=with_files_format(job.input, documents=job.documents),
        ingest=job.ingest,
        storage_options=job.storage_options,
    )
    output = Location(uri=job.output, storage_options=job.storage_options)
    require_disjoint(sources, output=job.output)
    with output_errors(output.uri):
        require_readable(output)
    log_step("listing the sources")
    found = find_sources(sources, output, retry_failed=job.retry_failed)
    if found.is_in_place:
        raise OutputError(f"documents: {found.output} is an output with documents already; `answer` takes it as it is")
    before, now = last_place(OutputTable(output=output, name=SOURCES_TABLE)), sources_place(sources)
    if before not in (None, now):
        raise OutputError(f"output: {output} holds the documents of {before}; choose another output for those of {now}")
    run = next_run(output)
    executor = choose_ingest_executor(found, job)
    with executor.session():
        log_step(f"reading {found.num_changed:,} of {quantity(found.num_sources, 'source')}")
        ingested = ingest(found, executor=executor, run=run)
    remove_leftovers(output)
    counts = {**ingested.counts, "documents": ingested.num_documents, **log_unread(output, ocr=job.ingest.ocr)}
    seconds = round(time.monotonic() - began, 3)
    fields = {"event": EventKind.RUN_CLOSED, "run_id": run.run_id, "seconds": seconds, **counts}
    log.info(f"run {run.run_id} closed: {quantity(counts['documents'], 'document')}", extra=fields)
    require_read(output, counts, max_failed_share=job.max_failed_share)
    return {"run_id": run.run_id, "seconds": seconds, "counts": counts, "left_out": [*ingested.left_out]}


def next_run(output: Location, *, writer: str = WRITER) -> RunNumber:
    """Returns the number and id of the next ingest of an output, which are greater than those of its runs."""
    run = next_number(output, writer=writer, after="")
    tables = (OutputTable(output=output, name=name) for name in (DOCUMENTS_TABLE, SOURCES_TABLE))
    return replace(run, number=max(run.number, *(1 + table.run_number(writer) for table in tables)))


def choose_ingest_executor(found: FoundSources, job: IngestJob) -> Executor:
    """The executor for what there is to read."""
    return choose_executor(
        job.executor,
        num_files=found.num_changed,
        num_bytes=found.changed_bytes,
        most_files=MAX_LOCAL_FILES if found.reads_files else LOCAL_FILES,
    )


def with_files_format(settings: InputConfig, *, documents: Sequence[str]) -> InputConfig:
    """The settings with which every file is a document, unless a format, data files or a table are named."""
    is_data = all(table_name(uri) or is_data_file(uri) for uri in documents)
    if is_data or "format" in settings.model_fields_set:
        return settings
    return settings.model_copy(update={"format": "files"})


_LOSSES = "select source, status, unnest(losses, recursive := true) from sources"


def log_unread(output: Location, *, ocr: bool) -> dict[str, int]:
    """Names the first sources whose texts lack something or may be wrong, with the reasons; returns counts."""
    names = ["source", "status", "content_hash", "losses"]
    sources = OutputTable(output=output, name=SOURCES_TABLE).dataset().to_table(names)
    losses = run_query(_LOSSES, {"sources": sources}).to_pylist()
    # a data file of which some lines can't be read has not failed; a document file with a part that failed has
    is_failed = pc.or_(pc.equal(sources["status"], "failed"), pc.is_valid(sources["content_hash"]))
    failed = set(sources.filter(is_failed)["source"].to_pylist())
    lines = [row for row in losses if row["kind"] != PartStatus.FAILED or row["source"] in failed]
    for row in sorted(lines, key=lambda row: (row["kind"], row["source"]))[:LOGGED_FILES]:
        log.warning(f"{row['kind']}: {row['source']}: {row['detail']}")
    if len(lines) > LOGGED_FILES:
        log.warning(f"and {len(lines) - LOGGED_FILES} more: see `losses` in the table {SOURCES_TABLE}")
    by_kind = {kind: {row["source"] for row in lines if row["kind"] == kind} for kind in PartStatus}
    if not ocr and by_kind[PartStatus.NEEDS_OCR]:
        log.warning(
            f"files with something that needs OCR: {len(by_kind[PartStatus.NEEDS_OCR])}; --ingest.ocr reads scanned "
            "pages and images"
        )
    return {f"sources_{kind}": len(names) for kind, names in by_kind.items() if names}


def require_read(output: Location, counts: Mapping[str, int], *, max_failed_share: float) -> None:
    """Returns where enough was read and nothing is left to read.

    Raises:
        TooManyFailedError: more sources failed than `max_failed_share` allows, or all.
        NotReadError: some sources could not be read now.
    """
    num, failed = counts["sources"], counts.get("sources_failed", 0)
    if failed > max_failed_share * num:
        raise _too_many_failed(output, failed, num)
    require_sources(output)


def require_sources(output: Location) -> None:
    """Returns if every source could be fetched, and something of one could be read.

    Raises:
        TooManyFailedError: all sources failed.
        NotReadError: some sources could not be fetched now.
    """
    table = OutputTable(output=output, name=SOURCES_TABLE)
    if not table.exists():
        return  # the documents are those of another output
    sources = table.dataset().to_table(["source", "status", "losses"])
    lines = run_query(f"select status, source, kind, detail from ({_LOSSES})", {"sources": sources}).to_pylist()
    failed = {row["source"] for row in lines if row["kind"] == PartStatus.FAILED and row["status"] == "failed"}
    if len(failed) == sources.num_rows > 0:
        raise _too_many_failed(output, len(failed), sources.num_rows)
    lost = {row["source"]: row["detail"] for row in lines if row["kind"] == PartStatus.NOT_READ}
    for source, reason in sorted(lost.items())[:1]:
        raise NotReadError(
            f"{len(lost):,} of {quantity(sources.num_rows, 'source')} not read, such as {source}: {reason}; the same "
            "command reads them"
        )


def _too_many_failed(output: Location, num_failed: int, num: int) -> TooManyFailedError:
    return TooManyFailedError(
        f"{num_failed:,} of {quantity(num, 'source')} failed; `error` and `losses` in the table "
        f"{output / SOURCES_TABLE} say why: fix the cause, and run it again with retry_failed"
    )

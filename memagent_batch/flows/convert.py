"""Converting: files of PDF, HTML, DOCX, e-mail and text in, a table of their parts out, each file with its rows."""

import logging
import sys
from collections.abc import Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from memagent_batch.config.convert import MEMORY_MIB, OCR_MEMORY_MIB, OCR_SECONDS, SECONDS, ConvertConfig, ConvertJob
from memagent_batch.config.job import ExecutorKind
from memagent_batch.config.sources import SourceConfig, Trust
from memagent_batch.convert.batches import Batch, ConvertTask, convert_batch, plan_batches, read_held, require_distinct
from memagent_batch.convert.converter import PartStatus, make_converter
from memagent_batch.convert.kinds import FileKind
from memagent_batch.convert.process.sandbox import Limits
from memagent_batch.convert.publish import require_claim
from memagent_batch.convert.record import (
    ConvertManifest,
    ConvertRun,
    begin_convert,
    close_convert,
    require_converted,
    require_output,
    shown,
)
from memagent_batch.convert.sources import ChosenConverter
from memagent_batch.convert.table import FILE_OUTCOMES
from memagent_batch.documents.listing import HIDDEN_NAME, InputFile, list_places
from memagent_batch.domain.texts.shares import quantity
from memagent_batch.errors import InputError, SettingsError
from memagent_batch.executors.executor import Executor, choose_executor
from memagent_batch.executors.leaving import GracefulShutdown
from memagent_batch.logs import EventKind, log_step
from memagent_batch.plugins import CONVERTERS
from memagent_batch.runs.claim import canonical, require_disjoint
from memagent_batch.store.location import Location
from memagent_batch.wiring import make_documents

MAX_LOCAL_SOURCES = 100
"""Most files that `auto` converts one after another in this process, some 0.2 s each."""
HASHES_PER_FILE = 20
"""Known files that count as one new file: of each, mostly the hash alone is made."""
LOGGED_FILES = 10
UNREAD_OUTCOMES = tuple(each for each in FILE_OUTCOMES if each is not PartStatus.OK)
"""How files ended that lack something, or may be wrong."""

log = logging.getLogger(__name__)


def convert(job: ConvertJob, *, sessions: ExitStack | None = None) -> ConvertManifest:
    """Converts what is new or changed, and returns the manifest.

    `sessions` keeps the session of the executor for what follows; without it the session ends here.

    Raises:
        UsageError: the user's mistake, found before a file is read.
        CountsError: a file has no rows.
        SupersededError: a newer attempt has claimed the output.
        NotReadError: some files could not be read now.
        TooManyFailedError: more files failed than are allowed, or all.
    """
    settings = {"ocr": job.ocr, "ocr_min_confidence": job.ocr_min_confidence}
    converters = choose_converters(job.converters, settings=settings, allow_code=job.allow_code)
    sources = SourceConfig(documents=job.documents, ask=("-",), storage_options=job.storage_options)
    places = make_documents(sources)
    output = Location(uri=job.output, storage_options=job.storage_options)
    require_disjoint(sources, output=job.output)
    documents = [canonical(uri, sources) for uri in sources.documents]
    require_output(output, documents=documents)
    log_step("listing the files")
    listed = list_places(places, keep_left_out=True)
    is_content = job.trust is Trust.CONTENT
    files = [replace(file, version=None) if is_content else file for file in listed if file.left_out != HIDDEN_NAME]
    hidden = [file.name for file in listed if file.left_out == HIDDEN_NAME]
    if not files:
        raise InputError(
            f"{', '.join(documents)} holds no files: all {len(hidden)} names start with ., _ or ~$; rename them"
        )
    require_distinct(files)
    run = begin_convert(output, documents=documents)
    held = read_held(output, finished=run.finished, converters=converters, retry_failed=job.retry_failed)
    executor = _choose_executor(job.executor, files, known={each.source for rows in held.values() for each in rows})
    with ExitStack() as own:
        (sessions or own).enter_context(executor.session())
        _log_start(run, num_files=len(files))
        batches = plan_batches(files, held, num_cpus=executor.num_cpus)
        task = ConvertTask(
            documents=places[0],
            output=output,
            run_id=run.run_id,
            converters=converters,
            settings=settings,
            limits=_limits(job),
            file_bytes=job.file_mib << 20,
            search_path=tuple(sys.path),
        )
        found = _convert_batches(batches, run=run, task=task, executor=executor, num_files=len(files))
        names = [file.name for file in files]
        manifest = close_convert(run, found, names=names, left_out=hidden, converters=converters)
    _log_unread(found, ocr=job.ocr)
    _log_end(manifest)
    require_converted(manifest, found, max_failed_share=job.max_failed_share)
    return manifest


def choose_converters(
    own: Mapping[str, str], *, settings: Mapping[str, Any], allow_code: bool
) -> dict[str, ChosenConverter]:
    """The converter of each kind or ending.

    Raises:
        SettingsError: a kind or converter is unknown, not installed, or code of the user's that is not allowed.
    """
    for kind in own:
        if kind not in list(FileKind) and not kind.startswith("."):
            raise SettingsError(f"converter: {kind!r} is not one of {', '.join(FileKind)}, and no ending such as .dat")
    names = {kind.value: kind.value for kind in FileKind} | {**own}
    return {kind: _converter(name, settings=settings, allow_code=allow_code) for kind, name in names.items()}


def _converter(name: str, *, settings: Mapping[str, Any], allow_code: bool) -> ChosenConverter:
    CONVERTERS.require(name, allows_code=allow_code)
    version = make_converter(CONVERTERS.find(name), settings).version()
    return ChosenConverter(name=name, path=CONVERTERS.path(name), version=version)


def _limits(config: ConvertConfig) -> Limits:
    seconds, memory_mib = (OCR_SECONDS, OCR_MEMORY_MIB) if config.ocr else (SECONDS, MEMORY_MIB)
    return Limits(
        seconds=config.seconds or seconds,
        memory_bytes=(config.memory_mib or memory_mib) << 20,
        output_bytes=config.output_mib << 20,
    )


def _choose_executor(kind: ExecutorKind, files: Sequence[InputFile], *, known: Set[str]) -> Executor:
    new = [file for file in files if file.name not in known]
    num_files = len(new) + (len(files) - len(new)) // HASHES_PER_FILE
    num_bytes = sum(file.size_bytes for file in new)
    return choose_executor(kind, num_files=num_files, num_bytes=num_bytes, most_files=MAX_LOCAL_SOURCES)


def _convert_batches(
    batches: Sequence[Batch], *, run: ConvertRun, task: ConvertTask, executor: Executor, num_files: int
) -> pa.Table:
    with GracefulShutdown(require_claim=partial(require_claim, run.output, run_id=run.run_id)):
        reports = executor.map(partial(convert_batch, task=task), batches, is_heavy=True)
        return pa.concat_tables(shown(reports, run_id=run.run_id, num_files=num_files))


def _log_start(run: ConvertRun, *, num_files: int) -> None:
    fields = {"run_id": run.run_id, "asked": num_files, "output": str(run.output)}
    started = {"event": EventKind.RUN_STARTED, **fields}
    log.info(f"run {run.run_id}: {quantity(num_files, 'file')} to convert", extra=started)


def _log_unread(sources: pa.Table, *, ocr: bool) -> None:
    """Names the first files whose texts lack something or may be wrong, with the reasons."""
    rows = sources.select(["status", "source", "reason"]).to_pylist()
    unread = [row for row in rows if row["status"] in UNREAD_OUTCOMES]
    for row in sorted(unread, key=lambda row: (UNREAD_OUTCOMES.index(row["status"]), row["source"]))[:LOGGED_FILES]:
        log.warning(f"{row['status']}: {row['source']}: {row['reason'] or 'nothing is in it'}")
    if len(unread) > LOGGED_FILES:
        log.warning(f"and {len(unread) - LOGGED_FILES} more: see `status` and `reason` in the table")
    if not ocr and (num := sum(row["status"] == PartStatus.NEEDS_OCR for row in unread)):
        log.warning(f"files with something that needs OCR: {num}; --ocr reads scanned pages and images")


def _log_end(manifest: ConvertManifest) -> None:
    run_id, counts = manifest["run_id"], manifest["counts"]
    fields = {"run_id": run_id, "seconds": manifest["seconds"], **counts}
    left_out = f"; {counts['left_out']} left out (names that start with ., _ or ~$)" if counts["left_out"] else ""
    message = f"run {run_id} closed: {counts['files']} files, {counts['files_reused']} of them reused{left_out}"
    log.info(message, extra={"event": EventKind.RUN_CLOSED, **fields})

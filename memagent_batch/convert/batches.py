"""Files of the input in batches, each a CPU task that writes a file of the table.

What the table holds of a file that has not changed is not made again.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa

from memagent_batch.convert.converter import Part, PartStatus, ending_of
from memagent_batch.convert.kinds import KINDS_VERSION
from memagent_batch.convert.process.sandbox import Limits
from memagent_batch.convert.process.worker import ConverterServer
from memagent_batch.convert.sources import ChosenConverter, Source, SourceConverter, unopened
from memagent_batch.convert.table import (
    BatchReport,
    ConvertedFile,
    ConvertedSource,
    ConverterChoice,
    SourceReport,
    read_rows,
    read_sources,
    report_of,
    rows_table,
)
from memagent_batch.documents.listing import CONVERTED_FOLDER, InputFile, into_batches
from memagent_batch.errors import InputError, SupersededError
from memagent_batch.runs.claim import require_claim
from memagent_batch.store.errors import input_errors
from memagent_batch.store.location import Location

BATCH_FILES = 256
"""Most files of one task. A kill costs at most the tasks in progress."""
BATCH_BYTES = 64 << 20
"""Bytes of files from which a task takes no more."""
TASKS_PER_CPU = 4
"""Tasks that a small input is cut into for each CPU, so that all have something to do until the end."""
MIN_FILES = 8
"""Least files of a task: below that, its start takes longer than its work."""
SMALL_FILES = 64
"""Table files with few sources from which they are put together again."""
FEW_SOURCES = 32
"""A table file with fewer sources is small."""
FOOTER_THREADS = 16
"""Footers of table files read at once."""
COPY_BYTES = 1 << 20
"""Bytes of a source that are copied at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedRows:
    """Rows that the table holds of a source: a row group of one of its files."""

    file: str
    """Name of the table file, below the output."""
    row_group: int
    report: SourceReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A file of the input, and where the table may hold its rows."""

    file: InputFile
    held: tuple[ConvertedRows, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Files of one task, whose rows become one file of the table."""

    number: int
    """Position among the batches of the run."""
    works: tuple[Work, ...]
    kept: str | None = None
    """The table file that has just these sources; it stays where none of them has changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertTask:
    """What every task of a run needs to know."""

    documents: Location
    """A place on the file system of the input."""
    output: Location
    run_id: str
    converters: Mapping[str, ChosenConverter]
    """The converters by kind or ending."""
    settings: Mapping[str, Any]
    """Settings that converters may be made with."""
    limits: Limits
    """What the process of one file may cost."""
    file_bytes: int
    """Size from which a file is skipped."""
    retry_failed: bool
    """Whether files with failed parts are converted again."""
    search_path: tuple[str, ...]
    """Where the driver finds modules; a node that has these folders finds converters there too."""


def read_converted(output: Location, *, finished: Sequence[str]) -> dict[str, list[SourceReport]]:
    """Reads the footers of the table's files, those of attempts that were killed included: each was written whole.

    Returns:
        The sources of each file; files of the finished run come first.

    Raises:
        StorageError: a file can't be read.
    """
    folder = output / CONVERTED_FOLDER
    listed = [f"{CONVERTED_FOLDER}/{PurePosixPath(path).name}" for path in folder.files()]
    names = [*(name for name in finished if name in listed), *sorted(set(listed) - set(finished), reverse=True)]
    with ThreadPoolExecutor(FOOTER_THREADS) as threads:
        reports = threads.map(lambda name: read_sources(output / name), names)
        return dict(zip(names, reports, strict=True))


def require_distinct(files: Sequence[InputFile]) -> None:
    """Refuses a file that stands where attachments of another one would: keys of a bucket, `a.eml` and `a.eml/b.pdf`.

    Raises:
        InputError: names both.
    """
    names = {file.name for file in files if file.size_bytes}
    for file in files:
        above = next((str(parent) for parent in PurePosixPath(file.name).parents if str(parent) in names), None)
        if above is not None:
            raise InputError(
                f"documents: {file.name!r} lies below {above!r}, which is a file too, so their documents could "
                "have the same ids; rename one of them"
            )


def plan_batches(
    files: Sequence[InputFile], held: Mapping[str, Sequence[SourceReport]], *, num_cpus: int
) -> list[Batch]:
    """All files of the input in batches: those of a table file together, then the others."""
    rows = defaultdict[str, list[ConvertedRows]](list)
    for name, reports in held.items():
        for row_group, report in enumerate(reports):
            rows[report.source].append(ConvertedRows(file=name, row_group=row_group, report=report))
    works = {file.name: Work(file=file, held=tuple(rows.get(file.name, ()))) for file in files}
    batches, taken = list[Batch](), set[str]()
    for name, reports in _to_keep(held).items():
        own = [report.source for report in reports if report.source in works and report.source not in taken]
        taken.update(own)
        if own:
            kept = name if len(own) == len(reports) else None
            batches.append(Batch(number=len(batches), works=tuple(works[source] for source in own), kept=kept))
    rest = [work for name, work in works.items() if name not in taken]
    most = max(MIN_FILES, min(BATCH_FILES, len(rest) // (TASKS_PER_CPU * max(1, num_cpus))))
    groups = into_batches(rest, size_bytes=lambda work: work.file.size_bytes, max_items=most, max_bytes=BATCH_BYTES)
    batches += [Batch(number=number, works=tuple(group)) for number, group in enumerate(groups, start=len(batches))]
    return batches


def _to_keep(held: Mapping[str, Sequence[SourceReport]]) -> Mapping[str, Sequence[SourceReport]]:
    """The table files whose sources stay together; if there are many small ones, they are put together."""
    small = {name for name, reports in held.items() if len(reports) < FEW_SOURCES}
    dissolved = small if len(small) > SMALL_FILES else set()
    return {name: reports for name, reports in held.items() if name not in dissolved}


def convert_batch(batch: Batch, *, task: ConvertTask) -> pa.Table:
    """Converts what is new or changed; writes a file unless all stays. Returns the table of a `BatchReport`.

    Raises:
        SupersededError: a newer attempt holds the claim; no file is left.
    """
    with ConverterServer(search_path=task.search_path, settings=task.settings) as server:
        sources = _Sources(task, server)
        num_reused, file = 0, ConvertedFile()
        stays = batch.kept is not None
        for work in batch.works:
            outcome = sources.outcome(work)
            if isinstance(outcome, ConvertedRows):
                num_reused += 1
                stays &= outcome.file == batch.kept
                file.add(read_rows(task.output / outcome.file, outcome.row_group), outcome.report)
            else:
                stays = False
                file.add(rows_table(outcome.rows), report_of(outcome))
    name = batch.kept if stays else None
    if name is None:
        name = f"{CONVERTED_FOLDER}/part-{batch.number:05d}-{task.run_id}.parquet"
        _write_claimed(task, name, file.finish())
    return BatchReport(file=name, num_reused=num_reused, sources=file.sources).table()


def _write_claimed(task: ConvertTask, name: str, data: bytes) -> None:
    require_claim(task.output, run_id=task.run_id)
    (task.output / name).write_bytes(data)
    try:
        require_claim(task.output, run_id=task.run_id)
    except SupersededError:
        (task.output / name).delete()
        raise


class _Sources:
    """The files of a batch, one after another, with one server that starts when the first one must be converted."""

    def __init__(self, task: ConvertTask, server: ConverterServer) -> None:
        self._task = task
        self._server = server
        self._converter = SourceConverter(server, converters=task.converters, limits=task.limits)

    def outcome(self, work: Work) -> ConvertedRows | ConvertedSource:
        """The rows that the table has of a file if it has not changed, else new ones."""
        try:
            return self._outcome(work)
        finally:
            self._server.clear()

    def _outcome(self, work: Work) -> ConvertedRows | ConvertedSource:
        file = work.file
        if file.left_out is not None:
            outcome = Part(status=PartStatus.SKIPPED, reason=file.left_out)
            return self._reused(work, None) or unopened(file.name, outcome)
        if file.size_bytes > self._task.file_bytes:
            return self._reused(work, None) or unopened(file.name, self._too_large(file))
        try:
            copy = self._server.folder() / f"source{ending_of(file.name)}"
            digest = self._copied(file, copy)
        except InputError as error:
            return unopened(file.name, Part(status=PartStatus.NOT_READ, reason=str(error)))
        return self._reused(work, digest) or self._converter.convert(copy, Source(name=file.name, hash=digest))

    def _reused(self, work: Work, digest: str | None) -> ConvertedRows | None:
        return next((held for held in work.held if self._stays(held.report, digest)), None)

    def _stays(self, report: SourceReport, digest: str | None) -> bool:
        """Whether rows are as they would be made today."""
        if report.source_hash != digest or report.status == PartStatus.NOT_READ:
            return False
        if self._task.retry_failed and report.parts.get(PartStatus.FAILED):
            return False
        if digest is None:
            return True  # no converter can have it
        return bool(report.choices) and all(map(self._is_same, report.choices))

    def _is_same(self, choice: ConverterChoice) -> bool:
        """Whether a kind of file has the same converter now, or none as before."""
        converters = self._task.converters
        chosen = converters.get(choice["ending"]) or converters.get(choice["kind"] or "")
        now = (chosen.name, chosen.version) if chosen else (None, KINDS_VERSION)
        return now == (choice["converter"], choice["version"])

    def _copied(self, file: InputFile, copy: Path) -> str:
        """Copies a file, in one read; returns its SHA-256."""
        place = self._task.documents.at(file.path)
        digest = sha256()
        with input_errors(place.uri), place.open() as source, copy.open("wb") as target:
            while block := source.read(COPY_BYTES):
                digest.update(block)
                target.write(block)
        return digest.hexdigest()

    def _too_large(self, file: InputFile) -> Part:
        size, most = file.size_bytes >> 20, self._task.file_bytes >> 20
        reason = f"{size:,} MiB; files of more than {most:,} MiB are not converted (--file-mib)"
        return Part(status=PartStatus.SKIPPED, reason=reason)

"""Files of the input in batches, each a CPU task that writes a file of the table.

What the table holds of a file that has not changed is not made again.
"""

import io
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.convert.converter import Part, PartStatus, ending_of
from memagent_batch.convert.kinds import KINDS_VERSION, FileKind
from memagent_batch.convert.process.sandbox import Limits
from memagent_batch.convert.process.worker import ConverterServer
from memagent_batch.convert.publish import claimed_files
from memagent_batch.convert.sources import ChosenConverter, SourceConverter, unopened
from memagent_batch.convert.table import CONVERTED, ConvertedRow, read_sources, rows_table
from memagent_batch.documents.listing import CONVERTED_FOLDER, InputFile
from memagent_batch.documents.shards import into_batches
from memagent_batch.errors import InputError
from memagent_batch.store.errors import input_errors, table_errors
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
CONVERTERS_KEY, VERSIONS_KEY = b"memagent.converters", b"memagent.versions"
"""Entries of a table file's schema, as JSON: the converters of its run, and its sources' versions in the listing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldSource:
    """What the table holds of a file of the input."""

    source: str
    file: str
    row_group: int
    hash: str | None
    version: str | None
    """What the listing said of it; None if nothing."""
    stays: bool
    """Whether its rows are as they would be made today, if its content is the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A file of the input, and where the table may hold its rows."""

    file: InputFile
    held: tuple[HeldSource, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Files of one task, whose rows become one file of the table."""

    number: int
    works: tuple[Work, ...]
    kept: str | None = None
    """The table file that has just these sources; it stays where neither they nor their versions have changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertTask:
    """What every task of a run needs to know."""

    documents: Location
    """A place on the file system of the input."""
    output: Location
    run_id: str
    converters: Mapping[str, ChosenConverter]
    settings: Mapping[str, Any]
    """Settings that converters may be made with."""
    limits: Limits
    file_bytes: int
    """Size from which a file is skipped."""
    search_path: tuple[str, ...]
    """Where the driver finds modules; a node that has these folders finds converters there too."""


def recorded(converters: Mapping[str, ChosenConverter]) -> dict[str, str]:
    """Name and version of the converter of each kind or ending; without a kind, the version of what knows kinds."""
    return {kind: f"{chosen.name} {chosen.version}" for kind, chosen in converters.items()} | {"": KINDS_VERSION}


def read_held(
    output: Location, *, finished: Sequence[str], converters: Mapping[str, ChosenConverter], retry_failed: bool
) -> dict[str, list[HeldSource]]:
    """Looks at the table's files, those of attempts that were killed included: each was written whole.

    Returns:
        The sources of each file; files of the finished run come first.

    Raises:
        StorageError: a file can't be read.
    """
    folder = output / CONVERTED_FOLDER
    listed = [f"{CONVERTED_FOLDER}/{PurePosixPath(path).name}" for path in folder.files()]
    names = [*(name for name in finished if name in listed), *sorted(set(listed) - set(finished), reverse=True)]
    now = recorded(converters)
    with ThreadPoolExecutor(FOOTER_THREADS) as threads:
        tables = threads.map(lambda name: read_sources(output / name), names)
        return {
            name: _held_sources(name, table, now=now, retry_failed=retry_failed)
            for name, table in zip(names, tables, strict=True)
        }


def _held_sources(name: str, sources: pa.Table, *, now: Mapping[str, str], retry_failed: bool) -> list[HeldSource]:
    before, versions = (json.loads(sources.schema.metadata.get(key, "{}")) for key in (CONVERTERS_KEY, VERSIONS_KEY))
    changed = {kind for kind in before | now if before.get(kind) != now.get(kind)}
    others = {before[kind] if kind else "" for kind in changed if kind in before}
    return [
        HeldSource(
            source=row["source"],
            file=name,
            row_group=number,
            hash=row["source_hash"],
            version=versions.get(row["source"]),
            stays=row["status"] != PartStatus.NOT_READ
            and not (retry_failed and row["rows_failed"])
            and not (changed and row["is_unpacked"])  # no row says what unpacked it
            and not (FileKind.IMAGE in changed and row["rows_needs_ocr"])
            and others.isdisjoint(row["converters"])
            and changed.isdisjoint(row["endings"]),
        )
        for number, row in enumerate(sources.to_pylist())
    ]


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


def plan_batches(files: Sequence[InputFile], held: Mapping[str, Sequence[HeldSource]], *, num_cpus: int) -> list[Batch]:
    """All files of the input in batches: those of a table file together, then the others.

    If many table files are small, their files are among the others.
    """
    by_source = defaultdict[str, list[HeldSource]](list)
    for each in chain.from_iterable(held.values()):
        by_source[each.source].append(each)
    rest = {file.name: Work(file=file, held=tuple(by_source[file.name])) for file in files}
    small = {name for name, sources in held.items() if len(sources) < FEW_SOURCES}
    dissolved = small if len(small) > SMALL_FILES else set()
    batches = list[Batch]()
    for name, sources in held.items():
        own = tuple(rest.pop(each.source) for each in sources if each.source in rest and name not in dissolved)
        if own:
            batches.append(Batch(number=len(batches), works=own, kept=name if len(own) == len(sources) else None))
    most = max(MIN_FILES, min(BATCH_FILES, len(rest) // (TASKS_PER_CPU * max(1, num_cpus))))
    sized = into_batches(rest.values(), size=lambda work: work.file.size_bytes, max_size=BATCH_BYTES, max_items=most)
    return batches + [Batch(number=number, works=tuple(own)) for number, own in enumerate(sized, start=len(batches))]


def convert_batch(batch: Batch, *, task: ConvertTask) -> pa.Table:
    """Converts what is new or changed; writes a file unless all stays.

    Gives `read_sources` of that file, with its name as `file`, and whether each source `is_reused`.

    Raises:
        SupersededError: a newer attempt holds the claim; no file is left.
    """
    versions = {work.file.name: work.file.version for work in batch.works}
    entries = {CONVERTERS_KEY: json.dumps(recorded(task.converters)), VERSIONS_KEY: json.dumps(versions)}
    sink, name, reused, waiting = io.BytesIO(), batch.kept, set[str](), list[HeldSource]()
    with (
        ConverterServer(search_path=task.search_path, settings=task.settings) as server,
        pq.ParquetWriter(sink, CONVERTED.with_metadata({**CONVERTED.metadata, **entries}), compression="zstd") as file,
    ):
        for work in batch.works:
            outcome = _file_outcome(work, task, server)
            server.clear()
            if isinstance(outcome, HeldSource):
                reused.add(outcome.source)
                waiting.append(outcome)
            name = name if isinstance(outcome, HeldSource) and _is_kept_in(name, outcome, work.file) else None
            if name is None:
                for held in waiting:
                    _add(file, _held_rows(task.output / held.file, held.row_group))
                waiting.clear()
                if not isinstance(outcome, HeldSource):
                    _add(file, rows_table(outcome))
    if name is None:
        name = f"{CONVERTED_FOLDER}/part-{batch.number:05d}-{task.run_id}.parquet"
        with claimed_files(task.output, run_id=task.run_id) as written:
            (task.output / name).write_bytes(sink.getvalue())
            written.append(name)
    found = read_sources(task.output / name)
    flags = pa.array([source in reused for source in found["source"].to_pylist()], pa.bool_())
    return found.append_column("file", pa.array([name] * len(flags), pa.string())).append_column("is_reused", flags)


def _is_kept_in(name: str | None, held: HeldSource, file: InputFile) -> bool:
    """Whether a source can stay in a file of the table: one with a new version would be opened again every night."""
    return held.file == name and file.version in {None, held.version}


def _add(file: pq.ParquetWriter, rows: pa.Table) -> None:
    """Adds the rows of a source: one row group."""
    file.write_table(rows, row_group_size=max(1, rows.num_rows))


def _held_rows(place: Location, number: int) -> pa.Table:
    remedy = "run the same command again"
    with table_errors(place.uri, remedy=remedy), place.open() as stream, pq.ParquetFile(stream) as file:
        return file.read_row_group(number, use_threads=False)


def _file_outcome(work: Work, task: ConvertTask, server: ConverterServer) -> HeldSource | Sequence[ConvertedRow]:
    """What the table holds of a file if it has not changed, else new rows."""
    file, standing = work.file, [held for held in work.held if held.stays]
    unopened_part = _unopened_part(file, file_bytes=task.file_bytes)
    if unopened_part is not None:
        return next((held for held in standing if held.hash is None), None) or unopened(file.name, unopened_part)
    same = next((held for held in standing if held.hash and file.version and held.version == file.version), None)
    if same is not None:
        return same
    try:
        copy = server.folder() / f"source{ending_of(file.name)}"
        digest = _copied(task.documents.at(file.path), copy)
    except InputError as error:
        return unopened(file.name, Part(status=PartStatus.NOT_READ, reason=str(error)))
    same = next((held for held in standing if held.hash == digest), None)
    converter = SourceConverter(server, converters=task.converters, limits=task.limits)
    return same or converter.convert(copy, name=file.name, digest=digest)


def _unopened_part(file: InputFile, *, file_bytes: int) -> Part | None:
    if file.left_out is not None:
        return Part(status=PartStatus.SKIPPED, reason=file.left_out)
    if file.size_bytes <= file_bytes:
        return None
    size, most = file.size_bytes >> 20, file_bytes >> 20
    reason = f"{size:,} MiB; files of more than {most:,} MiB are not converted (--file-mib)"
    return Part(status=PartStatus.SKIPPED, reason=reason)


def _copied(place: Location, copy: Path) -> str:
    """Copies a file, in one read; returns its SHA-256."""
    digest = sha256()
    with input_errors(place.uri), place.open() as source, copy.open("wb") as target:
        while block := source.read(COPY_BYTES):
            digest.update(block)
            target.write(block)
    return digest.hexdigest()

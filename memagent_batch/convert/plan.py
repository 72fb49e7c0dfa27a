"""What there is to convert: the files of the input, and what the table's files hold of them already."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from memagent_batch.convert.table import SourceReport, read_sources
from memagent_batch.errors import InputError
from memagent_batch.files.location import Location
from memagent_batch.inputs.listing import CONVERTED_FOLDER, InputFile

BATCH_FILES = 256
"""Most files of one task. A kill costs at most the tasks under way."""
BATCH_BYTES = 64 << 20
"""Bytes of files from which a task takes no more."""
TASKS_PER_CPU = 4
"""Tasks that a small input is cut into for each CPU, so that all have something to do until the end."""
LEAST_FILES = 8
"""Least files of a task: below that, its start takes longer than its work."""
SMALL_FILES = 64
"""Table files with few sources from which they are put together again."""
FEW_SOURCES = 32
"""A table file with fewer sources is small."""
FOOTER_THREADS = 16
"""Footers of table files read at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRows:
    """Where the table holds rows of a source."""

    file: str
    """Name of the table file, below the output."""
    row_group: int
    """Its rows in that file."""
    report: SourceReport
    """What they say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A file of the input."""

    name: str
    """Its path below the folder that was asked for."""
    path: str
    """Its path on the file system."""
    size_bytes: int
    """Its size as it was listed."""
    left_out: str | None = None
    """Why it can't be read, if its listing says so."""
    places: tuple[HeldRows, ...] = ()
    """Where the table may hold its rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Files of one task, whose rows become one file of the table."""

    number: int
    """Position among the batches of the run."""
    works: tuple[Work, ...]
    """The files."""
    kept: str | None = None
    """The table file that has just these sources; it stays where none of them has changed."""


@dataclass(slots=True)
class HeldTable:
    """The table's files, those of attempts that were killed included: each was written whole."""

    files: dict[str, list[SourceReport]] = field(default_factory=dict)
    """Sources by file; files of the finished run come first."""

    def places(self) -> dict[str, list[HeldRows]]:
        """Where each source stands."""
        places = defaultdict(list)
        for file, sources in self.files.items():
            for row_group, report in enumerate(sources):
                places[report.source].append(HeldRows(file=file, row_group=row_group, report=report))
        return places


def read_held(output: Location, *, finished: Sequence[str]) -> HeldTable:
    """Reads the footers of the table's files.

    Args:
        output: The output.
        finished: Files of the last finished run, below the output.

    Raises:
        StorageError: a file can't be read.
    """
    folder = output / CONVERTED_FOLDER
    listed = [f"{CONVERTED_FOLDER}/{PurePosixPath(path).name}" for path in folder.files()]
    names = [*(name for name in finished if name in listed), *sorted(set(listed) - set(finished), reverse=True)]
    with ThreadPoolExecutor(FOOTER_THREADS) as threads:
        reports = threads.map(lambda name: read_sources(output / name), names)
        return HeldTable(files=dict(zip(names, reports, strict=True)))


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


def plan_batches(files: Sequence[InputFile], held: HeldTable, *, num_cpus: int) -> list[Batch]:
    """All files of the input in batches: those of a table file together, then the others.

    Args:
        files: The files of the input.
        held: What the table holds.
        num_cpus: CPUs of the cluster.
    """
    places = held.places()
    works = {
        file.name: Work(
            name=file.name,
            path=file.path,
            size_bytes=file.size_bytes,
            left_out=file.left_out,
            places=tuple(places.get(file.name, ())),
        )
        for file in files
    }
    batches, taken = list[Batch](), set[str]()
    for name, sources in _to_keep(held.files).items():
        own = [works[source.source] for source in sources if source.source in works and source.source not in taken]
        taken.update(work.name for work in own)
        if own:
            kept = name if len(own) == len(sources) else None
            batches.append(Batch(number=len(batches), works=tuple(own), kept=kept))
    rest = [work for name, work in works.items() if name not in taken]
    most = max(LEAST_FILES, min(BATCH_FILES, len(rest) // (TASKS_PER_CPU * max(1, num_cpus))))
    for group in _works_in_batches(rest, most=most):
        batches.append(Batch(number=len(batches), works=tuple(group)))
    return batches


def _to_keep(files: Mapping[str, list[SourceReport]]) -> dict[str, list[SourceReport]]:
    """The table files whose sources stay together; where there are many small ones, they are put together."""
    small = {name for name, sources in files.items() if len(sources) < FEW_SOURCES}
    dissolved = small if len(small) > SMALL_FILES else set()
    return {name: sources for name, sources in files.items() if name not in dissolved}


def _works_in_batches(works: Sequence[Work], *, most: int) -> Iterator[list[Work]]:
    group, num_bytes = list[Work](), 0
    for work in works:
        if group and (len(group) >= most or num_bytes + work.size_bytes > BATCH_BYTES):
            yield group
            group, num_bytes = [], 0
        group.append(work)
        num_bytes += work.size_bytes
    if group:
        yield group

"""CPU tasks: a batch of files in, one file of the table out. What the table holds already is not converted again."""

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

import pyarrow as pa

from memagent_batch.convert.converter import PartStatus, ending_of
from memagent_batch.convert.kinds import KINDS_VERSION, NoConverter
from memagent_batch.convert.plan import Batch, HeldRows, Work
from memagent_batch.convert.process.sandbox import Limits
from memagent_batch.convert.process.worker import ConverterServer
from memagent_batch.convert.sources import ChosenConverter, Source, SourceConverter, plain_row
from memagent_batch.convert.table import (
    Choice,
    ConvertedFile,
    ConvertedSource,
    SourceReport,
    read_rows,
    report_of,
    rows_table,
)
from memagent_batch.errors import InputError, SupersededError
from memagent_batch.files.errors import input_errors
from memagent_batch.files.location import Location
from memagent_batch.inputs.listing import CONVERTED_FOLDER
from memagent_batch.runs.claim import require_claim

COPY_BYTES = 1 << 20
"""Bytes of a source that are copied at once."""

BATCH_REPORT = pa.schema(
    [
        pa.field("file", pa.string()),
        pa.field("num_held", pa.int64()),
        pa.field("sources", pa.string()),
    ]
)
"""What a task reports: the table file of its sources, how many of these it held already, and what it says of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertTask:
    """What every task of a run needs to know."""

    documents: Location
    """A place on the file system of the input."""
    output: Location
    """Where the table is."""
    run_id: str
    """The run."""
    converters: Mapping[str, ChosenConverter]
    """The converters by kind or ending."""
    limits: Limits
    """What the process of one file may cost."""
    file_bytes: int
    """Size from which a file is skipped."""
    retry_failed: bool
    """Whether files with failed parts are converted again."""
    search_path: tuple[str, ...]
    """Where the driver finds modules; a node that has these folders finds converters there too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """Rows that stay."""

    place: HeldRows


_Outcome = _Held | ConvertedSource


def convert_batch(batch: Batch, *, task: ConvertTask) -> pa.Table:
    """A batch in, a row of `BATCH_REPORT` out."""
    return _report_table(*_converted(batch, task=task))


def _converted(batch: Batch, *, task: ConvertTask) -> tuple[str, int, list[SourceReport]]:
    """Converts what is new or changed; writes a file unless all stays.

    Raises:
        SupersededError: a newer attempt holds the claim; no file is left.
    """
    with _Sources(task) as sources:
        num_held, file = 0, ConvertedFile()
        stays = batch.kept is not None
        for work in batch.works:
            outcome = sources.outcome(work)
            num_held += isinstance(outcome, _Held)
            stays &= isinstance(outcome, _Held) and outcome.place.file == batch.kept
            _add_rows(file, outcome, output=task.output)
    if stays and batch.kept is not None:
        return batch.kept, num_held, file.sources
    name = f"{CONVERTED_FOLDER}/part-{batch.number:05d}-{task.run_id}.parquet"
    require_claim(task.output, run_id=task.run_id)
    (task.output / name).write_bytes(file.finish())
    try:
        require_claim(task.output, run_id=task.run_id)
    except SupersededError:
        (task.output / name).delete()
        raise
    return name, num_held, file.sources


def _add_rows(file: ConvertedFile, outcome: _Outcome, *, output: Location) -> None:
    if isinstance(outcome, _Held):
        place = outcome.place
        file.add(read_rows(output / place.file, place.row_group), place.report)
    else:
        file.add(rows_table(outcome.rows), report_of(outcome))


def _report_table(file: str, num_held: int, sources: list[SourceReport]) -> pa.Table:
    text = json.dumps([asdict(source) for source in sources])
    return pa.Table.from_pylist([{"file": file, "num_held": num_held, "sources": text}], schema=BATCH_REPORT)


class _Sources:
    """The files of a batch, one after another, with one server that starts when the first one must be converted."""

    def __init__(self, task: ConvertTask) -> None:
        self._task = task
        self._ends = ExitStack()
        self._server = ConverterServer(search_path=task.search_path)
        self._converter = SourceConverter(self._server, converters=task.converters, limits=task.limits)

    def __enter__(self) -> "_Sources":
        self._ends.enter_context(self._server)
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.close()

    def outcome(self, work: Work) -> _Outcome:
        """The rows that the table has of a file if it has not changed, else new ones."""
        try:
            return self._outcome(work)
        finally:
            self._server.clear()

    def _outcome(self, work: Work) -> _Outcome:
        if work.left_out is not None:
            outcome = NoConverter(status=PartStatus.SKIPPED, reason=work.left_out)
            return self._held(work, None) or self._not_opened(work, outcome)
        if work.size_bytes > self._task.file_bytes:
            return self._held(work, None) or self._not_opened(work, self._too_large(work))
        try:
            if work.places:
                held = self._held(work, self._digest(work, copy=None))
                if held is not None:
                    return held
            file = self._server.folder() / f"source{ending_of(work.name)}"
            digest = self._digest(work, copy=file)
        except InputError as error:
            return self._not_opened(work, NoConverter(status=PartStatus.NOT_READ, reason=str(error)))
        return self._converter.convert(file, Source(name=work.name, hash=digest))

    def _held(self, work: Work, digest: str | None) -> _Held | None:
        return next((_Held(place=place) for place in work.places if self._stays(place.report, digest)), None)

    def _stays(self, report: SourceReport, digest: str | None) -> bool:
        """Whether rows are as they would be made today."""
        if report.source_hash != digest or report.status == PartStatus.NOT_READ:
            return False
        if self._task.retry_failed and report.parts.get(PartStatus.FAILED):
            return False
        if digest is None:
            return True  # no converter can have it
        return bool(report.choices) and all(map(self._is_same, report.choices))

    def _is_same(self, choice: Choice) -> bool:
        """Whether a kind of file has the same converter now, or none as before."""
        converters = self._task.converters
        chosen = converters.get(choice["ending"]) or converters.get(choice["kind"] or "")
        now = (chosen.name, chosen.version) if chosen else (None, KINDS_VERSION)
        return now == (choice["converter"], choice["version"])

    def _digest(self, work: Work, *, copy: Path | None) -> str:
        """SHA-256 of a file, which is copied meanwhile.

        Raises:
            InputError: it can't be read now.
        """
        place = self._task.documents.at(work.path)
        digest = sha256()
        with input_errors(place.uri), ExitStack() as files:
            source = files.enter_context(place.open())
            target = files.enter_context(copy.open("wb")) if copy is not None else None
            while block := source.read(COPY_BYTES):
                digest.update(block)
                if target is not None:
                    target.write(block)
        return digest.hexdigest()

    def _not_opened(self, work: Work, outcome: NoConverter) -> ConvertedSource:
        return ConvertedSource(rows=[plain_row(Source(name=work.name, hash=None), outcome)])

    def _too_large(self, work: Work) -> NoConverter:
        size, most = work.size_bytes >> 20, self._task.file_bytes >> 20
        reason = f"{size:,} MiB; files of more than {most:,} MiB are not converted (--file-mib)"
        return NoConverter(status=PartStatus.SKIPPED, reason=reason)

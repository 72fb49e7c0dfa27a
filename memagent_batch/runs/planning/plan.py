"""The plan of a run: the readings that are asked for, the ones that the log answers already, and the order of the rest.

Holds ids, hashes and places of documents, and the questions; never texts.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from types import MappingProxyType
from typing import TypedDict, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.config.sources import SourceConfig
from memagent_batch.domain.closing.answer_types import ValueType
from memagent_batch.domain.readings import Status
from memagent_batch.inputs.bundles import bundles
from memagent_batch.inputs.document_index import ROWS_COLUMN, IndexedTable, is_there
from memagent_batch.log.files import ReadingKey, log_line
from memagent_batch.log.index import TurnIndex
from memagent_batch.reading.closing import Closing
from memagent_batch.runs.manifest import AgainRecord
from memagent_batch.runs.planning.questions import PlannedQuestions
from memagent_batch.runs.planning.work import WORK_COLUMNS, ReadingLists

Sources = TypeVar("Sources", bound=SourceConfig)
_PLACE_COLUMNS = ["document_id", "document_hash", "path", "format", "start", "stop", "num_bytes", "error", ROWS_COLUMN]


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """What a second pass reads again."""

    record: AgainRecord
    """What the record of the run says of it."""
    questions: Mapping[str, Collection[str]]
    """Ids of the questions that are asked again, by document_id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCounts:
    """Readings of a plan by what the log says of them."""

    asked: int
    """All readings."""
    done: int
    """Answered by the log."""
    failed: int
    """Failed, as the log or the input says."""
    to_close: int
    """Answered by the log; something is asked after the answer that it does not hold."""


class IndexedText(TypedDict):
    """What the plan needs of a document: a row of some columns of the index."""

    document_id: str
    document_hash: str
    num_bytes: int
    error: str | None


class Plan:
    """The readings that are asked for: each document with its questions, `samples` times."""

    def __init__(
        self,
        documents: pa.Table,
        questions: pa.Table,
        *,
        samples: int,
        inline_type: ValueType | None = None,
        closing: Closing | None = None,
        table: IndexedTable | None = None,
        outside: pa.Table | None = None,
        places: Sequence[str] = (),
        again: Again | None = None,
    ) -> None:
        """Joins an index of documents (`INDEX_SCHEMA`) with a question list (`QUESTION_SCHEMA`).

        Args:
            documents: The index.
            questions: The list.
            samples: Readings of each document and question.
            inline_type: The type that questions beside the texts ask for.
            closing: What is asked after each answer; None for nothing, whatever types the questions have.
            table: The table of a lake that the documents are, if they are one.
            outside: The index of documents that are there and are not read, by a limit or in a second pass; None if all
                are read.
            places: URIs of the documents at the versions that were indexed.
            again: What alone is read, of a second pass.
        """
        self.documents = documents
        self.samples = samples
        self.table = table
        self.outside = outside
        self.places = tuple(places)
        self.again = again
        self.asked = PlannedQuestions(questions, documents, inline_type=inline_type, closing=closing)
        if again is not None:
            self.asked.keep_only(again.questions)
        self._missing = frozenset(documents.filter(pc.invert(is_there(documents)))["document_id"].to_pylist())

    @property
    def num_readings(self) -> int:
        """Readings asked for."""
        bound = sum(len(self.asked.bound.get(name, ())) for name in self.documents["document_id"].to_pylist())
        return self.samples * (len(self.asked.shared) * self.num_documents + bound)

    @property
    def num_documents(self) -> int:
        """Documents that are there."""
        return int(self.documents.num_rows) - len(self._missing)

    def pinned(self, sources: Sources) -> Sources:
        """The sources at the versions that were indexed, whatever becomes of a table meanwhile."""
        return sources.model_copy(update={"documents": self.places or sources.documents})

    def question_rows(self, document_id: str) -> list[int]:
        """Rows of the question list that are asked of a document; of one that is not there, those bound to it."""
        bound = self.asked.bound.get(document_id, ())
        return [*bound] if document_id in self._missing else [*self.asked.shared, *bound]

    def counts(self, index: TurnIndex) -> PlanCounts:
        """How many readings are asked for, done and failed."""
        asked = done = failed = to_close = 0
        for document in self.texts():
            for row in self.question_rows(document["document_id"]):
                for sample in range(self.samples):
                    asked += 1
                    status = self._status(document, row, sample, index)
                    done += status == Status.OK
                    failed += status == Status.FAILED
                    to_close += self.is_open(row, self.key_of(document, row, sample), index)
        return PlanCounts(asked=asked, done=done, failed=failed, to_close=to_close)

    def is_open(self, row: int, key: ReadingKey, index: TurnIndex, *, retry_failed: bool = False) -> bool:
        """Whether a reading of this row of the list has an answer, and more is asked after it than the log holds."""
        fingerprint, outcome = self.asked.closing_of(row), index.outcomes.get(key)
        if fingerprint is None or outcome is None or outcome.status != Status.OK:
            return False
        closed = index.closings.get(fingerprint, {}).get(key)
        return closed is None or (retry_failed and closed.status is Status.FAILED)

    def pending(
        self,
        index: TurnIndex,
        *,
        retry_failed: bool,
        last_hashes: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> Iterator[pa.Table]:
        """Documents with readings to do, longest first, as bundles to tokenise together (`bundles.py`).

        Documents of the same text share their readings: the first of them is read, for all.
        A bundle is a table of the index's places with `WORK_COLUMNS`.

        Args:
            index: What the log holds.
            retry_failed: Whether failed readings are done again.
            last_hashes: Hashes of the last versions of documents that have changed, by document_id; the latest first.
        """
        work = self._todo(index, retry_failed=retry_failed)
        documents = self.documents.select(_PLACE_COLUMNS)
        for name, column in work.items():
            documents = documents.append_column(WORK_COLUMNS.field(name), column)
        counts = [pc.list_value_length(column) for column in work.values()]
        documents = documents.filter(pc.greater(pc.add(*counts), 0)).combine_chunks()
        for rows in bundles(documents):
            bundle = documents.take(rows)
            both = zip(*(bundle[name].to_pylist() for name in work), strict=True)
            asked = [[reading["question"] for readings in of_document for reading in readings] for of_document in both]
            hashes = (bundle[name].to_pylist() for name in ("document_hash", "document_id"))
            files, held_hashes = [], []
            for hash_, name, rows in zip(*hashes, asked, strict=True):
                of_last = {last: self.turn_files(last, rows, index) for last in last_hashes.get(name, ())}
                files.append(sorted({*self.turn_files(hash_, rows, index), *chain.from_iterable(of_last.values())}))
                held_hashes.append([last for last, last_files in of_last.items() if last_files])
            ended_by = self._ended_by(bundle, index)
            for name, values in (("turn_files", files), ("ended_by", ended_by), ("last_hashes", held_hashes)):
                column = WORK_COLUMNS.field(name)
                bundle = bundle.append_column(column, pa.array(values, column.type))
            yield bundle.combine_chunks()

    def texts(self, order: list[int] | None = None) -> Iterator[IndexedText]:
        """The documents, in this order of their rows; in that of the index by default."""
        columns = self.documents.select(["document_id", "document_hash", "num_bytes", "error"])
        for batch in (columns if order is None else columns.take(pa.array(order, pa.int64()))).to_batches(
            max_chunksize=10_000
        ):
            yield from batch.to_pylist()

    def readings_of(self, document: IndexedText) -> list[tuple[int, int]]:
        """The readings of a document: rows of the question list and samples."""
        return list(product(self.question_rows(document["document_id"]), range(self.samples)))

    def key_of(self, document: IndexedText, row: int, sample: int) -> ReadingKey:
        """The key of a reading under the reader's fingerprint."""
        return (document["document_hash"], self.asked.hashes[row], sample)

    def turn_files(self, document_hash: str, rows: Iterable[int], index: TurnIndex) -> list[str]:
        """The log files that hold turns of a document's readings for these questions."""
        hashes = {self.asked.hashes[row] for row in rows}
        return sorted({file for hash_ in hashes for file in index.files_of((document_hash, hash_))})

    def _ended_by(self, bundle: pa.Table, index: TurnIndex) -> list[list[str]]:
        """Run and writer that ended each of the readings to close, by document."""
        hashes, closings = (bundle[name].to_pylist() for name in ("document_hash", "closings"))
        keys = (
            [(hash_, self.asked.hashes[each["question"]], each["sample"]) for each in readings]
            for hash_, readings in zip(hashes, closings, strict=True)
        )
        return [[log_line(index.outcomes[key].file) for key in of_document] for of_document in keys]

    def _status(self, document: IndexedText, row: int, sample: int, index: TurnIndex) -> Status | None:
        if document["error"] is not None:
            return Status.FAILED
        outcome = index.outcomes.get(self.key_of(document, row, sample))
        return outcome.status if outcome else None

    def _todo(self, index: TurnIndex, *, retry_failed: bool) -> dict[str, pa.ListArray]:
        """The readings to do of each document, and those to close, as columns of `WORK_COLUMNS`."""
        again = {None, Status.FAILED} if retry_failed else {None}
        shared_texts = self._shared_texts()
        taken_of_shared: set[tuple[ReadingKey, str | None]] = set()
        readings, closings = ReadingLists(), ReadingLists()
        for document in self.texts():
            taken = taken_of_shared if document["document_hash"] in shared_texts else set()
            for row, sample in self.readings_of(document) if document["error"] is None else ():
                reading = self.key_of(document, row, sample)
                key = (reading, self.asked.closing_of(row))
                status = self._status(document, row, sample, index)
                is_open = self.is_open(row, reading, index, retry_failed=retry_failed)
                if key not in taken and (is_open or status in again):
                    (closings if is_open else readings).add(row, sample)
                    taken.add(key)
            readings.end_document()
            closings.end_document()
        return {"readings": readings.column(), "closings": closings.column()}

    def _shared_texts(self) -> frozenset[str]:
        """Hashes that several documents have."""
        counts = self.documents.select(["document_hash"]).group_by("document_hash").aggregate([([], "count_all")])
        return frozenset(counts.filter(pc.greater(counts["count_all"], 1))["document_hash"].to_pylist())

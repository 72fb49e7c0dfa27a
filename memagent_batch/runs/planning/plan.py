"""The plan of a run: the readings that are asked for, the ones that the log answers already, and the order of the rest.

It also groups documents into calls of a reader: long ones alone, small ones together, since each call has its cost.

Holds ids, hashes and places of documents, and the questions; never texts.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import NamedTuple, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.domain.addresses import text_hash
from memagent_batch.domain.closing.answer_types import ValueType
from memagent_batch.domain.readings import Status
from memagent_batch.errors import InputError
from memagent_batch.inputs.bundles import bundles
from memagent_batch.inputs.document_index import ROWS_COLUMN, is_there
from memagent_batch.inputs.lake.known import IndexedTable
from memagent_batch.inputs.questions import type_fields, value_types
from memagent_batch.log.files import ReadingKey
from memagent_batch.log.index import TurnIndex
from memagent_batch.log.question_list import CLOSING_FINGERPRINT, LIST_HASH, with_asked, with_hashes
from memagent_batch.reading.closed import Closing

PART_BYTES = 256 * 1024 * 1024
"""Text that the readings of one part file of the tables have read: some 13,000 turns of 5,000 tokens."""

PART_READINGS = 10_000
"""Most readings in one part file of the tables."""

PART_COLUMN = "part"
"""Number of a part, from 0, in each of its rows: files of the tables are named by it."""

WORK_COLUMNS = pa.schema(
    [
        pa.field("readings", pa.list_(pa.struct([("question", pa.int32()), ("sample", pa.int32())]))),
        pa.field("turn_files", pa.list_(pa.string())),
        pa.field("closings", pa.list_(pa.struct([("question", pa.int32()), ("sample", pa.int32())]))),
        pa.field("last_hash", pa.string()),
    ]
)
"""What a document is read for: row of the question list and sample; the log files that hold turns of it; the
readings that the log has answered, of which something is asked after the answer; and the hash of its last version,
where these files hold turns of that one too."""

_PART_COLUMNS = pa.schema(
    [
        WORK_COLUMNS.field("readings"),
        pa.field("outcome_files", pa.list_(pa.string())),
        WORK_COLUMNS.field("turn_files"),
        pa.field("closing_files", pa.list_(pa.string())),
    ]
)

CALL_COLUMN = "call"
"""Number of the call in which a document goes to a reader: documents of one number go together."""

CALLS_PER_READING = 2
"""Calls that a group leaves for each reading in flight: of what is left to do it takes a fraction of this many."""

CALL_READINGS = 64
"""Most readings of a group of documents; beyond that, what a call costs is little beside what the readings cost."""

_PLACE_COLUMNS = ["document_id", "document_hash", "path", "format", "start", "stop", "num_bytes", "error", ROWS_COLUMN]


class Work(NamedTuple):
    """A reading, whoever reads it; a tuple, since a run holds one for each."""

    document_hash: str
    question: int
    """Row of the question list."""
    sample: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedReading:
    """A reading of a plan, and where the log keeps it."""

    work: Work
    """The reading."""
    key: ReadingKey
    """Its key under the reader's fingerprint."""
    closing: str | None
    """The fingerprint of what closes it; None where nothing is asked after its answer."""


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


class _IndexedText(TypedDict):
    """What the plan needs of a document: a row of some columns of the index."""

    document_id: str
    document_hash: str
    num_bytes: int
    error: str | None


class _PartRow(TypedDict):
    """What a part adds to a document's row of the index."""

    readings: list[dict[str, int]]
    outcome_files: list[str]
    turn_files: list[str]
    closing_files: list[str]


class _ReadingLists:
    """Builds a list column of readings, one list for each document, without an object for each reading."""

    def __init__(self) -> None:
        self._offsets, self._questions, self._samples = array("i", [0]), array("i"), array("i")

    def add(self, question: int, sample: int) -> None:
        """Adds a reading of the document."""
        self._questions.append(question)
        self._samples.append(sample)

    def end_document(self) -> None:
        """The next reading is of the next document."""
        self._offsets.append(len(self._questions))

    def column(self) -> pa.ListArray:
        """The column, as `readings` of `WORK_COLUMNS`."""
        kind = WORK_COLUMNS.field("readings").type
        columns = [pa.array(self._questions, pa.int32()), pa.array(self._samples, pa.int32())]
        values = pa.StructArray.from_arrays(columns, fields=list(kind.value_type))
        return pa.ListArray.from_arrays(pa.array(self._offsets, pa.int32()), values, type=kind)


class Plan:
    """The readings that are asked for: each document with its questions, `samples` times."""

    def __init__(
        self,
        documents: pa.Table,
        questions: pa.Table,
        *,
        samples: int,
        as_lists: bool = False,
        inline_type: ValueType | None = None,
        closing: Closing | None = None,
        table: IndexedTable | None = None,
        outside: pa.Table | None = None,
    ) -> None:
        """Joins an index of documents (`INDEX_SCHEMA`) with a question list (`QUESTION_SCHEMA`).

        Args:
            documents: The index.
            questions: The list.
            samples: Readings of each document and question.
            as_lists: Whether lists are read in one pass, so that an answer depends on the whole list.
            inline_type: The type that questions beside the texts ask for.
            closing: What is asked after each answer; None for nothing, whatever types the questions have.
            table: The table of a lake that the documents are, if they are one.
            outside: The index of documents that are there and that a limit leaves out; None without a limit.
        """
        self.documents = documents
        self.table = table
        self.outside = outside
        self._missing = frozenset(documents.filter(pc.invert(is_there(documents)))["document_id"].to_pylist())
        self.questions = _with_inline(questions, documents, value_type=inline_type)
        self.samples = samples
        self.closing = closing
        self._listed, self._inline_type = questions, inline_type
        self._hashed = with_hashes(self.questions, as_lists=as_lists)
        self.types: list[ValueType | None] = value_types(self.questions)
        """The type that each question asks for."""
        of_type = {each: closing.of_type(each) for each in dict.fromkeys(self.types)} if closing else {}
        self._closings: list[str | None] = [of_type[each] for each in self.types] if of_type else []
        self.closing_turns: list[str] = closing.of_turns(self.types) if closing else []
        """Fingerprints under which the log keeps the closing turns of the plan."""
        if any(self._closings):
            closings = pa.array(self._closings, pa.string())
            self._hashed = self._hashed.append_column(CLOSING_FINGERPRINT, closings)
        self._hashes: list[str] = self._hashed["question_hash"].to_pylist()
        self._list_hashes: list[str] = self._hashed[LIST_HASH].to_pylist() if as_lists else []
        self._shared: list[int] = []
        self._bound: dict[str, list[int]] = defaultdict(list)
        for row, document_id in enumerate(self.questions["document_id"].to_pylist()):
            if document_id is None:
                self._shared.append(row)
            else:
                self._bound[document_id].append(row)
        self._require_distinct()

    @property
    def num_readings(self) -> int:
        """Readings asked for."""
        bound = sum(len(self._bound.get(name, ())) for name in self.documents["document_id"].to_pylist())
        return self.samples * (len(self._shared) * self.num_documents + bound)

    @property
    def closings(self) -> list[str]:
        """Fingerprints under which the log keeps what the closing turns of the plan bring."""
        return sorted({each for each in self._closings if each})

    def turns_of_closings(self) -> dict[str, list[str]]:
        """Fingerprints of closing turns, by that under which the log keeps what they brought together."""
        if self.closing is None:
            return {}
        types = dict.fromkeys(self.types)
        of_types = {self.closing.of_type(each): self.closing.turns_of_type(each) for each in types}
        return {fingerprint: turns for fingerprint, turns in of_types.items() if fingerprint}

    @property
    def num_documents(self) -> int:
        """Documents that are there."""
        return int(self.documents.num_rows) - len(self._missing)

    def for_second_reader(self, closing: Closing | None) -> "Plan":
        """The same readings by a reader that takes questions one by one, and asks this after its answers."""
        return Plan(
            self.documents,
            self._listed,
            samples=self.samples,
            inline_type=self._inline_type,
            closing=closing,
            table=self.table,
            outside=self.outside,
        )

    def closings_of(self, other: "Plan") -> dict[str, str]:
        """Fingerprints of what closes readings here, by those of the same questions in another plan."""
        both = zip(other._closings, self._closings, strict=True)
        return {theirs: own for theirs, own in both if theirs and own}

    def addressed(self) -> Iterator[PlannedReading]:
        """The readings of texts that can be read."""
        for document in self._texts():
            for row, sample in self._asked(document) if document["error"] is None else ():
                yield PlannedReading(
                    work=Work(document["document_hash"], row, sample),
                    key=self._key(document, row, sample),
                    closing=self._closings[row] if self._closings else None,
                )

    def hashed_questions(self) -> pa.Table:
        """The question list with the hashes of the addresses; `readings` name its rows."""
        return self._hashed

    def question_rows(self, document_id: str) -> list[int]:
        """Rows of the question list that are asked of a document; of one that is not there, those bound to it."""
        bound = self._bound.get(document_id, ())
        return [*bound] if document_id in self._missing else [*self._shared, *bound]

    def num_passes(self, document_id: str) -> int:
        """Passes over a document: one for each reading, or for each question list and sample."""
        if not self._list_hashes:
            return self.samples * len(self.question_rows(document_id))
        return self.samples * len({self._list_hashes[row] for row in self.question_rows(document_id)})

    def counts(self, index: TurnIndex) -> PlanCounts:
        """How many readings are asked for, done and failed."""
        asked = done = failed = to_close = 0
        for document in self._texts():
            for row in self.question_rows(document["document_id"]):
                for sample in range(self.samples):
                    asked += 1
                    status = self._status(document, row, sample, index)
                    done += status == Status.OK
                    failed += status == Status.FAILED
                    to_close += self.is_open(row, self._key(document, row, sample), index)
        return PlanCounts(asked=asked, done=done, failed=failed, to_close=to_close)

    def is_open(self, row: int, key: ReadingKey, index: TurnIndex, *, retry_failed: bool = False) -> bool:
        """Whether a reading of this row of the list has an answer, and more is asked after it than the log holds."""
        fingerprint, outcome = self._closings[row] if self._closings else None, index.outcomes.get(key)
        if fingerprint is None or outcome is None or outcome.status != Status.OK:
            return False
        closed = index.closings.get(fingerprint, {}).get(key)
        return closed is None or (retry_failed and closed.is_failed)

    def pending(
        self,
        index: TurnIndex,
        *,
        retry_failed: bool,
        last_hashes: Mapping[str, str] = MappingProxyType({}),
        only: Container[Work] | None = None,
    ) -> Iterator[pa.Table]:
        """Documents with readings to do, longest first, as bundles to tokenise together (`bundles.py`).

        Documents of the same text share their readings: the first of them is read, for all.
        A bundle is a table of the index's places with `WORK_COLUMNS`.

        Args:
            index: What the log holds.
            retry_failed: Whether failed readings are done again.
            last_hashes: Hashes of the last versions of documents that have changed, by document_id.
            only: Readings beside which none are done; None for all.
        """
        work = self._todo(index, retry_failed=retry_failed, only=only)
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
                last_hash = last_hashes.get(name)
                last_files = self._turn_files(last_hash, rows, index) if last_hash else []
                files.append(sorted({*self._turn_files(hash_, rows, index), *last_files}))
                held_hashes.append(last_hash if last_files else None)
            for name, values in (("turn_files", files), ("last_hash", held_hashes)):
                column = WORK_COLUMNS.field(name)
                bundle = bundle.append_column(column, pa.array(values, column.type))
            yield bundle.combine_chunks()

    def parts(self, index: TurnIndex, *, second: "tuple[Plan, TurnIndex] | None" = None) -> Iterator[pa.Table]:
        """All documents, in groups whose readings make one part file of each table; in a group in input order.

        Documents whose readings ended at about the same time go together, so that a log file is read for one group or
        two, and not for all. The readings are all that were asked for; `outcome_files` and `turn_files` name the log
        files that hold them, `asked` holds their questions (`question_list.py`), `part` the number of the group.

        `second`: the plan of a second reader and what the log holds of it, whose files are named too.
        """
        ended_in = [self._ended_in(document, index) for document in self._texts()]
        order = sorted(range(len(ended_in)), key=ended_in.__getitem__)
        group: dict[int, _PartRow] = {}
        number = num_bytes = num_readings = 0
        for row, document in zip(order, self._texts(order), strict=True):
            group[row] = self._part_row(document, index)
            if second is not None:
                group[row] = _with_files(group[row], second[0]._part_row(document, second[1]))
            num_bytes += document["num_bytes"] * len(group[row]["readings"])
            num_readings += len(group[row]["readings"])
            if num_bytes >= PART_BYTES or num_readings >= PART_READINGS:
                yield self._part_table(group, number=number)
                group, number, num_bytes, num_readings = {}, number + 1, 0, 0
        if group:
            yield self._part_table(group, number=number)

    def _require_distinct(self) -> None:
        ids = self.questions["question_id"].to_pylist()
        shared = {ids[row] for row in self._shared}
        for document_id, rows in self._bound.items():
            names = [ids[row] for row in rows]
            twice = shared.intersection(names) or {name for name, count in Counter(names).items() if count > 1}
            if twice:
                raise InputError(
                    f"question_id {min(twice)!r} is asked twice of document {document_id!r} (of every document and of "
                    "it alone, or in the list and beside its text); give one of them another question_id, or drop it"
                )

    def _texts(self, order: list[int] | None = None) -> Iterator[_IndexedText]:
        columns = self.documents.select(["document_id", "document_hash", "num_bytes", "error"])
        for batch in (columns if order is None else columns.take(pa.array(order, pa.int64()))).to_batches(
            max_chunksize=10_000
        ):
            yield from batch.to_pylist()

    def _status(self, document: _IndexedText, row: int, sample: int, index: TurnIndex) -> Status | None:
        if document["error"] is not None:
            return Status.FAILED
        outcome = index.outcomes.get(self._key(document, row, sample))
        return outcome.status if outcome else None

    def _key(self, document: _IndexedText, row: int, sample: int) -> ReadingKey:
        return (document["document_hash"], self._hashes[row], sample)

    def _todo(self, index: TurnIndex, *, retry_failed: bool, only: Container[Work] | None) -> dict[str, pa.ListArray]:
        """The readings to do of each document, and those to close, as columns of `WORK_COLUMNS`."""
        again = {None, Status.FAILED} if retry_failed else {None}
        shared_texts = self._shared_texts()
        taken_of_shared: set[tuple[ReadingKey, str | None]] = set()
        readings, closings = _ReadingLists(), _ReadingLists()
        for document in self._texts():
            taken = taken_of_shared if document["document_hash"] in shared_texts else set()
            for row, sample in self._asked(document) if document["error"] is None else ():
                if only is not None and (document["document_hash"], row, sample) not in only:
                    continue
                reading = self._key(document, row, sample)
                key = (reading, self._closings[row] if self._closings else None)
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

    def _part_row(self, document: _IndexedText, index: TurnIndex) -> _PartRow:
        readings = self._asked(document)
        outcomes = [index.outcomes.get(self._key(document, row, sample)) for row, sample in readings]
        return {
            "readings": [{"question": row, "sample": sample} for row, sample in readings],
            "outcome_files": sorted({outcome.file for outcome in outcomes if outcome}),
            "turn_files": self._turn_files(document["document_hash"], [row for row, _ in readings], index),
            "closing_files": self._closing_files(document, index) if self._closings else [],
        }

    def _closing_files(self, document: _IndexedText, index: TurnIndex) -> list[str]:
        """The log files that hold what was asked after the answers to a document's questions."""
        closed = [
            index.closings.get(self._closings[row] or "", {}).get(self._key(document, row, sample))
            for row, sample in self._asked(document)
        ]
        return sorted({each.file for each in closed if each})

    def _turn_files(self, document_hash: str, rows: Iterable[int], index: TurnIndex) -> list[str]:
        """The log files that hold turns of a document's readings for these questions, its own or shared ones."""
        hashes = {hashes[row] for row in rows for hashes in (self._hashes, self._list_hashes) if hashes}
        return sorted({file for hash_ in hashes for file in index.files_of((document_hash, hash_))})

    def _ended_in(self, document: _IndexedText, index: TurnIndex) -> str:
        """The last log file that holds an outcome of the document; empty where none does."""
        outcomes = [index.outcomes.get(self._key(document, row, sample)) for row, sample in self._asked(document)]
        return max((outcome.file for outcome in outcomes if outcome), default="")

    def _asked(self, document: _IndexedText) -> list[tuple[int, int]]:
        return list(product(self.question_rows(document["document_id"]), range(self.samples)))

    def _part_table(self, group: dict[int, _PartRow], *, number: int) -> pa.Table:
        rows = sorted(group)
        documents = self.documents.take(pa.array(rows, pa.int64()))
        added = pa.Table.from_pylist([group[row] for row in rows], schema=_PART_COLUMNS)
        for column in _PART_COLUMNS:
            documents = documents.append_column(column, added[column.name])
        documents = documents.append_column(PART_COLUMN, pa.array([number] * len(rows), pa.int64()))
        asked = [[reading["question"] for reading in group[row]["readings"]] for row in rows]
        return with_asked(documents, asked, questions=self._hashed).combine_chunks()


def _with_files(row: _PartRow, other: _PartRow) -> _PartRow:
    """The row of a document with the log files of another reader."""
    return {
        "readings": row["readings"],
        "outcome_files": sorted({*row["outcome_files"], *other["outcome_files"]}),
        "turn_files": sorted({*row["turn_files"], *other["turn_files"]}),
        "closing_files": sorted({*row["closing_files"], *other["closing_files"]}),
    }


def _with_inline(questions: pa.Table, documents: pa.Table, *, value_type: ValueType | None) -> pa.Table:
    """Adds the questions that stand beside the texts, bound to their documents."""
    inline = documents.filter(pc.is_valid(documents["question"])).select(["document_id", "question"])
    if not inline.num_rows:
        return questions
    texts = inline["question"].to_pylist()
    added = pa.table(
        {
            "question_id": pa.array([f"q-{text_hash(text)[:12]}" for text in texts], pa.large_string()),
            "document_id": inline["document_id"],
            "question": inline["question"],
            "references": pa.nulls(len(texts), questions.schema.field("references").type),
            **{
                name: pa.array([value] * len(texts), questions.schema.field(name).type)
                for name, value in type_fields(value_type).items()
            },
        }
    ).cast(questions.schema)
    return pa.concat_tables([questions, added])


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingWork:
    """How much is left to read."""

    readings: int
    """Readings, those to close among them."""
    num_bytes: int
    """Text of their documents, once for each reading; bytes of UTF-8."""
    closings: int
    """Readings that the log has answered, of which something is asked after the answer."""


def count_pending(bundles: Iterable[pa.Table]) -> PendingWork:
    """Sums over the bundles of `Plan.pending`."""
    readings = num_bytes = closings = 0
    for bundle in bundles:
        lengths = _num_readings(bundle)
        readings += pc.sum(lengths).as_py()
        num_bytes += pc.sum(pc.multiply(bundle["num_bytes"], lengths)).as_py()
        closings += pc.sum(pc.list_value_length(bundle["closings"])).as_py()
    return PendingWork(readings=readings, num_bytes=num_bytes, closings=closings)


def _num_readings(bundle: pa.Table) -> pa.ChunkedArray:
    """Readings of each document, those to close among them."""
    return pc.add(pc.list_value_length(bundle["readings"]), pc.list_value_length(bundle["closings"]))


def group_documents(bundles: Sequence[pa.Table], *, readings_in_flight: int) -> Iterator[pa.Table]:
    """Adds to each bundle which of its documents go to a reader in one call (`CALL_COLUMN`).

    A call takes at most a small share of the readings and of the bytes that are left, so that calls shrink to one
    document each towards the end, and the replicas end together.

    Args:
        bundles: All of `Plan.pending`, in order.
        readings_in_flight: Of all replicas.
    """
    share = CALLS_PER_READING * readings_in_flight
    left = count_pending(bundles)
    num_readings, num_bytes = left.readings, left.num_bytes
    for bundle in bundles:
        counts = _num_readings(bundle).to_pylist()
        room_readings = room_bytes = 0.0
        calls: list[int] = []
        for count, size in zip(counts, bundle["num_bytes"].to_pylist(), strict=True):
            room_readings, room_bytes = room_readings - count, room_bytes - count * size
            is_full = not calls or room_readings < 0 or room_bytes < 0
            if is_full:
                room_readings = min(num_readings / share, CALL_READINGS) - count
                room_bytes = num_bytes / share - count * size
            calls.append(calls[-1] + is_full if calls else 0)
            num_readings, num_bytes = num_readings - count, num_bytes - count * size
        yield bundle.append_column(CALL_COLUMN, pa.array(calls, pa.int32()))

"""The plan of a run: the readings that are asked for, the ones that the log answers already, and the order of the rest.

Holds ids, hashes and places of documents, and the questions; never texts.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from types import MappingProxyType
from typing import TypedDict, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.config.sources import SourceConfig
from memagent_batch.documents.bundles import bundles
from memagent_batch.documents.document_index import ROWS_COLUMN, IndexedFiles, is_there
from memagent_batch.documents.questions import type_fields, value_types
from memagent_batch.domain.addresses import text_hash
from memagent_batch.domain.follow_ups.answer_types import ValueType
from memagent_batch.domain.readings import Status
from memagent_batch.errors import InputError
from memagent_batch.reading.follow_ups import FollowUps
from memagent_batch.runs.manifest import AgainRecord
from memagent_batch.store.turn_log.index import ReadingKey, TurnIndex
from memagent_batch.store.turn_log.keys import log_line
from memagent_batch.store.turn_log.question_list import FOLLOW_UP_FINGERPRINT, with_hashes

WORK_COLUMNS = pa.schema(
    [
        pa.field("readings", pa.list_(pa.struct([("question", pa.int32()), ("sample", pa.int32())]))),
        pa.field("turn_files", pa.list_(pa.string())),
        pa.field("follow_ups", pa.list_(pa.struct([("question", pa.int32()), ("sample", pa.int32())]))),
        pa.field("ended_by", pa.list_(pa.string())),
        pa.field("last_hashes", pa.list_(pa.string())),
    ]
)
"""What a document is read for: row of the question list and sample; the log files that hold turns of it; the
readings that the log has answered, but whose follow-up questions are missing; run and writer that ended each of these;
and the hashes of its last versions, the latest first, where these files hold turns of those too."""
Sources = TypeVar("Sources", bound=SourceConfig)
_PLACE_COLUMNS = ["document_id", "document_hash", "path", "format", "start", "stop", "num_bytes", "error", ROWS_COLUMN]
CALL_COLUMN = "call"
"""Number of the call in which a document goes to a reader: documents of one number go together."""
CALLS_PER_READING = 2
"""Calls that a group leaves for each reading in flight: of what is left to do it takes a fraction of this many."""
CALL_READINGS = 64
"""Most readings of a group of documents; beyond that, what a call costs is little beside what the readings cost."""


class ReadingLists:
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

    def column(self, kind: pa.DataType, *more: Sequence[object]) -> pa.ListArray:
        """The column: lists of structs of question, sample, and a value of each of `more`."""
        fields = list(kind.value_type)
        columns = zip((self._questions, self._samples, *more), fields, strict=True)
        values = pa.StructArray.from_arrays([pa.array(each, field.type) for each, field in columns], fields=fields)
        return pa.ListArray.from_arrays(pa.array(self._offsets, pa.int32()), values, type=kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingWork:
    """How much is left to read."""

    readings: int
    """Readings, those to close among them."""
    num_bytes: int
    """Text of their documents, once for each reading; bytes of UTF-8."""
    follow_up_readings: int
    """Readings that the log has answered, but whose follow-up questions are missing."""


def count_pending(bundles: Iterable[pa.Table]) -> PendingWork:
    """Sums over the bundles of `Plan.pending`."""
    readings = num_bytes = follow_up_readings = 0
    for bundle in bundles:
        lengths = num_readings_of(bundle)
        readings += pc.sum(lengths).as_py()
        num_bytes += pc.sum(pc.multiply(bundle["num_bytes"], lengths)).as_py()
        follow_up_readings += pc.sum(pc.list_value_length(bundle["follow_ups"])).as_py()
    return PendingWork(readings=readings, num_bytes=num_bytes, follow_up_readings=follow_up_readings)


def num_readings_of(bundle: pa.Table) -> pa.ChunkedArray:
    """Readings of each document, those to close among them."""
    return pc.add(pc.list_value_length(bundle["readings"]), pc.list_value_length(bundle["follow_ups"]))


class PlannedQuestions:
    """The question list of a plan, and what each document is asked."""

    def __init__(
        self, listed: pa.Table, documents: pa.Table, *, inline_type: ValueType | None, follow_ups: FollowUps | None
    ) -> None:
        """Adds to a question list (`QUESTION_SCHEMA`) the questions that stand beside the texts."""
        self.listed, self.inline_type, self.follow_ups = listed, inline_type, follow_ups
        self.table = _with_inline(listed, documents, value_type=inline_type)
        self.types: list[ValueType | None] = value_types(self.table)
        """The type that each question asks for."""
        of_type = {each: follow_ups.of_type(each) for each in dict.fromkeys(self.types)} if follow_ups else {}
        self._follow_up_fingerprints: list[str | None] = [of_type[each] for each in self.types] if of_type else []
        self.follow_up_turns: list[str] = follow_ups.of_turns(self.types) if follow_ups else []
        """Fingerprints under which the log keeps the follow-up questions of the plan."""
        self.are_closed = any(self._follow_up_fingerprints)
        """Whether something is asked after an answer."""
        hashed = with_hashes(self.table)
        if self.are_closed:
            hashed = hashed.append_column(FOLLOW_UP_FINGERPRINT, pa.array(self._follow_up_fingerprints, pa.string()))
        self.hashed: pa.Table = hashed
        """The list with the hashes of the addresses; `readings` name its rows."""
        self.hashes: list[str] = hashed["question_hash"].to_pylist()
        self.shared: list[int] = []
        """Rows of the list that are asked of every document."""
        self.bound: dict[str, list[int]] = defaultdict(list)
        """Rows of the list that are asked of one document, by document_id."""
        for row, document_id in enumerate(self.table["document_id"].to_pylist()):
            (self.shared if document_id is None else self.bound[document_id]).append(row)
        self._require_distinct()

    @property
    def follow_up_readings(self) -> list[str]:
        """Fingerprints under which the log keeps what the follow-up questions of the plan bring."""
        return sorted({each for each in self._follow_up_fingerprints if each})

    def follow_ups_of(self, row: int) -> str | None:
        """The fingerprint of what closes the readings of a question; None where nothing is asked after its answer."""
        return self._follow_up_fingerprints[row] if self._follow_up_fingerprints else None

    def turns_by_follow_up(self) -> dict[str, list[str]]:
        """Fingerprints of follow-up questions, by that under which the log keeps what they brought together."""
        if self.follow_ups is None:
            return {}
        types = dict.fromkeys(self.types)
        of_types = {self.follow_ups.of_type(each): self.follow_ups.of_turns([each]) for each in types}
        return {fingerprint: turns for fingerprint, turns in of_types.items() if fingerprint}

    def keep_only(self, questions: Mapping[str, Collection[str]]) -> None:
        """Binds questions to the documents that are asked them again, and asks nothing else.

        Raises:
            InputError: one of them is not in the list.
        """
        ids = self.table["question_id"].to_pylist()
        bound: dict[str, list[int]] = {}
        for document_id, wanted in questions.items():
            rows = [row for row in (*self.shared, *self.bound.get(document_id, ())) if ids[row] in wanted]
            if len(rows) < len(wanted):
                lacking = min(set(wanted).difference(ids[row] for row in rows))
                raise InputError(
                    f"again_where: it takes question {lacking!r} of document {document_id!r}, which is not asked here; "
                    "give the same questions as for again_from, or narrow the condition: question_id in ('...')"
                )
            bound[document_id] = rows
        self.shared, self.bound = [], defaultdict(list, bound)

    def _require_distinct(self) -> None:
        ids = self.table["question_id"].to_pylist()
        shared = {ids[row] for row in self.shared}
        for document_id, rows in self.bound.items():
            names = [ids[row] for row in rows]
            twice = shared.intersection(names) or {name for name, count in Counter(names).items() if count > 1}
            if twice:
                raise InputError(
                    f"question_id {min(twice)!r} is asked twice of document {document_id!r} (of every document and of "
                    "it alone, or in the list and beside its text); give one of them another question_id, or drop it"
                )


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
class Again:
    """What a second pass reads again."""

    record: AgainRecord
    questions: Mapping[str, Collection[str]]
    """Ids of the questions that are asked again, by document_id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCounts:
    """Readings of a plan by what the log says of them."""

    asked: int
    done: int
    """Answered by the log."""
    failed: int
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
        follow_ups: FollowUps | None = None,
        indexed: IndexedFiles | None = None,
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
            follow_ups: What is asked after each answer; None for nothing, whatever types the questions have.
            indexed: The files that the documents are of; None if they are of none.
            outside: The index of documents that are there and are not read, by a limit or in a second pass; None if all
                are read.
            places: URIs of the documents at the versions that were indexed.
            again: What alone is read, of a second pass.
        """
        self.documents = documents
        self.samples = samples
        self.indexed = indexed
        self.outside = outside
        self.places = tuple(places)
        self.again = again
        self.asked = PlannedQuestions(questions, documents, inline_type=inline_type, follow_ups=follow_ups)
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
        fingerprint, outcome = self.asked.follow_ups_of(row), index.outcomes.get(key)
        if fingerprint is None or outcome is None or outcome.status != Status.OK:
            return False
        closed = index.follow_up_readings.get(fingerprint, {}).get(key)
        return closed is None or (retry_failed and closed.status is Status.FAILED)

    def pending(
        self, index: TurnIndex, *, retry_failed: bool, last_hashes: Mapping[str, Sequence[str]] = MappingProxyType({})
    ) -> Iterator[pa.Table]:
        """Documents with readings to do, longest first, as bundles to tokenise together (`bundles.py`).

        Documents of the same text share their readings: the first of them is read, for all.
        A bundle is a table of the index's places with `WORK_COLUMNS`.
        `last_hashes` are those of the last versions of documents that have changed, by document_id, the latest first.
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
            files, logged_hashes = [], []
            for hash_, name, rows in zip(*hashes, asked, strict=True):
                of_last = {last: self.turn_files(last, rows, index) for last in last_hashes.get(name, ())}
                files.append(sorted({*self.turn_files(hash_, rows, index), *chain.from_iterable(of_last.values())}))
                logged_hashes.append([last for last, last_files in of_last.items() if last_files])
            ended_by = self._ended_by(bundle, index)
            for name, values in (("turn_files", files), ("ended_by", ended_by), ("last_hashes", logged_hashes)):
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
        """The key of a reading under the fingerprint."""
        return (document["document_hash"], self.asked.hashes[row], sample)

    def turn_files(self, document_hash: str, rows: Iterable[int], index: TurnIndex) -> list[str]:
        """The log files that hold turns of a document's readings for these questions."""
        hashes = {self.asked.hashes[row] for row in rows}
        return sorted({file for hash_ in hashes for file in index.files_of((document_hash, hash_))})

    def _ended_by(self, bundle: pa.Table, index: TurnIndex) -> list[list[str]]:
        """Run and writer that ended each of the readings to close, by document."""
        hashes, follow_up_readings = (bundle[name].to_pylist() for name in ("document_hash", "follow_ups"))
        keys = (
            [(hash_, self.asked.hashes[each["question"]], each["sample"]) for each in readings]
            for hash_, readings in zip(hashes, follow_up_readings, strict=True)
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
        readings, follow_up_readings = ReadingLists(), ReadingLists()
        for document in self.texts():
            taken = taken_of_shared if document["document_hash"] in shared_texts else set()
            for row, sample in self.readings_of(document) if document["error"] is None else ():
                reading = self.key_of(document, row, sample)
                key = (reading, self.asked.follow_ups_of(row))
                status = self._status(document, row, sample, index)
                is_open = self.is_open(row, reading, index, retry_failed=retry_failed)
                if key not in taken and (is_open or status in again):
                    (follow_up_readings if is_open else readings).add(row, sample)
                    taken.add(key)
            readings.end_document()
            follow_up_readings.end_document()
        kind = WORK_COLUMNS.field("readings").type
        return {"readings": readings.column(kind), "follow_ups": follow_up_readings.column(kind)}

    def _shared_texts(self) -> frozenset[str]:
        """Hashes that several documents have."""
        counts = self.documents.select(["document_hash"]).group_by("document_hash").aggregate([([], "count_all")])
        return frozenset(counts.filter(pc.greater(counts["count_all"], 1))["document_hash"].to_pylist())


def group_documents(bundles: Sequence[pa.Table], *, readings_in_flight: int) -> Iterator[pa.Table]:
    """Adds to each bundle which of its documents go to a reader in one call (`CALL_COLUMN`).

    A call takes at most a small share of the readings and of the bytes that are left, so that calls shrink to one
    document each towards the end, and the replicas end together.
    """
    share = CALLS_PER_READING * readings_in_flight
    left = count_pending(bundles)
    num_readings, num_bytes = left.readings, left.num_bytes
    for bundle in bundles:
        counts = num_readings_of(bundle).to_pylist()
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

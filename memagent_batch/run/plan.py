"""The plan of a run: the readings that are asked for, the ones that the log answers already, and the order of the rest.

Holds ids, hashes and places of documents in the table `documents`, and the questions; never texts.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.data.documents.document_index import INDEX_SCHEMA, is_there
from memagent_batch.data.documents.questions import value_types
from memagent_batch.data.documents.stored import StoredDocuments
from memagent_batch.data.store.database import on_disk, query_to_disk, run_query
from memagent_batch.data.store.turn_log.index import LogIndex
from memagent_batch.data.store.turn_log.question_list import FOLLOW_UP_FINGERPRINT, asked_follow_ups, with_hashes
from memagent_batch.errors import InputError
from memagent_batch.loop.follow_ups.answer_types import ValueType
from memagent_batch.run.manifest import AgainRecord
from memagent_batch.run.reading.follow_ups import FollowUps
from memagent_batch.run.reading_state import (
    DOCUMENT,
    QUESTION,
    in_blocks,
    list_column,
    log_files,
    open_state,
    rows_of,
    struct_column,
    with_rows,
)

if TYPE_CHECKING:
    import duckdb

BATCH_BYTES = 16 * 1024 * 1024
"""Text of a batch, bytes: about a row group of the table `documents`, so that few tasks decode the same one. A longer
document is a batch alone."""

LEAST_BYTES = 1024
"""What a shorter document counts as: a batch has at most 16,384, of which its task holds ids and places."""

SHORT_BYTES = 16 * 1024
"""Documents under twice this size, a chunk or two, count as equally long: their order does not matter."""

BATCHES = f"""
with pending as (  -- the documents to read, each with the power of two of its size
    select document, num_bytes, floor(log2(greatest(num_bytes, {SHORT_BYTES})))::int as size_class,
           greatest(num_bytes, {LEAST_BYTES}) as counted_bytes
    from documents semi join pending_readings using (document)),
summed as (  -- and the bytes of its class up to its end, in the order of the files
    select *, (sum(counted_bytes) over (
        partition by size_class order by document rows unbounded preceding))::bigint as end_bytes
    from pending)
select document, num_bytes, dense_rank() over (
    order by size_class desc, (end_bytes - counted_bytes) // {BATCH_BYTES}) as batch
from summed order by batch, document
"""
"""The batch of each document to read: the longest documents first, by powers of two, and those of a file together."""


def cut_batches(documents: pa.Table, batches: pa.Table) -> Iterator[pa.Table]:
    """Yields the documents of each batch; `batches` is what the query has found of them."""
    starts = np.flatnonzero(np.diff(batches["batch"].to_numpy(), prepend=0)).tolist()
    edges = pairwise([*starts, documents.num_rows])
    slices = (documents.slice(start, stop - start).combine_chunks() for start, stop in edges)
    for batch in on_disk(slices, schema=documents.schema).to_batches():
        yield pa.Table.from_batches([batch])


WORK_COLUMNS = pa.schema(
    [
        pa.field("readings", pa.list_(pa.struct([("question", pa.int32()), ("sample", pa.int32())]))),
        pa.field("turn_files", pa.list_(pa.string())),
        pa.field("follow_ups", pa.list_(pa.struct([("question", pa.int32()), ("sample", pa.int32())]))),
        pa.field("outcome_files", pa.list_(pa.string())),
    ]
)
"""What a document is read for: row of the question list and sample; the log files that hold turns of its text or of
another version of it; the readings that the log has answered, but whose follow-up questions are missing; and the log
files that hold how these ended."""
AGAIN = pa.schema([("document_id", pa.string()), ("question_id", pa.string())])
_STATE_COLUMNS = ["document_id", "document_hash", "num_bytes", "error"]
CALL_COLUMN = "call"
"""Number of the call in which a document goes to a reader: documents of one number go together."""
CALLS_PER_READING = 2
"""Calls that a group leaves for each reading in flight: of what is left to do it takes a fraction of this many."""
CALL_READINGS = 64
"""Most readings of a group of documents; beyond that, what a call costs is little beside what the readings cost."""
_PLANNED_READINGS = WORK_COLUMNS.field("readings").type
_ASKED = """
select * exclude (number), number::int as sample
from (select document, hash_number, is_unreadable, question, position from hashed_documents, shared where is_there
      union all
      select document, hash_number, is_unreadable, question, position
      from hashed_documents join bound using (document_id)),
     range({samples}) as samples(number)
"""
_COUNTS = """
select count(*) as asked, count(*) filter (is_ok and not is_unreadable) as done,
       count(*) filter (is_unreadable or (not is_ok and not $retry_failed)) as failed,
       count(*) filter (not is_unreadable and (is_ok is null or (not is_ok and $retry_failed))) as waiting,
       count(*) filter (is_open) as to_close
from state
"""
_NUM_BOUND = "select count(*) as count from bound join documents using (document_id)"
_PENDING_READINGS = """
select document, question, position, sample, hash_number, question_number, file, to_close from (
    select *, is_open or coalesce($retry_failed and is_ok and not is_closed_ok, false) as to_close
    from state where not is_unreadable)
where to_close or is_ok is null or ($retry_failed and not is_ok)
-- documents of the same text share their readings
qualify row_number() over (partition by hash_number, question_number, sample order by document, position) = 1
"""
_READINGS_OF_BATCHES = """
select number as document, question, sample from pending_readings join numbered using (document)
where to_close = {to_close} order by number, position, sample
"""
_OUTCOME_FILES = """
select distinct number as document, file from pending_readings join numbered using (document) where to_close
order by document, file
"""
_TURN_FILES = """
with turn_files as (
    -- turns of the same text, whatever document it was read as
    select document, logged_turns.file
    from pending_readings join logged_turns using (hash_number, question_number)
    union
    -- turns of other versions of the document
    select document, logged_turns.file
    from pending_readings join documents using (document)
    join logged_turns using (document_id, question_number))
select number as document, file from turn_files join numbered using (document) order by document, file
"""
_BOUND_AGAIN = """
select again.question_id, again.document_id, coalesce(shared.question, bound.question) as question,
       coalesce(shared.position, bound.position) as position
from again left join shared on shared.question_id = again.question_id
left join bound on bound.question_id = again.question_id and bound.document_id = again.document_id
order by again.document_id, again.question_id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingWork:
    """How much is left to read."""

    readings: int
    num_bytes: int
    """Text of their documents, once for each reading; bytes of UTF-8."""
    follow_up_readings: int
    """Readings that the log has answered, but whose follow-up questions are missing."""


def count_pending(batches: Iterable[pa.Table]) -> PendingWork:
    """Sums over the batches of `Plan.pending`."""
    readings = num_bytes = follow_up_readings = 0
    for batch in batches:
        lengths = num_readings_of(batch)
        readings += pc.sum(lengths).as_py()
        num_bytes += pc.sum(pc.multiply(batch["num_bytes"], lengths)).as_py()
        follow_up_readings += pc.sum(pc.list_value_length(batch["follow_ups"])).as_py()
    return PendingWork(readings=readings, num_bytes=num_bytes, follow_up_readings=follow_up_readings)


def num_readings_of(batch: pa.Table) -> pa.ChunkedArray:
    """Readings of each document, those to close among them."""
    return pc.add(pc.list_value_length(batch["readings"]), pc.list_value_length(batch["follow_ups"]))


class PlannedQuestions:
    """The question list of a plan, and what each document is asked."""

    def __init__(self, listed: pa.Table, *, follow_ups: FollowUps | None) -> None:
        """Takes a question list (`QUESTION_SCHEMA`)."""
        self.table, self.follow_ups = listed, follow_ups
        self.types: list[ValueType | None] = value_types(self.table)
        """The type that each question asks for."""
        of_type = {each: follow_ups.of_type(each) for each in dict.fromkeys(self.types)} if follow_ups else {}
        closing = [of_type.get(each) for each in self.types]
        self.follow_up_turns: list[str] = follow_ups.of_turns(self.types) if follow_ups else []
        """Fingerprints under which the log keeps the follow-up questions of the plan."""
        hashed = with_hashes(self.table)
        if any(closing):
            hashed = hashed.append_column(FOLLOW_UP_FINGERPRINT, pa.array(closing, pa.string()))
        self.hashed: pa.Table = hashed
        """The list with the hashes of the addresses; `readings` name its rows."""
        rows = _with_positions(hashed)
        is_shared = pc.is_null(rows["document_id"])
        self.shared: pa.Table = rows.filter(is_shared)
        """What is asked of every document: question_id, row of the list, and position among those of a document."""
        self.bound: pa.Table = rows.filter(pc.invert(is_shared))
        """What is asked of one document; these come behind the others."""

    @property
    def follow_up_readings(self) -> list[str]:
        """Fingerprints under which the log keeps what the follow-up questions of the plan bring."""
        return asked_follow_ups(self.hashed)

    def turns_by_follow_up(self) -> dict[str, list[str]]:
        """Fingerprints of follow-up questions, by that under which the log keeps what they brought together."""
        if self.follow_ups is None:
            return {}
        types = dict.fromkeys(self.types)
        of_types = {self.follow_ups.of_type(each): self.follow_ups.of_turns([each]) for each in types}
        return {fingerprint: turns for fingerprint, turns in of_types.items() if fingerprint}

    def keep_only(self, again: pa.Table) -> None:
        """Binds questions to the documents that are asked them again (`AGAIN`), and asks nothing else.

        Raises:
            InputError: one of them is not in the list.
        """
        bound = run_query(_BOUND_AGAIN, {"again": again, "shared": self.shared, "bound": self.bound})
        lacking = bound.filter(pc.is_null(bound[QUESTION])).slice(0, 1).to_pylist()
        for row in lacking:
            raise InputError(
                f"again_where: it takes question {row['question_id']!r} of document {row['document_id']!r}, which is "
                "not asked here; give the same questions as for again_from, or narrow the condition: question_id in "
                "('...')"
            )
        self.shared, self.bound = self.shared.slice(0, 0), bound


def _with_positions(hashed: pa.Table) -> pa.Table:
    """Returns the rows of a question list with their positions: those of one document behind those of all."""
    rows = np.arange(hashed.num_rows)
    is_bound = np.asarray(pc.is_valid(hashed["document_id"]), dtype=bool)
    numbered = hashed.select(["question_id", "document_id"]).append_column(QUESTION, pa.array(rows))
    return numbered.append_column("position", pa.array(rows + is_bound * hashed.num_rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """What a second pass reads again."""

    record: AgainRecord
    readings: pa.Table
    """`AGAIN`: the questions that are asked again of each document, each once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCounts:
    """Readings of a plan by what the log says of them."""

    asked: int
    done: int
    """Answered by the log."""
    failed: int
    """Failed, and not to be read again."""
    waiting: int
    """To be read, those of equal texts among them, of which only the first is read."""
    to_close: int
    """Answered by the log; something is asked after the answer that it does not hold."""


class Plan:
    """The readings that are asked for: each document with its questions, `samples` times."""

    def __init__(
        self,
        documents: pa.Table,
        questions: pa.Table,
        *,
        samples: int,
        follow_ups: FollowUps | None = None,
        outside: pa.Table | None = None,
        stored: StoredDocuments,
        lake_versions: Mapping[str, str] = MappingProxyType({}),
        again: Again | None = None,
    ) -> None:
        """Joins an index of documents (`INDEX_SCHEMA`) with a question list (`QUESTION_SCHEMA`).

        Documents `outside` are there and are not read, by a limit or in a second pass, which reads what `again` says
        alone. `stored` are the documents that the index is of, `lake_versions` the versions of what they were made of.
        Without `follow_ups` nothing is asked after an answer, whatever types the questions have.
        """
        self.documents = documents
        self.samples = samples
        self.outside = outside
        self.stored = stored
        self.lake_versions = lake_versions
        self.again = again
        self.asked = PlannedQuestions(questions, follow_ups=follow_ups)
        if again is not None:
            self.asked.keep_only(again.readings)

    @property
    def num_readings(self) -> int:
        """Readings asked for."""
        bound = {"bound": self.asked.bound, "documents": self.documents.select(["document_id"])}
        num_bound = run_query(_NUM_BOUND, bound)["count"][0].as_py() if self.asked.bound.num_rows else 0
        return int(self.samples * (self.asked.shared.num_rows * self.num_documents + num_bound))

    @property
    def num_documents(self) -> int:
        """Documents that are there."""
        return int(pc.sum(is_there(self.documents), min_count=0).as_py())

    @contextmanager
    def state(self, index: LogIndex) -> Iterator["duckdb.DuckDBPyConnection"]:
        """A database with what is asked and logged; see `open_state`."""
        documents = self.documents.select(_STATE_COLUMNS).append_column("is_there", is_there(self.documents))
        tables = {"shared": self.asked.shared, "bound": self.asked.bound}
        asked = _ASKED.format(samples=self.samples)
        with open_state(documents, self.asked.hashed, index, asked=asked, tables=tables) as database:
            yield database

    def counts(self, index: LogIndex, *, retry_failed: bool = False) -> PlanCounts:
        """How many readings are asked for, done and failed."""
        with self.state(index) as database:
            found = database.sql(_COUNTS, params={"retry_failed": retry_failed})
            (counts,) = found.to_arrow_table().to_pylist()
        return PlanCounts(**counts)

    def pending(self, index: LogIndex, *, retry_failed: bool) -> Iterator[pa.Table]:
        """Yields the documents with readings to do in batches to tokenise together, the longest first.

        Documents of the same text share their readings: the first of them is read, for all.
        A batch is a table of `INDEX_SCHEMA` with `WORK_COLUMNS`.
        """
        with self.state(index) as database:
            database.execute(
                f"create temp table pending_readings as {_PENDING_READINGS}", {"retry_failed": retry_failed}
            )
            if not database.sql("from pending_readings limit 1").fetchall():
                return
            batches, names = query_to_disk(database, BATCHES), log_files(database)
            database.register("numbered", with_rows(batches, "number"))
            readings, follow_ups = (_READINGS_OF_BATCHES.format(to_close=each) for each in (False, True))
            queries = (readings, follow_ups, _TURN_FILES, _OUTCOME_FILES)
            tables = [query_to_disk(database, sql) for sql in queries]
        places = self.documents.select(INDEX_SCHEMA.names)
        work = _work(places, batches, tables, names=names)
        yield from cut_batches(on_disk(work, schema=pa.schema([*places.schema, *WORK_COLUMNS])), batches)


def _work(places: pa.Table, batches: pa.Table, tables: Sequence[pa.Table], *, names: pa.Array) -> Iterator[pa.Table]:
    """Yields the documents in the order of their batches, with `WORK_COLUMNS`, some at a time."""
    documents = batches[DOCUMENT].to_numpy()
    for rows, (read, closed, turns, outcomes) in in_blocks(np.arange(batches.num_rows), *tables):
        columns = {
            "readings": struct_column(read, _PLANNED_READINGS, documents=rows),
            "turn_files": list_column(turns, names.take(turns["file"].combine_chunks()), documents=rows),
            "follow_ups": struct_column(closed, _PLANNED_READINGS, documents=rows),
            "outcome_files": list_column(outcomes, names.take(outcomes["file"].combine_chunks()), documents=rows),
        }
        order = np.argsort(documents[rows])
        work = rows_of(places, documents[rows][order]).take(pa.array(np.argsort(order)))
        for field in WORK_COLUMNS:
            work = work.append_column(field, columns[field.name].cast(field.type))
        yield work


def group_documents(batches: Sequence[pa.Table], *, readings_in_flight: int) -> Iterator[pa.Table]:
    """Adds to each batch which of its documents go to a reader in one call (`CALL_COLUMN`).

    A call takes at most a small share of the readings and of the bytes that are left, so that calls shrink to one
    document each towards the end, and the replicas end together.
    """
    share = CALLS_PER_READING * readings_in_flight
    left = count_pending(batches)
    num_readings, num_bytes = left.readings, left.num_bytes
    for batch in batches:
        counts = num_readings_of(batch).to_pylist()
        room_readings = room_bytes = 0.0
        calls: list[int] = []
        for count, size in zip(counts, batch["num_bytes"].to_pylist(), strict=True):
            room_readings, room_bytes = room_readings - count, room_bytes - count * size
            is_full = not calls or room_readings < 0 or room_bytes < 0
            if is_full:
                room_readings = min(num_readings / share, CALL_READINGS) - count
                room_bytes = num_bytes / share - count * size
            calls.append(calls[-1] + is_full if calls else 0)
            num_readings, num_bytes = num_readings - count, num_bytes - count * size
        yield batch.append_column(CALL_COLUMN, pa.array(calls, pa.int32()))

"""The plan of a run: the readings that are asked for, the ones that the log answers already, and the order of the rest.

Holds ids, hashes and places of documents, and the questions; never texts.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.config.sources import SourceConfig
from memagent_batch.documents.document_index import ROWS_COLUMN, IndexedFiles, is_there
from memagent_batch.documents.formats.byte_lines import COMPRESSIONS
from memagent_batch.documents.formats.formats import GROUPED
from memagent_batch.documents.questions import value_types
from memagent_batch.domain.follow_ups.answer_types import ValueType
from memagent_batch.errors import InputError
from memagent_batch.reading.follow_ups import FollowUps
from memagent_batch.runs.manifest import AgainRecord
from memagent_batch.runs.reading_state import (
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
from memagent_batch.store.database import on_disk, query_to_disk, run_query
from memagent_batch.store.turn_log.index import LogIndex
from memagent_batch.store.turn_log.question_list import FOLLOW_UP_FINGERPRINT, asked_follow_ups, with_hashes

if TYPE_CHECKING:
    import duckdb

BUNDLE_BYTES = 1024 * 1024
"""Text that one tokenising task takes out of several files: small ones go together, large ones alone."""

BUNDLE_FILES = 256
"""Most files of a bundle: each costs a request to an object store."""

BUNDLE_DOCUMENTS = 16_384
"""Most documents of a bundle; the task holds their ids and places, some kilobytes each."""

GROUP_BYTES = 64 * 1024 * 1024
"""Most text of a bundle out of one row group. Rows can't be skipped unread, so each bundle decodes those before its own
again: at this size, that costs a tenth of the tokenising."""

GROUP_BUNDLES = 16
"""Bundles that a row group of longer documents is cut into, so that several tasks feed the readers from it."""

SMALL_POWER = 14
"""Documents under 2^15 bytes, a chunk or two, count as equally long: their order does not matter, and a row group is
decoded once for all of them."""

_BUNDLE = "bundle"
_GROUPED = ", ".join(f"'{name}'" for name in sorted(GROUPED))
_PACKED = "|".join(rf"\{ending}$" for ending in COMPRESSIONS)
"""Pattern of files that are unpacked from their beginning, so that several passes over one cost as many times that."""
IN_BUNDLES = f"""
with placed as (
    select document, num_bytes, floor(log2(greatest(num_bytes, {2**SMALL_POWER})))::int as power,
           (path, if(format in ({_GROUPED}), start, 0)) as place,
           format in ({_GROUPED}) or regexp_matches(path, '{_PACKED}', 'i') as is_one_pass
    from documents),
compared as (select * exclude (place), place is distinct from lag(place) over () as is_next from placed),
numbered as (
    select * exclude (is_next), (count(*) filter (is_next) over (rows unbounded preceding))::int as place
    from compared),
sized as (
    select *, is_one_pass and sum(num_bytes) over (partition by power, place) > {BUNDLE_BYTES} as is_apart,
           least(greatest((sum(num_bytes) over (partition by place))::bigint // {GROUP_BUNDLES}, {BUNDLE_BYTES}),
                 {GROUP_BYTES}) as share
    from numbered semi join todo using (document)),
lined_up as (
    select document, num_bytes, power, place, if(is_apart, place, null) as apart,
           case when not is_apart then {BUNDLE_BYTES} when power = {SMALL_POWER} then {GROUP_BYTES} else share end
               - (2 << power) as room
    from sized),
counted as (
    select *, (sum(num_bytes) over line)::bigint as end_bytes, row_number() over line as number,
           dense_rank() over (partition by power, apart order by place) as file
    from lined_up
    window line as (partition by power, apart order by document rows unbounded preceding))
select document, dense_rank() over (order by power desc, apart, (number - 1) // {BUNDLE_DOCUMENTS},
                                    (file - 1) // {BUNDLE_FILES}, if(room > 0, end_bytes // room, number)) as {_BUNDLE}
from counted order by {_BUNDLE}, document
"""
"""The query of the bundle of each document to do (`todo`): longest first by powers of two, inside a power and in a
bundle in the order of the index, which is that of the files. `document` is a row of it; `place` numbers its files and
row groups.

Bundles lie in a line of documents of about one length: of one row group or compressed file that is large, or of all
others. Room for the longest document is left in each, so that the one in which a bundle ends is inside its limit."""


def cut_bundles(documents: pa.Table, lined_up: pa.Table) -> Iterator[pa.Table]:
    """The documents in their bundles; `lined_up` is what the query has found of them."""
    starts = np.flatnonzero(np.diff(lined_up[_BUNDLE].to_numpy(), prepend=0)).tolist()
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
Sources = TypeVar("Sources", bound=SourceConfig)
_PLACE_COLUMNS = ["document_id", "document_hash", "path", "format", "start", "stop", "num_bytes", "error", ROWS_COLUMN]
CALL_COLUMN = "call"
"""Number of the call in which a document goes to a reader: documents of one number go together."""
CALLS_PER_READING = 2
"""Calls that a group leaves for each reading in flight: of what is left to do it takes a fraction of this many."""
CALL_READINGS = 64
"""Most readings of a group of documents; beyond that, what a call costs is little beside what the readings cost."""
_PLANNED_READINGS = WORK_COLUMNS.field("readings").type
_ASKED = """
select * exclude (number), number::int as sample
from (select document, text, is_unreadable, question, place from texts, shared where is_there
      union all
      select document, text, is_unreadable, question, place from texts join bound using (document_id)),
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
_TODO = """
select document, question, place, sample, text, wording, file, to_close from (
    select *, is_open or coalesce($retry_failed and is_ok and not is_closed_ok, false) as to_close
    from state where not is_unreadable)
where to_close or is_ok is null or ($retry_failed and not is_ok)
qualify row_number() over (partition by text, wording, sample order by document, place) = 1
"""
_TO_READ = """
select number as document, question, sample from todo join lined_up using (document)
where not to_close order by number, place, sample
"""
_TO_CLOSE = _TO_READ.replace("not to_close", "to_close")
_OUTCOME_FILES = """
select distinct number as document, file from todo join lined_up using (document) where to_close
order by document, file
"""
_TURN_FILES = """
with found as (
    -- turns of the same text, whatever document it was read as
    select document, logged_turns.file from todo join logged_turns using (text, wording)
    union
    -- turns of other versions of the document
    select document, logged_turns.file
    from todo join documents using (document) join logged_turns using (document_id, wording))
select number as document, file from found join lined_up using (document) order by document, file
"""
_KEPT = """
select again.question_id, again.document_id, coalesce(shared.question, bound.question) as question,
       coalesce(shared.place, bound.place) as place
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
        rows = _placed(hashed)
        is_shared = pc.is_null(rows["document_id"])
        self.shared: pa.Table = rows.filter(is_shared)
        """What is asked of every document: question_id, row of the list, and place among those of a document."""
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
        bound = run_query(_KEPT, {"again": again, "shared": self.shared, "bound": self.bound})
        lacking = bound.filter(pc.is_null(bound[QUESTION])).slice(0, 1).to_pylist()
        for row in lacking:
            raise InputError(
                f"again_where: it takes question {row['question_id']!r} of document {row['document_id']!r}, which is "
                "not asked here; give the same questions as for again_from, or narrow the condition: question_id in "
                "('...')"
            )
        self.shared, self.bound = self.shared.slice(0, 0), bound


def _placed(hashed: pa.Table) -> pa.Table:
    """The rows of a question list with their places: those of one document behind those of all."""
    rows = np.arange(hashed.num_rows)
    is_bound = np.asarray(pc.is_valid(hashed["document_id"]), dtype=bool)
    placed = hashed.select(["question_id", "document_id"]).append_column(QUESTION, pa.array(rows))
    return placed.append_column("place", pa.array(rows + is_bound * hashed.num_rows))


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
        indexed: IndexedFiles | None = None,
        outside: pa.Table | None = None,
        places: Sequence[str] = (),
        again: Again | None = None,
    ) -> None:
        """Joins an index of documents (`INDEX_SCHEMA`) with a question list (`QUESTION_SCHEMA`).

        Documents `outside` are there and are not read, by a limit or in a second pass, which reads what `again` says
        alone. `places` are URIs of the documents at the versions that were indexed. Without `follow_ups` nothing is
        asked after an answer, whatever types the questions have.
        """
        self.documents = documents
        self.samples = samples
        self.indexed = indexed
        self.outside = outside
        self.places = tuple(places)
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

    def pinned(self, sources: Sources) -> Sources:
        """The sources at the versions that were indexed, whatever becomes of a table meanwhile."""
        return sources.model_copy(update={"documents": self.places or sources.documents})

    @contextmanager
    def state(self, index: LogIndex) -> Iterator["duckdb.DuckDBPyConnection"]:
        """A database with what is asked and logged; see `open_state`."""
        documents = self.documents.select(_PLACE_COLUMNS).append_column("is_there", is_there(self.documents))
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
        """Documents with readings to do, longest first, as bundles to tokenise together (`bundles.py`).

        Documents of the same text share their readings: the first of them is read, for all.
        A bundle is a table of the index's places with `WORK_COLUMNS`.
        """
        with self.state(index) as database:
            database.execute(f"create temp table todo as {_TODO}", {"retry_failed": retry_failed})
            if not database.sql("from todo limit 1").fetchall():
                return
            lined_up, names = query_to_disk(database, IN_BUNDLES), log_files(database)
            database.register("lined_up", with_rows(lined_up, "number"))
            found = [query_to_disk(database, sql) for sql in (_TO_READ, _TO_CLOSE, _TURN_FILES, _OUTCOME_FILES)]
        places = self.documents.select(_PLACE_COLUMNS)
        work = _work(places, lined_up, found, names=names)
        yield from cut_bundles(on_disk(work, schema=pa.schema([*places.schema, *WORK_COLUMNS])), lined_up)


def _work(places: pa.Table, lined_up: pa.Table, found: Sequence[pa.Table], *, names: pa.Array) -> Iterator[pa.Table]:
    """The documents of bundles, with `WORK_COLUMNS`, some at a time."""
    documents = lined_up[DOCUMENT].to_numpy()
    for rows, (read, closed, turns, outcomes) in in_blocks(np.arange(lined_up.num_rows), *found):
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

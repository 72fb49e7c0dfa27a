"""The plan of a run: which readings are asked for, which of them the log already answers, and in what order to read.

Holds ids, hashes and places of documents, and the questions; never texts.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.domain.addresses import text_hash
from memagent_batch.domain.readings import Status
from memagent_batch.errors import InputError
from memagent_batch.storage.asked import LIST_HASH, question_lists
from memagent_batch.storage.turn_index import ReadingKey, TurnIndex

BUNDLE_BYTES = 1024 * 1024
"""Text that one tokenising task takes: small documents of one place go together, large ones alone."""

PART_BYTES = 256 * 1024 * 1024
"""Text that the readings of one part file of the tables have read: some 13,000 turns of 5,000 tokens."""

PART_READINGS = 10_000
"""Most readings in one part file of the tables."""

WORK_COLUMNS = pa.schema(
    [
        pa.field("readings", pa.list_(pa.struct([("question", pa.int32()), ("sample", pa.int32())]))),
        pa.field("turn_files", pa.list_(pa.string())),
    ]
)
"""What a document is read for: row of the question list and sample; and the log files that hold turns of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCounts:
    """Readings of a plan by what the log says of them."""

    asked: int
    """All readings."""
    done: int
    """Answered by the log."""
    failed: int
    """Failed, as the log or the input says."""

    @property
    def pending(self) -> int:
        """Neither done nor failed."""
        return self.asked - self.done - self.failed


class Plan:
    """The readings that are asked for: each document with its questions, `samples` times."""

    def __init__(self, documents: pa.Table, questions: pa.Table, *, samples: int, as_lists: bool = False) -> None:
        """Joins an index of documents (`INDEX_SCHEMA`) with a question list (`QUESTION_SCHEMA`).

        `as_lists`: whether lists are read in one pass, so that an answer depends on the whole list; see `asked.py`.
        """
        self.documents = documents
        self.questions = _with_inline(questions, documents)
        self.samples = samples
        self._hashes = [text_hash(question) for question in self.questions["question"].to_pylist()]
        self._list_hashes: list[str] = []
        if as_lists:
            hashes = {name: text_hash(text) for name, text in question_lists(self.questions).items()}
            self._list_hashes = [hashes[name] for name in self.questions["document_id"].to_pylist()]
            pairs = zip(self._list_hashes, self._hashes, strict=True)
            self._hashes = [text_hash(f"{of_list} {own}") for of_list, own in pairs]
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
        return self.samples * (len(self._shared) * int(self.documents.num_rows) + bound)

    def hashed_questions(self) -> pa.Table:
        """The question list with the hashes of the addresses; `readings` name its rows."""
        hashed = self.questions.append_column("question_hash", pa.array(self._hashes, pa.string()))
        if not self._list_hashes:
            return hashed
        return hashed.append_column(LIST_HASH, pa.array(self._list_hashes, pa.string()))

    def question_rows(self, document_id: str) -> list[int]:
        """Rows of the question list that are asked of a document."""
        return [*self._shared, *self._bound.get(document_id, ())]

    def num_passes(self, document_id: str) -> int:
        """Passes over a document: one for each reading, or for each question list and sample."""
        if not self._list_hashes:
            return self.samples * len(self.question_rows(document_id))
        return self.samples * len({self._list_hashes[row] for row in self.question_rows(document_id)})

    def counts(self, index: TurnIndex) -> PlanCounts:
        """How many readings are asked for, done and failed."""
        asked = done = failed = 0
        for document in self._keys():
            for row in self.question_rows(document["document_id"]):
                for sample in range(self.samples):
                    asked += 1
                    status = self._status(document, row, sample, index)
                    done += status == Status.OK
                    failed += status == Status.FAILED
        return PlanCounts(asked=asked, done=done, failed=failed)

    def pending(self, index: TurnIndex, *, retry_failed: bool) -> Iterator[pa.Table]:
        """Documents with readings to do, longest first, as bundles to tokenise together.

        Documents of the same text share their readings: the first of them is read, for all.
        A bundle is a table of the index's rows with `WORK_COLUMNS`; its documents lie in one row group or file, so that
        a place is read once for many small documents.
        """
        taken: set[ReadingKey] = set()
        work = [self._work(document, index, retry_failed=retry_failed, taken=taken) for document in self._keys()]
        documents = self.documents.append_column(
            WORK_COLUMNS.field("readings"), pa.array([readings for readings, _ in work], WORK_COLUMNS.types[0])
        ).append_column(WORK_COLUMNS.field("turn_files"), pa.array([files for _, files in work], WORK_COLUMNS.types[1]))
        documents = documents.filter(pc.greater(pc.list_value_length(documents["readings"]), 0))
        for start, stop in _bundles(order := _longest_first(documents)):
            yield order.slice(start, stop - start).drop_columns(["power"]).combine_chunks()

    def parts(self, index: TurnIndex) -> Iterator[pa.Table]:
        """All documents, in groups whose readings make one part file of each table; in a group in input order.

        Documents whose readings ended at about the same time go together, so that a log file is read for one group or
        two, and not for all. The readings are all that were asked for; `outcome_files` and `turn_files` name the log
        files that hold them.
        """
        ended_in = [self._ended_in(document, index) for document in self._keys()]
        order = sorted(range(len(ended_in)), key=ended_in.__getitem__)
        group: dict[int, dict[str, Any]] = {}
        num_bytes = num_readings = 0
        for row, document in zip(order, self._keys(order), strict=True):
            group[row] = self._part(document, index)
            num_bytes += document["num_bytes"] * len(group[row]["readings"])
            num_readings += len(group[row]["readings"])
            if num_bytes >= PART_BYTES or num_readings >= PART_READINGS:
                yield self._part_table(group)
                group, num_bytes, num_readings = {}, 0, 0
        if group:
            yield self._part_table(group)

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

    def _keys(self, order: list[int] | None = None) -> Iterator[dict[str, Any]]:
        columns = self.documents.select(["document_id", "document_hash", "num_bytes", "error"])
        for batch in (columns if order is None else columns.take(pa.array(order, pa.int64()))).to_batches(
            max_chunksize=10_000
        ):
            yield from batch.to_pylist()

    def _status(self, document: dict[str, Any], row: int, sample: int, index: TurnIndex) -> Status | None:
        if document["error"] is not None:
            return Status.FAILED
        outcome = index.outcomes.get(self._key(document, row, sample))
        return outcome.status if outcome else None

    def _key(self, document: dict[str, Any], row: int, sample: int) -> ReadingKey:
        return (document["document_hash"], self._hashes[row], sample)

    def _work(
        self, document: dict[str, Any], index: TurnIndex, *, retry_failed: bool, taken: set[ReadingKey]
    ) -> tuple[list[dict[str, int]], list[str]]:
        if document["error"] is not None:
            return [], []
        again = {None, Status.FAILED} if retry_failed else {None}
        readings = []
        for row, sample in self._asked(document):
            key = self._key(document, row, sample)
            if key not in taken and self._status(document, row, sample, index) in again:
                readings.append({"question": row, "sample": sample})
                taken.add(key)
        return readings, index.turn_files.get(document["document_hash"], []) if readings else []

    def _part(self, document: dict[str, Any], index: TurnIndex) -> dict[str, Any]:
        readings = self._asked(document)
        outcomes = [index.outcomes.get(self._key(document, row, sample)) for row, sample in readings]
        return {
            "readings": [{"question": row, "sample": sample} for row, sample in readings],
            "outcome_files": sorted({outcome.file for outcome in outcomes if outcome}),
            "turn_files": index.turn_files.get(document["document_hash"], []),
        }

    def _ended_in(self, document: dict[str, Any], index: TurnIndex) -> str:
        """The last log file that holds an outcome of the document; empty where none does."""
        outcomes = [index.outcomes.get(self._key(document, row, sample)) for row, sample in self._asked(document)]
        return max((outcome.file for outcome in outcomes if outcome), default="")

    def _asked(self, document: dict[str, Any]) -> list[tuple[int, int]]:
        return list(product(self.question_rows(document["document_id"]), range(self.samples)))

    def _part_table(self, group: dict[int, dict[str, Any]]) -> pa.Table:
        rows = sorted(group)
        documents = self.documents.take(pa.array(rows, pa.int64()))
        for name, kind in (
            ("readings", WORK_COLUMNS.types[0]),
            ("outcome_files", pa.list_(pa.string())),
            ("turn_files", pa.list_(pa.string())),
        ):
            documents = documents.append_column(name, pa.array([group[row][name] for row in rows], kind))
        return documents.combine_chunks()


def _with_inline(questions: pa.Table, documents: pa.Table) -> pa.Table:
    """Adds the questions that stand beside the texts, bound to their documents."""
    inline = documents.filter(pc.is_valid(documents["question"])).select(["document_id", "question"])
    if not inline.num_rows:
        return questions
    texts = inline["question"].to_pylist()
    added = pa.table(
        {
            "question_id": pa.array([f"q-{text_hash(text)[:12]}" for text in texts], pa.string()),
            "document_id": inline["document_id"],
            "question": inline["question"],
            "references": pa.nulls(len(texts), questions.schema.field("references").type),
        }
    ).cast(questions.schema)
    return pa.concat_tables([questions, added])


def _longest_first(documents: pa.Table) -> pa.Table:
    """Longest first by powers of two; inside a power by place, so that neighbours are read together."""
    power = pc.floor(pc.log2(pc.max_element_wise(documents["num_bytes"], 1)))
    return documents.append_column("power", power).sort_by(
        [("power", "descending"), ("path", "ascending"), ("start", "ascending"), ("stop", "ascending")]
    )


def _bundles(documents: pa.Table) -> Iterator[tuple[int, int]]:
    """Ranges of rows of one file and one power of two that hold at most BUNDLE_BYTES, or one document.

    Inside a bundle documents are read in the order of the file, so one over several powers would not be longest first.
    """
    places = list(zip(documents["path"].to_pylist(), documents["power"].to_pylist(), strict=True))
    sizes = documents["num_bytes"].to_pylist()
    start = 0
    held = 0
    for row in range(len(places)):
        if row > start and (places[row] != places[start] or held + sizes[row] > BUNDLE_BYTES):
            yield start, row
            start, held = row, 0
        held += sizes[row]
    if places:
        yield start, len(places)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingWork:
    """How much is left to read."""

    readings: int
    """Readings."""
    num_bytes: int
    """Text of their documents, once for each reading; bytes of UTF-8."""


def count_pending(bundles: Iterable[pa.Table]) -> PendingWork:
    """Sums over the bundles of `Plan.pending`."""
    readings = num_bytes = 0
    for bundle in bundles:
        lengths = pc.list_value_length(bundle["readings"])
        readings += pc.sum(lengths).as_py()
        num_bytes += pc.sum(pc.multiply(bundle["num_bytes"], lengths)).as_py()
    return PendingWork(readings=readings, num_bytes=num_bytes)

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.data.documents.document_index import INDEX_SCHEMA
from memagent_batch.data.documents.questions import QUESTION_SCHEMA
from memagent_batch.data.store.turn_log.index import LogIndex, ReadingKey
from memagent_batch.data.store.turn_log.question_list import asked_in
from memagent_batch.loop.addresses import text_hash
from memagent_batch.run import parts as parts_module
from memagent_batch.run.plan import (
    BATCH_BYTES,
    CALL_COLUMN,
    CALL_READINGS,
    CALLS_PER_READING,
    WORK_COLUMNS,
    Plan,
    count_pending,
    group_documents,
)
from memagent_batch.types import Status
from tests.runs.projections import parts_of
from tests.runs.recorded_nights import NO_DOCUMENTS
from tests.store.turn_log.indexes import TurnsKey, log_index

KIB = 1024


EMPTY = LogIndex()


def document_of(document_id: str, *, num_bytes: int = 10, file: str = "a.parquet", **values: Any) -> dict[str, Any]:
    place = {"file": file, "row_group": 0, "row": int(text_hash(document_id)[:6], 16)}
    row = {"document_id": document_id, "document_hash": text_hash(document_id), "num_bytes": num_bytes, **place}
    return row | values


def question_of(question: str, *, document_id: str | None = None, question_id: str | None = None) -> dict[str, Any]:
    return {"question_id": question_id or question, "document_id": document_id, "question": question}


def plan_of(
    documents: Sequence[Mapping[str, Any]],
    questions: Sequence[Mapping[str, Any]] = (),
    *,
    samples: int = 1,
) -> Plan:
    index = pa.Table.from_pylist(documents, schema=INDEX_SCHEMA)
    listed = pa.Table.from_pylist(questions, schema=QUESTION_SCHEMA)
    return Plan(index, listed, samples=samples, stored=NO_DOCUMENTS)


def index_of(
    statuses: Mapping[ReadingKey, Status], *, turn_files: Mapping[TurnsKey, list[str]] | None = None
) -> LogIndex:
    outcomes = {key: (status, f"{status}.parquet") for key, status in statuses.items()}
    return log_index(outcomes, turn_files=turn_files)


def key_of(document: str, question: str, sample: int = 0) -> ReadingKey:
    return (text_hash(document), text_hash(question), sample)


def readings_in(plan: Plan, tables: Iterable[pa.Table]) -> list[tuple[str, str, int]]:
    questions = plan.asked.hashed["question_id"].to_pylist()
    return [
        (document["document_id"], questions[reading["question"]], reading["sample"])
        for table in tables
        for document in table.to_pylist()
        for reading in document["readings"]
    ]


def pending(plan: Plan, index: LogIndex = EMPTY, *, retry_failed: bool = False) -> list[tuple[str, str, int]]:
    return readings_in(plan, plan.pending(index, retry_failed=retry_failed))


def test_pending_longest_documents_come_first() -> None:
    sizes = {"small": 10, "large": 900 * KIB, "huge": 5000 * KIB, "middle": 90 * KIB}
    plan = plan_of([document_of(name, num_bytes=size) for name, size in sizes.items()], [question_of("q")])
    assert [name for name, _, _ in pending(plan)] == ["huge", "large", "middle", "small"]


def batches_of(documents: Sequence[Mapping[str, Any]]) -> list[pa.Table]:
    return list(plan_of(documents, [question_of("q")]).pending(EMPTY, retry_failed=False))


def test_pending_batches_hold_short_documents_of_several_files_in_their_order() -> None:
    documents = [document_of(f"{number:04}", file=f"{number // 100}.parquet", num_bytes=600) for number in range(1000)]
    (batch,) = batches_of(documents)
    assert batch["document_id"].to_pylist() == [document["document_id"] for document in documents]


def test_pending_batches_hold_about_their_bytes_or_one_document() -> None:
    sizes = [3 * BATCH_BYTES, 2 * BATCH_BYTES, *[BATCH_BYTES // 4] * 8]
    batches = batches_of([document_of(str(number), num_bytes=size) for number, size in enumerate(sizes)])
    found = [batch["num_bytes"].to_pylist() for batch in batches]
    assert found == [sizes[:1], sizes[1:2], *[[BATCH_BYTES // 4] * 4] * 2]


def test_pending_batches_of_a_great_many_tiny_documents_are_bounded() -> None:
    batches = batches_of([document_of(str(row), row=row, num_bytes=3) for row in range(40_000)])
    assert [batch.num_rows for batch in batches] == [16_384, 16_384, 7_232]


@given(
    documents=st.lists(
        st.builds(
            document_of,
            st.uuids().map(str),
            num_bytes=st.one_of(st.integers(0, 100), st.integers(0, 3 * BATCH_BYTES)),
            file=st.sampled_from(["a", "b"]),
            row_group=st.integers(0, 3),
        ),
        max_size=60,
    )
)
def test_pending_batches_of_any_documents_hold_each_of_them_once(documents: list[dict[str, Any]]) -> None:
    batches = batches_of(documents)
    found = [name for batch in batches for name in batch["document_id"].to_pylist()]
    assert sorted(found) == sorted(document["document_id"] for document in documents)
    first_bytes = (sum(batch["num_bytes"].to_pylist()[:-1]) for batch in batches)
    assert all(num_bytes < BATCH_BYTES for num_bytes in first_bytes)


def test_pending_same_question_under_two_ids_is_read_once() -> None:
    questions = [question_of("q", question_id="1"), question_of("q", question_id="2")]
    plan = plan_of([document_of("a"), document_of("b", document_hash=text_hash("a")), document_of("c")], questions)
    assert sorted(pending(plan)) == [("a", "1", 0), ("c", "1", 0)]


def test_pending_leaves_out_what_is_done_and_what_failed() -> None:
    plan = plan_of([document_of("a"), document_of("b"), document_of("c")], [question_of("q")])
    index = index_of({key_of("a", "q"): Status.OK, key_of("b", "q"): Status.FAILED})
    assert pending(plan, index) == [("c", "q", 0)]
    assert count_pending(plan.pending(index, retry_failed=False)).readings == 1


def test_pending_retrying_takes_failed_readings_and_new_ones() -> None:
    plan = plan_of([document_of("a"), document_of("b")], [question_of("q"), question_of("r")])
    index = index_of({key_of("a", "q"): Status.OK, key_of("a", "r"): Status.FAILED, key_of("b", "q"): Status.OK})
    assert sorted(pending(plan, index, retry_failed=True)) == [("a", "r", 0), ("b", "r", 0)]


def test_pending_never_holds_a_document_that_can_not_be_read() -> None:
    broken = document_of("broken", document_hash=None, num_bytes=0, error="the text is null")
    plan = plan_of([broken, document_of("a")], [question_of("q")])
    assert pending(plan, retry_failed=True) == [("a", "q", 0)]
    counts = plan.counts(EMPTY)
    assert (counts.asked, counts.failed, counts.done) == (2, 1, 0)


def test_pending_documents_of_one_text_are_read_once_and_all_counted() -> None:
    twins = [document_of("a", document_hash="h"), document_of("b", document_hash="h")]
    plan = plan_of(twins, [question_of("q")], samples=2)
    assert [(sample, question) for _, question, sample in pending(plan)] == [(0, "q"), (1, "q")]
    assert plan.num_readings == 4
    index = index_of({("h", text_hash("q"), sample): Status.OK for sample in range(2)})
    assert plan.counts(index).done == 4


def test_pending_names_the_log_files_that_hold_turns_of_each_document() -> None:
    plan = plan_of([document_of("a"), document_of("b")], [question_of("q")])
    index = index_of({}, turn_files={(text_hash("a"), text_hash("q")): ["1.parquet", "2.parquet"]})
    (bundle,) = plan.pending(index, retry_failed=False)
    assert dict(zip(bundle["document_id"].to_pylist(), bundle["turn_files"].to_pylist(), strict=True)) == {
        "a": ["1.parquet", "2.parquet"],
        "b": [],
    }


def test_pending_names_the_log_files_of_the_same_text_and_of_other_versions_of_the_document() -> None:
    plan = plan_of([document_of("a"), document_of("b"), document_of("c")], [question_of("q")])
    question = text_hash("q")
    files = {(text_hash("a"), question): ["same.parquet", "both.parquet"], (text_hash("x"), question): ["x.parquet"]}
    of_id = {
        ("a", question): ["both.parquet", "old.parquet"],
        ("b", question): ["old.parquet"],
        ("c", text_hash("other")): ["other.parquet"],
    }
    index = log_index(turn_files=files, turn_files_of_id=of_id)
    (bundle,) = plan.pending(index, retry_failed=False)
    assert dict(zip(bundle["document_id"].to_pylist(), bundle["turn_files"].to_pylist(), strict=True)) == {
        "a": ["both.parquet", "old.parquet", "same.parquet"],
        "b": ["old.parquet"],
        "c": [],
    }
    (part,) = parts_of(plan, index)
    shown = [sorted(of_document) for of_document in part["turn_files"].to_pylist()]
    assert shown == [["both.parquet", "same.parquet"], [], []], "tables are made of the rows of the text alone"


def test_pending_a_new_question_of_an_old_document_opens_no_log_file() -> None:
    plan = plan_of([document_of("a")], [question_of("old"), question_of("new")])
    turn_files = {(text_hash("a"), text_hash("old")): ["1.parquet"]}
    index = index_of({key_of("a", "old"): Status.OK}, turn_files=turn_files)
    (bundle,) = plan.pending(index, retry_failed=False)
    assert readings_in(plan, [bundle]) == [("a", "new", 0)]
    assert bundle["turn_files"].to_pylist() == [[]]
    (part,) = parts_of(plan, index)
    assert part["turn_files"].to_pylist() == [["1.parquet"]]


def test_plan_joins_questions_for_all_and_for_one() -> None:
    plan = plan_of([document_of("a"), document_of("b")], [question_of("all"), question_of("one", document_id="a")])
    assert sorted(pending(plan)) == [("a", "all", 0), ("a", "one", 0), ("b", "all", 0)]
    assert plan.num_readings == 3


@given(
    sizes=st.lists(st.integers(0, 60), max_size=30),
    num_questions=st.integers(1, 4),
    part_bytes=st.integers(1, 200),
    part_readings=st.integers(1, 20),
)
def test_parts_cover_every_reading_once_in_input_order(
    sizes: list[int], num_questions: int, part_bytes: int, part_readings: int
) -> None:
    documents = [document_of(str(number), num_bytes=size) for number, size in enumerate(sizes)]
    plan = plan_of(documents, [question_of(f"q{number}") for number in range(num_questions)], samples=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts_module, "PART_BYTES", part_bytes)
        patch.setattr(parts_module, "PART_READINGS", part_readings)
        parts = parts_of(plan, EMPTY)
    assert [name for part in parts for name in part["document_id"].to_pylist()] == [str(n) for n in range(len(sizes))]
    readings = readings_in(plan, parts)
    assert len(set(readings)) == len(readings) == plan.num_readings
    most = part_readings + 2 * num_questions
    assert all(sum(map(len, part["readings"].to_pylist())) < most for part in parts)


def test_parts_hold_together_what_the_log_holds_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_module, "PART_READINGS", 5)
    names = [str(number) for number in range(40)]
    log_files = {name: f"{hash_ % 8}.parquet" for name in names if (hash_ := int(text_hash(name)[:8], 16))}
    outcomes = {key_of(name, "q"): (Status.OK, file) for name, file in log_files.items()}
    plan = plan_of([document_of(name) for name in names], [question_of("q")])
    parts = parts_of(plan, log_index(outcomes))
    held = [part["document_id"].to_pylist() for part in parts]
    assert sorted(name for part in held for name in part) == sorted(names)
    assert all(part == sorted(part, key=int) for part in held)
    read = [len({log_files[name] for name in part}) for part in held]
    assert sum(read) < len(set(log_files.values())) + len(parts)


def test_parts_bring_their_own_questions_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_module, "PART_READINGS", 10)
    names = [str(number) for number in range(50)]
    questions = [question_of("all"), *(question_of(f"one {name}", document_id=name) for name in names)]
    plan = plan_of([document_of(name) for name in names], questions, samples=2)
    parts = parts_of(plan, EMPTY)
    assert len(parts) > 10
    listed = plan.asked.hashed.to_pylist()
    for part in parts:
        rows = {reading["question"] for readings in part["readings"].to_pylist() for reading in readings}
        assert asked_in(part) == {row: listed[row] for row in rows}
        assert len(part["asked"].combine_chunks().flatten()) == len(rows)


READING = {"question": 0, "sample": 0}


def batch_of(sizes: Sequence[int], *, num_readings: int = 1) -> pa.Table:
    return pa.table(
        {
            "document_id": [str(number) for number in range(len(sizes))],
            "num_bytes": pa.array(sizes, pa.int64()),
            "readings": pa.array([[READING] * num_readings] * len(sizes), WORK_COLUMNS.field("readings").type),
            "follow_ups": pa.array([[]] * len(sizes), WORK_COLUMNS.field("follow_ups").type),
        }
    )


def calls_of(batches: Sequence[pa.Table], *, readings_in_flight: int = 4) -> list[list[int]]:
    """Sizes in bytes of the documents of each call, in order."""
    calls: dict[tuple[int, int], list[int]] = {}
    for number, grouped in enumerate(group_documents(batches, readings_in_flight=readings_in_flight)):
        for call, size in zip(grouped[CALL_COLUMN].to_pylist(), grouped["num_bytes"].to_pylist(), strict=True):
            calls.setdefault((number, call), []).append(size)
    return list(calls.values())


def test_calls_of_a_great_many_readings_hold_no_more_than_the_most() -> None:
    assert max(len(call) for call in calls_of([batch_of([100] * 100_000)])) == CALL_READINGS
    many_questions = calls_of([batch_of([100] * 10_000, num_readings=20)])
    assert max(len(call) for call in many_questions) == CALL_READINGS // 20


@given(
    sizes=st.lists(st.integers(0, 10**6), min_size=1, max_size=200),
    readings_in_flight=st.integers(1, 20),
    cut=st.integers(0, 200),
)
def test_calls_of_any_batches_hold_each_document_once_and_a_small_share_of_the_bytes(
    sizes: list[int], readings_in_flight: int, cut: int
) -> None:
    sizes = sorted(sizes, reverse=True)
    batches = [batch_of(part) for part in (sizes[:cut], sizes[cut:]) if part]
    calls = calls_of(batches, readings_in_flight=readings_in_flight)
    assert [size for call in calls for size in call] == sizes
    share = sum(sizes) / (readings_in_flight * CALLS_PER_READING)
    assert all(len(call) == 1 or sum(call) <= share for call in calls)


def test_plan_is_the_same_however_many_documents_are_handled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [
        document_of(str(number), num_bytes=10 << number % 20, file=f"{number % 3}.parquet") for number in range(25)
    ]
    plan = plan_of(documents, [question_of("q"), question_of("r", document_id="7")], samples=2)
    statuses = {key_of(str(number), "q", 1): Status.OK for number in range(0, 25, 2)}
    turn_files = {(text_hash(str(number)), text_hash("q")): ["t1", "t2"] for number in range(0, 25, 3)}
    index = index_of(statuses, turn_files=turn_files)

    def rows() -> list[Any]:
        made = (plan.pending(index, retry_failed=False), parts_of(plan, index))
        return [[table.to_pylist() for table in tables] for tables in made]

    whole = rows()
    monkeypatch.setattr("memagent_batch.run.reading_state.BATCH_ROWS", 4)
    monkeypatch.setattr("memagent_batch.data.store.database.BATCH_ROWS", 4)
    assert rows() == whole
    assert [len(tables) for tables in whole] == [len(whole[0]), 1]

"""Readings that the log has answered and that are not closed are work, and read nothing again."""

from typing import Any

import pytest

from memagent_batch.config.agent import AgentConfig, Extraction
from memagent_batch.config.follow_ups import FollowUpConfig
from memagent_batch.data.documents.questions import read_questions, type_fields
from memagent_batch.data.store.turn_log.index import LogIndex
from memagent_batch.loop.addresses import text_hash
from memagent_batch.loop.follow_ups.answer_types import Bool, Number
from memagent_batch.run.plan import Plan, count_pending
from memagent_batch.run.reading.follow_ups import FollowUps, make_follow_ups
from memagent_batch.types import Status
from tests.runs.projections import parts_of
from tests.runs.recorded_nights import NO_DOCUMENTS
from tests.runs.recorded_nights import index_of as documents_of
from tests.runs.typed_nights import agent_of
from tests.store.turn_log.indexes import log_index

DOCUMENTS = ("a", "b")
QUESTIONS: list[dict[str, Any]] = [
    {"question_id": "free", "question": "Who?"},
    {"question_id": "is", "question": "Is it?", **type_fields(Bool())},
    {"question_id": "price", "question": "Is it?", **type_fields(Number())},
]


@pytest.fixture
def agent(text_model: str) -> AgentConfig:
    return agent_of(text_model)


def follow_ups_of(agent: AgentConfig, **settings: Any) -> FollowUps:
    return make_follow_ups(FollowUpConfig(**settings), agent, fingerprint="f")


def plan_of(follow_ups: FollowUps | None) -> Plan:
    documents = documents_of({name: name for name in DOCUMENTS})
    return Plan(documents, read_questions(None, ask=QUESTIONS), samples=1, follow_ups=follow_ups, stored=NO_DOCUMENTS)


def index_of(plan: Plan, *, statuses: dict[str, Status], closed: dict[tuple[str, str], bool]) -> LogIndex:
    """A log of questions that have ended so in every document, and of readings that were closed, or failed at it."""
    asked = {row["question_id"]: row for row in plan.asked.hashed.to_pylist()}
    keys = {(name, id_): (text_hash(name), asked[id_]["question_hash"], 0) for name in DOCUMENTS for id_ in asked}
    ends = {keys[name, question]: (status, "o") for name in DOCUMENTS for question, status in statuses.items()}
    closings = {
        (asked[id_]["follow_up_fingerprint"], keys[name, id_]): (Status.FAILED if is_failed else Status.OK, f"c-{id_}")
        for (name, id_), is_failed in closed.items()
    }
    return log_index(ends, closed=closings)


def work(plan: Plan, index: LogIndex, *, column: str, retry_failed: bool = False) -> set[tuple[str, str]]:
    names = plan.asked.table["question_id"].to_pylist()
    return {
        (document["document_id"], names[reading["question"]])
        for bundle in plan.pending(index, retry_failed=retry_failed)
        for document in bundle.to_pylist()
        for reading in document[column]
    }


def test_typed_questions_alone_are_closed_where_nothing_is_asked_of_every_reading(agent: AgentConfig) -> None:
    plan = plan_of(follow_ups_of(agent))
    index = index_of(plan, statuses={"free": Status.OK, "is": Status.OK}, closed={})
    assert work(plan, index, column="readings") == set()
    assert work(plan, index, column="follow_ups") == {(name, id_) for name in DOCUMENTS for id_ in ("is", "price")}
    assert plan.counts(index).to_close == 4
    pending = count_pending(plan.pending(index, retry_failed=False))
    assert (pending.readings, pending.follow_up_readings) == (4, 4)


def test_closed_readings_are_no_work_and_those_that_failed_at_it_are_tried_again_on_demand(agent: AgentConfig) -> None:
    plan = plan_of(follow_ups_of(agent, evidence=True))
    closed = {(name, id_): name == "b" for name in DOCUMENTS for id_ in ("free", "is", "price")}
    index = index_of(plan, statuses={"free": Status.OK, "is": Status.OK}, closed=closed)
    assert work(plan, index, column="follow_ups") == set()
    again = work(plan, index, column="follow_ups", retry_failed=True)
    assert again == {("b", id_) for id_ in ("free", "is", "price")}
    (part,) = parts_of(plan, index)
    assert part["follow_up_files"].to_pylist() == [["c-free", "c-is", "c-price"]] * 2


def test_readings_to_do_and_failed_ones_are_not_to_close(agent: AgentConfig) -> None:
    plan = plan_of(follow_ups_of(agent, evidence=True))
    index = index_of(plan, statuses={"free": Status.FAILED}, closed={})
    assert work(plan, index, column="follow_ups") == set()
    assert work(plan, index, column="readings") == {(name, id_) for name in DOCUMENTS for id_ in ("is", "price")}
    assert plan.counts(index).to_close == 0


def test_plan_without_follow_ups_names_none(agent: AgentConfig) -> None:
    plan = plan_of(None)
    assert (plan.asked.follow_up_readings, plan.asked.follow_up_turns, plan.asked.turns_by_follow_up()) == ([], [], {})
    assert "follow_up_fingerprint" not in plan.asked.hashed.schema.names
    index = index_of(plan, statuses={"free": Status.OK, "is": Status.OK}, closed={})
    assert list(plan.pending(index, retry_failed=True)) == []


def test_other_type_budget_and_extraction_are_other_follow_ups(agent: AgentConfig) -> None:
    follow_ups = follow_ups_of(agent, evidence=True)
    prints = {
        follow_ups.of_type(Bool()),
        follow_ups.of_type(Number()),
        follow_ups.of_type(None),
        follow_ups_of(agent).of_type(Bool()),
        follow_ups_of(agent, evidence=True, support=True).of_type(Bool()),
        follow_ups_of(agent, evidence=True, evidence_tokens=61).of_type(Bool()),
        follow_ups_of(agent.model_copy(update={"extraction": Extraction.RAW}), evidence=True).of_type(Bool()),
    }
    assert len(prints) == 7
    assert follow_ups_of(agent).of_type(None) is None

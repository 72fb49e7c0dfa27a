"""Limits and bounds of whole runs, without a model."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from memagent_batch.config.engines import SimulatedConfig
from memagent_batch.config.job import JobConfig, PricesConfig
from memagent_batch.data.store.location import Location
from memagent_batch.errors import BoundReachedError
from memagent_batch.run import parts
from memagent_batch.run.comparison import compare_runs
from memagent_batch.run.executors import write
from memagent_batch.run.flows import answer as flow
from memagent_batch.run.flows.answer import answer
from memagent_batch.run.flows.check import check
from memagent_batch.run.flows.plan import plan_checked
from memagent_batch.run.history import find_run
from memagent_batch.run.manifest import Manifest
from memagent_batch.run.state import read_state
from tests.jobs import small_job
from tests.tables import comparable, rows_in, table_rows

NUM_DOCUMENTS = 12


@pytest.fixture
def job(tmp_path: Path, text_model: str) -> JobConfig:
    (tmp_path / "in").mkdir()
    texts = [
        " ".join(f"Line {line} of text {number} and {line + 1}." for line in range(15))
        for number in range(NUM_DOCUMENTS)
    ]
    rows = [{"document_id": f"d{number}", "text": text} for number, text in enumerate(texts)]
    (tmp_path / "in/all.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return small_job(tmp_path, text_model, ask=["Who?"], pool={"readings_in_flight": 2})


def slow(job: JobConfig, *, turn_seconds: float = 0.5) -> JobConfig:
    """The job with an engine that the driver's looks, one a second, find at work."""
    return job.with_agent(job.agent.model_copy(update={"simulated": SimulatedConfig(turn_seconds=turn_seconds)}))


def turns(job: JobConfig) -> list[dict[str, Any]]:
    return rows_in(Path(job.output) / "log/turns")


def asked(job: JobConfig) -> list[dict[str, Any]]:
    """The turns that the engine was asked; the others had the prompt of one that another document had sent."""
    return [row for row in turns(job) if not row["is_copy"]]


def nights_end(job: JobConfig) -> tuple[Manifest | None, str]:
    """The manifest of a run, or why it stopped at a bound."""
    try:
        return answer(job), ""
    except BoundReachedError as error:
        return None, str(error)


def answers_so_far(job: JobConfig, *, run_id: str) -> set[tuple[str, str]]:
    """Document and response of each reading that has ended, by the query of the docs."""
    page = (Path(__file__).parents[2] / "docs/how-to/nightly-scans.md").read_text()
    (query,) = (block for block in re.findall(r"```sql\n(.*?)```", page, flags=re.DOTALL) if "outcomes" in block)
    rows = duckdb.execute(query.replace("out/", f"{job.output}/").replace("RUN_ID", run_id)).fetchall()
    return {(document_id, response) for document_id, *_, response in rows}


def num_turns(manifest: Manifest) -> int:
    assert manifest["spent"] is not None
    return manifest["spent"]["num_turns"]


def test_a_bound_stops_a_run_midway_and_the_next_runs_end_with_the_tables_of_an_unbounded_one(
    job: JobConfig, tmp_path: Path
) -> None:
    unbounded = job.model_copy(update={"output": str(tmp_path / "unbounded")})
    whole = answer(unbounded)
    all_tokens = whole["totals"]["num_prompt_tokens"] + whole["totals"]["num_completion_tokens"]
    assert num_turns(whole) == len(asked(unbounded)) < whole["totals"]["num_turns"]  # answers to the same memory
    most = all_tokens // 4
    bounded = slow(job).model_copy(update={"max_tokens": most})
    stops = taken_before = 0
    manifest = None
    while manifest is None and stops < 10:
        manifest, why = nights_end(bounded)
        if manifest is None:
            stops += 1
            taken = sum(row["num_prompt_tokens"] + len(row["token_ids"]) for row in asked(bounded))
            assert most <= taken - taken_before
            assert taken < all_tokens
            state = read_state(Location(uri=job.output))
            assert state["progress"] is not None
            assert state["progress"]["tokens"] == taken - taken_before
            taken_before = taken
            assert (state["state"], state["stopped_because"], state["counts"]) == ("stopped", why, None)
            assert "max_tokens" in why
            assert not (Path(job.output) / "answers").exists()
            shown = answers_so_far(job, run_id=state["run_id"])
            assert 0 < len(shown) < NUM_DOCUMENTS
            assert shown < {(row["document_id"], row["response"]) for row in table_rows(unbounded.output, "answers")}
    assert manifest is not None
    assert stops >= 1
    assert manifest["counts"] == whole["counts"]
    for name in ("answers", "memories"):
        assert comparable(table_rows(job.output, name)) == comparable(table_rows(unbounded.output, name))
    assert len(turns(bounded)) == len(turns(unbounded)), "no turn was asked twice"
    assert manifest["totals"] == whole["totals"]
    assert num_turns(manifest) < num_turns(whole)


def test_money_that_is_spent_stops_a_run_and_its_cost_is_within_that_of_the_plan(job: JobConfig) -> None:
    prices = PricesConfig(input=2.0, cached_input=1.0, output=10.0)
    priced = job.model_copy(update={"prices": prices})
    low, high = plan_checked(check(priced))["cost"] or (0.0, 0.0)
    with pytest.raises(BoundReachedError, match=r"max_cost .* that cost \d") as stopped:
        answer(slow(priced.model_copy(update={"max_cost": low / 2})))
    assert stopped.value.exit_code == 6
    spent_before = sum(row["num_prompt_tokens"] for row in turns(priced))
    manifest = answer(priced)
    spent = manifest["spent"]
    assert spent is not None
    assert spent_before > 0
    cached, written = spent["num_cached_prompt_tokens"], spent["num_completion_tokens"]
    cost = (2 * (spent["num_prompt_tokens"] - cached) + cached + 10 * written) / 1e6
    assert manifest["cost"] == pytest.approx(cost)
    assert read_state(Location(uri=job.output))["cost"] == manifest["cost"]
    assert 0 < cost < high
    whole = answer(priced.model_copy(update={"output": f"{job.output}-whole"}))
    assert low <= whole["cost"] <= high


def test_parts_of_the_tables_are_made_one_at_a_time(job: JobConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """All parts of ten million readings would take 5 GiB of the driver's memory."""
    waiting = list[int]()
    attach_not_read, write_part = parts.attach_not_read, write.write_part

    def made(*arguments: Any) -> Iterator[Any]:
        for number, part in enumerate(attach_not_read(*arguments)):
            waiting.append(number)
            yield part

    def written(*arguments: Any, **settings: Any) -> Any:
        assert len(waiting) == 1
        waiting.clear()
        return write_part(*arguments, **settings)

    monkeypatch.setattr(parts, "PART_READINGS", 2)
    monkeypatch.setattr(flow, "attach_not_read", made)
    monkeypatch.setattr(flow, "write_part", written)
    answer(job)
    assert not waiting
    assert len(list((Path(job.output) / "answers").glob("*.parquet"))) == NUM_DOCUMENTS / 2


def test_hours_that_have_gone_start_no_turn_and_leave_the_tables_of_the_night_before(job: JobConfig) -> None:
    first = answer(job.model_copy(update={"limit": 2}))
    num_turns = len(turns(job))
    with pytest.raises(BoundReachedError, match="max_hours") as stopped:
        answer(job.model_copy(update={"max_hours": 1e-6}))
    assert stopped.value.exit_code == 6
    assert len(turns(job)) == num_turns
    assert find_run(Location(uri=job.output)).run_id == first["run_id"]
    assert len(table_rows(job.output, "answers")) == 2


def test_time_that_is_bounded_ends_and_the_next_run_asks_the_other_turns_alone(job: JobConfig) -> None:
    one_second = job.model_copy(update={"max_hours": 1 / 3600})
    with pytest.raises(BoundReachedError, match="max_hours"):
        answer(slow(one_second))
    state = read_state(Location(uri=job.output))
    assert (state["state"], "max_hours" in str(state["stopped_because"])) == ("stopped", True)
    manifest = answer(job)
    assert manifest["counts"]["ok"] == NUM_DOCUMENTS
    asked = [(row["document_hash"], row["prompt_hash"]) for row in turns(job)]
    assert len(asked) == len(set(asked)) == manifest["totals"]["num_turns"]


def test_a_limit_grows_without_reading_twice_and_documents_outside_are_not_removed(job: JobConfig) -> None:
    output = Location(uri=job.output)
    few = answer(job.model_copy(update={"limit": 3}))
    assert few["sample"] == {"limit": 3, "seed": 0, "taken": 3, "documents": NUM_DOCUMENTS}
    assert read_state(output)["sample"] == few["sample"]
    more = answer(job.model_copy(update={"limit": 7}))
    assert more["changes"]["readings"] == {"read": 4, "kept": 3, "unreadable": 0, "not_read": 0}
    assert more["changes"]["documents"] == {"added": 4, "changed": 0, "removed": 0, "unchanged": 3}
    tables = compare_runs(find_run(output, "previous"), find_run(output, "latest"))
    differences = [row for table in tables for row in table.to_pylist()]
    assert {(row["change"], *row["why"]) for row in differences} == {("added", "limit")}
    taken = {row["document_id"] for row in table_rows(job.output, "answers")}
    gone = min({f"d{number}" for number in range(NUM_DOCUMENTS)} - taken)
    file = Path(job.output).parent / "in/all.jsonl"
    file.write_text("\n".join(line for line in file.read_text().splitlines() if f'"{gone}"' not in line))
    whole = answer(job)
    assert whole["sample"] is None
    assert whole["counts"]["ok"] == NUM_DOCUMENTS - 1
    assert whole["changes"]["readings"]["read"] == NUM_DOCUMENTS - 1 - 7
    assert whole["changes"]["documents"]["removed"] == 0, "no run has read it"
    assert gone not in {row["document_id"] for row in table_rows(job.output, "answers")}

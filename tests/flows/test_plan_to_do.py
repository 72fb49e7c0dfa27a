"""What `memagent plan` counts: the readings that are left, whatever the output already holds."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.config.job import JobConfig
from memagent_batch.errors import InputError
from memagent_batch.run.flows.answer import answer
from memagent_batch.run.flows.check import check
from memagent_batch.run.flows.plan import plan_checked
from tests.jobs import put_texts, small_job

COSTS = ("turns", "prompt_tokens_at_least", "prompt_tokens_at_most", "completion_tokens_at_most", "document_tokens")


@pytest.fixture
def job(text_model: str, tmp_path: Path) -> JobConfig:
    put_texts(tmp_path / "in", {"a.txt": "some words " * 40, "b.txt": "other words " * 80})
    (tmp_path / "in" / "broken.txt").write_bytes(b"\xff")
    return small_job(tmp_path, text_model, ask=("Who?",))


def test_plan_counts_only_what_the_output_does_not_hold(job: JobConfig, tmp_path: Path) -> None:
    first: Mapping[str, Any] = plan_checked(check(job))
    assert (first["documents"], first["unreadable_documents"]) == (3, 1)
    assert (first["documents_to_read"], first["readings_to_do"]) == (2, 2)
    assert first["largest_document"]["document_id"] == "b.txt"
    assert not (tmp_path / "run").exists()
    assert answer(job)["totals"]["num_turns"] == first["turns"]

    done: Mapping[str, Any] = plan_checked(check(job))
    assert (done["readings"], done["readings_done"], done["readings_failed"], done["readings_to_do"]) == (3, 2, 1, 0)
    assert {name: done[name] for name in COSTS} == dict.fromkeys(COSTS, 0)
    assert done["largest_document"] is None

    (tmp_path / "in" / "a.txt").write_text("new words " * 40)
    changed: Mapping[str, Any] = plan_checked(check(job))
    assert (changed["documents"], changed["documents_to_read"], changed["readings_to_do"]) == (3, 1, 1)
    assert changed["largest_document"]["document_id"] == "a.txt"
    assert all(0 < changed[name] < first[name] for name in COSTS)


def test_plan_with_another_agent_says_that_all_is_read_again(job: JobConfig, caplog: pytest.LogCaptureFixture) -> None:
    answer(job)
    caplog.clear()
    policy = job.agent.policy.model_copy(update={"chunk_tokens": job.agent.policy.chunk_tokens - 1})
    for agent, named in ((job.agent, []), (job.agent.model_copy(update={"policy": policy}), ["policy"])):
        plan: Mapping[str, Any] = plan_checked(check(job.with_agent(agent)))
        assert plan["readings_to_do"] == 2 * len(named)
        warnings = [line for line in caplog.messages if line.startswith("the agent is not that of the last run")]
        assert ["(different: policy)" in line for line in warnings] == [True] * len(named)


def test_plan_estimates_many_documents_from_a_sample(text_model: str, tmp_path: Path) -> None:
    texts = {f"{number}.txt": f"{number} words " * (1 + number % 37) for number in range(1500)}
    put_texts(tmp_path / "in", texts | {"again.txt": texts["7.txt"], "longest.txt": "long " * 4000})
    checked = check(small_job(tmp_path, text_model, ask=("Who?", "When?")))
    estimate: Mapping[str, Any] = plan_checked(checked)
    exact: Mapping[str, Any] = plan_checked(checked, is_exact=True)
    assert estimate["documents_to_read"] == exact["documents_to_read"] == exact["documents_counted"] == 1501
    assert 900 < estimate["documents_counted"] < 1200
    assert set(estimate["intervals"]) == set(COSTS)
    assert exact["intervals"] == {}
    for name, (low, high) in estimate["intervals"].items():
        assert low <= estimate[name] <= high
        assert estimate[name] == pytest.approx(exact[name], rel=0.03)
    assert estimate["largest_document"] == exact["largest_document"]
    assert estimate["largest_document"]["document_id"] == "longest.txt"
    counts = ("readings_done", "readings_failed", "readings_to_do", "readings_of_equal_texts")
    assert [estimate[name] for name in counts] == [0, 0, 3002, 2]
    assert estimate["readings"] == 3004


@pytest.mark.parametrize(("settings", "num_shared"), [({}, 2), ({"prompt_set": "default"}, 0)])
def test_plan_says_what_questions_about_a_document_share(
    job: JobConfig, settings: Mapping[str, Any], num_shared: int
) -> None:
    assert plan_checked(check(job))["prompt_tokens_shared"] == 0
    job = job.model_copy(update={"ask": ("Who?", "When?", "Why?"), "agent": job.agent.model_copy(update=settings)})
    plan = plan_checked(check(job))
    assert plan["prompt_tokens_shared"] == num_shared * plan["document_tokens"]


def test_questions_of_missing_documents_are_refused_only_if_nothing_else_is_asked(job: JobConfig) -> None:
    bound = {"question": "When?", "document_id": "gone"}
    plan = plan_checked(check(job.model_copy(update={"ask": ("Who?", bound)})))
    assert (plan["missing_documents"], plan["readings"]) == (1, 4)
    with pytest.raises(InputError, match=r"\(1, such as 'gone'\) is among the 3 documents"):
        plan_checked(check(job.model_copy(update={"ask": (bound,)})))

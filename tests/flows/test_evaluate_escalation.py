"""When a variant with a second reader counts as read."""

from pathlib import Path
from typing import Any

import pytest

import memagent_batch.flows.evaluate
from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.closing import ClosingConfig
from memagent_batch.config.escalation import EscalateConfig
from memagent_batch.config.job import JobConfig, RunConfig
from memagent_batch.config.policy import PolicyConfig
from memagent_batch.evaluation.record import VariantRecord
from memagent_batch.evaluation.suites.schemas import SUITE_QUESTIONS
from memagent_batch.files.json_files import write_json
from memagent_batch.files.location import Location
from memagent_batch.flows.evaluate import Suite, Variant, is_finished, place_variant, read_variant
from memagent_batch.runs.escalation.second_reader import second_fingerprint
from memagent_batch.runs.manifest import MANIFEST_FILE, public_settings
from memagent_batch.wiring import make_output

ESCALATE = EscalateConfig(when=("failed",), to={"policy": {"answer_tokens": 50}})
RECORD: dict[str, Any] = {"run_id": "r", "reader_fingerprint": "f"}


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    place = Location(uri=str(tmp_path / "suite"))
    return Suite(place=place, questions=SUITE_QUESTIONS.empty_table(), sha256="s", tokenizer=None)


@pytest.fixture
def variant(text_model: str, tmp_path: Path) -> Variant:
    """A variant whose first reader has no budgets of its own."""
    agent = AgentConfig(model=text_model, engine="simulated", window_tokens=1500, policy=PolicyConfig())
    run = RunConfig(output=str(tmp_path / "out"), closing=ClosingConfig(), escalate=ESCALATE)
    return Variant(name="v", knobs={}, agent=agent, run=run)


@pytest.mark.parametrize(
    ("look", "finished"),
    [
        ({}, True),
        ({"reader_fingerprint": "of other weights"}, False),
        ({"counts": {"not_read": 1, "failed": 0}}, False),
        (None, False),
    ],
)
def test_variant_is_finished_where_its_second_reader_is_too(
    look: dict[str, Any] | None, finished: bool, variant: Variant, suite: Suite, tmp_path: Path
) -> None:
    placed = place_variant(variant, suite=suite, output=Location(uri=str(tmp_path)))
    made = {"reader_fingerprint": second_fingerprint(ESCALATE, variant.agent), "counts": {"not_read": 0, "failed": 0}}
    manifest = RECORD | {"settings": public_settings(placed.job), "counts": {"failed": 0}}
    manifest |= {} if look is None else {"second_look": made | look}
    write_json(make_output(placed.job) / MANIFEST_FILE, manifest)
    texts = dict.fromkeys(("name", "run", "scores", "model", "policy", "finished_at"), "x")
    record = VariantRecord(**texts, **RECORD, knobs={}, seconds=0.0, suite_sha256="s")
    assert is_finished(record, placed, fingerprint="f", suite=suite) is finished


def test_second_reader_of_a_variant_takes_no_budgets_over_that_were_fitted_to_the_first(
    variant: Variant, suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(job: JobConfig) -> dict[str, Any]:
        assert job.agent == variant.agent
        return RECORD | {"seconds": 1.0, "finished_at": "now", "counts": {"not_read": 0}}

    monkeypatch.setattr(memagent_batch.flows.evaluate, "answer", answer)
    placed = place_variant(variant, suite=suite, output=Location(uri=str(tmp_path)))
    assert placed.job.agent != variant.agent
    assert read_variant(placed, suite=suite, before=None).run_id == "r"

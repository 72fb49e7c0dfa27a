"""How a run shows that its endpoint is away: what the readers report."""

from pathlib import Path

import pytest

from memagent_batch.cli.settings import job_of
from memagent_batch.config.job import JobConfig
from memagent_batch.data.store.turn_log.writer import TurnLogWriter
from memagent_batch.run.executors.reports import AWAY_SECONDS, Board, Reporter
from memagent_batch.run.wiring import make_output
from memagent_batch.types import Completion, Prompt
from tests.engine_context import MadeEngine


class AwayEngine(MadeEngine):
    """An engine whose endpoint is away for as long as it is told."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @property
    def away_seconds(self) -> float:
        return self.seconds

    @property
    def away_reason(self) -> str:
        return "the endpoint answered 503: no healthy upstream"

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        raise AssertionError("no turn is asked for while the endpoint is away")


@pytest.fixture
def job(text_model: str, tmp_path: Path) -> JobConfig:
    return job_of(documents="d.parquet", output=str(tmp_path), ask=("Who?",), model=text_model, engine="simulated")


async def test_reporter_reports_once_that_the_endpoint_is_away_and_once_that_it_is_back(job: JobConfig) -> None:
    board, engine = Board(), AwayEngine()
    log = TurnLogWriter(make_output(job), run_id="r", writer_id="w", settings=job.log)
    reporter = Reporter(board=board, log=log, run_id="r", model=job.agent.model, policy=job.agent.policy.kind)
    reporter.count_engine_start(engine, is_replacement=False)
    for seconds in (0.0, AWAY_SECONDS / 2, AWAY_SECONDS, 60.0, 95.0, 0.0, 0.0, 1.0, 0.0):
        engine.seconds = seconds
        await reporter.send()
    away, back = board.take().events
    assert (away.kind, away.fields) == ("endpoint_away", {"run_id": "r", "away_seconds": AWAY_SECONDS})
    assert "503: no healthy upstream" in away.message
    assert (back.kind, back.fields, back.message) == (
        "endpoint_back",
        {"run_id": "r", "away_seconds": 95},
        "endpoint back after 95 s",
    )

import pytest

from memagent_batch.loop.engines.engine import Engine


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memagent_batch.loop.engines.openai.outage.FIRST_BACKOFF_SECONDS", 0.01)


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Engine:
    """The engine that the test is parametrised with, decoding greedily."""
    engine: Engine = request.getfixturevalue(f"{request.param}_greedy")
    return engine


@pytest.fixture
def sampled_engine(request: pytest.FixtureRequest) -> Engine:
    """The engine that the test is parametrised with, drawing tokens."""
    engine: Engine = request.getfixturevalue(f"{request.param}_sampled")
    return engine

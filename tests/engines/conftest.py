import pytest

from memagent_batch.engines.engine import Engine


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

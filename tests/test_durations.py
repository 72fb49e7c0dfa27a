import pytest

from tests.durations import recorded

MAX_SECONDS = 20
"""Of a test that `make test` runs, without what its fixtures take."""


def test_test_that_takes_long_is_marked_slow(request: pytest.FixtureRequest) -> None:
    seconds = recorded()["call"]
    fast = [item.nodeid for item in request.session.items if not item.get_closest_marker("slow")]
    assert [name for name in fast if seconds.get(name, 0) > MAX_SECONDS] == []

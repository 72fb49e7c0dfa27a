"""What the readers of a run share through the board."""

from functools import partial
from pathlib import Path

import pytest
import ray

from memagent_batch.errors import OutputError
from memagent_batch.executors.ray.board import start_board

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_here")]


def make(calls: Path, broken: Path) -> str:
    """Notes that it was called."""
    with calls.open("a") as file:
        file.write("x")
    if broken.exists():
        raise OutputError("away")
    return "made"


def test_board_makes_what_its_callers_share_once_and_again_after_an_error(tmp_path: Path) -> None:
    ray.cloudpickle.register_pickle_by_value(__import__(__name__, fromlist=["make"]))  # workers don't find tests
    calls, broken = tmp_path / "calls", tmp_path / "broken"
    board, shared = start_board(), partial(make, calls, broken)
    broken.touch()
    with pytest.raises(OutputError, match="away"):
        ray.get(board.handle.share.remote(shared))
    broken.unlink()
    found = [ray.get(refs[0]) for refs in ray.get([board.handle.share.remote(shared) for _ in range(3)])]
    assert found == ["made"] * 3
    assert calls.read_text() == "xx"

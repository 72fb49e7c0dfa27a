"""The output that most tests of reviews write a run to."""

from pathlib import Path

import pytest

from memagent_batch.data.store.location import Location


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def location(output: Path) -> Location:
    return Location(uri=str(output))

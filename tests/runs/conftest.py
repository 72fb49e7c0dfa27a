from pathlib import Path

import pytest

from memagent_batch.data.store.location import Location
from tests.runs.recorded_nights import Nights


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(Location(uri=str(tmp_path / "run")))

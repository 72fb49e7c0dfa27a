from pathlib import Path

import pytest

from memagent_batch.apps.evaluation.make import SuitePlan, make_suite
from memagent_batch.data.store.location import Location
from memagent_batch.errors import StorageError

PLAN = SuitePlan(tasks=("vt", "niah_single_1"), lengths=(512,), samples=2, seed=0)


@pytest.mark.parametrize("error", [StorageError("the disk is full"), KeyboardInterrupt()])
def test_suite_that_stops_on_the_way_leaves_nothing_and_can_be_made_again(error: BaseException, tmp_path: Path) -> None:
    output = Location(uri=str(tmp_path / "suite"))

    def stop(_: str) -> None:
        raise error

    with pytest.raises(type(error)):
        make_suite(PLAN, "tiny", output, say=stop)

    assert not output.files()
    assert make_suite(PLAN, "tiny", output, say=print)

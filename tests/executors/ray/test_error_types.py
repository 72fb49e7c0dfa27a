"""What a user's function of Ray Data raises keeps its type on its way to the driver, whatever the function's shape."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
import ray
from ray.data import ActorPoolStrategy

from memagent_batch.errors import MemagentError, RunFailedError, SupersededError
from memagent_batch.run.executors.ray.session import ray_session

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_here")]

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not find the modules of tests

MESSAGE = "run 7 has it;\nlook there"


def generator(batch: pa.Table) -> Iterator[pa.Table]:
    yield batch
    raise SupersededError(MESSAGE)


class Defect:
    async def __call__(self, batch: pa.Table) -> pa.Table:
        raise ZeroDivisionError("a defect")


def run(udf: Callable[..., Any], **how: Any) -> None:
    with ray_session():
        rows = ray.data.from_arrow([pa.table({"a": [1]})]).map_batches(udf, batch_format="pyarrow", num_cpus=0.5, **how)
        for _ in rows.iter_batches(batch_size=None):
            pass


def test_error_of_a_function_keeps_its_type_and_message() -> None:
    with pytest.raises(MemagentError) as raised:
        run(generator)
    assert (raised.type, str(raised.value)) == (SupersededError, MESSAGE)


def test_error_that_is_none_of_ours_shows_its_place_without_colours() -> None:
    with pytest.raises(RunFailedError, match="ZeroDivisionError: a defect") as raised:
        run(Defect, compute=ActorPoolStrategy(min_size=1, max_size=1))
    assert "\x1b" not in str(raised.value)
    assert "test_error_types.py" in str(raised.value)
    assert "To change retry attempts" not in str(raised.value)

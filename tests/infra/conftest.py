"""The cluster of several nodes that the tests of metrics and of submitted jobs share."""

from collections.abc import Iterator

import pytest

from tests.faults.loopback.cluster import LoopbackCluster


@pytest.fixture(scope="package")
def cluster() -> Iterator[LoopbackCluster]:
    with LoopbackCluster(num_workers=2, worker_cpus=3) as cluster:
        yield cluster

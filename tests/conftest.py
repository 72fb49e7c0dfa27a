"""Fixtures that several parts of the tests use."""

import uuid
from collections.abc import Iterator

import pytest
from moto.server import ThreadedMotoServer

from memagent_batch.storage.location import Location


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """URL of an S3 API on loopback."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3_bucket(s3_endpoint: str) -> Location:
    """An empty bucket of its own, with the options that reach it."""
    options = {"key": "test", "secret": "test", "client_kwargs": {"endpoint_url": s3_endpoint}}
    bucket = Location(uri=f"s3://bucket-{uuid.uuid4().hex}", storage_options=options)
    bucket.fs.mkdir(bucket.path)
    return bucket

"""Where a log lies that is measured: on this disk, or on an S3 API served on loopback."""

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from moto.server import ThreadedMotoServer

from memagent_batch.files.location import Location
from tests.faults.loopback.proxy import FaultProxy, RequestFault


@contextmanager
def opened_store(kind: str, *, delay_seconds: float) -> Iterator[tuple[Location, Location]]:
    """An empty folder, or an empty bucket of a server that ends with the block; reached with the delay, and without."""
    if kind == "disk":
        with tempfile.TemporaryDirectory() as folder:
            yield (Location(uri=f"{folder}/run"),) * 2
        return
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    direct = Location(uri="s3://log/run", storage_options=_options(url))
    try:
        direct.fs.mkdir("log")
        with FaultProxy(upstream=url, slow_seconds=delay_seconds) as proxy:
            proxy.strike(RequestFault.SLOW, rate=1.0)
            yield replace(direct, storage_options=_options(proxy.url)) if delay_seconds else direct, direct
    finally:
        server.stop()


def _options(url: str) -> dict[str, Any]:
    return {"key": "test", "secret": "test", "client_kwargs": {"endpoint_url": url}}

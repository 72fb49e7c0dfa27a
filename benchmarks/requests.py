"""What a night asks of an object store: requests by kind, and the documents that it opens.

Text files and output lie in a bucket of an S3 API on loopback (moto), and the engine answers at once. The first night
reads every document, the second finds nothing changed, the third one changed document. With `--inventory` each night
is given a Parquet file with path, size and ETag of each object in place of a listing.
"""

import argparse
import logging
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pyarrow as pa
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from benchmarks.harness import copy_tokenizer, simulated_job
from memagent_batch.flows.answer import answer
from memagent_batch.store.location import Location
from memagent_batch.store.parquet import parquet_bytes

BUCKET, DOCUMENTS, OUTPUT = "lake", "in", "out"
CHUNK_TOKENS = 64


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--objects", type=int, default=1000, help="text files (default: 1000)")
    parser.add_argument("--inventory", action="store_true", help="give each night an inventory in place of a listing")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Figures of each night; requests by what they are for and kind."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # else a line for each request
    requests = Requests(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, requests, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    options = {"key": "k", "secret": "s", "client_kwargs": {"endpoint_url": endpoint}}
    bucket = Location(uri=f"s3://{BUCKET}", storage_options=options)
    bucket.fs.mkdir(bucket.path)
    with tempfile.TemporaryDirectory() as folder:
        copy_tokenizer(Path(folder) / "model")
        job = simulated_job(
            Path(folder),
            chunk_tokens=CHUNK_TOKENS,
            model=str(Path(folder) / "model"),
            documents=f"{bucket}/{DOCUMENTS}",
            output=f"{bucket}/{OUTPUT}",
            storage_options=options,
            executor="local",
            input={"inventory": f"{bucket}/inventory.parquet"} if arguments.inventory else {},
        )
        for what, changed in (("first", range(arguments.objects)), ("unchanged", ()), ("one changed", (0,))):
            write_objects(bucket, changed, text=what, has_inventory=arguments.inventory)
            requests.forget()
            began = time.monotonic()
            counts = answer(job)["changes"]["readings"]
            yield {
                "what": what,
                "objects": arguments.objects,
                "inventory": arguments.inventory,
                "seconds": round(time.monotonic() - began, 1),
                "readings_read": counts["read"],
                **requests.figures(),
            }
    bucket.fs.rm(bucket.path, recursive=True)  # the store outlives its server
    server.shutdown()


class Requests:
    """A WSGI application that counts the requests of the one behind it."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self.forget()

    def forget(self) -> None:
        """Begins to count."""
        self._counts = Counter[tuple[str, str]]()
        self._opened: set[str] = set()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Counts a request, and has it answered."""
        key, query = environ["PATH_INFO"].partition(f"/{BUCKET}")[2].strip("/"), parse_qs(environ["QUERY_STRING"])
        kind = "LIST" if "list-type" in query else environ["REQUEST_METHOD"]
        top = (key or query.get("prefix", [""])[0]).partition("/")[0]
        self._counts[top, kind] += 1
        if kind == "GET" and top == DOCUMENTS:
            self._opened.add(key)
        answered: Iterable[bytes] = self._application(environ, start_response)
        return answered

    def figures(self) -> dict[str, Any]:
        """Requests for documents and for the rest by kind, and how many documents were opened."""
        of_documents, others = Counter[str](), Counter[str]()
        for (top, kind), number in self._counts.items():
            (of_documents if top == DOCUMENTS else others)[kind] += number
        return {"of_documents": of_documents, "of_output": others, "opened": len(self._opened)}


def write_objects(bucket: Location, numbers: Iterable[int], *, text: str, has_inventory: bool) -> None:
    """Writes documents, and the inventory of all of them, into the store itself: a request each would take minutes."""
    store = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    for number in numbers:
        store.put_object(BUCKET, f"{DOCUMENTS}/{number // 1000:04d}/{number:07d}.txt", f"{text} {number}".encode())
    if has_inventory:
        rows = [
            {"path": f"s3://{BUCKET}/{name}", "size": key.size, "etag": key.etag}
            for name, key in store.buckets[BUCKET].keys.items()
            if name.startswith(f"{DOCUMENTS}/")
        ]
        (bucket / "inventory.parquet").write_bytes(parquet_bytes(pa.Table.from_pylist(rows)))

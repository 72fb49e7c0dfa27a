"""What a night asks of an object store: requests by kind, and the documents that it opens.

Text files and output lie in a bucket of an S3 API on loopback, and the engine answers at once. The first night reads
every document, the second finds nothing changed, the third one changed document. With `--inventory` each night is given
a Parquet file with path, size and ETag of each object in place of a listing.

The store is in this process, and each night in one of its own. Documents are made when they are asked for; what lies
elsewhere in the bucket is moto's. `anonymous_mib` and `phases` are as in `scale`.
"""

import argparse
import logging
import tempfile
import threading
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import md5
from pathlib import Path
from typing import Any

import pyarrow as pa
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response

from benchmarks.harness import copy_tokenizer, simulated_job
from benchmarks.scale import FILES_IN_FOLDER, Phases, flow, in_process
from memagent_batch.config.job import JobConfig
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.parquet import parquet_bytes

BUCKET, DOCUMENTS, OUTPUT = "lake", "in", "out"
CHUNK_TOKENS = 64
PAGE_KEYS = 1000
CHANGED = "Mon, 01 Jan 2024 00:00:00 GMT", "2024-01-01T00:00:00.000Z"
"""When each document was last changed, as a header and as a listing say it; nothing goes by it."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--objects", type=int, default=1000, help="text files (default: 1000)")
    parser.add_argument("--inventory", action="store_true", help="give each night an inventory in place of a listing")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Figures of each night; requests by what they are for and kind."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # else a line for each request
    store = Store(arguments.objects)
    server = make_server("127.0.0.1", 0, store, threaded=True)
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
        for what, changed in (("first", {}), ("unchanged", {}), ("one changed", {0: "Another line"})):
            store.changed = changed
            if arguments.inventory:
                (bucket / "inventory.parquet").write_bytes(parquet_bytes(store.inventory()))
            store.forget()
            figures = in_process(_night, job)
            yield {"what": what, **vars(arguments), **store.figures(), **figures}
    bucket.fs.rm(bucket.path, recursive=True)  # moto's store outlives its server
    server.shutdown()


class Store:
    """A WSGI application that is a bucket, and counts its requests. Documents are made here, the rest is moto's."""

    def __init__(self, number: int) -> None:
        self._rows = range(number)
        self._others = DomainDispatcherApplication(create_backend_app)
        self.changed: Mapping[int, str] = {}
        """Texts that are not as the others, by row."""
        self.forget()

    @staticmethod
    def key(row: int) -> str:
        """Keys are in the order of rows."""
        return f"{DOCUMENTS}/{row // FILES_IN_FOLDER:06d}/{row:010d}.txt"

    def text(self, row: int) -> bytes:
        """Line by line, unless it is changed."""
        return self.changed.get(row, f"Line {row}").encode()

    def forget(self) -> None:
        """Begins to count."""
        self._counts = {True: Counter[str](), False: Counter[str]()}
        self._opened: set[str] = set()

    def figures(self) -> dict[str, Any]:
        """Requests for documents and for the rest by kind, and how many documents were opened."""
        return {"of_documents": self._counts[True], "of_output": self._counts[False], "opened": len(self._opened)}

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        """Counts a request, and answers it: of documents HEAD, GET with a range or without, and ListObjectsV2."""
        request = Request(environ)
        key = request.path.removeprefix(f"/{BUCKET}").strip("/")
        is_list = "list-type" in request.args
        is_of_documents = (key or request.args.get("prefix", "")).partition("/")[0] == DOCUMENTS
        self._counts[is_of_documents]["LIST" if is_list else request.method] += 1
        if not is_of_documents:
            answered: Iterable[bytes] = self._others(environ, start_response)
            return answered
        row = bisect_left(self._rows, key, key=self.key)
        if is_list:
            response = Response(self._page(**request.args.to_dict()), mimetype="application/xml")
        elif row in self._rows and self.key(row) == key:
            self._opened |= {key} if request.method == "GET" else set()
            text = self.text(row)
            response = Response(text, headers={"ETag": _etag(text), "Last-Modified": CHANGED[0]})
            response.make_conditional(request, accept_ranges=True, complete_length=len(text))
        else:
            response = Response("<Error><Code>NoSuchKey</Code></Error>", status=404, mimetype="application/xml")
        return response(environ, start_response)

    def _page(self, **asked: str) -> Iterator[str]:
        prefix, delimiter = asked["prefix"], asked.get("delimiter") or "\n"  # no key has a line break
        last = asked.get("continuation-token", asked.get("start-after", ""))
        row = max(bisect_left(self._rows, prefix, key=self.key), bisect_right(self._rows, last, key=self.key))
        left = int(asked.get("max-keys", PAGE_KEYS))
        yield "<ListBucketResult>"
        while (has_more := row in self._rows and self.key(row).startswith(prefix)) and left:
            last, text, left = self.key(row), self.text(row), left - 1
            folder, is_folder, _ = last.removeprefix(prefix).partition(delimiter)
            if is_folder:
                yield f"<CommonPrefixes><Prefix>{prefix}{folder}/</Prefix></CommonPrefixes>"
                last = f"{prefix}{folder}/~"  # after all keys below it
            else:
                size, changed = f"<Size>{len(text)}</Size>", f"<LastModified>{CHANGED[1]}</LastModified>"
                yield f"<Contents><Key>{last}</Key>{changed}<ETag>{_etag(text)}</ETag>{size}</Contents>"
            row = bisect_right(self._rows, last, lo=row, key=self.key) if is_folder else row + 1
        yield f"<IsTruncated>{str(has_more).lower()}</IsTruncated>"
        yield f"<NextContinuationToken>{last}</NextContinuationToken>" if has_more else ""
        yield "</ListBucketResult>"

    def inventory(self) -> pa.Table:
        """Path, size and ETag of each object."""
        texts = [self.text(row) for row in self._rows]
        paths = [f"s3://{BUCKET}/{self.key(row)}" for row in self._rows]
        return pa.table({"path": paths, "size": [*map(len, texts)], "etag": [*map(_etag, texts)]})


def _etag(text: bytes) -> str:
    return f'"{md5(text, usedforsecurity=False).hexdigest()}"'


def _night(job: JobConfig) -> dict[str, Any]:
    phases, began = Phases.of_flow(), time.monotonic()
    counts = flow.answer(job)["changes"]["readings"]
    return {
        "seconds": round(time.monotonic() - began, 1),
        "readings_read": counts["read"],
        "anonymous_mib": max(phase["anonymous_mib"] for phase in phases.figures.values()),
        "phases": phases.figures,
    }

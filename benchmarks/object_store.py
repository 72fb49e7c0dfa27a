"""An S3 API on loopback in a process of its own, fast enough for a million objects.

The objects below `in/` are not stored: keys, contents and lists follow from their numbers. Everything else is kept by
moto in memory. `python -m benchmarks.object_store --objects 1000000` prints the port it listens on.
"""

import argparse
import asyncio
import hashlib
import io
import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any
from xml.sax.saxutils import escape

from aiohttp import web
from moto.server import DomainDispatcherApplication, create_backend_app

BUCKET = "lake"
OBJECTS_IN_FOLDER = 1000
MODIFIED = ("2026-01-01T00:00:00.000Z", "Thu, 01 Jan 2026 00:00:00 GMT")
CHANGED = ("2026-01-02T00:00:00.000Z", "Fri, 02 Jan 2026 00:00:00 GMT")
"""Times of an object, as in a list and as in a header, before and after it changes."""


def text(row: int, *, is_changed: bool) -> str:
    """The text of a document."""
    return f"{'Another line' if is_changed else 'Line'} {row}: the sky over town {row % 97} is blue on most days."


class ObjectStore:
    """The requests and their answers."""

    def __init__(self, *, num_objects: int, num_texts: int, latency_seconds: float) -> None:
        self._num_objects, self._num_texts, self._latency_seconds = num_objects, num_texts, latency_seconds
        self._is_changed = False
        self._counts = Counter[str]()
        self._moto = DomainDispatcherApplication(create_backend_app)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answers one request."""
        if request.path == "/_counts":
            counts, self._counts = self._counts, Counter()
            return web.json_response(counts)
        if request.path == "/_change":
            self._is_changed = True
            return web.Response()
        await asyncio.sleep(self._latency_seconds)
        prefix = request.query.get("prefix", "")
        is_list = request.method == "GET" and ("prefix" in request.query or "list-type" in request.query)
        name = request.path.removeprefix(f"/{BUCKET}").lstrip("/")
        is_document = (prefix if is_list else name).startswith("in")
        self._counts[f"{'document' if is_document else 'output'} {'LIST' if is_list else request.method}"] += 1
        if is_document and is_list:
            return self._list(request)
        if is_document and request.method in ("GET", "HEAD"):
            return self._object(request, name)
        return await self._stored(request)

    def _list(self, request: web.Request) -> web.Response:
        """A page of ListObjectsV2 over the documents."""
        query = request.query
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        max_keys = min(int(query.get("max-keys", 1000)), 1000)
        after = query.get("continuation-token") or query.get("start-after", "")
        entries = list(islice(self._entries(prefix, delimiter, after=after), max_keys + 1))
        page = entries[:max_keys]
        parts = [
            f"<Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(page)}</KeyCount>",
            f"<MaxKeys>{max_keys}</MaxKeys><IsTruncated>{'true' if len(entries) > max_keys else 'false'}</IsTruncated>",
        ]
        if len(entries) > max_keys:
            parts.append(f"<NextContinuationToken>{page[-1][0]}</NextContinuationToken>")
        for key, row in page:
            if row is None:
                parts.append(f"<CommonPrefixes><Prefix>{key}</Prefix></CommonPrefixes>")
            else:
                content = self._body(row)
                parts.append(
                    f"<Contents><Key>{key}</Key><LastModified>{self._modified(row)[0]}</LastModified>"
                    f'<ETag>"{hashlib.md5(content).hexdigest()}"</ETag><Size>{len(content)}</Size>'
                    "<StorageClass>STANDARD</StorageClass></Contents>"
                )
        space = "http://s3.amazonaws.com/doc/2006-03-01/"
        listing = f'<?xml version="1.0"?><ListBucketResult xmlns="{space}">{"".join(parts)}</ListBucketResult>'
        return web.Response(text=listing, content_type="application/xml")

    def _entries(self, prefix: str, delimiter: str, *, after: str) -> Iterator[tuple[str, int | None]]:
        """Keys with their numbers, and common prefixes, that follow `after` in the order of their names."""
        folder = prefix.split("/")[1] if prefix.count("/") > 1 else "0"
        if not folder.isdigit():
            return
        first = int(folder) * OBJECTS_IN_FOLDER
        if after:
            number = after.rstrip("/").rsplit("/", 1)[-1].removesuffix(".txt")
            first = (int(number) + 1) * OBJECTS_IN_FOLDER if after.endswith("/") else int(number) + 1
        last = ""
        row = first
        while row < self._num_objects:
            key = key_of(row)
            if not key.startswith(prefix):
                return
            rest = key.removeprefix(prefix)
            if delimiter and delimiter in rest:
                last = prefix + rest.split(delimiter, 1)[0] + delimiter
                yield last, None
                row = (row // OBJECTS_IN_FOLDER + 1) * OBJECTS_IN_FOLDER if last != "in/" else self._num_objects
            else:
                yield key, row
                row += 1

    def _object(self, request: web.Request, name: str) -> web.Response:
        """One document."""
        number = name.rsplit("/", 1)[-1].removesuffix(".txt")
        row = int(number) if number.isdigit() else self._num_objects
        if row >= self._num_objects or name != key_of(row):
            xml = "<Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message></Error>"
            return web.Response(status=404, text=xml, content_type="application/xml")
        body = self._body(row)
        headers = {"ETag": f'"{hashlib.md5(body).hexdigest()}"', "Last-Modified": self._modified(row)[1]}
        if (wanted := request.http_range) and wanted.start is not None:
            start, stop, size = wanted.start, min(wanted.stop or len(body), len(body)), len(body)
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
            return web.Response(status=206, body=body[start:stop], headers=headers)
        return web.Response(body=body, headers=headers)

    async def _stored(self, request: web.Request) -> web.Response:
        """What moto answers."""
        environ = {
            "REQUEST_METHOD": request.method,
            "SCRIPT_NAME": "",
            "PATH_INFO": request.path,
            "QUERY_STRING": request.query_string,
            "SERVER_NAME": "127.0.0.1",
            "SERVER_PORT": str(request.url.port),
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": "127.0.0.1",
            "RAW_URI": request.raw_path,
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(await request.read()),
            "wsgi.errors": io.StringIO(),
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        for name, value in request.headers.items():
            key = name.upper().replace("-", "_")
            environ[key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"] = value
        started: list[Any] = []
        body = b"".join(self._moto(environ, lambda status, headers, *_: started.extend((status, headers))))
        status, headers = started
        kept = [(name, value) for name, value in headers if name.lower() not in ("content-length", "connection")]
        if request.method == "HEAD":
            kept = list(headers)
        return web.Response(status=int(status.split()[0]), body=body, headers=kept)

    def _body(self, row: int) -> bytes:
        return text(row % self._num_texts, is_changed=self._is_changed and row == 0).encode()

    def _modified(self, row: int) -> tuple[str, str]:
        return CHANGED if self._is_changed and row == 0 else MODIFIED


def key_of(row: int) -> str:
    """The name of an object in the bucket."""
    return f"in/{row // OBJECTS_IN_FOLDER:06d}/{row:09d}.txt"


async def serve(store: ObjectStore) -> None:
    """Listens until the process is ended, and prints the port."""
    app = web.Application(client_max_size=1 << 32)
    app.router.add_route("*", "/{path:.*}", store.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(json.dumps({"port": runner.addresses[0][1]}), flush=True)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, required=True, help="number of documents")
    parser.add_argument("--texts", type=int, help="different texts among them (default: all differ)")
    parser.add_argument("--latency-ms", type=float, default=0, help="time before each answer, milliseconds")
    arguments = parser.parse_args()
    store = ObjectStore(
        num_objects=arguments.objects,
        num_texts=arguments.texts or arguments.objects,
        latency_seconds=arguments.latency_ms / 1000,
    )
    asyncio.run(serve(store))


if __name__ == "__main__":
    main()

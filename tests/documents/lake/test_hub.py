"""Data sets of the hub, over a server on loopback that answers as the hub's interface does for what is asked here."""

import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pyarrow.parquet as pq
import pytest

from memagent_batch.config.sources import InputConfig
from memagent_batch.data.documents.source_listing import list_sources
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError
from tests.documents.lake.forms import TEXTS, read, rows_table

OLD, NEW = "a" * 40, "b" * 40
FOLDER = {"type": "directory", "path": "data", "oid": "1" * 40, "size": 0}


def _parquet(texts: dict[str, str]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows_table(texts), sink)
    return sink.getvalue()


class Hub(BaseHTTPRequestHandler):
    """One data set `lab/docs` of two commits; `main` can be moved."""

    files: ClassVar[dict[str, bytes]] = {OLD: _parquet(TEXTS), NEW: _parquet(TEXTS | {"new": "new"})}
    branches: ClassVar[dict[str, str]] = {}

    def do_GET(self) -> None:
        parts = self.path.split("?")[0].strip("/").split("/")
        match parts:
            case ["api", "datasets", "lab", "docs", "revision", revision] if self._commit(revision):
                self._json({"id": "lab/docs", "sha": self._commit(revision), "private": False, "siblings": []})
            case ["api", "datasets", "lab", "docs"]:
                self._json({"id": "lab/docs", "sha": self._commit("main"), "private": False, "siblings": []})
            case ["api", "datasets", "lab", "docs", "tree", revision, *folder] if self._commit(revision):
                is_deep = folder == ["data"] or "recursive=true" in self.path.lower()
                self._json([self._entry(revision)] if is_deep else [FOLDER])
            case ["datasets", "lab", "docs", "resolve", revision, "data", "f.parquet"] if self._commit(revision):
                self._file(self.files[self._commit(revision)])
            case _:
                self._json({"error": "not found"}, status=404)

    do_HEAD = do_GET  # noqa: N815 - the server's word

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        revision = self.path.strip("/").split("/")[-1]
        named = "data%2Ff.parquet" in body or "data/f.parquet" in body
        self._json([self._entry(revision)] if named else [FOLDER])

    def _commit(self, revision: str) -> str:
        return self.branches.get(revision, revision if revision in self.files else "")

    def _entry(self, revision: str) -> dict[str, Any]:
        data = self.files[self._commit(revision)]
        return {"type": "file", "path": "data/f.parquet", "oid": "2" * 40, "size": len(data)}

    def _json(self, value: object, *, status: int = 200) -> None:
        self._send(json.dumps(value).encode(), status=status, kind="application/json")

    def _file(self, data: bytes) -> None:
        wanted = self.headers.get("Range", "")
        first, last = (int(part) for part in wanted.removeprefix("bytes=").split("-")) if wanted else (0, len(data) - 1)
        self._send(data[first : last + 1], status=206 if wanted else 200, kind="application/octet-stream")

    def _send(self, data: bytes, *, status: int, kind: str) -> None:
        self.send_response(status)
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(data))), ("ETag", '"e"')):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def hub() -> Iterator[dict[str, Any]]:
    """Storage options that reach the server."""
    Hub.branches["main"] = OLD
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield {"endpoint": f"http://127.0.0.1:{server.server_port}", "token": False, "skip_instance_cache": True}
    server.shutdown()


def test_read_data_set_stays_at_the_commit_that_was_listed(hub: dict[str, Any]) -> None:
    place, settings = Location(uri="hf://datasets/lab/docs/data", storage_options=hub), InputConfig()
    found = list_sources([place], settings=settings)
    assert found.versions == {place.uri: OLD}
    assert read(place.uri, settings, **hub) == TEXTS
    Hub.branches["main"] = NEW
    moved = list_sources([Location(uri=place.uri, storage_options=hub)], settings=settings)
    assert moved.versions == {place.uri: NEW}


def test_read_data_set_at_a_revision_is_that_one(hub: dict[str, Any]) -> None:
    place = Location(uri=f"hf://datasets/lab/docs@{NEW}/data/*.parquet", storage_options=hub)
    found = list_sources([place], settings=InputConfig())
    assert found.versions == {place.uri: NEW}
    assert found.sources["source"].to_pylist() == ["f.parquet"]


def test_list_data_set_that_is_not_there_is_refused_by_name(hub: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="hf://datasets/lab/none"):
        list_sources([Location(uri="hf://datasets/lab/none", storage_options=hub)], settings=InputConfig())

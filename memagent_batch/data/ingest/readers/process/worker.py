"""The owner's side of a converter server: starts it, gives it one file after another, and reads how each ended."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, Self

from memagent_batch.data.ingest.readers.converter import Part, PartStatus
from memagent_batch.data.ingest.readers.process.protocol import PARTS_FILE, PICTURE, RECORD_BYTES, Request
from memagent_batch.data.ingest.readers.process.sandbox import Limits
from memagent_batch.errors import RunFailedError

SERVER_START_SECONDS = 120.0
"""Longest wait beyond a file's own limit, in which the server may still load a converter's libraries."""
END_SECONDS = 10.0
"""Longest wait for a server to remove its folder."""
KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH")
"""Variables of the environment that converters see; others may be secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """What a converter gave, until it ended or was stopped."""

    folder: Path
    failure: str | None
    """Why it did not come to its end: it failed, died or struck a limit."""
    kind: str | None = None
    """Kind or ending of its converter; None if it has none, or it failed before that was known."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """What the file says of itself; see `read_metadata`."""
    items: Sequence[Mapping[str, Any]] = ()
    """Parts and attachments in order, as the server wrote them (`PARTS_FILE`)."""
    num_words: int = 0
    """Words that the file contains; 0 where they are not counted."""
    num_missing: int = 0
    """Of those, words that are in no part."""

    @property
    def num_bytes(self) -> int:
        """Size of all of it but pictures, bytes."""
        files = sum(file.stat().st_size for file in self.folder.iterdir() if not file.name.startswith(PICTURE))
        return files + RECORD_BYTES * len(self.items)


class ConverterServer:
    """A server and the folder in which it works. It starts with the first file, and again where it has died.

    The folder outlasts a server that died: attachments that are still to be converted lie in it.
    """

    def __init__(self, *, search_path: Sequence[str] = (), settings: Mapping[str, Any] = {}) -> None:
        self._search_path = search_path
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = TemporaryDirectory(prefix="memagent-convert-", ignore_cleanup_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.communicate(timeout=END_SECONDS)  # closes its stdin, at whose end it ends
        self._kill()
        self._folder.cleanup()

    def folder(self) -> Path:
        """A new folder below the server's, for one file; the caller removes it."""
        return Path(mkdtemp(dir=self._folder.name))

    def clear(self, *, but: Path | None = None) -> None:
        """Removes the folders of all files so far, `but` one."""
        for folder in Path(self._folder.name).iterdir():
            if folder != but:
                rmtree(folder, ignore_errors=True)

    def convert(
        self,
        file: Path,
        *,
        converters: Mapping[str, str],
        limits: Limits,
        output_bytes: int | None = None,
        settings: Mapping[str, Any] = {},
    ) -> Converted:
        """Converts a file in a process of its own, by the converter (an import path) of its kind or ending.

        No more than `output_bytes` may come out of it; by default what `limits` allow. Its converter is made with
        `settings`, too.

        Raises:
            RunFailedError: no converter can run here.
        """
        folder = self.folder()
        request = {
            "converters": {**converters},
            "settings": {**self._settings, **settings},
            "file": str(file),
            "folder": str(folder),
            "limits": asdict(limits),
            "output_bytes": limits.output_bytes if output_bytes is None else output_bytes,
        }
        ending = self._ask(request, seconds=limits.seconds + SERVER_START_SECONDS)
        if "load_error" in ending:
            raise RunFailedError(f"converter {ending['load_error']}")
        first, *items = [*_records(folder / PARTS_FILE)] or [{"kind": None}]
        counts = [item for item in items if "num_words" in item]
        said = (item.get("metadata") for item in items)
        metadata: Mapping[str, Any] = next((each for each in said if isinstance(each, dict)), {})
        items = [item for item in items if not item.keys() & {"num_words", "metadata"}]
        failure = ending["failure"]
        if counts and failure is not None:  # all was converted, and the count was stopped
            reason = f"whether all of it was read is not known: its words were not counted ({failure})"
            items.append(asdict(Part(locator="count", status=PartStatus.NEEDS_REVIEW, reason=reason)))
            failure = None
        found = {"kind": first["kind"], "metadata": metadata, "items": items, **dict(*counts[-1:])}
        return Converted(folder=folder, failure=failure, **found)

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._kill()
        environment = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        environment |= {
            "PYTHONPATH": os.pathsep.join(dict.fromkeys(filter(None, (*sys.path, *self._search_path)))),
            "OMP_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "memagent_batch.data.ingest.readers.process.server", self._folder.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        return self._process

    def _ask(self, request: Request, *, seconds: float) -> dict[str, str | None]:
        """How the process of a file ended, in the words of the server, unless that died or hangs."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):  # the server has died; it gives no answer either
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], seconds)
        line = process.stdout.readline() if ready else b""
        if not line:
            self._kill()
            return {"failure": "the server of its converter died or hung, perhaps for lack of memory"}
        ending: dict[str, str | None] = json.loads(line)
        return ending

    def _kill(self) -> None:
        """Ends a server that died or hangs, and leaves its folder."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with process, suppress(BrokenPipeError):
                process.wait()


def _records(file: Path) -> Iterator[Mapping[str, Any]]:
    if not file.exists():
        return
    with file.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):  # else the process was killed in the middle of it
                yield json.loads(line.decode("utf-8", "surrogatepass"))

"""Forks a process for each file: `python -m` with this module and a folder, JSON lines in and out.

Python and the converters' libraries are loaded once; a fork takes milliseconds. The server has one thread and reads
no file of the input. When its stdin ends, also because its owner was killed, it kills what runs and removes FOLDER.
"""

import errno
import gc
import importlib
import json
import os
import select
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from io import FileIO
from pathlib import Path
from typing import Any, NoReturn

from memagent_batch.data.ingest.counts.kinds import CONTENTS
from memagent_batch.data.ingest.counts.words import Given
from memagent_batch.data.ingest.readers.converter import (
    Attachment,
    Converter,
    Part,
    PartStatus,
    ending_of,
    failure_reason,
    make_converter,
)
from memagent_batch.data.ingest.readers.kinds import recognise
from memagent_batch.data.ingest.readers.metadata import read_metadata
from memagent_batch.data.ingest.readers.process.protocol import (
    MAX_DOCUMENTS,
    PARTS_FILE,
    PICTURE,
    RECORD_BYTES,
    SOURCE_TIMES,
    Request,
)
from memagent_batch.data.ingest.readers.process.sandbox import Limits, confine

FAILURE_FILE = "failure.txt"
REASON_CHARACTERS = 500
"""Longest reason that a row keeps."""
DONE, FAILED = 0, 1
FIRST_OPENED = 3
"""Number from which the server's own files are open: the pipe of its answers is one."""


def main() -> None:
    """Serves until stdin ends."""
    folder = Path(sys.argv[1])
    requests = os.fdopen(0, "r", encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    try:
        for line in requests:
            print(json.dumps(_serve(json.loads(line))), file=answers, flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _serve(request: Request) -> dict[str, str | None]:
    """Converts one file in its own process; returns why that did not come to its end, or a converter's `load_error`."""
    makers = {}
    for kind, path in request["converters"].items():
        try:
            makers[kind] = _load(path)
        except Exception as error:  # noqa: BLE001 - whatever the import of a package raises
            return {"load_error": f"{path} can't be loaded on this node: {type(error).__name__}: {error}"}
    limits = Limits(**request["limits"])
    server = os.getpid()
    process = os.fork()
    if process == 0:
        _run(makers, request, limits=limits, server=server)
    timed_out = not _wait(process, seconds=limits.seconds)
    if timed_out:
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    return {"failure": _failure(os.waitstatus_to_exitcode(status), request, limits=limits, timed_out=timed_out)}


def _failure(code: int, request: Request, *, limits: Limits, timed_out: bool) -> str | None:
    """Why a converter did not come to its end; None if it did."""
    if timed_out:
        return f"not converted within {limits.seconds:g} s (--ingest.seconds); it was stopped"
    if code == DONE:
        return None
    if code < 0:
        name = signal.Signals(-code).name
        return f"its converter crashed with {name}; perhaps it needs more than {limits.memory_text}"
    with suppress(OSError):
        file = Path(request["folder"]) / FAILURE_FILE
        return file.read_text(encoding="utf-8", errors="replace")[:REASON_CHARACTERS]
    return f"its converter ended without a reason; perhaps it needs more than {limits.memory_text}"


@cache
def _load(path: str) -> Any:
    """A converter's class; what it imports is there before the first fork."""
    module, _, name = path.partition(":")
    make = getattr(importlib.import_module(module), name)
    make().version()
    for library in getattr(make, "modules", ()):
        importlib.import_module(library)
    gc.freeze()
    return make


def _wait(process: int, *, seconds: float) -> bool:
    """Waits for the process; returns whether it ended in time. Ends with it where stdin ends: the owner is gone."""
    ended = os.pidfd_open(process)
    try:
        ready, _, _ = select.select([ended, 0], [], [], seconds)
    finally:
        os.close(ended)
    return ended in ready


def _run(makers: Mapping[str, Any], request: Request, *, limits: Limits, server: int) -> NoReturn:
    """The file's process. Never returns into the server's loop."""
    code, folder = FAILED, Path(request["folder"])
    try:
        os.close(0)
        os.closerange(FIRST_OPENED, os.sysconf("SC_OPEN_MAX"))  # not to answer in the server's place
        confine(limits, parent=server, folder=folder)
        tempfile.tempdir = str(folder)
        with (folder / PARTS_FILE).open("wb", buffering=0) as lines:
            found = recognise(Path(request["file"]), own_endings=makers)
            if isinstance(found, Part):
                lines.write(_line({"kind": None}) + _line(asdict(found) | {"picture": None}))
            else:
                lines.write(_line({"kind": found}) + _line({"metadata": read_metadata(found, Path(request["file"]))}))
                converter = make_converter(makers[found], request["settings"])
                given = Given()
                _write(converter, lines, request, given)
                _write_missing(found, Path(request["file"]), lines, given)
        code = DONE
    except BaseException as error:  # noqa: BLE001 - whatever a converter raises is the reason in its file's row
        (folder / FAILURE_FILE).write_text(_reason(error, limits=limits), encoding="utf-8", errors="replace")
    finally:
        os._exit(code)


def _write(converter: Converter, lines: FileIO, request: Request, given: Given) -> None:
    """Writes parts and attachments as they come, each whole: what is written stays if a later one fails.

    Tells `given` of them. Pictures for OCR don't count: their number is bounded by the time in which they are drawn.
    """
    folder, output_bytes, num_attachments = Path(request["folder"]), request["output_bytes"], 0
    for number, item in enumerate(converter.convert(Path(request["file"])), start=1):
        record, data, name = asdict(item), b"", None
        tell(given, item)
        if isinstance(item, Part) and item.is_account:
            continue
        if isinstance(item, Attachment):
            num_attachments += 1
            del record["data"]
            record["content_hash"] = _content_hash(item)
            if num_attachments <= MAX_DOCUMENTS:
                data, name = b"" if item.failure else item.data, f"attachment-{num_attachments}{ending_of(item.name)}"
                output_bytes -= len(data)
            record["file"] = name
        elif record.pop("picture") and request["settings"].get("ocr"):
            data, name = item.picture, f"{PICTURE}{number}.png"
            record["picture"] = name
        record.pop("left_out", None)
        line = _line(record)
        output_bytes -= len(line) + RECORD_BYTES
        if output_bytes < 0:
            raise OSError(errno.EFBIG, "more than is allowed")
        if name is not None:
            (folder / name).write_bytes(data)
        lines.write(line)


def _content_hash(attachment: Attachment) -> str | None:
    """SHA-256 of its bytes; None if it could not be read."""
    if attachment.content_hash is None and (attachment.data or not attachment.failure):
        return sha256(attachment.data).hexdigest()
    return attachment.content_hash


def tell(given: Given, item: Part | Attachment) -> None:
    """Tells what a converter gave, and what it said that it did not read."""
    if isinstance(item, Attachment):
        given.add_file(item.data, locator=item.locator)
        given.add_name(f"{item.locator} {item.failure or ''}")
        return
    given.add_text(item.text)
    given.add_text(item.left_out)
    if item.picture:
        given.add_file(item.picture)
    if item.status not in (PartStatus.OK, PartStatus.EMPTY):
        given.add_name(f"{item.locator} {item.reason}")


def _write_missing(kind: str, file: Path, lines: FileIO, given: Given) -> None:
    """Writes a part for each place of the file from which words are missing, then how many words there are."""
    contents = CONTENTS.get(kind)
    if contents is None:
        return
    lines.write(_line({"num_words": 0, "num_missing": 0}))  # stays the last line if the count is stopped
    try:
        missing = [
            Part(locator=each.place, status=PartStatus.MISSED, reason=each.reason)
            for each in given.missing(contents(file))
        ]
    except Exception as error:  # noqa: BLE001 - libraries raise what they like at damaged files
        reason = f"whether all of it was read is not known: its words can't be counted ({failure_reason(error)})"
        missing = [Part(locator="count", status=PartStatus.NEEDS_REVIEW, reason=reason)]
    for part in missing:
        lines.write(_line(asdict(part) | {"picture": None}))
    lines.write(_line({"num_words": given.num_words, "num_missing": given.num_missing}))


def _line(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def _reason(error: BaseException, *, limits: Limits) -> str:
    if isinstance(error, MemoryError):
        return f"it needs more memory than {limits.memory_text}"
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        most = limits.output_bytes >> 20
        return (
            f"it holds more than {most:,} MiB of text and attachments, or its file with all attachments more than "
            f"{SOURCE_TIMES * most:,} MiB"
        )
    return failure_reason(error)


if __name__ == "__main__":
    main()

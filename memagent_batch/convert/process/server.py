"""Forks a process for each file: `python -m memagent_batch.convert.process.server FOLDER`, JSON lines in and out.

Python and the converters' libraries are loaded once; a fork takes milliseconds. The server has one thread and reads
no file itself. When its stdin ends, also because its owner was killed, it kills what runs and removes FOLDER.
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
import time
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, TypedDict

from memagent_batch.convert.converter import Attachment, Converter, Part, ending_of
from memagent_batch.convert.process.sandbox import Limits, confine
from memagent_batch.errors import ConversionError

PARTS_FILE = "parts.jsonl"
"""What a converter gave: a JSON object a line."""
WHY_FILE = "why.json"
"""Why it ended before its end."""
DONE, FAILED = 0, 1
"""Exit codes of a file's process."""
MAX_DOCUMENTS = 1000
"""Most documents from one file, attachments of attachments included. Of further attachments only the names are kept."""


class Request(TypedDict):
    """What the owner asks: a file to convert."""

    converter: str
    """Import path."""
    file: str
    folder: str
    """Where its parts and attachments go."""
    limits: dict[str, Any]
    """Fields of `Limits`."""


class Ending(TypedDict, total=False):
    """How that ended: either `load_error` or the others."""

    load_error: str
    exit_code: int
    timed_out: bool
    seconds: float


class PartRecord(TypedDict):
    """A line of `PARTS_FILE`: a part."""

    locator: str
    text: str
    status: str
    reason: str | None


class AttachmentRecord(TypedDict):
    """A line of `PARTS_FILE`: an attachment."""

    number: str
    name: str
    locator: str
    file: str
    """Name of its file in the folder; none is there beyond `MAX_DOCUMENTS`."""


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


def _serve(request: Request) -> Ending:
    """Converts one file in a process of its own; returns how that ended."""
    try:
        make = _load(request["converter"])
    except Exception as error:  # noqa: BLE001 - the import of any package; the owner raises it
        return {"load_error": f"{type(error).__name__}: {error}"}
    limits = Limits(**request["limits"])
    started = time.monotonic()
    process = os.fork()
    if process == 0:
        _run(make, file=Path(request["file"]), folder=Path(request["folder"]), limits=limits)
    timed_out = not _wait(process, seconds=limits.seconds)
    if timed_out:
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    exit_code = os.waitstatus_to_exitcode(status)
    return {"exit_code": exit_code, "timed_out": timed_out, "seconds": time.monotonic() - started}


@cache
def _load(path: str) -> Any:
    """A converter's class; what it imports is there before the first fork."""
    module, _, name = path.partition(":")
    loaded = importlib.import_module(module)
    make = getattr(loaded, name)
    make().version()
    getattr(loaded, "warm_up", _nothing)()
    gc.freeze()
    return make


def _nothing() -> None:
    """Warms up nothing."""


def _wait(process: int, *, seconds: float) -> bool:
    """Waits for the process; returns whether it ended in time. Ends with it where stdin ends: the owner is gone."""
    ended = os.pidfd_open(process)
    try:
        ready, _, _ = select.select([ended, 0], [], [], seconds)
    finally:
        os.close(ended)
    return ended in ready


def _run(make: Any, *, file: Path, folder: Path, limits: Limits) -> NoReturn:
    """The file's process. Never returns into the server's loop."""
    code = FAILED
    try:
        os.close(0)
        confine(limits)
        _write(make(), file=file, folder=folder, limits=limits)
        code = DONE
    except BaseException as error:  # noqa: BLE001 - whatever a converter raises is the reason in its file's row
        _leave_word(error, folder=folder, limits=limits)
    finally:
        os._exit(code)


def _write(converter: Converter, *, file: Path, folder: Path, limits: Limits) -> None:
    """Writes parts and attachments as they come."""
    num_bytes = num_attachments = 0
    with (folder / PARTS_FILE).open("w", encoding="utf-8") as lines:
        for item in converter.convert(file):
            if isinstance(item, Attachment):
                num_attachments += 1
                name = f"attachment-{num_attachments}{ending_of(item.name)}"
                record: AttachmentRecord | PartRecord = _attachment_record(item, file=name)
                if num_attachments <= MAX_DOCUMENTS:
                    (folder / name).write_bytes(item.data)
                    num_bytes += len(item.data)
            else:
                record = _part_record(item)
                num_bytes += len(item.text)
            if num_bytes > limits.output_bytes:
                raise OSError(errno.EFBIG, "more than is allowed")
            print(json.dumps(record), file=lines)


def _part_record(part: Part) -> PartRecord:
    return {"locator": part.locator, "text": part.text, "status": part.status, "reason": part.reason}


def _attachment_record(attachment: Attachment, *, file: str) -> AttachmentRecord:
    return {"number": attachment.number, "name": attachment.name, "locator": attachment.locator, "file": file}


def _leave_word(error: BaseException, *, folder: Path, limits: Limits) -> None:
    """Writes why the file's process ends; where even that is impossible, its exit code is all that is known."""
    kind = type(error).__name__
    message = str(error) if isinstance(error, ConversionError) else f"{kind}: {error}"
    if isinstance(error, RecursionError):
        message = "it is nested deeper than its converter can follow"
    elif isinstance(error, OSError) and error.errno == errno.EFBIG:
        message = f"it holds more than {limits.output_bytes >> 20:,} MiB of text and attachments"
    (folder / WHY_FILE).write_text(json.dumps({"error_type": kind, "message": message}), encoding="utf-8")


if __name__ == "__main__":
    main()

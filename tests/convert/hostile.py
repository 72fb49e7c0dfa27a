"""Converters that do what a hostile file could make a converter do."""

import ctypes
import os
import resource
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import cast

from memagent_batch.data.ingest.counts.kinds import CONTENTS
from memagent_batch.data.ingest.counts.words import Content
from memagent_batch.data.ingest.readers.converter import Attachment, Line, Part, PartStatus
from memagent_batch.data.ingest.readers.kinds import FileKind


class Quiet:
    """Says what the file says, in capitals."""

    def version(self) -> str:
        return "1"

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        yield Part(locator="text", text=file.read_text().upper())


class Counted(Quiet):
    """Says what the file says; then its words are counted for as long as it lives."""

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        yield from super().convert(file)
        cast("dict[str, object]", CONTENTS)[FileKind.TEXT] = self._contents

    def _contents(self, _: Path) -> Iterator[Content]:
        while True:
            time.sleep(0.1)
            yield Content(place="text")


class Unsure(Quiet):
    """Says what the file says, as OCR that is not sure of it."""

    settings = ("ocr_min_confidence",)

    def __init__(self, *, ocr_min_confidence: float = 0.7) -> None:
        self._least = ocr_min_confidence

    def version(self) -> str:
        return f"1, {self._least}"

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        text, box = file.read_text().strip(), {"left": 0.1, "top": 0.2, "right": 0.9, "bottom": 0.25}
        is_sure = self._least <= 0.5
        yield Part(
            locator="page 1",
            text=text,
            status=PartStatus.OK if is_sure else PartStatus.NEEDS_REVIEW,
            reason="read by OCR" if is_sure else f"read by OCR, which is not sure of {text!r}",
            lines=[Line(text=text, confidence=0.5, **box)],
        )


class Writing(Quiet):
    """Writes to the path that the file names, and beside its parts, where it may."""

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        with tempfile.NamedTemporaryFile("w") as scratch:
            scratch.write("a library's own temporary file")
        for change in (
            lambda path: path.write_text("changed"),
            lambda path: path.unlink(),
            lambda path: path.rename(path.with_name("moved")),
            lambda path: path.with_name("new").mkdir(),
            lambda path: os.truncate(path, 0),
            lambda path: path.with_name("link").symlink_to(path),
        ):
            try:
                change(Path(file.read_text()))
            except PermissionError:
                yield Part(locator="text", text="refused")


class Forging(Quiet):
    """Writes an answer of the server into every file that is open."""

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        if file.read_text() == "victim":
            time.sleep(0.2)
        else:
            for number in range(3, 200):
                with suppress(OSError):
                    if not Path(f"/proc/self/fd/{number}").readlink().name.endswith("parts.jsonl"):
                        os.write(number, b'{"failure": null}\n')
        yield Part(locator="text", text=file.read_text().upper())


class Endless(Quiet):
    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        yield Part(locator="text", text="the beginning")
        while True:
            pass


class Stopping(Quiet):
    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        yield Part(locator="text", text="the beginning")
        raise ValueError("no more")


class Sleeping(Quiet):
    """Waits as long as the file says, and heeds no signal that it can catch."""

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP, 32, 33}:
            signal.signal(number, signal.SIG_IGN)
        time.sleep(float(file.read_text()))
        yield Part(locator="text", text="awake")


class Greedy(Quiet):
    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        held = []
        while True:
            held.append(bytearray(16 << 20))
            yield from ()


class Talkative(Quiet):
    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        while True:
            yield Part(locator="text", text="x" * (1 << 20))


class Crashing(Quiet):
    """Reads if there is no memory."""

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        yield Part(locator="text", text=str(ctypes.string_at(0)))


class Connecting(Quiet):
    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        with socket.socket() as connection:
            connection.connect(("127.0.0.1", int(file.read_text())))
        yield Part(locator="text", text="connected")


class Starting(Quiet):
    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        yield Part(locator="text", text=subprocess.check_output(["/bin/echo", "started"], text=True))


class Peeking(Quiet):
    """Shows its environment and that of every process that it can read."""

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        places = [Path("/proc/self/environ"), *Path("/proc").glob("[0-9]*/environ")]
        yield Part(locator="text", text="".join(map(self._shown, places)))

    def _shown(self, place: Path) -> str:
        try:
            return place.read_text(errors="replace")
        except OSError:
            return ""


class Killing(Quiet):
    """Kills the process that started it."""

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
        yield from ()


class Limiting(Quiet):
    """Takes the processor time of the process that started it."""

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (0, 0))
        yield from ()


class Lying(Quiet):
    """Gives what no table can hold."""

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        yield Part(locator="a\ud800b", text="lone \udfff surrogate")
        yield Attachment(number="1", name="../../../etc/x\n.txt", locator="attachment", data=b"inside")

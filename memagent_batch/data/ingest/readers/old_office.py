"""Office files of before 2007 (DOC, XLS, PPT) and binary workbooks (XLSB), which LibreOffice writes as files of today.

LibreOffice is a library here (LibreOfficeKit), not a program: it works in the confined process of its file, which has
no network and starts nothing. It runs no macros, and its profile is a new folder in that of the process.
"""

import ctypes
import os
import resource
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import olefile

from memagent_batch.data.ingest.readers.converter import Attachment, BuiltIn, Converter, Part, PartStatus
from memagent_batch.data.ingest.readers.docx import DocxConverter
from memagent_batch.data.ingest.readers.sheets import SheetsConverter
from memagent_batch.data.ingest.readers.slides import SlidesConverter
from memagent_batch.errors import ConversionError

PLACES = (
    "/usr/lib/libreoffice/program",
    "/usr/lib64/libreoffice/program",
    "/opt/libreoffice*/program",
    "/opt/collaboraoffice*/program",
)
"""Folders of LibreOffice, if no `soffice` is on the path."""
LIBRARIES = ("libsofficeapp.so", "libmergedlo.so")
MISSING = (
    "an Office file of before 2007 or a binary workbook, which LibreOffice converts: install it on every node "
    "(apt-get install libreoffice-writer libreoffice-calc libreoffice-impress), or save the file as DOCX, XLSX, PPTX "
    "or PDF"
)
COMMENT_WINDOW = "../share/config/soffice.cfg/modules/swriter/ui/annotation.ui"
"""A file, below the libraries, without which LibreOffice loads no document with comments."""
NO_COMMENTS = (
    "it is installed without user interface (-nogui), so that it loads no file with comments: install the others"
)
TARGETS = {"WordDocument": "docx", "Workbook": "xlsx", "Book": "xlsx", "PowerPoint Document": "pptx"}
"""What a file is written as, by the stream that it has."""
SOURCES = {"docx": "doc", "xlsx": "xls", "pptx": "ppt"}
READERS: Mapping[str, Callable[[], Converter]] = {
    "docx": DocxConverter,
    "xlsx": SheetsConverter,
    "pptx": SlidesConverter,
}
LOAD, GET_ERROR, SAVE_AS = 4, 3, 2
"""Positions of functions in the tables of LibreOfficeKit's C interface: of the office, and of a document."""
PROFILE = """<?xml version="1.0" encoding="UTF-8"?>
<oor:items xmlns:oor="http://openoffice.org/2001/registry">
<item oor:path="/org.openoffice.Office.Common/Security/Scripting"><prop oor:name="DisableMacrosExecution">
<value>true</value></prop></item>
<item oor:path="/org.openoffice.Office.Writer/Content/Update"><prop oor:name="Link"><value>2</value></prop></item>
<item oor:path="/org.openoffice.Office.Calc/Content/Update"><prop oor:name="Link"><value>1</value></prop></item>
</oor:items>
"""
"""No macros, and no content of other files that a document links to."""


class OldOfficeConverter(BuiltIn):
    """LibreOffice writes the file as DOCX, XLSX or PPTX, which its reader reads; a note says so."""

    revision = 3
    modules = ("olefile", *DocxConverter.modules, *SheetsConverter.modules, *SlidesConverter.modules)

    def version(self) -> str:
        """Its revision, those of the readers behind it, and the version of LibreOffice."""
        readers = " ".join(f"{ending} {reader().version()}" for ending, reader in READERS.items())
        program = find_libreoffice()
        build = _setting(program, "versionrc", "buildid") if program else "missing"
        return f"{self.revision} (LibreOffice {build}; {readers})"

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """Yields what the reader of the converted file yields."""
        program = find_libreoffice()
        if program is None:
            yield Part(status=PartStatus.SKIPPED, reason=MISSING)
            return
        target = _target(file)
        note = f"read as the {target.upper()} that {_setting(program, 'bootstraprc', 'ProductKey')} made of it"
        folder = Path(mkdtemp())  # the process's own, removed with it: threads of LibreOffice go on writing there
        converted = folder / f"converted.{target}"
        _convert(file, converted, program=program)
        for item in READERS[target]().convert(converted):
            if note and isinstance(item, Part) and item.status is PartStatus.OK and item.text.strip():
                yield replace(item, reason="; ".join(filter(None, (note, item.reason))))
                note = ""
            elif isinstance(item, Attachment):  # LibreOffice writes it anew, each time with other bytes
                yield replace(item, content_hash="")
            else:
                yield item


@cache
def find_libreoffice() -> Path | None:
    """Returns the folder of LibreOffice's libraries; None if it is not installed."""
    program = shutil.which("soffice") or shutil.which("libreoffice")
    folders = [Path(program).resolve().parent] if program else []
    folders += [folder for place in PLACES for folder in sorted(Path("/").glob(place.lstrip("/")), reverse=True)]
    return next((folder for folder in folders if any((folder / name).exists() for name in LIBRARIES)), None)


def _setting(program: Path, file: str, name: str) -> str:
    """Returns a line of a settings file of LibreOffice, without its name; that of the program if there is none."""
    lines = (program / file).read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.removeprefix(f"{name}=") for line in lines if line.startswith(f"{name}=")), "LibreOffice")


def _target(file: Path) -> str:
    """Returns the ending of what a file is written as.

    Raises:
        ConversionError: it is none of these files, or is damaged.
    """
    if not olefile.isOleFile(file) and zipfile.is_zipfile(file):
        return "xlsx"
    try:
        with olefile.OleFileIO(file) as ole:
            target = next((target for stream, target in TARGETS.items() if ole.exists(stream)), None)
    except (OSError, ValueError, LookupError) as error:
        raise ConversionError(f"it can't be opened as an Office file ({error}); is it whole?") from error
    if target is None:
        raise ConversionError("it is no file of Word, Excel or PowerPoint; save it as PDF")
    return target


def _convert(file: Path, converted: Path, *, program: Path) -> None:
    """Writes a file as one of today.

    Raises:
        ConversionError: LibreOffice can't read it.
        MemoryError: it failed after it had taken more than half of the memory that it may take.
    """
    folder = converted.parent
    profile = folder / "profile" / "user" / "registrymodifications.xcu"
    profile.parent.mkdir(parents=True)
    profile.write_text(PROFILE, encoding="utf-8")
    os.environ |= {"HOME": str(folder), "TMPDIR": str(folder), "SAL_USE_VCLPLUGIN": "svp"}
    library = ctypes.CDLL(str(next(program / name for name in LIBRARIES if (program / name).exists())))
    start = library.libreofficekit_hook_2
    start.restype, start.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_char_p)
    office = start(bytes(program), (folder / "profile").as_uri().encode())
    if not office:
        raise ConversionError(f"LibreOffice in {program} can't be started")
    target = converted.suffix.lstrip(".")
    source = folder / f"source.{SOURCES[target] if olefile.isOleFile(file) else 'xlsb'}"
    shutil.copyfile(file, source)  # LibreOffice goes by the ending, which may be another program's
    document = _call(office, LOAD, ctypes.c_void_p, source.as_uri().encode(), b"")
    if not document or not _call(document, SAVE_AS, ctypes.c_int, converted.as_uri().encode(), target.encode(), None):
        if _is_short_of_memory():
            raise MemoryError
        reason = (_call(office, GET_ERROR, ctypes.c_char_p) or b"").decode("utf-8", "replace").strip()
        why = "is it encrypted or damaged?" if (program / COMMENT_WINDOW).exists() else NO_COMMENTS
        raise ConversionError(f"LibreOffice can't read it ({reason}); {why}")


def _is_short_of_memory() -> bool:
    """Whether this process has taken more than half of its memory: LibreOffice says only that it failed.

    False where the system does not state how much it has taken.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    lines = Path("/proc/self/status").read_text().splitlines()
    peak_kib = next((int(line.split()[1]) for line in lines if line.startswith("VmPeak:")), 0)
    return limit != resource.RLIM_INFINITY and peak_kib * 1024 > limit / 2


def _call(receiver: int, position: int, result: Any, *arguments: bytes | None) -> Any:
    """Calls a function of the table that an object of LibreOfficeKit begins with."""
    table = ctypes.cast(receiver, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p)))[0]
    types = [ctypes.c_void_p, *[ctypes.c_char_p for _ in arguments]]
    return ctypes.CFUNCTYPE(result, *types)(table[position] or 0)(receiver, *arguments)

"""ZIP files by the standard library: each file in one is a separate document."""

import zipfile
import zlib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from memagent_batch.data.ingest.readers.converter import Attachment, BuiltIn, Part, read_attachment
from memagent_batch.errors import ConversionError

MEMBER_BYTES = 256 << 20
"""Bytes from which a file in a ZIP file is not unpacked, as `--ingest.file-mib` says it of files beside it."""
FINDER_FILES = {"*/__MACOSX/*._*": b"\0\x05\x16\x07", "*/.DS_Store": b"\0\0\0\x01Bud1"}
"""Files that macOS adds to a ZIP file, by their paths, and how they begin."""


class ZipConverter(BuiltIn):
    """Files are unpacked one after another, and the limits of the whole ZIP file count what they unpack to."""

    revision = 4

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """An attachment for each file."""
        try:
            with zipfile.ZipFile(file) as package:
                members = [
                    member
                    for member in package.infolist()
                    if (member.file_size or not member.is_dir()) and not _is_of_finder(package, member)
                ]
                for number, member in enumerate(members, start=1):
                    yield read_attachment(
                        number=str(number),
                        locator="file",
                        name=partial(str, member.filename),
                        data=partial(_member_data, package, member),
                        failure="it can't be unpacked",
                    )
        except zipfile.BadZipFile as error:
            raise ConversionError(f"it can't be opened as a ZIP file ({error}); is it whole?") from error


def _is_of_finder(package: zipfile.ZipFile, member: zipfile.ZipInfo) -> bool:
    """Whether the Finder of macOS wrote the file: how a folder is shown, or attributes of a file; nobody's words."""
    marks = [mark for pattern, mark in FINDER_FILES.items() if fnmatchcase(f"/{member.filename}", pattern)]
    if not marks or member.flag_bits & 1:
        return False
    try:
        with package.open(member) as stream:
            return stream.read(len(marks[0])) == marks[0]
    except (OSError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error):
        return False  # its attachment says what is wrong with it


def _member_data(package: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    if member.flag_bits & 1:
        raise ConversionError("encrypted: it opens with a password only; unpack it and scan what it holds")
    with package.open(member) as stream:
        data = stream.read(MEMBER_BYTES + 1)
    if len(data) > MEMBER_BYTES:
        raise ConversionError(f"it unpacks to more than {MEMBER_BYTES >> 20} MiB")
    return data

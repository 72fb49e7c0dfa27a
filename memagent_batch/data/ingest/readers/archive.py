"""Archives: each file in one is a separate document. ZIP by the standard library, all others by libarchive."""

import ctypes
import locale
import zipfile
import zlib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from memagent_batch.data.ingest.readers.converter import Attachment, BuiltIn, Part, PartStatus, read_attachment
from memagent_batch.errors import ConversionError

MEMBER_BYTES = 256 << 20
"""Bytes from which a file in an archive is not unpacked, as `--ingest.file-mib` says it of files beside it."""
BLOCK_BYTES = 256 << 10
FINDER_FILES = {"*/__MACOSX/*._*": b"\0\x05\x16\x07", "*/.DS_Store": b"\0\0\0\x01Bud1"}
"""Files that macOS adds to an archive, by their paths, and how they begin."""
MARK_BYTES = max(map(len, FINDER_FILES.values()))
FORMATS = ("format_7zip", "format_rar", "format_rar5", "format_cab", "format_tar", "format_raw")
FILTERS = ("filter_gzip", "filter_bzip2", "filter_xz", "filter_zstd")
"""What of libarchive is used. Its other formats may name files of the disk (mtree) or run programs."""
PACKED_ENDINGS = {".tgz": ".tar", ".tbz": ".tar", ".txz": ".tar"}
"""What is packed in a file with such an ending."""
PACKED_NAME = "data"
"""Name that libarchive gives to what a packed file holds that is no archive."""
ENCRYPTED = "encrypted: it opens with a password only; unpack it and scan what it holds"
MISSING = "an archive that libarchive unpacks: install it on every node (apt-get install libarchive13), or unpack it"


class ZipConverter(BuiltIn):
    """Files are unpacked one after another, and the limits of the whole ZIP file count what they unpack to."""

    revision = 5

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


class ArchiveConverter(BuiltIn):
    """7z, RAR, CAB and TAR archives, and files that gzip, bzip2, xz or zstd packed."""

    revision, package = 2, "libarchive-c"

    def version(self) -> str:
        """Its revision and the versions of its libraries."""
        library = _libarchive()
        return f"{super().version()}, libarchive {'missing' if library is None else library.version_number()}"

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """An attachment for each file."""
        library = _libarchive()
        if library is None:
            yield Part(status=PartStatus.SKIPPED, reason=MISSING)
            return
        from libarchive.exception import ArchiveError
        from libarchive.read import ArchiveRead

        locale.setlocale(locale.LC_CTYPE, "C.UTF-8")  # in which libarchive gives names
        handle = library.read_new()
        try:
            for name in (*FILTERS, *FORMATS):
                getattr(library.libarchive, f"archive_read_support_{name}")(ctypes.c_void_p(handle))
            library.read_open_filename_w(handle, str(file), BLOCK_BYTES)
            number = 0
            for entry in ArchiveRead(handle):
                if not entry.isreg or (entry.islnk and not entry.size):
                    continue
                attachment = read_attachment(
                    number=str(number + 1),
                    locator="file",
                    name=partial(_entry_name, entry, file),
                    data=partial(_entry_data, entry),
                    failure="it can't be unpacked",
                )
                if not _is_finder_name(attachment.name, attachment.data[:MARK_BYTES]):
                    number += 1
                    yield attachment
        except ArchiveError as error:
            raise ConversionError(_reason(error, "it can't be unpacked to its end")) from error
        finally:
            library.read_free(handle)


def _libarchive() -> Any:
    """Returns the functions of libarchive; None if the system has no such library."""
    try:
        from libarchive import ffi
    except (ImportError, OSError, AttributeError, TypeError):  # as the binding fails without the library
        return None
    return ffi


def _entry_name(entry: Any, file: Path) -> str:
    name = entry.pathname or ""
    name = name if isinstance(name, str) else name.decode("utf-8", "replace")
    if name != PACKED_NAME:
        return name
    return f"{file.stem}{PACKED_ENDINGS.get(file.suffix.lower(), '')}"


def _entry_data(entry: Any) -> bytes:
    from libarchive.exception import ArchiveError

    data = bytearray()
    try:
        for block in entry.get_blocks(BLOCK_BYTES):
            data += block
            if len(data) > MEMBER_BYTES:
                raise ConversionError(f"it unpacks to more than {MEMBER_BYTES >> 20} MiB")
    except ArchiveError as error:
        raise ConversionError(_reason(error, "it can't be unpacked")) from error
    return bytes(data)


def _reason(error: Any, failure: str) -> str:
    """Returns why an archive, or a file in one, can't be unpacked."""
    message = str(error.msg or "its end is missing")
    is_encrypted = "encrypt" in message.lower() or "passphrase" in message.lower()
    return ENCRYPTED if is_encrypted else f"{failure} ({message}); is the archive whole?"


def _is_of_finder(package: zipfile.ZipFile, member: zipfile.ZipInfo) -> bool:
    """Whether the Finder of macOS wrote the file: how a folder is shown, or attributes of a file; nobody's words."""
    if member.flag_bits & 1 or not _is_finder_name(member.filename):
        return False
    try:
        with package.open(member) as stream:
            return _is_finder_name(member.filename, stream.read(MARK_BYTES))
    except (OSError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error):
        return False  # its attachment says what is wrong with it


def _is_finder_name(name: str, start: bytes | None = None) -> bool:
    """Whether a path, and the start of the file if it is known, are those of a file of the Finder."""
    marks = [mark for pattern, mark in FINDER_FILES.items() if fnmatchcase(f"/{name}", pattern)]
    return any(start is None or start.startswith(mark) for mark in marks)


def _member_data(package: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    if member.flag_bits & 1:
        raise ConversionError(ENCRYPTED)
    with package.open(member) as stream:
        data = stream.read(MEMBER_BYTES + 1)
    if len(data) > MEMBER_BYTES:
        raise ConversionError(f"it unpacks to more than {MEMBER_BYTES >> 20} MiB")
    return data

"""ZIP files by the standard library: each file in one is a separate document."""

import zipfile
from collections.abc import Iterator
from pathlib import Path

from memagent_batch.convert.converter import Attachment, Part, failure_reason
from memagent_batch.errors import ConversionError

MEMBER_BYTES = 256 << 20
"""Bytes from which a file in a ZIP file is not unpacked, as `--file-mib` says it of files beside it."""


class ZipConverter:
    """Files are unpacked one after another, and the limits of the whole ZIP file count what they unpack to."""

    def version(self) -> str:
        """Its own number."""
        return "2"

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """An attachment for each file.

        Raises:
            ConversionError: it is damaged.
        """
        try:
            with zipfile.ZipFile(file) as package:
                members = [member for member in package.infolist() if not member.is_dir() or member.file_size]
                for number, member in enumerate(members, start=1):
                    yield _member_attachment(package, member, number=number)
        except zipfile.BadZipFile as error:
            raise ConversionError(f"it can't be opened as a ZIP file ({error}); is it whole?") from error


def _member_attachment(package: zipfile.ZipFile, member: zipfile.ZipInfo, *, number: int) -> Attachment:
    data, failure = b"", None
    if member.flag_bits & 1:
        failure = "encrypted: it opens with a password only; remove it"
    else:
        try:
            with package.open(member) as stream:
                data = stream.read(MEMBER_BYTES + 1)
        except Exception as error:  # noqa: BLE001 - a damaged file costs itself, whatever its compression makes of it
            failure = f"it can't be unpacked ({failure_reason(error)})"
    if len(data) > MEMBER_BYTES:
        data, failure = b"", f"it unpacks to more than {MEMBER_BYTES >> 20} MiB"
    name = member.filename
    return Attachment(number=str(number), name=name, locator=f"file {name}", data=data, failure=failure)

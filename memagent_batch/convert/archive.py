"""ZIP files by the standard library: each file in one is a separate document."""

import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from memagent_batch.convert.converter import Attachment, BuiltIn, Part, read_attachment
from memagent_batch.errors import ConversionError

MEMBER_BYTES = 256 << 20
"""Bytes from which a file in a ZIP file is not unpacked, as `--file-mib` says it of files beside it."""


class ZipConverter(BuiltIn):
    """Files are unpacked one after another, and the limits of the whole ZIP file count what they unpack to."""

    own = 2

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """An attachment for each file.

        Raises:
            ConversionError: it is damaged.
        """
        try:
            with zipfile.ZipFile(file) as package:
                members = [member for member in package.infolist() if not member.is_dir() or member.file_size]
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


def _member_data(package: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    if member.flag_bits & 1:
        raise ConversionError("encrypted: it opens with a password only; remove it")
    with package.open(member) as stream:
        data = stream.read(MEMBER_BYTES + 1)
    if len(data) > MEMBER_BYTES:
        raise ConversionError(f"it unpacks to more than {MEMBER_BYTES >> 20} MiB")
    return data

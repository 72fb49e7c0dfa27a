"""Packed RTF (MS-OXRTFCP), in which Outlook keeps the texts of messages."""

import struct

from memagent_batch.errors import ConversionError

HEADER = struct.Struct("<II4sI")
"""Packed size, size, kind, and check sum."""
PACKED, PLAIN = b"LZFu", b"MELA"
DICTIONARY_BYTES = 4096
FIRST_DICTIONARY = (
    rb"{\rtf1\ansi\mac\deff0\deftab720{\fonttbl;}{\f0\fnil \froman \fswiss \fmodern \fscript \fdecor MS Sans Serif"
    rb"SymbolArialTimes New RomanCourier{\colortbl\red0\green0\blue0" + b"\r\n" + rb"\par \pard\plain\f0\fs20\b\i\u"
    rb"\tab\tx"
)
"""What the dictionary holds before the first byte is unpacked."""


def unpack_rtf(data: bytes) -> bytes:
    """Unpacks RTF.

    Raises:
        ConversionError: it is damaged.
    """
    if len(data) < HEADER.size:
        raise ConversionError("its packed RTF is cut off")
    packed_size, size, kind, _ = HEADER.unpack_from(data)
    content = data[HEADER.size : packed_size + 4]
    if kind == PLAIN:
        return content[:size]
    if kind != PACKED:
        raise ConversionError("its packed RTF is of an unknown kind")
    out = _unpack(content)
    if len(out) < size:
        raise ConversionError(f"its packed RTF ends after {len(out):,} of {size:,} bytes")
    return out[:size]


def _unpack(content: bytes) -> bytes:
    """Unpacks runs of eight tokens: a byte, or a reference to bytes among the last 4,096 ones."""
    out = bytearray(FIRST_DICTIONARY)
    first = len(out)
    at = 0
    while at < len(content):
        flags = content[at]
        at += 1
        for bit in range(8):
            if not flags >> bit & 1:
                out += content[at : at + 1]
                at += 1
                continue
            reference = int.from_bytes(content[at : at + 2], "big")
            at += 2
            offset, length = reference >> 4, (reference & 0xF) + 2
            start = len(out) - ((len(out) - offset) % DICTIONARY_BYTES)
            if at > len(content) or start == len(out):
                return bytes(out[first:])
            for position in range(start, start + length):
                out.append(out[position] if position >= 0 else 0)
    return bytes(out[first:])

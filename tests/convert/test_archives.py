"""Archives of every kind, and electronic books."""

import binascii
import bz2
import gzip
import io
import locale
import lzma
import struct
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile

import libarchive
import pytest

from memagent_batch.data.ingest.readers import archive
from memagent_batch.data.ingest.readers.converter import Part, PartStatus
from tests.convert import planted
from tests.convert.files import zipped
from tests.convert.rows import RowsOf

FILES = {"in/Müller é.txt": "Müller owes 5 crowns".encode(), "b.rtf": rb"{\rtf1 due in {\b May}}", "empty.txt": b""}


def tar(files: Mapping[str, bytes]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as package:
        link = tarfile.TarInfo("link.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        package.addfile(link)
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            package.addfile(member, io.BytesIO(content))
    return data.getvalue()


def written(files: Mapping[str, bytes], *, kind: str, packing: str | None = None) -> bytes:
    """An archive that libarchive writes."""
    locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
    with NamedTemporaryFile() as file:
        with libarchive.file_writer(file.name, kind, packing) as package:
            for name, content in files.items():
                package.add_file_from_memory(name, len(content), content)
        return Path(file.name).read_bytes()


def rar(files: Mapping[str, bytes]) -> bytes:
    """A RAR archive (version 4) whose files are stored."""

    def block(kind: int, flags: int, body: bytes) -> bytes:
        head = struct.pack("<BHH", kind, flags, 7 + len(body)) + body
        return struct.pack("<H", binascii.crc32(head) & 0xFFFF) + head

    data = b"Rar!\x1a\x07\0" + block(0x73, 0, bytes(6))
    for name, content in files.items():
        path = name.encode("ascii", "replace")
        sizes = struct.pack(
            "<IIBIIBBHI", len(content), len(content), 3, binascii.crc32(content), 0, 20, 0x30, len(path), 0o100644
        )
        data += block(0x74, 0x8000, sizes + path) + content
    return data + block(0x7B, 0x4000, b"")


def cab(files: Mapping[str, bytes]) -> bytes:
    """A CAB archive whose files are stored."""
    content = b"".join(files.values())
    entries, start = b"", 0
    for name, data in files.items():
        entries += struct.pack("<IIHHHH", len(data), start, 0, 0x5A21, 0, 0x80) + name.encode() + b"\0"
        start += len(data)
    block = struct.pack("<IHH", 0, len(content), len(content)) + content
    first = 36 + 8 + len(entries)
    folder = struct.pack("<IHH", first, 1, 0)
    head = struct.pack("<4sIIIIIBBHHHHH", b"MSCF", 0, first + len(block), 0, 44, 0, 3, 1, 1, len(files), 0, 1, 0)
    return head + folder + entries + block


ARCHIVES: dict[str, Callable[[Mapping[str, bytes]], bytes]] = {
    "a.tar": tar,
    "a.tar.gz": lambda files: gzip.compress(tar(files)),
    "a.tbz": lambda files: bz2.compress(tar(files)),
    "a.tar.xz": lambda files: lzma.compress(tar(files)),
    "a.tar.zst": lambda files: written(files, kind="pax_restricted", packing="zstd"),
    "a.7z": lambda files: written(files, kind="7zip"),
    "a.rar": rar,
    "a.cab": cab,
    "nameless": tar,
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_archive_is_a_document_for_each_of_its_files(rows_of: RowsOf, name: str) -> None:
    rows = rows_of(name, ARCHIVES[name](FILES))
    read = {row["text"]: row["locator"] for row in rows if row["status"] == "ok"}
    assert read.keys() == {"Müller owes 5 crowns", "due in May"}
    if name != "a.rar":
        assert read["Müller owes 5 crowns"] == "file in/Müller é.txt, text"
    assert [row["locator"] for row in rows if row["status"] == "empty"] == ["file empty.txt"]
    assert len(rows) == len(FILES)


@pytest.mark.parametrize(
    ("name", "pack"), [("a.txt.gz", gzip.compress), ("a.bz2", bz2.compress), ("a.xz", lzma.compress)]
)
def test_packed_file_is_a_document(rows_of: RowsOf, name: str, pack: Callable[[bytes], bytes]) -> None:
    (row,) = rows_of(name, pack(b"the fee is 4,410"))
    assert (row["text"], row["status"]) == ("the fee is 4,410", "ok")


@pytest.mark.parametrize("name", ["a.7z", "a.tar", "a.tar.gz", "a.rar", "a.cab"])
def test_archive_that_is_cut_says_so(rows_of: RowsOf, name: str) -> None:
    data = ARCHIVES[name]({"a.txt": b"first words", "b.txt": planted.picture("x" * 60) * 9})
    rows = rows_of(name, data[: len(data) * 2 // 3])
    assert any(row["status"] == "failed" and "whole" in row["reason"] for row in rows)


def test_archive_of_files_of_the_finder_has_none(rows_of: RowsOf) -> None:
    files = {"a.txt": b"words", "__MACOSX/._a.txt": b"\0\x05\x16\x07more", ".DS_Store": b"\0\0\0\x01Bud1"}
    assert [row["locator"] for row in rows_of("a.tar", tar(files))] == ["file a.txt, text"]


def test_list_of_files_of_the_disk_is_no_archive(rows_of: RowsOf) -> None:
    listing = gzip.compress(b"#mtree\n./a.txt type=file size=9 contents=/etc/passwd\n")
    (row,) = rows_of("a.gz", listing)
    assert row["text"].startswith("#mtree")


def test_archive_without_libarchive_is_skipped_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "_libarchive", lambda: None)
    file = tmp_path / "a.tar"
    file.write_bytes(tar(FILES))
    (part,) = archive.ArchiveConverter().convert(file)
    assert isinstance(part, Part)
    assert (part.status, "apt-get install libarchive13" in (part.reason or "")) == (PartStatus.SKIPPED, True)


PAGE = '<html xmlns="http://www.w3.org/1999/xhtml"><head><title>{}</title></head><body>{}</body></html>'
BOOK = {
    "mimetype": b"application/epub+zip",
    "META-INF/container.xml": b'<c><rootfiles><rootfile full-path="in/p.opf"/></rootfiles></c>',
    "in/p.opf": b'<package xmlns="http://www.idpf.org/2007/opf"><manifest><item id="a" href="a%20b.xhtml"/>'
    b'<item id="z" href="z.xhtml"/><item id="p" href="p.png"/></manifest><spine><itemref idref="z"/>'
    b'<itemref idref="a"/></spine></package>',
    "in/a b.xhtml": PAGE.format("Second", '<p>Rent is 40.</p><img src="p.png" alt="a stamp"/>').encode(),
    "in/z.xhtml": PAGE.format("First", "<p>Müller<sup>2</sup> signs.</p>").encode(),
    "in/extra.xhtml": PAGE.format("", "<p>An annex.</p>").encode(),
    "in/p.png": planted.picture("x"),
    "in/style.css": b"p {color: red}",
    "in/novel.dat": b"words that no reader knows " * 30,
}


def test_book_has_a_part_for_each_chapter_in_the_order_of_reading(rows_of: RowsOf) -> None:
    rows = rows_of("a.epub", zipped(BOOK))
    assert [(row["locator"], row["status"]) for row in rows] == [
        ("chapter 1: First", "ok"),
        ("chapter 2: Second", "ok"),
        ("page in/extra.xhtml", "ok"),
        ("picture in/p.png", "needs_ocr"),
        ("in/novel.dat", "missed"),
    ]
    assert rows[0]["text"] == "First\n\nMüller^2 signs."
    assert "Rent is 40." in rows[1]["text"]
    assert "a stamp" in rows[1]["text"]


def test_style_sheets_of_a_book_are_read_with_those_that_they_import(rows_of: RowsOf) -> None:
    page = PAGE.format("First", "<p>10<b class='u'>6</b> <i class='o'>500</i> 600</p><p><b>2</b><b>500</b></p>")
    linked = page.replace("<head>", '<head><link href="../css/a.css" rel="stylesheet"/>').encode()
    sheets = {
        "css/a.css": b"@import 'more/b.css';.u{position:relative;top:-0.33em;font-size:0.58em}",
        "css/more/b.css": b".o{text-decoration:line-through} p>b+b{display:block} p>b{display:inline-block}",
    }
    row, *_ = rows_of("a.epub", zipped({**BOOK, "in/z.xhtml": linked, **sheets}))
    assert (row["text"], row["status"]) == ("First\n\n10 ^6 [struck out: 500] 600\n2 500", "ok")
    del sheets["css/more/b.css"]
    row, *_ = rows_of("a.epub", zipped({**BOOK, "in/z.xhtml": linked, **sheets}))
    assert row["status"] == "needs_review"
    assert "(../css/more/b.css) may set words apart in 2500" in str(row["reason"])


def test_chapter_that_can_not_be_read_costs_itself(rows_of: RowsOf) -> None:
    rows = rows_of("a.epub", zipped({**BOOK, "in/z.xhtml": b"\xff\xfe" + b"\0\xd8" * 400}))
    assert [row["status"] for row in rows[:2]] == ["failed", "ok"]

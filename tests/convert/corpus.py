"""Files of mixed kinds, a quarter of them broken, encrypted, huge or hostile."""

from collections.abc import Callable
from pathlib import Path

from tests.convert import files
from tests.convert.files import A_TEXT, SCAN, written

HUGE_BYTES = 9 << 20
"""Size of a huge file; it is sparse."""

CONVERTERS = {
    ".loop": "tests.convert.hostile:Endless",
    ".greed": "tests.convert.hostile:Greedy",
    ".crash": "tests.convert.hostile:Crashing",
    ".talk": "tests.convert.hostile:Talkative",
    ".kill": "tests.convert.hostile:Killing",
}

HEALTHY: tuple[tuple[str, Callable[[int], bytes]], ...] = (
    ("pdf", lambda number: files.pdf(written(f"Contract {number}. {A_TEXT}"), written(f"Page two of {number}"))),
    ("html", lambda number: files.page(f"Notice {number}. {A_TEXT * 4}")),
    ("docx", lambda number: files.docx_file(("Heading 1", f"Terms {number}"), ("Normal", A_TEXT))),
    ("eml", lambda number: files.mail(f"Mail {number}", A_TEXT, files=[("a.txt", b"attached")]).as_bytes()),
    ("md", lambda number: f"# Title {number}\n{A_TEXT}\n".encode()),
    ("txt", lambda number: f"Note {number}. {A_TEXT}".encode()),
)

HOSTILE: tuple[tuple[str, Callable[[], bytes], str], ...] = (
    ("encrypted.pdf", files.encrypted_pdf, "failed"),
    ("cut.pdf", lambda: files.pdf(written(A_TEXT))[:300], "failed"),
    ("noise.pdf", lambda: b"%PDF-1.4\n" + bytes(range(256)) * 40, "failed"),
    ("scan.pdf", lambda: files.pdf(SCAN, written(A_TEXT)), "needs_ocr"),
    ("cut.docx", lambda: files.docx_file(("Normal", "x"))[:3000], "failed"),
    ("bomb.docx", files.zip_bomb, "failed"),
    ("entities.docx", files.xxe_docx, "failed"),
    ("encrypted.docx", files.encrypted_docx, "failed"),
    ("nested.eml", lambda: files.nested_mime(1100), "failed"),
    ("matryoshka.eml", lambda: files.nested_mail(10), "skipped"),
    ("broken-attachment.eml", lambda: files.mail("x", "y", files=[("a.pdf", b"%PDF-1.4")]).as_bytes(), "failed"),
    ("empty.txt", lambda: b"", "empty"),
    ("table.xyz", lambda: b"1;2;3", "skipped"),
    ("photo.png", lambda: b"\x89PNG\r\n\x1a\n", "needs_ocr"),
    ("huge.pdf", lambda: b"", "skipped"),
    ("a.greed", lambda: b"", "failed"),
    ("a.crash", lambda: b"", "failed"),
    ("a.talk", lambda: b"", "failed"),
    ("a.kill", lambda: b"", "failed"),
    ("a.loop", lambda: b"", "failed"),
)


def write_corpus(folder: Path, *, healthy: int, hostile: int) -> dict[str, str]:
    """Writes so many files of each sort, in folders; returns how each must end."""
    endings: dict[str, str] = {}
    for number in range(healthy):
        kind, make = HEALTHY[number % len(HEALTHY)]
        endings[_write(folder, f"{number % 7}/{number:03d}.{kind}", make(number))] = "ok"
    for number in range(hostile):
        name, make_bad, ending = HOSTILE[number % len(HOSTILE)]
        path = _write(folder, f"bad/{number:03d}/{name}", make_bad())
        if name == "huge.pdf":
            with (folder / path).open("wb") as stream:
                stream.truncate(HUGE_BYTES)
        endings[path] = ending
    return endings


def _write(folder: Path, name: str, data: bytes) -> str:
    place = folder / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)
    return name

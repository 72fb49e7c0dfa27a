"""Files of mixed kinds, some of them encrypted, empty, huge or hostile; planted.py has the odd ones of each kind."""

from collections.abc import Callable
from pathlib import Path

from tests.convert import files
from tests.convert.files import A_TEXT, SCAN, written

HUGE_BYTES = 9 << 20
"""Size of a huge file; it is sparse."""

CONVERTERS = {
    ".loop": "tests.convert.hostile:Endless",
    ".crash": "tests.convert.hostile:Crashing",
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
    ("scan.pdf", lambda: files.pdf(SCAN, written(A_TEXT)), "needs_ocr"),
    ("matryoshka.eml", lambda: files.nested_mail(10), "skipped"),
    ("empty.txt", lambda: b"", "empty"),
    ("huge.pdf", lambda: b"", "skipped"),
    ("a.crash", lambda: b"", "failed"),
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

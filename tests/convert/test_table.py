"""What a table of converted documents says of the parts that were not read."""

from typing import Any

from memagent_batch.convert.table import ConvertedRow, rows_table


def row(document_id: str, part: int, status: str, reason: str | None = None) -> ConvertedRow:
    return {
        "document_id": document_id,
        "part": part,
        "locator": f"page {part}",
        "text": "text" if status == "ok" else None,
        "status": status,
        "reason": reason,
        "converter": "pdf",
        "converter_version": "1",
        "source": "a.pdf",
        "source_hash": "0" * 64,
        "ocr_lowest": None,
        "ocr_mean": None,
        "ocr_lines": None,
    }


def read_of(*rows: ConvertedRow) -> dict[str, tuple[float, str | None]]:
    found: list[dict[str, Any]] = rows_table(rows).to_pylist()
    return {each["document_id"]: (each["source_read"], each["source_unread"]) for each in found}


def test_every_row_of_a_document_says_which_parts_were_not_read() -> None:
    rows = [row("a.pdf", 1, "ok"), row("a.pdf", 2, "needs_ocr", "an image"), row("a.pdf", 3, "needs_ocr", "an image")]
    assert read_of(*rows, row("a.pdf", 4, "failed", "torn")) == {
        "a.pdf": (0.25, "needs_ocr: an image (page 2, page 3); failed: torn (page 4)")
    }


def test_places_beyond_the_first_ones_are_counted() -> None:
    rows = [row("a.pdf", part, "needs_ocr", "an image") for part in range(1, 8)]
    assert read_of(*rows)["a.pdf"][1] == "needs_ocr: an image (page 1, page 2, page 3, page 4, page 5 and 2 more)"


def test_blank_page_is_read_and_a_document_of_blanks_is_not() -> None:
    assert read_of(row("a.pdf", 1, "ok"), row("a.pdf", 2, "empty")) == {"a.pdf": (1.0, None)}
    assert read_of(row("a.pdf", 1, "empty")) == {"a.pdf": (0.0, "empty: nothing is in it")}


def test_attachment_that_was_not_read_is_said_of_all_documents_above_it() -> None:
    rows = [row("m.eml", 1, "ok"), row("m.eml/1-a.zip/1-b.exe", 1, "skipped", "no converter")]
    assert read_of(*rows, row("m.eml/2-c.txt", 1, "ok")) == {
        "m.eml": (2 / 3, "skipped: no converter (attachment 1-a.zip/1-b.exe)"),
        "m.eml/1-a.zip/1-b.exe": (0.0, "skipped: no converter"),
        "m.eml/2-c.txt": (1.0, None),
    }


def test_every_row_of_a_document_has_the_notes_of_its_parts_that_are_ok() -> None:
    small = "small pictures are not read"
    rows = [row("a.pdf", 1, "ok", small), row("a.pdf", 2, "ok"), row("a.pdf", 3, "ok", small)]
    rows += [row("a.pdf", 4, "needs_ocr", "an image"), row("b.pdf", 1, "ok"), row("c.txt", 1, "ok", "cut")]
    found = {each["document_id"]: each["source_notes"] for each in rows_table(rows).to_pylist()}
    assert found == {"a.pdf": f"{small} (page 1, page 3)", "b.pdf": None, "c.txt": "cut"}

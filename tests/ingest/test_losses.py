"""What `losses` say of the parts of a file that were not read."""

from memagent_batch.data.ingest.losses import FileDocument, FilePart, describe_losses, find_losses, sum_up_losses
from memagent_batch.data.ingest.readers.converter import PartStatus, Severity


def part(document_id: str, number: int, status: str, reason: str | None = None) -> FilePart:
    text = "text" if status == "ok" else None
    return FilePart(
        document_id=document_id, locator=f"page {number}", text=text, status=PartStatus(status), reason=reason
    )


def documents(*parts: FilePart) -> list[FileDocument]:
    found: dict[str, FileDocument] = {}
    for each in parts:
        document = found.setdefault(each.document_id, FileDocument(document_id=each.document_id, parts=[]))
        document.parts.append(each)
    return [*found.values()]


def read_of(*parts: FilePart) -> dict[str, tuple[float, str | None]]:
    return {name: (share, describe_losses(losses)) for name, (losses, share) in find_losses(documents(*parts)).items()}


def test_losses_of_a_document_say_which_parts_were_not_read() -> None:
    parts = [
        part("a.pdf", 1, "ok"),
        part("a.pdf", 2, "needs_ocr", "an image"),
        part("a.pdf", 3, "needs_ocr", "an image"),
    ]
    assert read_of(*parts, part("a.pdf", 4, "failed", "torn")) == {
        "a.pdf": (0.25, "needs_ocr: an image (page 2, page 3); failed: torn (page 4)")
    }


def test_places_beyond_the_first_ones_are_counted() -> None:
    parts = [part("a.pdf", number, "needs_ocr", "an image") for number in range(1, 8)]
    assert read_of(*parts)["a.pdf"][1] == "needs_ocr: an image (page 1, page 2, page 3, page 4, page 5 and 2 more)"


def test_blank_page_is_read_and_a_document_of_blanks_is_not() -> None:
    assert read_of(part("a.pdf", 1, "ok"), part("a.pdf", 2, "empty")) == {"a.pdf": (1.0, None)}
    assert read_of(part("a.pdf", 1, "empty")) == {"a.pdf": (0.0, "empty: nothing is in it")}


def test_attachment_that_was_not_read_is_said_of_all_documents_above_it() -> None:
    parts = [part("m.eml", 1, "ok"), part("m.eml/1-a.zip/1-b.exe", 1, "skipped", "no converter")]
    assert read_of(*parts, part("m.eml/2-c.txt", 1, "ok")) == {
        "m.eml": (2 / 3, "skipped: no converter (attachment 1-a.zip/1-b.exe)"),
        "m.eml/1-a.zip/1-b.exe": (0.0, "skipped: no converter"),
        "m.eml/2-c.txt": (1.0, None),
    }


def test_notes_of_parts_that_are_ok_are_losses_of_form() -> None:
    small = "small pictures are not read"
    parts = [part("a.pdf", 1, "ok", small), part("a.pdf", 2, "ok"), part("a.pdf", 3, "ok", small)]
    parts += [part("a.pdf", 4, "needs_ocr", "an image"), part("b.pdf", 1, "ok"), part("c.txt", 1, "ok", "cut")]
    found = {
        name: describe_losses(losses, severities=[Severity.FORMAT])
        for name, (losses, _) in find_losses(documents(*parts)).items()
    }
    assert found == {"a.pdf": f"{small} (page 1, page 3)", "b.pdf": None, "c.txt": "cut"}


def test_severities_are_those_of_the_statuses() -> None:
    parts = [part("a", 1, "ok"), part("a", 2, "needs_review", "faint"), part("a", 3, "failed", "torn")]
    (losses, _) = find_losses(documents(*parts))["a"]
    assert {(loss["kind"], loss["severity"], loss["place"]) for loss in losses} == {
        ("needs_review", "uncertain", "page 2"),
        ("failed", "unread", "page 3"),
    }


def test_words_that_are_missing_are_a_loss_and_lower_the_share_that_was_read() -> None:
    (document,) = documents(part("a", 1, "ok"), part("a", 2, "failed", "torn"), part("a", 3, "missed", "2 words"))
    document.num_words, document.num_missing = 8, 2
    losses, share = find_losses([document])["a"]
    assert share == 0.75 * 0.5
    assert describe_losses(losses) == "failed: torn (page 2); missed: 2 words (page 3)"


def test_losses_of_several_documents_are_summed_up_by_their_reasons() -> None:
    parts = [part("a", number, "needs_ocr", "an image") for number in (1, 2)]
    losses = [loss for found, _ in find_losses(documents(*parts)).values() for loss in found]
    assert sum_up_losses(losses) == [
        {"kind": "needs_ocr", "severity": "unread", "place": "page 1, page 2", "detail": "an image"}
    ]

"""Scanned contracts under stamps, legends and Bates numbers that are text: read with OCR, said to be unread without."""

from collections.abc import Iterable
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from memagent_batch.data.ingest.readers.converter import Part, PartStatus
from memagent_batch.data.ingest.readers.pdf import PdfConverter
from tests.convert import files, planted
from tests.convert.scans import Contract, contract
from tests.ingest.nights import Row, by_id, night

CONTRACTS = 20
FEW = (2, 3, 4, 7, 9, 17)
"""All layouts, scanners and kinds of overlays are among them."""
FEWEST_WORDS, MOST_WORDS = 0.85, 1.1
"""Words that are read, as shares of those that the page shows: OCR may join two, and none may be read twice."""


def ingested(folder: Path, seeds: Iterable[int], *, ocr: bool) -> list[tuple[Contract, Row]]:
    """The contracts, each with its row of `documents`."""
    contracts = {f"{seed:02d}.pdf": contract(seed) for seed in seeds}
    (folder / "in").mkdir()
    for name, made in contracts.items():
        (folder / "in" / name).write_bytes(made.pdf)
    night(folder / "in", folder / "out", format="files", ingest={"ocr": ocr})
    rows = by_id(folder / "out")
    return [(made, rows[name]) for name, made in contracts.items()]


def without_blanks(text: str) -> str:
    return "".join(text.split())


def test_scan_under_text_is_said_to_be_unread_without_ocr(tmp_path: Path) -> None:
    for made, row in ingested(tmp_path, range(CONTRACTS), ocr=False):
        (loss,) = row["losses"]
        assert (loss["severity"], loss["kind"]) == ("unread", "needs_ocr")
        assert "its text layer has not all that it shows" in loss["detail"]
        assert row["source_read"] < 1
        for text in made.overlays.values():
            assert text in row["text"]
        assert not any(fact in row["text"] for fact in made.facts.values())


@pytest.mark.parametrize("seeds", [FEW, pytest.param(range(CONTRACTS), marks=pytest.mark.slow)], ids=["few", "all"])
def test_facts_of_scans_and_the_text_over_them_are_read_once_with_ocr(tmp_path: Path, seeds: Iterable[int]) -> None:
    for made, row in ingested(tmp_path, seeds, ocr=True):
        text = without_blanks(row["text"])
        read = {words: text.count(without_blanks(words)) for words in (made.facts | made.overlays).values()}
        assert read == dict.fromkeys(read, 1)
        for words in made.overlays.values():
            assert words in row["text"]
        num_shown = sum(len(line.split()) for line in (*made.lines, *made.overlays.values()))
        assert FEWEST_WORDS * num_shown <= len(row["text"].split()) <= MOST_WORDS * num_shown
        assert row["source_read"] == 1
        assert {loss["severity"] for loss in row["losses"]} <= {"format", "uncertain"}


def parts_of(folder: Path, data: bytes, *, ocr: bool = True) -> list[Part]:
    (folder / "a.pdf").write_bytes(data)
    items = PdfConverter(ocr=ocr).convert(folder / "a.pdf")
    return [item for item in items if isinstance(item, Part)]


def dark_share(picture: bytes, box: tuple[float, float, float, float]) -> float:
    """The share of dark pixels in a box, which is given in shares of the picture's sides."""
    with Image.open(BytesIO(picture)) as image:
        left, top, right, bottom = box
        sides = (left * image.width, top * image.height, right * image.width, bottom * image.height)
        piece = image.convert("L").crop(sides)
    return sum(piece.histogram()[:128]) / (piece.width * piece.height)


WHOLE, FOOT = (0.0, 0.0, 1.0, 1.0), (0.5, 0.93, 1.0, 1.0)


def test_text_over_a_scan_is_kept_and_ocr_sees_the_scan_without_it(tmp_path: Path) -> None:
    page, scan = parts_of(tmp_path, contract(0).pdf)
    assert (page.status, page.picture, scan.status) == (PartStatus.OK, b"", PartStatus.NEEDS_OCR)
    assert (dark_share(scan.picture, WHOLE) > 0, dark_share(scan.picture, FOOT)) == (True, 0)


@pytest.mark.parametrize("layer", ["3 Tr", ""], ids=["invisible", "under the picture"])
def test_text_that_nobody_sees_is_replaced_by_what_ocr_reads(tmp_path: Path, layer: str) -> None:
    image = Image.open(BytesIO(planted.picture("K1234567", size=(600, 800))))
    text = f"BT {layer} /F1 10 Tf 40 750 Td (some of its words) Tj ET"
    content = f"{text} q 600 0 0 800 0 0 cm /Im2 Do Q"
    data = planted.with_resource(content, "/XObject << /Im2 6 0 R >>", [planted.image_object(image)])
    (page,) = parts_of(tmp_path, data)
    assert (page.status, page.text) == (PartStatus.NEEDS_OCR, "some of its words")
    assert dark_share(page.picture, WHOLE) > 0


LINK = b"<< /Type /Annot /Subtype /Link /Rect [50 50 90 90] /A << /S /URI /URI (http://a.example) >> >>"


def test_annotations_of_a_page_without_resources_of_its_own_cost_no_picture(tmp_path: Path) -> None:
    stamped = contract(4).pdf
    linked = contract(0).pdf.replace(b"<< /Type /Page /Parent", b"<< /Type /Page /Annots [%s] /Parent" % LINK)
    assert b"/Annots" in stamped
    assert b"/Annots" in linked
    for data in (stamped, linked):
        (page,) = parts_of(tmp_path, data, ocr=False)
        assert page.status == PartStatus.NEEDS_OCR
        assert "RECEIVED" in page.text


def test_layers_of_a_page_without_resources_of_its_own_are_said_where_annotations_are_drawn(tmp_path: Path) -> None:
    layers = "/OCProperties << /OCGs [9 0 R] /D << /OFF [9 0 R] >> >>"
    appearance = planted.appearance("BT /F1 10 Tf 9 9 Td (PAID) Tj ET")
    stamp = b"<< /Type /Annot /Subtype /Stamp /Rect [50 500 300 600] /AP << /N 6 0 R >> >>"
    page = f"{files.written('The deed.')} /OC /L BDC {files.written('An older draft.')} EMC"
    data = files.pdf(page, extra=(b"<< >>", appearance, stamp, b"<< >>", b"<< /Type /OCG /Name (Draft) >>"))
    data = data.replace(b"/XObject << /Im1 4 0 R >>", b"/XObject << /Im1 4 0 R >> /Properties << /L 9 0 R >>")
    data = data.replace(b"/Names 5 0 R", layers.encode())
    plain, *_ = parts_of(tmp_path, data)
    assert (plain.text, "layers that are off" in (plain.reason or "")) == ("The deed.", True)
    page_part, *_, doubt = parts_of(tmp_path, data.replace(b"/Page /Parent", b"/Page /Annots [7 0 R] /Parent"))
    assert all(words in page_part.text for words in ("PAID", "The deed."))
    assert (doubt.status, doubt.locator) == (PartStatus.NEEDS_REVIEW, "page 1, layers")

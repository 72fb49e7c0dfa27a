"""Pages and images without a text layer, printed here as pictures and read by OCR."""

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pypdfium2
import pytest
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from memagent_batch.data.ingest.files import FileConverter
from memagent_batch.data.ingest.readers import pdf
from memagent_batch.data.ingest.readers.converter import Line, Part, PartStatus
from memagent_batch.data.ingest.readers.ocr import OcrConverter, reading_order
from memagent_batch.data.ingest.readers.process.sandbox import Limits
from memagent_batch.data.ingest.readers.process.worker import ConverterServer
from tests.convert import files, office, planted
from tests.convert.files import written
from tests.convert.rows import RowsOf, chosen

LINES = ("The contract begins on 1 March 2026.", "It ends after 24 months.", "Both parties sign it.")


def scan(*texts: str, dpi: int = 200, turn: int = 0, blur: float = 0.0) -> Image.Image:
    """A printed page as a picture; each text is the content of the page."""
    document = pypdfium2.PdfDocument(files.pdf(" ".join(texts)))
    image: Image.Image = document[0].render(scale=dpi / 72).to_pil().convert("L")
    return image.filter(ImageFilter.GaussianBlur(blur)).rotate(turn, expand=True, fillcolor=255)


def saved(image: Image.Image, *, form: str = "PDF") -> bytes:
    out = io.BytesIO()
    image.save(out, form)
    return out.getvalue()


def column(lines: Sequence[str], *, left: int) -> str:
    return f"BT /F1 10 Tf 14 TL {left} 700 Td {' '.join(f'({line}) Tj T*' for line in lines)} ET"


def parts_of(folder: Path, data: bytes) -> list[Part]:
    (folder / "source").write_bytes(data)
    return [item for item in OcrConverter().convert(folder / "source") if isinstance(item, Part)]


@pytest.fixture(scope="module")
def converter() -> Iterator[FileConverter]:
    """With OCR."""
    limits = Limits(seconds=300, memory_bytes=2 << 30)
    with ConverterServer(search_path=(str(Path(__file__).parents[2]),), settings={"ocr": True}) as server:
        yield FileConverter(server, converters=chosen({"image": "rapidocr"}), limits=limits)


@pytest.fixture
def rows_of(converter: FileConverter, tmp_path: Path) -> RowsOf:
    return RowsOf(converter, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("dpi", "turn"), [(150, 0), (200, 90), (300, 180)])
def test_scanned_page_is_read_upright(tmp_path: Path, dpi: int, turn: int) -> None:
    (part,) = parts_of(tmp_path, saved(scan(column(LINES, left=60), dpi=dpi, turn=turn), form="PNG"))
    assert part.text.split("\n") == [*LINES]
    assert (part.status, part.reason) == (PartStatus.OK, "read by OCR")
    assert [line.text for line in part.lines] == [*LINES]
    assert min(line.confidence for line in part.lines) > 0.7
    for above, below in pairwise(part.lines):  # boxes are of the upright page, whose text is at its upper left
        assert 0 < above.left < above.right < 0.6
        assert 0 < above.top < above.bottom < below.bottom < 0.3


@pytest.mark.slow
def test_mixed_pdf_keeps_its_text_layer_and_reads_columns_one_by_one(rows_of: RowsOf) -> None:
    left = ("The seller delivers the goods.", "He insures them as well.", "He bears all the costs.")
    right = ("The buyer pays within a month.", "He checks them at once.", "He reports all damages.")
    columns = scan(column(left, left=60), column(right, left=320))
    picture = pypdfium2.PdfDocument(saved(columns))
    book = pypdfium2.PdfDocument(files.pdf(written(planted.LONG)))
    book.import_pages(picture)
    out = io.BytesIO()
    book.save(out)
    layer, read = rows_of("a.pdf", out.getvalue())
    assert (layer["locator"], layer["converter"], layer["reason"]) == ("page 1", "pdf", None)
    assert (read["locator"], read["converter"], read["reason"]) == ("page 2", "rapidocr", "read by OCR")
    assert (read["text"] or "").split("\n") == [*left, *right]


@pytest.mark.slow
def test_page_on_which_no_word_can_be_read_is_not_ok(tmp_path: Path) -> None:
    (part,) = parts_of(tmp_path, saved(scan(column(LINES, left=60), dpi=60, blur=2.0), form="PNG"))
    assert part.status in (PartStatus.NEEDS_OCR, PartStatus.NEEDS_REVIEW)
    assert (part.reason or "") != "read by OCR"
    assert not any(word in part.text for line in LINES for word in line.split())


def words(text: str, *, size: tuple[int, int] = (320, 50), height: int = 20) -> Image.Image:
    image = Image.new("L", size, 255)
    ImageDraw.Draw(image).text((5, size[1] // 4), text, font=ImageFont.load_default(height))
    return image


@pytest.mark.slow
def test_line_in_which_no_letter_is_known_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    converter = OcrConverter()
    recognise = converter._engine.recognize_txt

    def without_first(pieces: Any) -> Any:
        """Knows no letter of the first line, as the models do with other scripts than theirs."""
        read = recognise(pieces)
        read.txts = ("", *read.txts[1:])
        return read

    monkeypatch.setattr(converter._engine, "recognize_txt", without_first)
    part = converter.part(
        scan(column(LINES[:2], left=60), dpi=100).crop((0, 100, 500, 220)).convert("RGB"), locator="1"
    )
    assert (part.text, part.status) == (LINES[1], PartStatus.NEEDS_OCR)
    assert (part.reason or "").startswith("OCR can't read 1 of its 2 lines (")
    assert "it knows Latin, Chinese and Japanese letters" in (part.reason or "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("image", "text"),
    [
        (words("EUR 4,250,000", size=(80, 14), height=9), "EUR 4,250,000"),
        (words("The code is K1.", size=(600, 100), height=40).point(lambda level: max(level, 150)), "The code is K1."),
    ],
    ids=["tiny", "dots of a fax"],
)
def test_tiny_or_dotted_letters_are_read(tmp_path: Path, image: Image.Image, text: str) -> None:
    (part,) = parts_of(tmp_path, saved(image.convert("1") if image.height > 50 else image, form="PNG"))
    assert part.text == text


@pytest.mark.slow
def test_each_page_of_a_picture_has_its_outcome_after_one_with_a_doubtful_line(tmp_path: Path) -> None:
    out, blank = io.BytesIO(), Image.new("L", (320, 50), 255)
    words("Rent 500").save(out, "TIFF", save_all=True, append_images=[blank, words("Fee 70")])
    (tmp_path / "source").write_bytes(out.getvalue())
    parts = [
        part for part in OcrConverter(ocr_min_confidence=1.0).convert(tmp_path / "source") if isinstance(part, Part)
    ]
    assert [(part.locator, part.text) for part in parts] == [
        ("image 1", "Rent 500"),
        ("image 2", ""),
        ("image 3", "Fee 70"),
    ]
    assert parts[1].status == PartStatus.NEEDS_OCR


class Guess(OcrConverter):
    """Reads one line of three badly; its piece, larger, as `again` says for each turn."""

    def __init__(self, again: Sequence[float], *, min_confidence: float = 0.7, unread: bool = False) -> None:
        super().__init__(ocr_min_confidence=min_confidence)
        self._tries, self._unread = iter(again), unread

    def _lines(self, image: Image.Image) -> list[Line]:
        del image
        sure = [line("It begins.", 0, 0, 1), line("It ends.", 0, 0.2, 1)]
        return [*sure, replace(line("" if self._unread else "2ns wns n", 0, 0.46, 1), confidence=0.41)]

    def _words(self, piece: Image.Image, line: Line) -> Line:
        del piece
        if self._unread:
            return line
        confidence = next(self._tries)
        return replace(line, text=f"read at {confidence}", confidence=confidence)


def guess(*again: float, min_confidence: float = 0.7) -> Part:
    return Guess(again, min_confidence=min_confidence).part(Image.new("RGB", (100, 100)), locator="page 1")


def test_page_with_a_doubtful_line_needs_review_at_its_place() -> None:
    part = guess(0.3, 0.2)
    assert (part.status, part.text) == (PartStatus.NEEDS_REVIEW, "It begins.\nIt ends.\n2ns wns n")
    assert part.reason == "read by OCR, which is not sure of '2ns wns n' (0.41, 50% down the page)"
    assert [line.confidence for line in part.lines] == [1.0, 1.0, 0.41]


def test_page_whose_lines_are_all_illegible_has_no_text() -> None:
    class Noise(OcrConverter):
        def _lines(self, image: Image.Image) -> list[Line]:
            del image
            return [replace(line("2ns wns n", 0, 0.46, 1), confidence=0.2)]

        def _words(self, piece: Image.Image, line: Line) -> Line:
            del piece
            return line

    part = Noise().part(Image.new("RGB", (100, 100)), locator="page 1")
    assert (part.text, part.status, part.lines) == ("", PartStatus.NEEDS_OCR, [])
    assert (part.reason or "").startswith("OCR can't read 1 of its 1 lines (50% down the page)")


def test_page_needs_ocr_if_some_of_its_lines_cannot_be_read() -> None:
    part = Guess((), unread=True).part(Image.new("RGB", (100, 100)), locator="page 1")
    assert (part.status, part.text) == (PartStatus.NEEDS_OCR, "It begins.\nIt ends.")
    assert (part.reason or "").startswith("OCR can't read 1 of its 3 lines (50% down the page)")
    assert [line.text for line in part.lines] == ["It begins.", "It ends."]


def test_doubtful_line_is_read_again_larger_and_turned_and_the_surest_is_taken() -> None:
    part = guess(0.6, 0.92)
    assert (part.status, part.reason, part.text.split("\n")[-1]) == (PartStatus.OK, "read by OCR", "read at 0.92")
    assert guess(0.6, 0.65).text.endswith("read at 0.65")


def test_least_confidence_decides_what_is_doubtful_and_is_part_of_the_version() -> None:
    assert guess(min_confidence=0.4).status == PartStatus.OK
    assert guess(0.6, 0.92, min_confidence=0.95).status == PartStatus.NEEDS_REVIEW
    assert OcrConverter(ocr_min_confidence=0.4).version() != OcrConverter(ocr_min_confidence=0.5).version()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "make", "locator"),
    [
        ("a.pdf", planted.scanned, "page 1"),
        ("a.docx", planted.DOCX["docx-picture.docx"], "picture image1.bin"),
        ("a.pptx", lambda fact: office.pptx("", image=planted.picture(fact)), "slide 1, picture"),
        ("a.html", planted.HTML["html-picture.html"], "picture 1"),
    ],
)
def test_picture_inside_a_file_is_read_where_it_stands(
    rows_of: RowsOf, name: str, make: planted.Maker, locator: str
) -> None:
    read = next(row for row in rows_of(name, make("K1234567")) if row["converter"] == "rapidocr")
    assert ("K1234567" in (read["text"] or ""), read["document_id"]) == (True, name)
    assert read["locator"].startswith(locator)


def test_page_that_ends_its_process_costs_itself_alone(tmp_path: Path) -> None:
    own = {"image": "tests.convert.hostile:Crashing"}
    pages = pypdfium2.PdfDocument(files.pdf(written(planted.LONG), written(planted.LONG)))
    pages.import_pages(pypdfium2.PdfDocument(planted.scanned("K1234567")), index=1)
    out = io.BytesIO()
    pages.save(out)
    with ConverterServer(search_path=(str(Path(__file__).parents[2]),), settings={"ocr": True}) as server:
        converter = FileConverter(server, converters=chosen(own), limits=Limits(seconds=60))
        first, crashed, last = RowsOf(converter, tmp_path)("a.pdf", out.getvalue())
    assert [(row["locator"], row["status"]) for row in (first, last)] == [("page 1", "ok"), ("page 3", "ok")]
    assert (crashed["locator"], crashed["status"]) == ("page 2", "failed")
    assert "crashed with SIGSEGV" in (crashed["reason"] or "")


def test_page_of_any_size_is_drawn_in_few_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf, "PAGE_PIXELS", 100_000)
    (tmp_path / "a.pdf").write_bytes(planted.scanned("K1234567"))
    (part,) = pdf.PdfConverter(ocr=True).convert(tmp_path / "a.pdf")
    assert isinstance(part, Part)
    with Image.open(io.BytesIO(part.picture)) as image:
        assert 90_000 < image.width * image.height < 110_000


def test_columns_are_read_one_by_one_and_rows_of_a_table_across() -> None:
    title, foot = line("title", 0, 0, 1), line("foot", 0.45, 0.9, 0.55)
    text = [
        line(f"{side}{row}", left, 0.1 * row, left + 0.45)
        for row in (1, 2, 3)
        for side, left in (("a", 0), ("b", 0.55))
    ]
    assert read([title, *text, foot]) == ["title", "a1", "a2", "a3", "b1", "b2", "b3", "foot"]
    cells = [
        line(f"{side}{row}", left, 0.1 * row, left + 0.1) for row in (1, 2, 3) for side, left in (("a", 0), ("b", 0.9))
    ]
    assert read(cells) == ["a1", "b1", "a2", "b2", "a3", "b3"]
    assert read([line("K1234567.", 0.5, 0.1, 1), line("The code is", 0, 0.11, 0.4)]) == ["The code is", "K1234567."]


def line(text: str, left: float, top: float, right: float) -> Line:
    return Line(text=text, confidence=1.0, left=left, top=top, right=right, bottom=top + 0.08)


def read(lines: Sequence[Line]) -> list[str]:
    return [each.text for each in reading_order(lines)]

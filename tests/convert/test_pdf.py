"""What is read of PDF pages by their format: raised digits, marks, annotations, scans under a text layer."""

import math
import zlib
from collections.abc import Sequence
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import pypdfium2
import pytest
from PIL import Image

from memagent_batch.data.ingest.readers.converter import Part, PartStatus
from memagent_batch.data.ingest.readers.pdf import PdfConverter
from memagent_batch.errors import ConversionError
from tests.convert import files, planted
from tests.convert.files import pdf, stream, written
from tests.convert.rows import RowsOf

NEEDS_OCR, NEEDS_REVIEW, OK = PartStatus.NEEDS_OCR, PartStatus.NEEDS_REVIEW, PartStatus.OK
WORDS = "The tenant pays the rent on the first day of each month and keeps the rooms in good order. "
LINES = [WORDS] * 44


def parts_of(folder: Path, data: bytes) -> list[Part]:
    (folder / "a.pdf").write_bytes(data)
    return [item for item in PdfConverter().convert(folder / "a.pdf") if isinstance(item, Part)]


def at(x: float, y: float, text: str, *, size: int = 12) -> str:
    return f"BT /F1 {size} Tf {x} {y} Td ({text}) Tj ET "


def raised(before: str, digits: str, after: str, *, rise: int = 6) -> str:
    """A text with smaller characters above or below the line in it."""
    return f"BT /F1 12 Tf 50 700 Td ({before}) Tj {rise} Ts /F1 7 Tf ({digits}) Tj 0 Ts /F1 12 Tf ({after}) Tj ET "


def lines(*texts: str, x: int = 50, lead: int = 14) -> str:
    return "".join(at(x, 700 - lead * number, text) for number, text in enumerate(texts))


def spaced(*words: str) -> str:
    """Invisible text as OCR engines write it: letters set apart, the last one of each word on its own."""
    shown = " ".join(f"1.85 Tc ( {word[:-1]}) Tj 0 Tc ({word[-1]}) Tj" for word in words)
    return f"BT 3 Tr 1 0 0 1 50 700 Tm /F1 11 Tf 106 Tz {shown} ET"


def square(x: float, y: float, *, drawn: str = "") -> str:
    return f"q 1 0 0 1 {x} {y} cm 0 0 10 10 re S {drawn} Q "


def button(x: float, y: float, *, radius: float = 5, drawn: str = "S") -> str:
    """A circle of eight curves around a point."""
    arc, pull = math.pi / 4, 0.2652 * radius
    spots = [(x + radius * math.cos(turn * arc), y + radius * math.sin(turn * arc)) for turn in range(9)]
    pulls = [(-pull * math.sin(turn * arc), pull * math.cos(turn * arc)) for turn in range(9)]
    pairs = pairwise(zip(spots, pulls, strict=True))
    curves = (f"{a + c} {b + d} {e - g} {f - h} {e} {f} c " for ((a, b), (c, d)), ((e, f), (g, h)) in pairs)
    return f"{x + radius} {y} m {''.join(curves)}{drawn} "


def side_by_side(left: Sequence[str], right: Sequence[str]) -> str:
    """Two columns that are drawn line by line."""
    pairs = enumerate(zip(left, right, strict=True))
    return "".join(at(50, 700 - 14 * row, a) + at(320, 700 - 14 * row, b) for row, (a, b) in pairs)


TICK, CROSS = "2 5 m 4 2 l 9 9 l S", "0 0 m 10 10 l 0 10 m 10 0 l S"
BOLD = (50, 53.3, 60, 63.3, 70)
"""Where the letters of `total` stand."""
TABLE = "Rent 500\nDeposit 600\nFee 70\nTax 80"
SELLER = ("the seller delivers", "all goods on time and", "bears the cost of it", "as long as it lasts")
BUYER = ("the buyer pays within", "one month of delivery", "and checks all goods", "on the same day")


PAGES = {
    "raised_digit": (raised("Notice: 30", "2", " days"), "Notice: 30^2 days"),
    "exponent": (raised("10", "-6", " mol"), "10^-6 mol"),
    "raised_after_stop": (raised("within 30 days.", "12", " Then"), "within 30 days.^12 Then"),
    "ordinal": (raised("the 1", "st", " day"), "the 1st day"),
    "raised_before_digit": (at(50, 704, "1", size=7) + at(54, 700, "2 months"), "^1 2 months"),
    "hyphens": (
        lines("The termi-", "nation of a long-", "term lease needs con-", "sent."),
        "The termination of a long-term lease needs consent.",
    ),
    "hyphens_of_compounds": (
        lines("Infor-", "mation for a third-", "party and his mother-", "in-law."),
        "Information for a third-party and his mother-in-law.",
    ),
    "last_letters_apart": (spaced("Singapore", "138588", "to", "buyer"), "Singapore 138588 to buyer"),
    "bold_by_two_lines": (at(50, 700, "Total 700") + at(50.4, 700, "Total 700"), "Total 700"),
    "bold_by_two_letters": (
        "".join(at(x + shift, 700, letter) for letter, x in zip("total", BOLD, strict=True) for shift in (0, 1.2)),
        "total",
    ),
    "line_through_one_text": (
        at(50, 700, "due 500") + at(100, 700, "due 600") + "0.5 w 50 704 m 91 704 l S",
        "[struck out: due 500] due 600",
    ),
    "thick_line_through_large_text": (
        at(50, 700, "due 500", size=40) + at(210, 700, "due 600", size=40) + "3 w 50 712 m 188 712 l S",
        "[struck out: due 500] due 600",
    ),
    "underlined_large_text": (at(50, 700, "due 500", size=40) + "3 w 50 696 m 188 696 l S", "due 500"),
    "line_of_a_chart": (at(50, 700, "500") + "0.5 w 20 704 m 500 704 l S", "500"),
    "columns": (lines(*SELLER) + lines(*BUYER, x=320), "\n".join((*SELLER, *BUYER))),
    "columns_by_lines": (side_by_side(SELLER, BUYER), "\n".join((*SELLER, *BUYER))),
    "header_and_page_number_drawn_last": (
        lines(*SELLER) + at(500, 780, "3 March 2026") + at(50, 780, "Sales contract") + at(300, 20, "Page 3"),
        "\n".join((*SELLER, "Sales contract 3 March 2026", "Page 3")),
    ),
    "table_column_by_column": (
        lines("Rent", "Deposit", "Fee") + lines("500", "600", "70", x=320),
        "Rent\nDeposit\nFee\n500\n600\n70",
    ),
    "table": (side_by_side(["Rent", "Deposit", "Fee", "Tax"], ["500", "600", "70", "80"]), TABLE),
    "table_with_rules": (
        side_by_side(SELLER, BUYER) + "".join(f"50 {696 - 14 * row} m 500 {696 - 14 * row} l S " for row in range(4)),
        "\n".join(map(" ".join, zip(SELLER, BUYER, strict=True))),
    ),
    "empty_boxes": (square(50, 700) + at(65, 700, "Yes") + square(150, 700) + at(165, 700, "No"), "Yes No"),
    "empty_buttons": (button(55, 705) + at(65, 700, "Yes") + button(155, 705) + at(165, 700, "No"), "Yes No"),
    "words_in_circles": (
        button(60, 704, radius=10) + at(57, 700, "A") + "56 698 m 64 698 l S " + at(80, 700, "Start"),
        "A Start",
    ),
    "field_over_its_line": (at(50, 700, "Name: ______") + "0.9 g 85 690 90 20 re f", "Name: ______"),
    "invisible_text_under_a_picture": (f"3 Tr {at(50, 700, 'Rent 500')} q 90 0 0 20 40 690 cm /Im1 Do Q", "Rent 500"),
    "shade_behind_text": ("0.9 g 40 690 190 25 re f 0 g " + at(50, 700, "Price: 500"), "Price: 500"),
}
"""Content of pages, and their text."""


def test_file_with_a_long_run_of_digits_is_read(rows_of: RowsOf) -> None:
    digits = b"<" + b"0" * 1_000_000 + b">"  # an empty picture in letters
    rows = rows_of("a.pdf", pdf(written(WORDS), extra=(b"<< >>", digits)))
    assert [row["status"] for row in rows] == ["ok"]


def labelled(labels: str) -> bytes:
    """A PDF of two pages with these labels."""
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents 4 0 R >>"
    return files.assembled(
        [
            f"<< /Type /Catalog /Pages 2 0 R {labels} >>".encode(),
            b"<< /Type /Pages /Kids [3 0 R 6 0 R] /Count 2 /Resources << /Font << /F1 5 0 R >> >> >>",
            page,
            stream("", written(WORDS).encode()),
            files.FONT.encode(),
            page,
        ]
    )


LONG_LABEL = f"page 1 ({'x' * 40})"


@pytest.mark.parametrize(
    ("labels", "locators"),
    [
        ("/P (ABC-) /S /D /St 122", ["page 1 (ABC-122)", "page 2 (ABC-123)"]),
        ("/S /r", ["page 1 (i)", "page 2 (ii)"]),
        ("/S /D", ["page 1", "page 2"]),
        ("/P (  \\000)", ["page 1", "page 2"]),
        (f"/P ({'x' * 100_000})", [LONG_LABEL, LONG_LABEL.replace("1", "2")]),
    ],
)
def test_pages_are_named_by_their_labels_too(tmp_path: Path, labels: str, locators: list[str]) -> None:
    data = labelled(f"/PageLabels << /Nums [0 << {labels} >>] >>")
    assert [part.locator for part in parts_of(tmp_path, data)] == locators


@pytest.mark.parametrize("name", PAGES)
def test_page_is_read_as_it_is_shown(tmp_path: Path, name: str) -> None:
    content, text = PAGES[name]
    (part,) = parts_of(tmp_path, pdf(content))
    assert (part.text.strip(), part.status, part.reason) == (text, OK, None)


@pytest.mark.parametrize("turn", [0, 90, 180, 270])
@pytest.mark.parametrize("matrix", [(1, 0, 100, 600), (0, 1, 300, 200), (-1, 0, 400, 500), (0, -1, 300, 600)])
def test_lines_of_a_turned_page_keep_their_order_and_that_of_their_pieces(
    tmp_path: Path, turn: int, matrix: tuple[int, int, int, int]
) -> None:
    along, up, left, bottom = matrix
    page = "".join(
        f"BT /F1 12 Tf {along} {up} {-up} {along} {left + x * along + y * up} {bottom + x * up - y * along} Tm "
        f"({text}) Tj 6 Ts /F1 7 Tf (2) Tj 0 Ts ET "
        for y, line in ((0, ("first 5,050", "rent")), (14, ("second", "fee")), (28, ("third", "tax")))
        for x, text in zip((0, 90), line, strict=True)
    )
    data = pdf(page).replace(b"/Type /Page /", f"/Type /Page /Rotate {turn} /".encode())
    (part,) = parts_of(tmp_path, data)
    assert part.text == "first 5,050^2 rent^2\nsecond^2 fee^2\nthird^2 tax^2"


@pytest.mark.parametrize(
    ("content", "text", "reason"),
    [
        (at(50, 700, "Name: Alice Example") + "85 695 90 15 re f", "Name: Alice Example", "hides 'Alice Example'"),
        (
            at(50, 700, "EUR 400") + "1 g 40 690 190 25 re f 0 g " + at(50, 650, "EUR 500"),
            "EUR 400\nEUR 500",
            "hides 'EUR 400'",
        ),
        (
            square(50, 700, drawn=TICK) + at(65, 700, "Yes") + square(150, 700) + at(165, 700, "No"),
            "☑ Yes ☐ No",
            "drawn boxes are chosen",
        ),
        (
            square(50, 700) + at(65, 700, "Yes") + square(150, 700, drawn=CROSS) + at(165, 700, "No"),
            "☐ Yes ☑ No",
            "drawn boxes are chosen",
        ),
        (
            button(55, 705)
            + button(55, 705, radius=3, drawn="f")
            + at(65, 700, "Yes")
            + button(155, 705)
            + at(165, 700, "No")
            + button(55, 685, radius=3, drawn="f")
            + at(65, 680, "Item"),
            "☑ Yes ☐ No\nItem",
            "drawn boxes are chosen",
        ),
        (
            lines("500", "600", "70", x=320) + lines("Rent", "Deposit", "Fee"),
            "500\n600\n70\nRent\nDeposit\nFee",
            "amounts come before the words",
        ),
        (
            side_by_side([f"Rent of flat {row}" for row in range(5)], [f"Paid by tenant {row}" for row in range(5)]),
            None,
            "two columns or the rows of a table",
        ),
    ],
)
def test_page_that_may_be_read_wrongly_needs_review(
    tmp_path: Path, content: str, text: str | None, reason: str
) -> None:
    (part,) = parts_of(tmp_path, pdf(content))
    assert part.status == NEEDS_REVIEW
    assert reason in (part.reason or "")
    assert text is None or part.text == text


def mapped(codes: str) -> bytes:
    """A PDF with an `A` whose font says that it means some code."""
    head = "begincmap 1 begincodespacerange <00> <FF> endcodespacerange"
    cmap = f"{head} 1 beginbfchar <41> <{codes}> endbfchar endcmap"
    font = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /ToUnicode 7 0 R >>"
    page = f"{at(50, 700, 'Before')} BT /F2 12 Tf 50 650 Td (A) Tj ET {at(50, 600, 'after.')}"
    data = pdf(page, extra=(b"<< >>", font, stream("", cmap.encode())))
    return data.replace(b"/Font << /F1 3 0 R >>", b"/Font << /F1 3 0 R /F2 6 0 R >>")


@pytest.mark.parametrize(
    ("codes", "text", "reason"),
    [
        ("0080", "€", None),
        ("0092", "’", None),
        ("D83DDE00", "😀", None),
        ("00660066", "ff", None),
        ("D800", "\ufffd", "1 characters without a meaning are not read"),
        ("E001", "\ue001", "1 characters without a meaning are not read"),
    ],
)
def test_glyph_with_an_odd_code_costs_itself_alone(tmp_path: Path, codes: str, text: str, reason: str | None) -> None:
    (part,) = parts_of(tmp_path, mapped(codes))
    assert (part.text, part.status, part.reason) == (f"Before\n{text}\nafter.", OK, reason)


def test_code_that_no_character_has_costs_itself_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unicode_of = pypdfium2.raw.FPDFText_GetUnicode
    monkeypatch.setattr(
        pypdfium2.raw,
        "FPDFText_GetUnicode",
        lambda texts, index: 0x7FFFFFFF if index == 8 else unicode_of(texts, index),
    )
    (part,) = parts_of(tmp_path, mapped("D800"))
    assert (part.text, part.status) == ("Before\n\ufffd\nafter.", OK)


def notes_of(folder: Path, entries: str, *objects: bytes) -> list[tuple[str, str, PartStatus]]:
    """The first lines, and the further parts, of a page with an annotation."""
    first, *others = parts_of(folder, planted.annotated(entries, *objects))
    assert first.text.startswith(planted.LONG[:20]) or "struck out" in first.text
    return [(part.locator, part.text, part.status) for part in others]


@pytest.mark.parametrize(
    ("entries", "note"),
    [
        ("/Subtype /Stamp /Name /Confidential", "Confidential"),
        ("/Subtype /Stamp", "Draft"),
        ("/Subtype /Widget /FT /Tx /T (price) /V (EUR 400)", "price: EUR 400"),
        ("/Subtype /Widget /FT /Btn /T (agree) /V /Yes", "☑ agree"),
        ("/Subtype /Widget /FT /Btn /T (agree) /V /Off", "☐ agree"),
        ("/Subtype /Widget /T (agree) /AS /On", "☑ agree"),
        ("/Subtype /Highlight /Contents (see annex)", "see annex"),
        ("/Subtype /Text /Contents (three)", "three"),  # which the page says too
    ],
)
def test_annotation_without_a_drawing_is_read(tmp_path: Path, entries: str, note: str) -> None:
    assert notes_of(tmp_path, entries) == [("page 1, notes", note, OK)]


def test_struck_out_text_and_text_that_an_annotation_draws_are_marked_and_read_once(tmp_path: Path) -> None:
    strike = "/Subtype /StrikeOut /QuadPoints [40 760 200 760 40 745 200 745]"
    (part,) = parts_of(tmp_path, planted.annotated(strike))
    assert part.text.startswith("[struck out: The contract of 1 March begins here], and")
    free = "/Subtype /FreeText /Contents (12 metres) /AP << /N 7 0 R >>"
    (part,) = parts_of(tmp_path, planted.annotated(free, planted.appearance(at(5, 15, "12 metres"))))
    assert part.text.count("12 metres") == 1


def form(*, fields: Sequence[str], page: str, has_form: bool) -> bytes:
    """A PDF with form fields; objects 5 and 6 are a mark and nothing, as fields show them."""
    mark, nothing = (stream("/Type /XObject /Subtype /Form /BBox [0 0 15 15]", body) for body in (TICK.encode(), b""))
    numbers = " ".join(f"{8 + number} 0 R" for number in range(len(fields)))
    entry = f"/AcroForm << /Fields [{numbers}] >>" if has_form else ""
    kid = "/Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Resources << /Font << /F1 4 0 R >> >>"
    return files.assembled(
        [
            f"<< /Type /Catalog /Pages 2 0 R {entry} >>".encode(),
            b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            f"<< {kid} /Contents 7 0 R /Annots [{numbers}] >>".encode(),
            files.FONT.encode(),
            mark,
            nothing,
            stream("", page.encode()),
            *(f"<< /Type /Annot /Subtype /Widget /F 4 {field} >>".encode() for field in fields),
        ]
    )


BOX = "/FT /Btn /T ({name}) /V /{value} /AS /{value} /Rect [{x} 695 {right} 710]"
LOOK = "/AP << /N << /Yes 5 0 R /Off 6 0 R >> >>"
PAGE = at(50, 700, "Exclusive") + at(250, 700, "Not exclusive")


@pytest.mark.parametrize("has_form", [True, False])
@pytest.mark.parametrize("look", [LOOK, ""])
@pytest.mark.parametrize(("more", "turn"), [("", 0), ("/Ff 32768", 0), ("", 90)])
def test_check_boxes_stand_beside_their_words(tmp_path: Path, has_form: bool, look: str, more: str, turn: int) -> None:
    boxes = [
        BOX.format(name=name, value=value, x=x, right=x + 15) + look + more
        for name, value, x in (("a", "Yes", 150), ("b", "Off", 360))
    ]
    data = form(fields=boxes, page=PAGE, has_form=has_form)
    (part,) = parts_of(tmp_path, data.replace(b"/Type /Page /", f"/Type /Page /Rotate {turn} /".encode()))
    assert (part.text, part.status, part.reason) == ("Exclusive ☑ Not exclusive ☐", OK, None)


def test_check_boxes_of_a_scan_are_kept_when_ocr_reads_it(tmp_path: Path) -> None:
    box = BOX.format(name="exclusive", value="Yes", x=150, right=165)
    page = at(50, 700, "Exclusive") + at(50, 600, "\x01\x02\x03")
    (tmp_path / "a.pdf").write_bytes(form(fields=[box], page=page, has_form=True))
    first, *others = PdfConverter(ocr=True).convert(tmp_path / "a.pdf")
    assert isinstance(first, Part)
    assert (first.text[:11], first.status) == ("Exclusive ☑", NEEDS_OCR)
    assert [part.text for part in others if isinstance(part, Part)] == ["☑ exclusive"]


def test_check_box_whose_value_is_not_what_it_shows_needs_review(tmp_path: Path) -> None:
    box = BOX.format(name="exclusive", value="Yes", x=150, right=165).replace("/AS /Yes", "/AS /Off")
    (part,) = parts_of(tmp_path, form(fields=[box], page=PAGE, has_form=True))
    assert part.status == NEEDS_REVIEW
    assert "chosen" in (part.reason or "")
    assert "exclusive" in (part.reason or "")


def printed(*texts: str) -> Image.Image:
    page = pypdfium2.PdfDocument(pdf(column(texts)))[0]
    image: Image.Image = page.render(scale=2).to_pil().convert("L")
    return image


def column(texts: Sequence[str], *, mode: int = 0) -> str:
    return f"BT {mode} Tr /F1 10 Tf 16 TL 50 760 Td {' '.join(f'({text}) Tj T*' for text in texts)} 0 Tr ET "


def scan(image: Image.Image, content: str, *, box: str = "600 0 0 800 0 0") -> bytes:
    """A PDF whose page shows an image, and text over it."""
    resources = "/XObject << /Im1 4 0 R /Im2 6 0 R >>"
    return planted.with_resource(f"q {box} cm /Im2 Do Q {content}", resources, [planted.image_object(image)])


def test_scan_in_strips_over_its_text_layer_hides_nothing(tmp_path: Path) -> None:
    image = printed(*LINES)
    height = image.height // 8
    strips = [image.crop((0, row * height, image.width, (row + 1) * height)) for row in range(8)]
    content = "".join(f"q 600 0 0 100 0 {700 - 100 * row} cm /Im{6 + row} Do Q " for row in range(8))
    names = " ".join(f"/Im{6 + row} {6 + row} 0 R" for row in range(8))
    layer = column(LINES)
    data = planted.with_resource(layer + content, f"/XObject << {names} >>", list(map(planted.image_object, strips)))
    assert [(part.status, part.reason) for part in parts_of(tmp_path, data)] == [(OK, None)]


NOISE = "~|;l 1i;' .,~ xq;k| wz|l ,;~. jj|q zxv;t l|;1 "


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (column(LINES, mode=3), None),
        (column(LINES[:22], mode=3), "not all that it shows"),
        (column(LINES[:38], mode=3), "not all that it shows"),
        (at(20, 785, planted.LEGEND[:160], size=6) + at(20, 10, planted.LEGEND[160:], size=6), "not all that it shows"),
        (column([NOISE * 3] * 44, mode=3), "looks like words"),
    ],
)
def test_scan_is_read_where_its_text_layer_covers_all_that_it_shows(
    tmp_path: Path, layer: str, reason: str | None
) -> None:
    (part,) = parts_of(tmp_path, scan(printed(*LINES), layer))
    assert part.status == (NEEDS_OCR if reason else OK)
    assert (reason or "") in (part.reason or "")


def test_page_with_little_text_over_a_whole_layer_or_a_smooth_background_is_read(tmp_path: Path) -> None:
    letter = LINES[:4]
    assert [part.status for part in parts_of(tmp_path, scan(printed(*letter), column(letter, mode=3)))] == [OK]
    background = Image.linear_gradient("L").point(lambda level: 128 + level // 2)
    assert [part.status for part in parts_of(tmp_path, scan(background, column(LINES)))] == [OK]
    empty = Image.new("L", (60, 80), 255)
    assert [part.status for part in parts_of(tmp_path, scan(empty, at(20, 10, "FERN-0001")))] == [NEEDS_OCR]


@pytest.mark.parametrize(
    ("box", "caption", "pictures"),
    [
        ("600 0 0 380 0 100", "Fig. 1", ["page 1, picture 1"]),
        ("300 0 0 100 50 100", "", ["page 1, picture 1"]),
        ("100 0 0 40 50 100", "", ["page 1, picture 1"]),
        ("30 0 0 20 50 100", "", []),
    ],
)
def test_picture_beside_text_is_named(tmp_path: Path, box: str, caption: str, pictures: list[str]) -> None:
    page = column(LINES[:15]) + at(300, 105, caption, size=8)
    first, *others = parts_of(tmp_path, scan(printed(*LINES), page, box=box))
    assert (first.status, first.reason) == (OK, None)
    assert [part.locator for part in others] == pictures
    assert {part.status for part in others} <= {NEEDS_OCR}


@pytest.mark.parametrize("turn", [0, 90, 180, 270])
def test_picture_is_cut_out_of_its_page_as_it_is_shown(tmp_path: Path, turn: int) -> None:
    image = Image.new("L", (60, 30), 0)
    data = scan(image, column(LINES[:15]), box="200 0 0 100 50 100")
    (tmp_path / "a.pdf").write_bytes(data.replace(b"/Type /Page /", f"/Type /Page /Rotate {turn} /".encode()))
    _, picture = PdfConverter(ocr=True).convert(tmp_path / "a.pdf")
    assert isinstance(picture, Part)
    with Image.open(BytesIO(picture.picture)) as shown:
        assert (shown.width > shown.height) == (turn in (0, 180))
        dark = sum(shown.convert("L").histogram()[:64])
        assert dark > 0.9 * shown.width * shown.height


def test_content_without_a_byte_is_whole(tmp_path: Path) -> None:
    empty = b"<< /Filter /FlateDecode /Length 0 >>\nstream\n\nendstream"
    parts = parts_of(tmp_path, pdf(at(50, 700, "Rent 500"), "x").replace(stream("", b"x"), empty))
    assert [part.status for part in parts] == [OK, PartStatus.EMPTY]


@pytest.mark.parametrize(("is_cut", "status"), [(False, OK), (True, PartStatus.FAILED)])
def test_content_that_was_flushed_instead_of_closed_is_whole(tmp_path: Path, is_cut: bool, status: PartStatus) -> None:
    packer = zlib.compressobj()
    packed = packer.compress(written(planted.LONG).encode()) + packer.flush(zlib.Z_SYNC_FLUSH)
    packed = packed[:-9] if is_cut else packed
    body = f"<< /Filter /FlateDecode /Length {len(packed)} >>\nstream\n".encode() + packed + b"\nendstream"
    assert parts_of(tmp_path, pdf("x").replace(stream("", b"x"), body))[-1].status == status


def test_file_that_opens_with_a_certificate_is_named_encrypted(tmp_path: Path) -> None:
    data = files.encrypted_pdf().replace(b"/Filter /Standard", b"/Filter /Adobe.PubSec")
    with pytest.raises(ConversionError, match="encrypted: it opens with a certificate"):
        parts_of(tmp_path, data)


def test_descriptions_of_a_tagged_file_are_read_unless_the_page_says_them(tmp_path: Path) -> None:
    texts = ("/S /Figure /Alt (Map of the mill)", "/S /Span /ActualText (Rent 500)", "/S /Span /E (Limited)")
    elements = [
        f"<< /Type /StructElem {text} /P 6 0 R /Pg 10 0 R /K {number} >>".encode() for number, text in enumerate(texts)
    ]
    kids = "7 0 R 8 0 R 9 0 R"
    root = f"<< /Type /StructTreeRoot /K [{kids}] /ParentTree << /Nums [0 [{kids}]] >> >>".encode()
    marked = [
        f"/Span << /MCID {number} >> BDC {at(50, 700 - 20 * number, text)} EMC"
        for number, text in enumerate(("-", "Rent 500", "Ltd"))
    ]
    data = pdf(" ".join(marked), extra=(b"<< >>", root, *elements))
    data = data.replace(b"/Names 5 0 R", b"/MarkInfo << /Marked true >> /StructTreeRoot 6 0 R")
    page, notes = parts_of(
        tmp_path, data.replace(b"<< /Type /Page /Parent", b"<< /Type /Page /StructParents 0 /Parent")
    )
    assert (page.text, notes.locator) == ("-\nRent 500\nLtd", "page 1, notes")
    assert notes.text == "[Map of the mill]\n[Limited]"

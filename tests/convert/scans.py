"""Scanned contracts with real texts over the picture, as scanners and programs for producing documents lay them there.

The page of each contract is printed here, turned into a picture, and put into a PDF; a stamp, a legend and a Bates
number are text objects of the PDF.
"""

import io
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

import numpy as np
import pypdfium2
from PIL import Image, ImageFilter

from tests.convert import files

WIDTH, HEIGHT = 600, 560
"""Points of a page: a small one, as OCR takes some seconds for each."""
TITLE, MARGIN, TOP, FONT_POINTS, LEADING = "SUPPLY CONTRACT", 60, 460, 11, 16
DPI = 150
FONTS = ("Helvetica", "Times-Roman", "Courier")
LAYOUTS = ("column", "columns", "form")
SCANNERS = ("clean", "turned", "noisy", "fax")
PLACES = ("page", "form", "annotation")
"""Where the texts over the picture are: among the objects of the page, in a form on it, or in annotations."""
WATERMARKED = 5
"""Of so many contracts, one has its legend across the printed text."""
PICTURES = ("whole", "inset", "strips")
"""Whether the picture fills the page, leaves margins, or is cut into strips."""

PARTIES = ("Tarnwick Mills Ltd", "Osterby Glass GmbH", "Quell and Sons SA", "Fernmill Estates plc", "Hadley Marine Inc")
MONTHS = ("January", "March", "May", "July", "September", "November")
FILLING = (
    "The supplier delivers the goods to the place that the buyer names in writing, at its own cost and risk.",
    "The buyer examines the goods without delay and reports every defect within eight days after their arrival.",
    "Title to the goods stays with the supplier until the price has been paid in full.",
    "Neither party may assign rights under this contract without the consent of the other one.",
    "Changes of this contract are valid only if both parties have signed them.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """A scanned contract."""

    facts: dict[str, str]
    """What the picture says, by kind."""
    overlays: dict[str, str]
    """What the text objects over the picture say."""
    lines: Sequence[str]
    """All that the picture says."""
    pdf: bytes


def contract(seed: int) -> Contract:
    """Makes a contract; seeds in a row have different layouts, scanners and overlays."""
    random = Random(seed)
    amount = f"EUR {random.randrange(1, 1000)},{random.randrange(1000):03d}.{random.randrange(100):02d}"
    facts = {
        "party": random.choice(PARTIES),
        "amount": amount,
        "date": f"{random.randrange(1, 29)} {random.choice(MONTHS)} {random.randrange(2024, 2032)}",
        "notice": f"{random.randrange(14, 180)} days",
    }
    overlays = {
        "stamp": f"RECEIVED {random.randrange(1, 29)} {random.choice(MONTHS)[:3].upper()} 2024",
        "legend": random.choice(("CONFIDENTIAL", "CONFIDENTIAL - SUBJECT TO PROTECTIVE ORDER")),
        "Bates number": f"{random.choice(('ABC', 'FERN', 'QUELL'))}-{random.randrange(10**6):06d}",
    }
    layout, font = LAYOUTS[seed % len(LAYOUTS)], FONTS[seed // 3 % len(FONTS)]
    content, lines = LAYOUT[layout](facts, random)
    picture = scanned(printed(content, font), SCANNERS[seed % len(SCANNERS)], random)
    pdf = produced(
        picture,
        overlays,
        place=PLACES[seed // 2 % len(PLACES)],
        cut=PICTURES[seed // 4 % len(PICTURES)],
        is_watermarked=seed % WATERMARKED == WATERMARKED - 1,
    )
    return Contract(facts=facts, overlays=overlays, lines=lines, pdf=pdf)


def _sentences(facts: dict[str, str], random: Random) -> list[str]:
    planted = [
        f"This contract is made between {facts['party']} (the supplier) and the buyer named below.",
        f"The buyer pays {facts['amount']} for each delivery, without deduction.",
        f"It begins on {facts['date']} and has no fixed end.",
        f"Each party may end it with a notice of {facts['notice']} to the end of a month.",
    ]
    return [f"{number}. {text}" for number, text in enumerate([*planted, *random.sample(FILLING, 2)], start=1)]


def _text(lines: Sequence[str], left: float, top: float, *, size: float = FONT_POINTS) -> str:
    escaped = (line.replace("(", r"\(").replace(")", r"\)") for line in lines)
    return f"BT /F1 {size} Tf {LEADING} TL {left} {top} Td {' '.join(f'({line}) Tj T*' for line in escaped)} ET "


def _column(facts: dict[str, str], random: Random) -> tuple[str, list[str]]:
    lines = [line for text in _sentences(facts, random) for line in (*textwrap.wrap(text, 66), "")]
    return _text([TITLE], MARGIN, TOP, size=16) + _text(lines, MARGIN, TOP - 40), [TITLE, *lines]


def _columns(facts: dict[str, str], random: Random) -> tuple[str, list[str]]:
    sentences, content, said = _sentences(facts, random), _text([TITLE], MARGIN, TOP, size=16), [TITLE]
    for half, left in ((sentences[:3], MARGIN), (sentences[3:], WIDTH / 2 + 15)):
        lines = [line for text in half for line in (*textwrap.wrap(text, 32), "")]
        content += _text(lines, left, TOP - 40, size=10)
        said += lines
    return content, said


def _form(facts: dict[str, str], random: Random) -> tuple[str, list[str]]:
    labels = {
        "Supplier": facts["party"],
        "Price of a delivery": facts["amount"],
        "First day": facts["date"],
        "Period of notice": facts["notice"],
        "Place of delivery": "Hall 4, Dock Road",
    }
    content, lines = _text([TITLE], MARGIN, TOP, size=16), [TITLE]
    for number, (label, value) in enumerate(labels.items()):
        bottom = TOP - 60 - 34 * number
        content += f"{MARGIN} {bottom} 180 30 re S {MARGIN + 180} {bottom} 300 30 re S "
        content += _text([label], MARGIN + 8, bottom + 10) + _text([value], MARGIN + 190, bottom + 10)
        lines.append(f"{label} {value}")
    wrapped = [line for text in random.sample(FILLING, 2) for line in (*textwrap.wrap(text, 66), "")]
    return content + _text(wrapped, MARGIN, TOP - 230), [*lines, *wrapped]


LAYOUT = {"column": _column, "columns": _columns, "form": _form}


def printed(content: str, font: str) -> Image.Image:
    """Draws a page in grey."""
    page = _sized(files.pdf(content)).replace(b"/BaseFont /Helvetica", f"/BaseFont /{font}".encode())
    image: Image.Image = pypdfium2.PdfDocument(page)[0].render(scale=DPI / 72).to_pil().convert("L")
    return image


def scanned(page: Image.Image, scanner: str, random: Random) -> Image.Image:
    """Does to a page what a scanner does."""
    if scanner == "clean":
        return page
    if scanner == "turned":
        degrees = random.choice((-1, 1)) * random.uniform(0.4, 1.2)
        return page.rotate(degrees, resample=Image.Resampling.BICUBIC, fillcolor=255)
    if scanner == "fax":
        return page.point(lambda level: 255 if level > 140 else 0)
    grey = np.asarray(page.filter(ImageFilter.GaussianBlur(0.7)), np.float32) * 0.85 + 20
    noise = np.random.default_rng(random.randrange(1 << 32)).normal(0, 12, grey.shape)
    return Image.fromarray((grey + noise).clip(0, 255).astype(np.uint8))


def produced(picture: Image.Image, overlays: dict[str, str], *, place: str, cut: str, is_watermarked: bool) -> bytes:
    """Makes a PDF of a page that shows a picture, with texts over it."""
    share = 0.94 if cut == "inset" else 1.0
    left, bottom = WIDTH * (1 - share) / 2, HEIGHT * (1 - share) / 2
    bands = [*_strips(picture, 4 if cut == "strips" else 1)]
    content, top = "", bottom + HEIGHT * share
    for number, band in enumerate(bands):
        high = HEIGHT * share * band.height / picture.height
        top -= high
        content += f"q {WIDTH * share} 0 0 {high} {left} {top} cm /Im{10 + number} Do Q "
    stamp = f"q .996 .087 -.087 .996 360 495 cm 1 0 0 RG 1 0 0 rg 0 0 200 28 re S {_text([overlays['stamp']], 12, 9)}Q "
    legend = _text([overlays["legend"]], 150, 30, size=10)
    if is_watermarked:
        legend = f"q .866 .5 -.5 .866 120 210 cm .6 g {_text([overlays['legend']], 0, 0, size=26)}Q "
    foot = legend + _text([overlays["Bates number"]], 480, 14, size=10)
    form = foot if place == "form" else stamp
    content += {"page": stamp + foot, "form": f"{stamp} /Fm1 Do", "annotation": foot}[place]
    box = "350 485 580 550" if place == "annotation" else f"0 0 {WIDTH} {HEIGHT}"
    resources = f"/BBox [{box}] /Resources << /Font << /F1 3 0 R >> >>"
    annotation = f"<< /Type /Annot /Subtype /Stamp /F 4 /Rect [{box}] /AP << /N 6 0 R >> >>"
    names = "".join(f"/Im{10 + number} {8 + number} 0 R " for number in range(len(bands)))
    form_object = files.stream(f"/Type /XObject /Subtype /Form {resources}", form.encode())
    data = files.pdf(content, extra=(b"<< >>", form_object, annotation.encode(), *map(_image, bands)))
    data = data.replace(b"/XObject << /Im1 4 0 R >>", f"/XObject << /Fm1 6 0 R {names}>>".encode())
    if place == "annotation":
        data = data.replace(b"<< /Type /Page /Parent", b"<< /Type /Page /Annots [7 0 R] /Parent")
    return _sized(data)


def _sized(pdf: bytes) -> bytes:
    return pdf.replace(b"[0 0 600 800]", f"[0 0 {WIDTH} {HEIGHT}]".encode())


def _strips(picture: Image.Image, number: int) -> Iterator[Image.Image]:
    edges = [round(picture.height * index / number) for index in range(number + 1)]
    for top, bottom in pairwise(edges):
        yield picture.crop((0, top, picture.width, bottom))


def _image(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", quality=75)
    size = f"/Width {image.width} /Height {image.height} /ColorSpace /DeviceGray /BitsPerComponent 8"
    head = f"<< /Type /XObject /Subtype /Image {size} /Filter /DCTDecode /Length {len(out.getvalue())} >>\nstream\n"
    return head.encode() + out.getvalue() + b"\nendstream"

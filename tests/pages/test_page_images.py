"""Images of the pages of PDFs on a site: whether the marks lie on the ink of the words, whatever the page is like."""

import io
import json
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pypdfium2
import pytest
from PIL import Image

import memagent_batch as ma
from memagent_batch.apps.pages.site import WrittenSite, vacuum_site, write_site
from memagent_batch.cli import main as cli
from memagent_batch.data.ingest.readers import pdf_images
from memagent_batch.data.ingest.tables import DOCUMENTS_TABLE
from memagent_batch.data.store.delta import OutputTable
from memagent_batch.data.store.location import Location
from tests.convert.files import FONT, SCAN, assembled, form_pdf, pdf, stream
from tests.runs.written_runs import answer_row, questions_of, write_run

TONIGHT = "20261122T010000.000Z.bbbb"
OTHERS = ("The buyer pays within thirty days of each delivery.", "Title passes when the price has been paid in full.")
LAW = "This agreement is governed by the laws of Tarnwick."
LEFT = (
    "The parties meet in May",
    "to agree on the price of",
    "all goods of the year. The",
    "term is seven years and",
    "then ends by itself. It is",
)
RIGHT = (
    "not renewed by silence of",
    "either party. Goods that",
    "come late may be refused",
    "by the buyer, who tells it",
    "to the seller in writing.",
)


def shown(lines: Sequence[str], *, left: float = 60, top: float = 700, leading: float = 20, mode: int = 0) -> str:
    """Lines of text one below another; with mode 3 there is no ink of them."""
    text = " ".join(f"({line}) Tj T*" for line in lines)
    return f"BT /F1 12 Tf {mode} Tr {leading} TL {left} {top} Td {text} ET\n"


def page_of(content: str, entries: str = "") -> bytes:
    """A PDF of one page with these entries in its dictionary."""
    return assembled(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [4 0 R] /Count 1 >>",
            FONT.encode(),
            f"<< /Type /Page /Parent 2 0 R /Contents 5 0 R /MediaBox [0 0 600 800] {entries} "
            f"/Resources << /Font << /F1 3 0 R >> >> >>".encode(),
            stream("", content.encode("latin-1")),
        ]
    )


def simple(mode: int, entries: str = "", *, left: float = 60, top: float = 700) -> bytes:
    before, after = shown(OTHERS, left=left, top=top), shown(OTHERS[::-1], left=left, top=top - 60)
    return page_of(before + shown([LAW], left=left, top=top - 40, mode=mode) + after, entries)


def hyphenated(mode: int) -> bytes:
    broken = ("shall be governed by the laws of the king-", "dom of Tarnwick.")
    others = (
        shown(["It"], left=40, top=640) + shown(["No other law applies."], left=160, top=620) + shown(OTHERS, top=580)
    )
    return page_of(shown(OTHERS) + shown(broken, top=640, mode=mode) + others)


def columns(mode: int, *, is_by_line: bool) -> bytes:
    """Two columns; the sentence begins in the third line of the left one and ends in the second of the right one."""
    starts, ends = LEFT[2].split("The"), RIGHT[1].split("Goods")
    split = [[(line, 0)] for line in LEFT], [[(line, 0)] for line in RIGHT]
    split[0][2] = [(f"{starts[0]}", 0), ("The", mode)]
    split[1][1] = [(ends[0], mode), (f"Goods{ends[1]}", 0)]
    split[0][3], split[0][4], split[1][0] = ([(line, mode)] for line in (LEFT[3], LEFT[4], RIGHT[0]))
    rows = [(row, column) for row in range(5) for column in range(2)]
    rows = rows if is_by_line else sorted(rows, key=lambda each: each[1])
    content = ""
    for row, column in rows:
        pieces = " ".join(f"{drawn} Tr ({text}) Tj" for text, drawn in split[column][row])
        content += f"BT /F1 12 Tf {60 + 260 * column} {700 - 20 * row} Td {pieces} ET\n"
    return page_of(content)


COLUMNS_SENTENCE = "The term is seven years and then ends by itself. It is not renewed by silence of either party."
KINGDOM = "shall be governed by the laws of the kingdom of Tarnwick."
PAGES: Mapping[str, tuple[Callable[[int], bytes], str]] = {
    "upright": (simple, LAW),
    "quarter turn": (lambda mode: simple(mode, "/Rotate 90"), LAW),
    "upside down": (lambda mode: simple(mode, "/Rotate 180"), LAW),
    "cut": (lambda mode: simple(mode, "/CropBox [40 500 560 760]"), LAW),
    "moved, cut and turned": (
        lambda mode: simple(
            mode, "/MediaBox [100 200 700 1000] /CropBox [120 600 640 990] /Rotate 270", left=150, top=900
        ),
        LAW,
    ),
    "hyphen": (hyphenated, KINGDOM),
    "columns": (lambda mode: columns(mode, is_by_line=False), COLUMNS_SENTENCE),
    "columns by line": (lambda mode: columns(mode, is_by_line=True), COLUMNS_SENTENCE),
}
"""How each page is made, with ink for its sentence (0) and without (3), and the sentence."""


def boxes_on(data: bytes, folder: Path, text: str, **context: str) -> list[tuple[float, ...]]:
    (folder / "a.pdf").write_bytes(data)
    sought = [{"pages": [1], "text": text, **context}]
    (part,) = [
        item for item in pdf_images.PdfPageImages(sentences=sought).convert(folder / "a.pdf") if hasattr(item, "lines")
    ]
    return [(line.left, line.top, line.right, line.bottom) for line in part.lines]


def drawn(data: bytes) -> npt.NDArray[np.bool_]:
    """Where there is ink on the first page."""
    return np.asarray(pypdfium2.PdfDocument(data)[0].render(scale=2, grayscale=True).to_numpy() < 160)


def covered(boxes: Sequence[tuple[float, ...]], shape: tuple[int, int], *, margin: float = 0) -> npt.NDArray[np.bool_]:
    mask = np.zeros(shape, bool)
    for left, top, right, bottom in boxes:
        rows = slice(max(0, round(top * shape[0] - margin)), round(bottom * shape[0] + margin))
        mask[rows, max(0, round(left * shape[1] - margin)) : round(right * shape[1] + margin)] = True
    return mask


@pytest.mark.parametrize("name", PAGES)
def test_marks_cover_the_ink_of_the_sentence_and_no_other(name: str, tmp_path: Path) -> None:
    make, sentence = PAGES[name]
    boxes, others = boxes_on(make(0), tmp_path, sentence), drawn(make(3))
    words = drawn(make(0)) & ~others
    assert words.sum() > 500
    marked = covered(boxes, words.shape)
    assert (words & ~marked).sum() == 0, "all of its words are marked"
    assert (others & marked).sum() < 0.01 * words.sum(), "and no others"
    assert marked.sum() < 6 * words.sum(), "nor white paper"


@pytest.mark.parametrize("number", [0, 1, 2])
def test_same_words_at_several_places_are_told_apart_by_those_around_them(number: int, tmp_path: Path) -> None:
    lines = [f"Clause {name} has a term of seven years, {end}" for name, end in (("A", "x"), ("B", "y"), ("C", "z"))]
    text = "\n".join(lines)
    start = [found.start() for found in re.finditer("seven years", text)][number]
    context = {"before": text[max(0, start - 30) : start], "after": text[start + 11 : start + 40]}
    ((_, top, _, bottom),) = boxes_on(page_of(shown(lines)), tmp_path, "seven years", **context)
    assert top < (800 - 700 + 20 * number) / 800 < bottom


def test_words_that_a_reader_writes_otherwise_are_found_and_others_are_not(tmp_path: Path) -> None:
    page = page_of(shown(["The o\\256ce of the seller", "is in cafe No. 7, and not in any other."]))
    text = 'The office\nof the "Seller" [sic] is in CAF\u00c9 no 7 and not in any other.'
    assert len(boxes_on(page, tmp_path, text)) == 2
    assert len(boxes_on(form_pdf("Ann of Tarnwick"), tmp_path, "Ann of Tarnwick")) == 1
    assert (
        boxes_on(page, tmp_path, "The office of the buyer is liable for all losses that the goods cause others.") == []
    )
    split = boxes_on(columns(0, is_by_line=True), tmp_path, "May to")
    assert [left < 0.5 for left, _, _, _ in split] == [True, True]
    whole, noted = COLUMNS_SENTENCE, COLUMNS_SENTENCE.replace("It", "[sic] It")
    found = [boxes_on(columns(0, is_by_line=True), tmp_path, text) for text in (whole, noted)]
    assert len(found[0]) == 5
    assert found[0] == found[1]
    assert boxes_on(page, tmp_path, "☒ …") == []


def png(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def test_image_of_a_page_shows_what_it_shows_in_grey_or_colours_and_stays_small() -> None:
    document = pypdfium2.PdfDocument(simple(0))
    grey = np.asarray(png(pdf_images.page_image(document[0])).convert("L"), int)
    expected = document[0].render(scale=pdf_images.SCALE).to_numpy().mean(axis=2)
    assert np.abs(grey - expected).max() <= 17
    red = png(pdf_images.page_image(pypdfium2.PdfDocument(page_of("1 0 0 rg 100 100 200 200 re f"))[0])).convert("RGB")
    assert red.getpixel((red.width // 3, red.height * 3 // 4)) == (255, 0, 0)
    noise = np.random.default_rng(1).integers(0, 256, (1400, 1000, 3), np.uint8)
    out = io.BytesIO()
    Image.fromarray(noise).save(out, "PDF")
    for page in (
        pypdfium2.PdfDocument(out.getvalue())[0],
        pypdfium2.PdfDocument(page_of("", "/MediaBox [0 0 9e4 9]"))[0],
    ):
        assert len(pdf_images.page_image(page)) <= 150_000


def ingest(folder: Path, files: dict[str, bytes]) -> Location:
    (folder / "in").mkdir()
    for name, data in files.items():
        (folder / "in" / name).write_bytes(data)
    ma.ingest_files(folder / "in", output=folder / "run", executor="local", max_failed_share=1.0)
    return Location(uri=str(folder / "run"))


def answer(output: Location, evidence: dict[str, Sequence[tuple[str, int, int, str]]]) -> None:
    """A run with a row of evidence for each question, locator and span of a document."""
    table = OutputTable(output=output, name=DOCUMENTS_TABLE)
    documents = {row["document_id"]: row for row in table.dataset().to_table().to_pylist()}
    answers, rows = [], []
    for name, spans in evidence.items():
        row = documents[name]
        for question in sorted({span[0] for span in spans}):
            columns = {"source": row["source"], "source_hash": row["source_hash"], "answer": "Yes."}
            key = answer_row(name, question, run_id=TONIGHT, text=row["text"], question="Why?", **columns)
            answers.append(key)
            rows += [
                key
                | {"how": "chosen", "rank": rank, "chunk_index": 0, "alignment": "exact", "quote": None}
                | {"char_start": start, "char_end": end, "text": row["text"][start:end], "locator": locator}
                for rank, (_, start, end, locator) in enumerate(
                    [span for span in spans if span[0] == question], start=1
                )
            ]
    write_run(
        output,
        {"answers": answers, "memories": [], "evidence": rows},
        run_id=TONIGHT,
        questions=questions_of({"q": "Why?", "r": "Why?"}),
        documents_table={"output": None, "version": table.version()},
    )


def span(output: Location, name: str, text: str, locator: str, question: str = "q") -> tuple[str, int, int, str]:
    table = OutputTable(output=output, name=DOCUMENTS_TABLE).dataset().to_table()
    (whole,) = [row["text"] for row in table.to_pylist() if row["document_id"] == name]
    found = re.search(r"\s+".join(map(re.escape, text.split())), whole)
    assert found, (whole, text)
    return question, found.start(), found.end(), locator


def write(output: Location, **settings: Any) -> WrittenSite:
    return write_site([output], output / "page", context_chars=200, is_large_allowed=False, **settings)


def site_pages(output: Location) -> dict[str, str]:
    texts = [path.read_text(encoding="utf-8") for path in Path(output.path).glob("page/**/documents/**/*.html")]
    return {unescape(text.partition("<title>")[2].partition("</title>")[0]): text for text in texts}


def images_of(output: Location, page: str) -> list[Path]:
    """The files of the images that a page of a document shows."""
    file = next(path for path in Path(output.path).glob("page/**/documents/**/*.html") if path.read_text() == page)
    return [(file.parent / link).resolve() for link in re.findall(r'<img src="([^"]+)"', page)]


def test_site_shows_each_page_once_with_the_sentences_of_each_answer(tmp_path: Path) -> None:
    rest = "which no court can change."
    lines = (*OTHERS, LAW, "The price is fixed for"), ("ten years after the first delivery.", *OTHERS, rest)
    output = ingest(tmp_path, {"a & b.pdf": pdf(*map(shown, lines)), "c.txt": b"Some prose of a text."})
    over = f"{lines[0][3]} {lines[1][0]}"
    spans = [
        span(output, "a & b.pdf", LAW, "page 1"),
        span(output, "a & b.pdf", over, "page 1 to page 2"),
        span(output, "a & b.pdf", OTHERS[0], "page 1", question="r"),
    ]
    answer(output, {"a & b.pdf": spans, "c.txt": [span(output, "c.txt", "a text.", "text")]})
    written = write(output, has_page_images=True)
    assert (written["page_images"], written["documents_without_images"]) == (2, 0)
    page = site_pages(output)["a & b.pdf"]
    first, second = page.partition('id="r-1"')[::2]
    assert re.findall(r"<summary>(Page[^<]*)", first) == ["Page 1 of the file", "Page 2 of the file"]
    assert [part.count('<rect class="chosen"') for part in first.split("<img")[1:]] == [2, 1]
    assert second.count('<rect class="chosen"') == 1
    files = images_of(output, page)
    assert (len(files), len({*files})) == (3, 2)
    assert all(png(file.read_bytes()).size == (960, 1280) for file in files)
    alt = unescape(re.findall(r'alt="([^"]*)"', page)[0])
    assert alt == f"Page 1 of a & b.pdf. Marked: 1 “{LAW}”, 2 “{over}”"
    assert "facsimile" not in site_pages(output)["c.txt"].partition("</style>")[2]
    written_files = [
        file for name in ("*.html", "*.png", "summary.*") for file in Path(output.path, "page").rglob(name)
    ]
    assert written["bytes"] == sum(file.stat().st_size for file in {*written_files})
    assert written["files"] == len({*written_files})
    assert write(output)["page_images"] == 0
    vacuum_site(output / "page")
    assert "img-src data:;" in site_pages(output)["a & b.pdf"]
    assert not [*Path(output.path).glob("page/**/*.png")]


def test_page_that_is_read_by_ocr_is_shown_without_a_mark(tmp_path: Path) -> None:
    output = ingest(tmp_path, {"a.pdf": pdf(shown([LAW]), SCAN)})
    _, start, end, _ = span(output, "a.pdf", LAW, "page 2")
    answer(output, {"a.pdf": [("q", start, end, "page 2")]})
    assert write(output, has_page_images=True)["documents_without_images"] == 0
    page = site_pages(output)["a.pdf"]
    assert "Page 2 of the file: the words of 1 were not found on it" in page
    assert len(images_of(output, page)) == 1
    assert "Nothing is marked." in page
    assert "<rect class=" not in page.partition('facsimile"')[2]


@pytest.mark.s3
def test_pages_of_files_in_a_bucket_are_shown(s3_bucket: Location) -> None:
    (s3_bucket / "in/2026/a.pdf").write_bytes(pdf(shown([LAW])))
    (s3_bucket / "in/b.txt").write_bytes(b"Some prose of a text.")
    output = s3_bucket / "run"
    options = output.storage_options
    ma.ingest_files(f"{s3_bucket.uri}/in", output=output.uri, executor="local", storage_options=options)
    answer(output, {"2026/a.pdf": [span(output, "2026/a.pdf", LAW, "page 1")]})
    written = write(output, has_page_images=True)
    assert (written["page_images"], written["documents_without_images"]) == (1, 0)
    [path] = (output / "page/images").files()
    assert png(output.at(path).read_bytes()).size[0] > 500


def changed(file: Path) -> None:
    file.write_bytes(pdf(shown([LAW, "Another line."])))


def locked(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (changed, "the file has changed since it was read"),
        (Path.unlink, "the file is gone"),
        (locked, "the file can&#39;t be opened"),
        (
            lambda file: file.parent.rename(file.parent.with_name("moved")),
            "the folder of the files can&#39;t be reached",
        ),
    ],
)
def test_file_that_is_not_what_was_read_is_not_shown_and_the_page_says_so(
    tmp_path: Path, change: Any, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    output = ingest(tmp_path, {"a.pdf": pdf(shown([LAW])), "b.pdf": pdf(shown([LAW, *OTHERS]))})
    answer(output, {name: [span(output, name, LAW, "page 1")] for name in ("a.pdf", "b.pdf")})
    change(tmp_path / "in" / "a.pdf")
    assert cli.main(["page", output.uri, "--to", f"{output.uri}/page", "--page-images"]) == 0
    written, pages = json.loads(capsys.readouterr().out), site_pages(output)
    num_without = 2 if "folder" in problem else 1
    assert (written["page_images"], written["documents_without_images"]) == (2 - num_without, num_without)
    assert f"<bdi>{problem}</bdi>" in pages["a.pdf"]
    assert "<img" not in pages["a.pdf"]
    assert f"{LAW}</mark>" in pages["a.pdf"]
    assert len(images_of(output, pages["b.pdf"])) == 2 - num_without


def test_pdf_inside_of_another_file_is_not_shown_and_the_page_says_so(tmp_path: Path) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("a.pdf", pdf(shown([LAW])))
    output = ingest(tmp_path, {"b.zip": archive.getvalue(), "c.pdf": pdf(shown(OTHERS))})
    table = OutputTable(output=output, name=DOCUMENTS_TABLE).dataset().to_table()
    (inner,) = [row for row in table.to_pylist() if row["document_id"] not in ("b.zip", "c.pdf")]
    answer(output, {inner["document_id"]: [span(output, inner["document_id"], LAW, inner["parts"][0]["locator"])]})
    assert write(output, has_page_images=True)["documents_without_images"] == 1
    assert "it is an attachment, or lies in an archive" in site_pages(output)[inner["document_id"]]


def test_hostile_file_that_made_up_its_images_harms_no_other_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = ingest(tmp_path, {"a.pdf": pdf(shown([LAW]))})
    answer(output, {"a.pdf": [span(output, "a.pdf", LAW, "page 1")]})
    monkeypatch.setattr(
        "memagent_batch.apps.pages.page_images.CONVERTERS", {".pdf": "tests.pages.test_page_images:Hostile"}
    )
    assert write(output, has_page_images=True)["documents_without_images"] == 1
    page = site_pages(output)["a.pdf"]
    assert "page 1 can&#39;t be drawn" in page
    assert "<img" not in page


def a_page() -> Any:
    return pypdfium2.PdfDocument(simple(0))[0]


class Hostile:
    """A process that gives what no drawing of a page gives."""

    settings = ("sentences",)

    def __init__(self, **settings: Any) -> None:
        del settings

    def version(self) -> str:
        return "1"

    def convert(self, file: Path) -> Any:
        from memagent_batch.data.ingest.readers.converter import Attachment, Line, Part

        yield Attachment(number="1", name="1.png", locator="1", data=pdf_images.page_image(a_page()) + bytes(2 << 20))
        yield Attachment(number="1", name="1.png", locator="1", data=b"<script>alert(1)</script>")
        yield Attachment(number="x", name="../../x.png", locator="1", data=file.read_bytes())
        numbers: Any = {"left": "x", "top": None, "right": 1e400, "bottom": []}
        yield Part(locator="1 0", lines=[Line(text="", confidence=1.0, **numbers)])

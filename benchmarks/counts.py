"""CPU seconds that the independent count of the words of a file takes, beside those of its reader.

The files are made of sentences of this project's documentation: four in five paragraphs are plain, each of the others
has a feature of those that `tests/convert/combined.py` combines. Reader and count run one after the other in this
process, without a sandbox. A megabyte is one of the text that the reader gives.

    python -m benchmarks counts --kinds odt html rtf --megabytes 2

`reader_seconds` and `count_seconds` are CPU seconds for a megabyte, `ratio` is that of their medians. `missing` is the
number of words that the count does not find in the text.
"""

import argparse
import io
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import cycle
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import xlsxwriter

from benchmarks.harness import ROOT, spread
from memagent_batch.data.ingest.counts.kinds import CONTENTS
from memagent_batch.data.ingest.counts.words import Given
from memagent_batch.data.ingest.readers.converter import Part, make_converter
from memagent_batch.data.ingest.readers.kinds import recognise
from memagent_batch.data.ingest.readers.process.server import tell
from memagent_batch.plugins import CONVERTERS
from tests.convert import combined_office, combined_other, files, outlook
from tests.convert.combined import INLINE, KINDS, MORE_LETTERS, Draft

MODULES = (combined_office, combined_other)
"""They make the kinds."""
PLAIN_SHARE = 0.8
"""Share of paragraphs without a feature."""
EXCLUDED = {"header", "footer", "chart", "diagram", "notes", "comment"} | {
    "conditional",
    "equation",
    "film",
    "moved",
    "ruby",
}
"""Features that a file has once, or that hold words rather than sentences."""
PARAGRAPHS = {
    "docx": '<w:p w:rsidR="00A1"><w:pPr><w:pStyle w:val="BodyText"/></w:pPr><w:r w:rsidRPr="00B2"><w:t>{}</w:t></w:r>'
    '<w:r><w:rPr><w:b/></w:rPr><w:t xml:space="preserve"> {}</w:t></w:r><w:r><w:t>.</w:t></w:r></w:p>',
    "html": '<p class="text" style="margin: 0">{}, <span lang="en">{}</span>.</p>\n',
    "md": "{}, *{}*.\n\n",
    "odp": "<draw:frame><draw:text-box><text:p>{}</text:p><text:p>{}</text:p></draw:text-box></draw:frame>",
    "ods": '<table:table-row><table:table-cell office:value-type="string"><text:p>{}</text:p></table:table-cell>'
    '<table:table-cell office:value-type="float" office:value="1204.5"><text:p>1,204.50</text:p></table:table-cell>'
    '<table:table-cell office:value-type="string"><text:p>{}</text:p></table:table-cell></table:table-row>',
    "odt": '<text:p text:style-name="P1">{}, <text:span text:style-name="T1">{}</text:span>.</text:p>',
    "pptx": "<p:sp><p:txBody><a:p><a:r><a:t>{}</a:t></a:r></a:p><a:p><a:r><a:t>{}</a:t></a:r></a:p></p:txBody></p:sp>",
    "rtf": "\\pard\\plain\\s15\\sb120\\f0\\fs22 {}, {{\\b {}}}.\\par\n",
    "txt": "{}\n{}\n\n",
}
"""A plain paragraph of two sentences, by kind."""
PAGE_SENTENCES = 30
MESSAGE_PARAGRAPHS = 12
CATEGORIES = ("rent", "fees of the bank", "heating and water", "repairs", "insurance")
SLOW = {"pdf": 0.1, "msg with RTF": 0.5}
"""Share of the size that files of kinds have whose readers take long."""


class Prose(Draft):
    """A draft whose planted words are sentences of the documentation."""

    _sentences: Iterator[str] | None = None

    def word(self, *, said: str = "") -> str:
        """Returns the next sentence, in letters that the kind of file has."""
        if self._sentences is None:
            self._sentences = cycle(_sentences(self.random))
        text = next(self._sentences)
        return text if self.letters == MORE_LETTERS else text.encode("ascii", "ignore").decode()

    def body(self, ending: str, num_characters: int, *, plain_share: float = PLAIN_SHARE) -> str:
        """Returns the body of a file of a kind."""
        kind, pieces, size = KINDS[ending], list[str](), 0
        self.letters = kind.letters
        templates = [
            name
            for name, (_, _, make) in kind.features.items()
            if name not in EXCLUDED and make.__module__.endswith(".combined")
        ]
        while size < num_characters:
            piece = PARAGRAPHS[ending].format(self.word(), self.word())
            if self.random.random() > plain_share:
                gives, _, make = kind.features[self.random.choice(templates)]
                piece = make(self, "")
                piece = kind.wrap(piece) if gives == INLINE else piece
            pieces.append(piece)
            size += len(piece)
        return "".join(pieces)


def _sentences(random: Random) -> list[str]:
    pages = "\n\n".join(path.read_text() for path in sorted((ROOT / "docs").rglob("*.md")))
    words = (re.sub(r"[^\w,'\u2019-]+", " ", each).strip() for each in re.split(r"[.:|]\s|\n\n", pages))
    sentences = [each.replace("'", "\N{RIGHT SINGLE QUOTATION MARK}") for each in words if len(each) > 20]
    random.shuffle(sentences)
    return sentences


def _of_features(ending: str) -> Callable[[Prose, int], bytes]:
    return lambda prose, size: KINDS[ending].whole(prose, prose.body(ending, size))


def _workbook(prose: Prose, size: int) -> bytes:
    """Rows as programs export them: numbers, dates, amounts, texts that differ and texts that repeat."""
    data = io.BytesIO()
    book = xlsxwriter.Workbook(data, {"in_memory": True})
    day, amount, share = (book.add_format({"num_format": code}) for code in ("yyyy-mm-dd", "#,##0.00", "0.0%"))
    sheet = book.add_worksheet("Data")
    prose.letters = MORE_LETTERS
    for row in range(size // 100):
        sheet.write(row, 0, 1_000_000 + row)
        sheet.write(row, 1, date(2020, 1, 1) + timedelta(days=row % 2000), day)
        sheet.write(row, 2, prose.word())
        sheet.write(row, 3, prose.random.randrange(10_000_000) / 100, amount)
        sheet.write(row, 4, prose.random.random(), share)
        sheet.write(row, 5, prose.random.choice(CATEGORIES))
        sheet.write_formula(row, 6, f"=D{row + 1}*2", None, prose.random.randrange(1000))
    book.close()
    return data.getvalue()


def _message(prose: Prose, size: int) -> bytes:
    page = KINDS["html"].whole(prose, prose.body("html", size)).decode()
    return files.mail("Minutes", re.sub(r"<[^>]*>", "", page), html=page).as_bytes()


def _mailbox(prose: Prose, size: int) -> bytes:
    messages = [
        files.mail(prose.word(), "\n\n".join(prose.word() for _ in range(MESSAGE_PARAGRAPHS)))
        for _ in range(size // 1000)
    ]
    return files.mailbox_of(messages)


def _outlook(prose: Prose, size: int, *, has_page: bool = True) -> bytes:
    if has_page:
        data = KINDS["html"].whole(prose, prose.body("html", size, plain_share=1))
        texts: dict[int, str | bytes] = {0x1013: data, 0x1000: re.sub("<[^>]*>", "", data.decode())}
    else:
        rtf = KINDS["rtf"].whole(prose, prose.body("rtf", size, plain_share=1))
        lengths = (len(rtf) + 12).to_bytes(4, "little") + len(rtf).to_bytes(4, "little")
        texts = {0x1009: lengths + b"MELA" + bytes(4) + rtf}
    texts |= {0x1A: "IPM.Note", 0x37: "Minutes", 0xC1A: "Ann", 0x5D01: "ann@example.org"}
    return outlook.compound_file(outlook.message(texts))


def _pdf(prose: Prose, size: int) -> bytes:
    pages = [" ".join(prose.word() for _ in range(PAGE_SENTENCES)) for _ in range(max(1, size // 2500))]
    return files.pdf(*map(files.written, pages))


def _book(prose: Prose, size: int) -> bytes:
    chapters = {f"c{number}.xhtml": files.page(prose.body("html", size // 10)) for number in range(10)}
    items = "".join(f"<item id='{name}' href='{name}' media-type='application/xhtml+xml'/>" for name in chapters)
    spine = "".join(f"<itemref idref='{name}'/>" for name in chapters)
    return files.zipped(
        {
            "mimetype": b"application/epub+zip",
            "META-INF/container.xml": b"<container><rootfiles><rootfile full-path='b.opf'/></rootfiles></container>",
            "b.opf": f"<package><manifest>{items}</manifest><spine>{spine}</spine></package>".encode(),
            **chapters,
        }
    )


MAKERS: Mapping[str, Callable[[Prose, int], bytes]] = {
    **{ending: _of_features(ending) for ending in PARAGRAPHS},
    "eml": _message,
    "epub": _book,
    "mbox": _mailbox,
    "msg": _outlook,
    "msg with RTF": lambda prose, size: _outlook(prose, size, has_page=False),
    "pdf": _pdf,
    "xlsx": _workbook,
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kinds", nargs="+", choices=sorted(MAKERS), default=sorted(MAKERS), help="(default: all)")
    parser.add_argument("--megabytes", type=float, default=2, help="size of a file, before it is packed (default: 2)")
    parser.add_argument("--runs", type=int, default=5, help="(default: 5)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Figures of a file of each kind."""
    for kind in arguments.kinds:
        with TemporaryDirectory() as folder:
            file = Path(folder) / f"file.{kind.partition(' ')[0]}"
            size = int(arguments.megabytes * SLOW.get(kind, 1) * 1e6)
            file.write_bytes(MAKERS[kind](Prose(Random(0)), size))
            runs = [_run(file) for _ in range(arguments.runs)]
        reader, count = ([getattr(run, name) / run.megabytes for run in runs] for name in ("reader", "count"))
        yield {
            "kind": kind,
            "megabytes": round(runs[0].megabytes, 3),
            "missing": runs[0].num_missing,
            **spread("reader_seconds", reader, digits=4),
            **spread("count_seconds", count, digits=4),
            "ratio": round(statistics.median(count) / statistics.median(reader), 2),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run took, in CPU seconds."""

    reader: float
    count: float
    megabytes: float
    """Size of the text, in millions of characters."""
    num_missing: int


def _run(file: Path) -> Run:
    """Reads a file and counts its words."""
    kind = recognise(file, own_endings={})
    assert isinstance(kind, str)
    converter = make_converter(CONVERTERS.find(kind), {})
    given, num_characters, began = Given(), 0, time.process_time()
    for item in converter.convert(file):
        num_characters += len(item.text) if isinstance(item, Part) else 0
        tell(given, item)
    read = time.process_time()
    for _ in given.missing(CONTENTS[kind](file)):
        pass
    counted = time.process_time()
    return Run(reader=read - began, count=counted - read, megabytes=num_characters / 1e6, num_missing=given.num_missing)

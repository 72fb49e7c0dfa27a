"""Scanned contracts with planted facts: how many are found with OCR, and what is said of the others.

Each contract is drawn here at a resolution, turned by up to 0.7 degrees, made noisy and packed as JPEG into a PDF. The
real command converts them, without OCR and with it. A fact is found if the text has it letter for letter; it is said to
be unread if its page is `needs_ocr` or `needs_review`; else it is silent.
"""

import argparse
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from PIL import Image, ImageDraw, ImageFont

from memagent_batch.config.convert import ConvertJob
from memagent_batch.config.job import ExecutorKind
from memagent_batch.convert.converter import PartStatus
from memagent_batch.flows.convert import convert

PAGE_INCHES = (8.27, 11.69)
FONT_POINTS, LEADING_POINTS, MARGIN_INCHES = 11, 15, 1.0
LINE_WORDS = 13
MOST_DEGREES, NOISE, JPEG_QUALITY = 0.7, 10.0, 70
"""What a scanner does to a page: how far it turns it, the spread of its noise in grey levels, and its compression."""
PAGES = 2
CLAUSES = (
    "The supplier delivers the goods to the place that the buyer names in writing, at his own cost and risk.",
    "The buyer examines the goods without delay and reports every defect within eight days after their arrival.",
    "Title to the goods stays with the supplier until the price has been paid in full.",
    "Neither party may assign rights under this contract without the consent of the other one.",
    "Changes of this contract are valid only if both parties have signed them.",
    "If a clause of this contract is void, the other clauses keep their effect.",
)
NAMES = ("Ann Weber", "Boris Novak", "Carla Rossi", "David Olsen", "Eva Lindqvist", "Farid Haddad")
MONTHS = ("January", "March", "May", "July", "September", "November")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """The lines of each page of a contract, and the facts planted on it."""

    pages: Sequence[Sequence[str]]
    facts: Sequence[tuple[int, str]]
    """Number of the page, from 1, and the words."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--contracts", type=int, default=20, help="contracts of two pages (default: 20)")
    parser.add_argument("--dpi", type=int, default=200, help="resolution of the scans (default: 200)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    contracts = [make_contract(random.Random(number)) for number in range(arguments.contracts)]
    with tempfile.TemporaryDirectory(prefix="ocr-") as name:
        folder = Path(name)
        (folder / "in").mkdir()
        for number, contract in enumerate(contracts):
            pages = [scanned(lines, dpi=arguments.dpi, seed=number) for lines in contract.pages]
            place = folder / "in" / f"{number:03d}.pdf"
            pages[0].save(place, save_all=True, append_images=pages[1:], resolution=arguments.dpi, quality=JPEG_QUALITY)
        for ocr in (False, True):
            yield {"ocr": ocr, "dpi": arguments.dpi, **_figures(folder, contracts, ocr=ocr)}


def make_contract(rng: random.Random) -> Contract:
    """A contract whose facts stand in sentences among clauses that all contracts have."""
    facts = (
        f"K-{rng.randrange(10_000, 100_000)}-{rng.choice('ABCDEFGH')}",
        f"{rng.randrange(1, 29)} {rng.choice(MONTHS)} {rng.randrange(2024, 2032)}",
        f"EUR {rng.randrange(1, 1000)},{rng.randrange(1000):03d}.{rng.randrange(100):02d}",
        f"{rng.randrange(14, 180)} days",
        rng.choice(NAMES),
    )
    sentences = (
        f"This contract has the number {facts[0]} in the register of the supplier.",
        f"It begins on {facts[1]} and has no fixed end.",
        f"The buyer pays {facts[2]} for each delivery.",
        f"Each party may end it with a notice of {facts[3]} to the end of a month.",
        f"Signed for the supplier by {facts[4]}, who has power of attorney.",
    )
    pages, planted = [[f"Supply contract, page {page}"] for page in range(1, PAGES + 1)], []
    for number, (fact, sentence) in enumerate(zip(facts, sentences, strict=True)):
        page = number * PAGES // len(facts)
        planted.append((page + 1, fact))
        for text in (sentence, *rng.sample(CLAUSES, 3)):
            words = text.split()
            pages[page] += [" ".join(words[at : at + LINE_WORDS]) for at in range(0, len(words), LINE_WORDS)]
    return Contract(pages=pages, facts=planted)


def scanned(lines: Sequence[str], *, dpi: int, seed: int) -> Image.Image:
    """A page as a scanner gives it, in grey."""
    width, height = (round(inches * dpi) for inches in PAGE_INCHES)
    image, font = Image.new("L", (width, height), 255), ImageFont.load_default(FONT_POINTS * dpi / 72)
    draw = ImageDraw.Draw(image)
    for number, line in enumerate(lines):
        draw.text((MARGIN_INCHES * dpi, MARGIN_INCHES * dpi + number * LEADING_POINTS * dpi / 72), line, 0, font=font)
    numbers = np.random.default_rng(seed)
    degrees = numbers.uniform(-MOST_DEGREES, MOST_DEGREES)
    turned = image.rotate(degrees, resample=Image.Resampling.BICUBIC, fillcolor=255)
    noisy = np.asarray(turned, np.float32) + numbers.normal(0, NOISE, (height, width))
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def _figures(folder: Path, contracts: Sequence[Contract], *, ocr: bool) -> dict[str, Any]:
    output = folder / ("with" if ocr else "without")
    job = ConvertJob(documents=(str(folder / "in"),), output=str(output), ocr=ocr, executor=ExecutorKind.LOCAL)
    began, began_cpu = time.perf_counter(), _cpu_seconds()
    manifest = convert(job)
    seconds, cpu_seconds = time.perf_counter() - began, _cpu_seconds() - began_cpu
    rows = [row for name in manifest["files"]["documents"] for row in pq.read_table(output / name).to_pylist()]
    pages = {(row["source"], row["locator"]): row for row in rows}
    outcomes = Counter(
        _outcome(pages[f"{number:03d}.pdf", f"page {page}"], fact)
        for number, contract in enumerate(contracts)
        for page, fact in contract.facts
    )
    lines = [
        line in (pages[f"{number:03d}.pdf", f"page {page}"]["text"] or "").split("\n")
        for number, contract in enumerate(contracts)
        for page, printed in enumerate(contract.pages, start=1)
        for line in printed
    ]
    return {
        "facts": {name: outcomes[name] for name in ("found", "said", "silent")},
        "pages": {status: manifest["counts"][f"rows_{status}"] for status in PartStatus},
        "lines_right_share": round(sum(lines) / len(lines), 4),
        "lowest_confidence": min((row["ocr_lowest"] for row in rows if row["ocr_lowest"] is not None), default=None),
        "seconds_a_page": round(seconds / len(rows), 2),
        "cpu_seconds_a_page": round(cpu_seconds / len(rows), 2),
    }


def _outcome(page: dict[str, Any], fact: str) -> str:
    if fact in " ".join((page["text"] or "").split()):
        return "found"
    return "silent" if page["status"] == PartStatus.OK else "said"


def _cpu_seconds() -> float:
    """Of this process and of those that it started and that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system

"""Compares the text of real files with that of other programs: `python tools/compare_corpus.py FOLDER`.

Every file goes through the converters as in a run, sandboxed. Words that another program finds (`tools/extractors.py`)
and that are neither in the text nor accounted for are silently missing. Accounted for are words that a reader leaves
out on purpose or that a loss names, and those of a page or file that a loss says is unread.
"""

import argparse
import importlib
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from itertools import combinations
from operator import or_
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).resolve().parent
sys.path[:0] = [str(TOOLS.parent), str(TOOLS)]

from memagent_batch.data.ingest.counts import words as counts  # noqa: E402 - of this checkout
from memagent_batch.data.ingest.files import ChosenConverter, FileConverter  # noqa: E402
from memagent_batch.data.ingest.losses import FileDocument  # noqa: E402
from memagent_batch.data.ingest.readers.converter import (  # noqa: E402
    Attachment,
    Converter,
    Part,
    PartStatus,
    make_converter,
)
from memagent_batch.data.ingest.readers.kinds import FileKind  # noqa: E402
from memagent_batch.data.ingest.readers.process.sandbox import Limits  # noqa: E402
from memagent_batch.data.ingest.readers.process.worker import ConverterServer  # noqa: E402
from memagent_batch.plugins import CONVERTERS  # noqa: E402
from tools.extractors import Extractors  # noqa: E402

LEFT_OUT = "words left out on purpose"
"""Locator of a part with the words that a reader left out, which its rows don't have."""
LARGEST, SHOWN_GAPS = 20, 6
"""Files that are shown with their missing words, and gaps of each."""
LINE = "{:6} {:12} {:>6} {:>10} {:>10} {:>10} {:>8} {:>5} {:>8} {:>8}"
UNREAD = {*PartStatus} - {PartStatus.OK, PartStatus.EMPTY, PartStatus.MISSED}
counts.NAMED_WORDS = 1 << 30  # losses name all words, in the server as well, which imports this module


def __getattr__(name: str) -> Any:
    """`telling_` and a kind: its converter, which also gives what it left out."""
    kind = name.removeprefix("telling_")
    if kind == name:
        raise AttributeError(name)
    module, _, path = CONVERTERS.path(kind).partition(":")
    maker = getattr(importlib.import_module(module), path)

    class Telling:
        settings, modules = getattr(maker, "settings", ()), getattr(maker, "modules", ())

        def __init__(self, **settings: Any) -> None:
            self._converter: Converter = make_converter(maker, settings)

        def version(self) -> str:
            return self._converter.version()

        def convert(self, file: Path) -> Iterator[Part | Attachment]:
            for item in self._converter.convert(file):
                if isinstance(item, Part) and item.left_out:
                    yield replace(item, left_out="")
                    yield Part(locator=LEFT_OUT, text=item.left_out)
                else:
                    yield item

    return Telling


@dataclass(slots=True, kw_only=True)
class Compared:
    """What one other extractor found in a file."""

    words: int = 0
    read: int = 0
    accounted: int = 0
    missing: list[str] = field(default_factory=list)
    """Words that are silently missing."""
    gaps: list[str] = field(default_factory=list)
    """The same, neighbours together and with the words around them."""


@dataclass(slots=True, kw_only=True)
class FileResult:
    """A file, and how its text compares with that of each extractor."""

    file: str
    kind: str
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    """Of the reader, which are losses."""
    extractors: dict[str, Compared] = field(default_factory=dict)
    failed_extractors: dict[str, str] = field(default_factory=dict)

    @property
    def num_missing(self) -> int:
        """Of the extractor that found most."""
        return max((len(each.missing) for each in self.extractors.values()), default=0)

    @property
    def num_agreed(self) -> int:
        """Missing words that two extractors found."""
        missing = [Counter(each.missing) for each in self.extractors.values()]
        both = (first & second for first, second in combinations(missing, 2))
        return reduce(or_, both, Counter[str]()).total()


def compared(documents: Sequence[FileDocument], text: str, *, has_pages: bool) -> Compared:
    """How much of an extractor's text is in the documents of a file."""
    pages = re.sub(r"\S+", lambda word: " " if "\ufffd" in word[0] else word[0], text).split("\f")
    contents = [
        counts.Content(place=f"page {number}", text=each, is_alternative=number > 1 and not has_pages)
        for number, each in enumerate(pages, start=1)
    ]
    parts = [part for document in documents for part in document.parts]
    given, shown = counts.Given(), [part.text or "" for part in parts if not part.locator.endswith(LEFT_OUT)]
    for piece in shown:
        given.add_text(piece)
    num_unread = sum(len(each.words) for each in given.missing(contents))
    for part in parts:
        given.add_text((part.text or "") if part.locator.endswith(LEFT_OUT) else part.reason or "")
    lost = {part.locator for part in documents[0].parts if part.status in UNREAD}
    is_unread = not any(map(str.strip, shown)) or any(
        part.status is PartStatus.FAILED and not part.locator.startswith("page ") for part in documents[0].parts
    )
    result = Compared(words=sum(len(counts.words_of(each.text)) for each in contents))
    for missing in given.missing(contents):
        if not (is_unread or any(re.match(rf"{missing.place}\b", place) for place in lost)):
            result.missing += missing.words
            page = int(missing.place.removeprefix("page "))
            result.gaps += _gaps(missing.words, counts.words_of(contents[page - 1].text), page if has_pages else None)
    result.read = result.words - num_unread
    result.accounted = max(0, num_unread - len(result.missing))
    return result


def _gaps(missing: Sequence[str], words: Sequence[str], page: int | None) -> list[str]:
    """Neighbours among the missing words, with three words before and after."""
    left, places = list(missing), set[int]()
    for position in range(len(words) - 1, -1, -1):
        if left and words[position] == left[-1]:
            left.pop()
            places.add(position)
    gaps = list[str]()
    for start in sorted(places):
        if start - 1 in places:
            continue
        end = next(end for end in range(start, len(words) + 1) if end not in places)
        before, after = " ".join(words[max(0, start - 3) : start]), " ".join(words[end : end + 3])
        gap = " ".join(words[start : min(end, start + 12)]) + (" ..." if end > start + 12 else "")
        gaps.append(f"{f'page {page}: ' if page else ''}{before} [{gap}] {after}")
    return gaps


def compare_file(file: Path, converter: FileConverter, extractors: Extractors) -> FileResult:
    """Converts a file, and compares its text with that of each extractor of its kind."""
    result, start = FileResult(file=str(file), kind=file.suffix.lower().removeprefix(".")), time.monotonic()
    documents = converter.convert(file, name=file.name)
    result.seconds = time.monotonic() - start
    parts = [part for document in documents for part in document.parts]
    result.failures = [f"{part.locator}: {part.reason}"[:300] for part in parts if part.status is PartStatus.FAILED]
    for name, text in extractors.texts(file).items():
        if isinstance(text, str):
            result.extractors[name] = compared(documents, text, has_pages=result.kind == "pdf")
        else:
            result.failed_extractors[name] = f"{type(text).__name__}: {text}"[:300]
    return result


def print_results(results: Sequence[FileResult]) -> None:
    """Prints a line for each kind and extractor, then the files with the most missing words."""
    print(
        LINE.format("kind", "extractor", "files", "words", "read", "accounted", "missing", "in", "failures", "seconds")
    )
    for kind in sorted({each.kind for each in results}):
        files = [each for each in results if each.kind == kind]
        failures, seconds = sum(bool(each.failures) for each in files), f"{sum(each.seconds for each in files):.1f}"
        for name in sorted({name for each in files for name in each.extractors}) or ["-"]:
            found = [each.extractors[name] for each in files if name in each.extractors]
            words, read = sum(each.words for each in found), sum(each.read for each in found)
            accounted, missing = sum(each.accounted for each in found), [len(each.missing) for each in found]
            num_files = len(found) or len(files)
            counted = (num_files, words, read, accounted, sum(missing), sum(map(bool, missing)), failures)
            print(LINE.format(kind, name, *(f"{each:,}" for each in counted), seconds))
        agreed = [each.num_agreed for each in files]
        if sum(agreed):
            print(LINE.format(kind, "two of them", "", "", "", "", f"{sum(agreed):,}", sum(map(bool, agreed)), "", ""))
    for result in sorted(results, key=lambda result: -result.num_missing)[:LARGEST]:
        for name, each in result.extractors.items():
            if each.missing:
                print(f"\n{len(each.missing):,} words, {name}: {result.file}")
                print("\n".join(f"    {gap}" for gap in sorted(each.gaps, key=len, reverse=True)[:SHOWN_GAPS]))


def main() -> None:
    """Compares all files of the folders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write each file's result to a file, a line each")
    parser.add_argument("--texts", type=Path, metavar="FOLDER", help="keep what other extractors find for the next run")
    parser.add_argument("--no-office", action="store_true", help="don't run LibreOffice, which is slow")
    arguments = parser.parse_args()
    files = sorted(file for folder in arguments.folders for file in folder.rglob("*") if file.is_file())
    extractors, results = Extractors(arguments.texts, has_office=not arguments.no_office), list[FileResult]()
    extractors.read_office(files)
    module = Path(__file__).stem
    converters = {
        kind.value: ChosenConverter(name=kind.value, path=f"{module}:telling_{kind.value}", version="0")
        for kind in FileKind
    }
    with ConverterServer(search_path=(str(TOOLS),)) as server, Path(arguments.json or os.devnull).open("w") as lines:
        converter = FileConverter(server, converters=converters, limits=Limits())
        for number, file in enumerate(files, start=1):
            results.append(compare_file(file, converter, extractors))
            server.clear()
            print(json.dumps(asdict(results[-1])), file=lines, flush=True)
            if number % 20 == 0:
                print(f"{number} of {len(files)} files", file=sys.stderr, flush=True)
    print_results(results)


if __name__ == "__main__":
    main()

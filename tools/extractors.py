"""What other programs find in a file, as far as they are installed; a plain reading of pages, mails and texts too."""

import email
import email.policy
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

PROGRAM_SECONDS, OFFICE_SECONDS = 60, 20
"""Longest time of a program for a file; of LibreOffice for each file of a batch."""
BATCH_FILES = 20
"""Files that LibreOffice converts in one call: it is slow to start, and a file on which it hangs costs the others."""
OFFICE = "libreoffice"
BOMS = {b"\xff\xfe\0\0": "utf-32", b"\0\0\xfe\xff": "utf-32", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}

Extractor = Callable[[Path], str]
"""Returns the text of a file; form feeds part the pages of a PDF, and what a mail says from what it repeats."""


class VisibleText(HTMLParser):
    """The text of a page without scripts and styles."""

    UNSEEN = ("script", "style", "template")
    IN_LINE = ("a", "b", "i", "u", "em", "strong", "span", "font", "code", "sup", "sub", "wbr")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.pieces, self._depth = list[str](), 0
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: D102
        self._depth += tag in self.UNSEEN
        self.pieces.append("" if tag in self.IN_LINE else " ")

    def handle_endtag(self, tag: str) -> None:  # noqa: D102
        self._depth = max(0, self._depth - (tag in self.UNSEEN))

    def handle_data(self, data: str) -> None:  # noqa: D102
        self.pieces.append("" if self._depth else data)


def decoded(data: bytes) -> str:
    """A text in the encoding that it names, else in UTF-8, else with U+FFFD for all that is not ASCII."""
    named = re.search(rb"charset\s*=\s*[\"']?([\w-]+)", data[:4096])
    marked = next((encoding for mark, encoding in BOMS.items() if data.startswith(mark)), "utf-8-sig")
    for encoding in (marked, named and named[1].decode()):
        with suppress(UnicodeError, LookupError):
            return data.decode(encoding or "ascii")
    return data.decode("ascii", "replace")


def page_text(page: str) -> str:
    """The visible text of HTML."""
    return "".join(VisibleText(page).pieces)


def mail_text(file: Path) -> str:
    """People, subject and texts of each message; after a form feed the alternatives, which say them again."""
    data, said, repeated = file.read_bytes(), list[str](), list[str]()
    for each in re.split(rb"(?m)^From .*\r?\n", data)[1:] if data.startswith(b"From ") else [data]:
        message: Any = email.message_from_bytes(each, policy=email.policy.default)
        again = set[int]()
        for part in message.walk():
            if part.get_content_type() == "multipart/alternative" and part.is_multipart():
                again |= {id(leaf) for other in part.get_payload()[1:] for leaf in other.walk()}
            said += [str(part.get(name, "")) for name in ("Subject", "From", "To", "Cc")]
            if part.get_content_maintype() == "text":
                text = decoded(part.get_payload(decode=True) or b"")
                with suppress(LookupError, UnicodeError, KeyError):
                    text = part.get_content()
                text = text if part.get_content_subtype() == "plain" else page_text(text)
                (repeated if id(part) in again else said).append(text)
    return "\n".join(said) + "\f" + "\n".join(repeated)


def program(*command: str, noise: str = r"\Z") -> Extractor:
    """An extractor that is a program; `FILE` stands for the file, and `noise` is a pattern of what it adds."""

    def text_of(file: Path) -> str:
        arguments = [str(file) if each == "FILE" else each for each in command]
        done = subprocess.run(arguments, capture_output=True, timeout=PROGRAM_SECONDS, check=False)
        if (done.returncode and not done.stdout) or b"Traceback (most recent call last)" in done.stdout:
            raise OSError(f"exit {done.returncode}: {done.stderr.decode(errors='replace').strip()[-200:]}")
        return re.sub(noise, " ", decoded(done.stdout), flags=re.M)

    return text_of


PDFTOTEXT = program("pdftotext", "-enc", "UTF-8", "FILE", "-")
PYTHON: Mapping[str, Extractor] = {
    **dict.fromkeys((".eml", ".mbox", ".mht"), mail_text),
    **dict.fromkeys((".html", ".htm", ".xhtml"), lambda file: page_text(decoded(file.read_bytes()))),
    **dict.fromkeys((".txt", ".md", ".csv", ".log", ".ics", ".vcf"), lambda file: decoded(file.read_bytes())),
}
PROGRAMS: Mapping[str, Mapping[str, Extractor]] = {
    ".pdf": {"pdftotext": PDFTOTEXT, "mutool": program("mutool", "draw", "-q", "-F", "txt", "FILE")},
    ".doc": {
        "antiword": program("antiword", "-w", "0", "-m", "UTF-8.txt", "FILE", noise=r"\[pic\]"),
        "catdoc": program("catdoc", "-w", "-dutf-8", "FILE", noise=r'HYPERLINK(\s+(\\l|"[^"]*"))+'),
    },
    ".xls": {"xls2csv": program("xls2csv", "-dutf-8", "FILE")},
    ".ppt": {"catppt": program("catppt", "-dutf-8", "FILE")},
    ".msg": {"extract_msg": program("extract_msg", "--dump-stdout", "FILE")},
    ".rtf": {"unrtf": program("unrtf", "--nopict", "--text", "FILE", noise=r"^(###.*|-{5,}|(TITLE|AUTHOR): .*)$")},
    **{
        f".{kind}": {"pandoc": program("pandoc", "-f", kind, "-t", "plain", "--wrap=none", "FILE")}
        for kind in ("docx", "odt", "epub", "html")
    },
}
ALL_SHEETS = "csv:Text - txt - csv (StarCalc):32,34,76,1,,0,false,true,false,false,false,-1"
"""Each sheet as a file, its cells as displayed, parted by spaces."""
FILTERS: Mapping[str, str] = {
    **dict.fromkeys((".docx", ".docm", ".dotx", ".doc", ".dot", ".odt", ".ott", ".rtf"), "txt:Text (encoded):UTF8"),
    **dict.fromkeys((".xlsx", ".xlsm", ".xls", ".ods"), ALL_SHEETS),
    **dict.fromkeys((".pptx", ".pptm", ".ppt", ".odp"), "pdf"),
}
"""To what LibreOffice converts a file; of presentations `pdftotext` then reads what they show."""


class Extractors:
    """The extractors of this machine; what they find is kept in a folder for the next run, if there is one."""

    def __init__(self, kept: Path | None, *, has_office: bool) -> None:
        self._kept = kept
        self._has_office = has_office and shutil.which("soffice") is not None
        if self._has_office and shutil.which("pdftotext") is None:
            sys.exit("pdftotext is missing, with which the pages of presentations are read: install poppler-utils")
        self._office = dict[Path, str]()

    def read_office(self, files: Sequence[Path]) -> None:
        """Reads all files that LibreOffice can convert, many in a call."""
        batches = defaultdict[str, list[Path]](list)
        for file in files if self._has_office else ():
            if file.suffix.lower() in FILTERS and self._known(file, OFFICE) is None:
                batches[FILTERS[file.suffix.lower()]].append(file)
        for filter_name, those in batches.items():
            for start in range(0, len(those), BATCH_FILES):
                print(f"LibreOffice: {filter_name[:3]} {start} of {len(those)}", file=sys.stderr, flush=True)
                batch = those[start : start + BATCH_FILES]
                texts = _office_texts(batch, filter_name)
                for file in batch:
                    text = texts[file] if file in texts else _office_texts([file], filter_name).get(file, "")
                    self._office[file] = self._keep(file, OFFICE, text)

    def texts(self, file: Path) -> dict[str, str | Exception]:
        """The text of a file by extractor, or why that one has none."""
        kind, texts = file.suffix.lower(), dict[str, str | Exception]()
        office = self._office.get(file) or (self._known(file, OFFICE) if kind in FILTERS else None)
        extractors = {name: each for name, each in PROGRAMS.get(kind, {}).items() if shutil.which(name)}
        if kind in PYTHON:
            extractors["python"] = PYTHON[kind]
        for name, text_of in extractors.items():
            try:
                text = self._known(file, name)
                texts[name] = self._keep(file, name, text_of(file)) if text is None else text
            except (OSError, subprocess.TimeoutExpired, ValueError, LookupError, AttributeError, TypeError) as error:
                texts[name] = error
        return texts | ({OFFICE: office} if office else {})

    def _place(self, file: Path, name: str) -> Path | None:
        return self._kept / f"{sha256(file.read_bytes()).hexdigest()}-{name}.txt" if self._kept else None

    def _known(self, file: Path, name: str) -> str | None:
        place = self._place(file, name)
        return place.read_bytes().decode(errors="replace") if place and place.exists() else None

    def _keep(self, file: Path, name: str, text: str) -> str:
        place = self._place(file, name)
        if place:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(text.encode(errors="replace"))
        return text


def _office_texts(files: Sequence[Path], filter_name: str) -> dict[Path, str]:
    """What one call of LibreOffice makes of files."""
    with TemporaryDirectory() as folder:
        inputs, out = {f"f{number}": file for number, file in enumerate(files)}, Path(folder, "out")
        for name, file in inputs.items():
            shutil.copyfile(file, Path(folder, f"{name}{file.suffix.lower()}"))
        command = ["soffice", f"-env:UserInstallation=file://{folder}/profile", "--headless", "--convert-to"]
        command += [filter_name, "--outdir", str(out), *map(str, sorted(Path(folder).glob("f*")))]
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            process.wait(PROGRAM_SECONDS + OFFICE_SECONDS * len(files))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # it is a script that waits for others
            process.wait()
        texts = defaultdict[Path, str](str)
        for made in sorted(out.glob("f*")):
            text = PDFTOTEXT(made) if made.suffix == ".pdf" else made.read_text(encoding="utf-8-sig", errors="replace")
            texts[inputs[re.split(r"[-.]", made.name)[0]]] += f"{text}\n"
        return texts

"""Random files of each kind, from fixed seeds: nothing crashes, and each planted fact is found or reported.

`MEMAGENT_FUZZ_CASES=1000 pytest tests/convert/test_fuzz.py` tries more of them.
"""

import os
from base64 import encodebytes
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from memagent_batch.data.ingest.files import ChosenConverter, FileConverter
from memagent_batch.data.ingest.readers.converter import ending_of
from memagent_batch.data.ingest.readers.kinds import FileKind
from memagent_batch.data.ingest.readers.process.sandbox import Limits
from memagent_batch.data.ingest.readers.process.worker import ConverterServer
from memagent_batch.plugins import CONVERTERS
from tests.convert import files
from tests.convert.rows import converted_rows

CASES = int(os.environ.get("MEMAGENT_FUZZ_CASES", "20"))
LIMITS = Limits(seconds=60)

HEADERS = ("From", "To", "Cc", "Date", "Subject", "Content-Type", "Content-Disposition", "MIME-Version", "Reply-To")
STARTS = {"Content-Type": "text/plain; ", "Content-Disposition": "inline; "}
ADDRESS_BITS = ('"', "<", ">", "@", "[", "]", "(", ")", ":", ";", ",", "=?utf-8?q?", "?=", "=?", "a", "b.c", "\\", " ")
BITS = (*ADDRESS_BITS, "\r\n ", "*", "'", "=", "%", "\xff", ".", "0*=", "filename", "charset", "/", "multipart/mixed")
OPEN_TAGS = ("<p>", "<div>", "<table>", "<td>", "<b>", "</p>", "</div>", "</table>", "</body>", "<br>", "<a b=c>")
JUNK = ("&", "&amp", "&#0;", "<", "< ", "<>", "</", "]]>", '"', "'", "<?php ?>", "<![CDATA[x]]>", "<!x>", "<x:y z>")
CLOSED = ("<!-- c -->", "<!---->", "<!-- > -- > -->", "<script>if (a < b) '</p>'</script>", "<style>p {}</style>")
NAMES = ("a.txt", "..", "", "a/b\\c.txt", "\u202etxt.exe", "n" * 300, "x\r\ny.txt", "=?utf-8?q?=41?=.txt")


@pytest.fixture(scope="module")
def converter() -> Iterator[FileConverter]:
    names = {kind.value: kind.value for kind in FileKind}
    chosen = {kind: ChosenConverter(name=name, path=CONVERTERS.path(name), version="1") for kind, name in names.items()}
    with ConverterServer() as server:
        yield FileConverter(server, converters=chosen, limits=LIMITS)


def require_found(converter: FileConverter, file: Path, data: bytes, facts: Sequence[str], *, case: int) -> None:
    file.write_bytes(data)
    rows = converted_rows(converter, file, name=f"source{ending_of(file.name)}")
    assert not [row for row in rows if "not converted within" in (row["reason"] or "")], case
    assert not [row for row in rows if row["status"] not in ("ok", "empty") and not row["reason"]], case
    missing = [fact for fact in facts if not any(fact in (row["text"] or "") for row in rows)]
    assert not missing, (case, missing, rows, data)


def fact(random: Random) -> str:
    return f"The code is {random.randrange(10**6, 10**7)}."


@pytest.mark.parametrize("seed", range(CASES))
def test_mailbox_of_random_headers_keeps_every_message(converter: FileConverter, tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    facts, box = [fact(random) for _ in range(10)], b""
    for code in facts:
        header = random.choice(HEADERS)
        value = STARTS.get(header, "") * (random.random() < 0.6) + "".join(random.choices(BITS, k=random.randint(1, 9)))
        message = f"{header}: {value}\r\nX-Other: y\r\n\r\n{code}\r\n"
        box += b"From a@example.org Mon Mar  2 10:00:00 2026\n" + message.encode("latin-1") + b"\n\n"
    require_found(converter, tmp_path / "box.mbox", box, facts, case=seed)


@pytest.mark.parametrize("seed", range(CASES))
def test_random_attachments_of_a_mail_are_found(converter: FileConverter, tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    leaves = [leaf(random) for _ in range(4)]
    parts = [attachment(random, data) for data, _ in leaves]
    text, inner = fact(random), fact(random)
    parts.insert(0, b"Content-Type: text/plain\r\n\r\n" + text.encode())
    parts.append(b"Content-Type: message/rfc822\r\n\r\n" + files.mail("s", inner).as_bytes())
    head = b"From: a@b.c\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=B\r\n\r\n"
    data = head + b"".join(b"--B\r\n" + part + b"\r\n" for part in parts) + b"--B--"
    facts = [text, inner, *filter(None, (code for _, code in leaves))]
    require_found(converter, tmp_path / "m.eml", data, facts, case=seed)


def attachment(random: Random, data: bytes) -> bytes:
    """A part of a mail, with headers as some programs write them."""
    kind = random.choice(("application/octet-stream", "application/pdf", "x", "", ";", "a/b; name=", "/"))
    form = random.choice(('filename="{}"', "filename={}", "filename*=utf-8''{}", "filename*0={}; filename*1=x", "{}"))
    name = random.choice(NAMES).encode("ascii", "replace").decode().replace("\r\n", " ")
    head = f"Content-Type: {kind}\r\nContent-Disposition: attachment; {form.format(name)}\r\n"
    return f"{head}Content-Transfer-Encoding: base64\r\n\r\n".encode() + encodebytes(data)


@pytest.mark.parametrize("seed", range(CASES))
def test_random_files_in_a_pdf_are_found(converter: FileConverter, tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    facts, extra, pairs = [fact(random)], [b""], list[str]()
    for number in range(3):
        data, code = leaf(random)
        body = files.stream("/Type /EmbeddedFile", data)
        if random.random() < 0.3 or not data:
            body, code = random.choice((b"null", b"<< >>", b"(text)", b"<< /Length 0 >>\nstream\n\nendstream")), None
        pairs.append(f"(f{number}.bin) {len(extra) + 5} 0 R")
        extra.append(f"<< /Type /Filespec /F (f{number}.bin) /EF << /F {len(extra) + 6} 0 R >> >>".encode())
        extra.append(body)
        facts.extend(filter(None, [code]))
    extra[0] = f"<< /EmbeddedFiles << /Names [{' '.join(pairs)}] >> >>".encode()
    data = files.pdf(files.written(facts[0]), extra=extra)
    require_found(converter, tmp_path / "p.pdf", data, facts, case=seed)


@pytest.mark.parametrize("seed", range(CASES))
def test_random_html_shows_every_visible_fact(converter: FileConverter, tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    facts = [fact(random) for _ in range(5)]
    page = "".join(random.choices(CLOSED, k=random.randint(0, 60)))
    for code in facts:
        page += "".join(random.choices((*OPEN_TAGS, *JUNK, *CLOSED), k=random.randint(0, 12))) + f"<p>{code}</p>"
    require_found(converter, tmp_path / "p.html", page.encode(), facts, case=seed)


@pytest.mark.parametrize("seed", range(CASES))
def test_random_nested_archives_lose_nothing(converter: FileConverter, tmp_path: Path, seed: int) -> None:
    random, facts = Random(seed), list[str]()
    name, data = nested(random, facts, depth=random.randint(1, 5))
    require_found(converter, tmp_path / name, data, facts, case=seed)
    require_found(converter, tmp_path / name, damaged(random, data), [], case=seed)


def nested(random: Random, facts: list[str], *, depth: int) -> tuple[str, bytes]:
    """A file with files in it, and so on; adds what stands in them to `facts`."""
    if not depth:
        data, code = leaf(random)
        facts.extend(filter(None, [code]))
        return f"{random.randrange(10**9)}.bin", data
    members = [nested(random, facts, depth=random.randint(0, depth - 1)) for _ in range(random.randint(1, 3))]
    members = [(f"{number}-{name}", data) for number, (name, data) in enumerate(members)]
    if random.random() < 0.5:
        return "z.zip", files.zipped(dict(members), stored=random.random() < 0.5)
    return "m.eml", files.mail("s", "see below", files=members).as_bytes()


def leaf(random: Random) -> tuple[bytes, str | None]:
    """A file, and what must be found of it: a fact, or nothing if the file is damaged."""
    code = fact(random)
    data = random.choice(LEAVES)(code)
    return (damaged(random, data), None) if random.random() < 0.2 else (data, code)


def damaged(random: Random, data: bytes) -> bytes:
    """Nothing of the data, a piece of it, or all with a byte changed."""
    at = random.randrange(len(data))
    return random.choice((b"", data[:at], data[:at] + b"\0" + data[at + 1 :]))


LEAVES: tuple[Callable[[str], bytes], ...] = (
    lambda code: files.pdf(files.written(code)),
    lambda code: files.docx_file(("Normal", code)),
    files.page,
    lambda code: files.mail("s", code).as_bytes(),
)

"""Makes real files of every kind: PDFs by hand, DOCX by python-docx and zipfile, mails by the standard library."""

import base64
import io
import zipfile
import zlib
from collections.abc import Sequence
from email.message import EmailMessage

import docx

FONT = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
A_TEXT = "The contract of 1 March begins here, and it has a notice period of three months. "


def pdf(*pages: str, extra: Sequence[bytes] = (), trailer: str = "") -> bytes:
    """A PDF; each page is a content stream. Object 3 is the font /F1, 4 an image /Im1, `extra` follow from 5 on."""
    image = stream(
        "/Type /XObject /Subtype /Image /Width 4 /Height 4 /ColorSpace /DeviceGray /BitsPerComponent 8", bytes(16)
    )
    first = 5 + len(extra)
    kids = " ".join(f"{first + 2 * number} 0 R" for number in range(len(pages)))
    resources = "/Resources << /Font << /F1 3 0 R >> /XObject << /Im1 4 0 R >> >>"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>" if not extra else b"<< /Type /Catalog /Pages 2 0 R /Names 5 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} /MediaBox [0 0 600 800] {resources} >>".encode(),
        FONT.encode(),
        image,
        *extra,
    ]
    for number, content in enumerate(pages):
        objects.append(f"<< /Type /Page /Parent 2 0 R /Contents {first + 2 * number + 1} 0 R >>".encode())
        objects.append(stream("", content.encode("latin-1")))
    return assembled(objects, trailer=trailer)


def stream(entries: str, data: bytes) -> bytes:
    packed = zlib.compress(data)
    return f"<< {entries} /Filter /FlateDecode /Length {len(packed)} >>\nstream\n".encode() + packed + b"\nendstream"


def pdf_in_letters(page: str, *, is_cut: bool) -> bytes:
    """A PDF whose packed page is written in letters, as ReportLab does; or the first half of it."""
    packed = zlib.compress(page.encode("latin-1"))
    packed = packed[: len(packed) // 2] if is_cut else packed
    data = base64.a85encode(packed, wrapcol=76) + b"~>"
    head = f"<< /Filter [ /ASCII85Decode /FlateDecode ] /Length {len(data)} >>\nstream\n"
    return pdf(page).replace(stream("", page.encode("latin-1")), head.encode() + data + b"\nendstream")


def assembled(objects: Sequence[bytes], *, trailer: str = "") -> bytes:
    """A PDF of these objects, the first one its catalogue."""
    out, places = io.BytesIO(), []
    out.write(b"%PDF-1.7\n")
    for number, body in enumerate(objects, start=1):
        places.append(out.tell())
        out.write(f"{number} 0 obj\n".encode() + body + b"\nendobj\n")
    start = out.tell()
    out.write(f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode())
    out.write(b"".join(f"{place:010d} 00000 n \n".encode() for place in places))
    out.write(f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R {trailer} >>\nstartxref\n{start}\n%%EOF\n".encode())
    return out.getvalue()


def written(text: str) -> str:
    escaped = text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
    lines = "".join(f"({escaped[at : at + 80]}) Tj T* " for at in range(0, len(escaped), 80))
    return f"BT /F1 10 Tf 12 TL 40 750 Td {lines} ET"


SCAN = "q 600 0 0 800 0 0 cm /Im1 Do Q"
DRAWN = "100 100 m 200 300 l S"


def encrypted_pdf() -> bytes:
    """A PDF that asks for a password, which is not the empty one."""
    entry = f"<< /Filter /Standard /V 1 /R 2 /Length 40 /P -4 /O <{'ab' * 32}> /U <{'cd' * 32}> >>"
    return pdf(written(A_TEXT), trailer=f"/Encrypt {entry} /ID [<{'00' * 16}> <{'00' * 16}>]")


def pdf_with_file(name: str, data: bytes) -> bytes:
    """A PDF with a file embedded in it."""
    names = f"<< /EmbeddedFiles << /Names [({name}) 6 0 R] >> >>".encode()
    spec = f"<< /Type /Filespec /F ({name}) /UF ({name}) /EF << /F 7 0 R >> >>".encode()
    return pdf(written(A_TEXT), extra=(names, spec, stream("/Type /EmbeddedFile", data)))


def form_pdf(value: str) -> bytes:
    """A PDF whose text stands in a filled-in field alone."""
    appearance = stream(
        "/Type /XObject /Subtype /Form /BBox [0 0 200 20] /Resources << /Font << /F1 3 0 R >> >>",
        f"BT /F1 10 Tf 2 5 Td ({value}) Tj ET".encode(),
    )
    field = f"/FT /Tx /T (name) /V ({value}) /Type /Annot /Subtype /Widget /Rect [100 600 300 620] /P 2 0 R /F 4"
    return assembled(
        [
            b"<< /Type /Catalog /Pages 4 0 R /AcroForm << /Fields [5 0 R] /DR << /Font << /F1 3 0 R >> >> >> >>",
            b"<< /Type /Page /Parent 4 0 R /MediaBox [0 0 600 800] /Annots [5 0 R] >>",
            FONT.encode(),
            b"<< /Type /Pages /Kids [2 0 R] /Count 1 >>",
            f"<< {field} /AP << /N 6 0 R >> >>".encode(),
            appearance,
        ]
    )


def docx_file(*paragraphs: tuple[str, str], cells: Sequence[Sequence[str]] = ()) -> bytes:
    document = docx.Document()
    for style, text in paragraphs:
        document.add_paragraph(text, style=style)
    if cells:
        table = document.add_table(len(cells), len(cells[0]))
        for row, texts in zip(table.rows, cells, strict=True):
            for cell, text in zip(row.cells, texts, strict=True):
                cell.text = text
    return saved(document)


def saved(document: "docx.document.Document") -> bytes:
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def with_body(body: str, *, before: str = "") -> bytes:
    namespaces = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    namespaces += ' xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
    xml = f"<?xml version='1.0' encoding='UTF-8'?>{before}<w:document {namespaces}><w:body>{body}</w:body></w:document>"
    return repacked(docx_file(("Normal", "x")), {"word/document.xml": xml.encode()})


def repacked(package: bytes, members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(package)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for name in {**dict.fromkeys(old.namelist()), **members}:
            new.writestr(name, members[name] if name in members else old.read(name))
    return out.getvalue()


def member(package: bytes, name: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(package)) as members:
        return members.read(name)


def zipped(members: dict[str, bytes], *, stored: bool = False) -> bytes:
    out = io.BytesIO()
    method = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(out, "w", method, compresslevel=1) as package:
        for name, data in members.items():
            package.writestr(name, data)
    return out.getvalue()


def zip_bomb() -> bytes:
    """A DOCX of some hundred KiB whose document unpacks to 600 MiB."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)  # each stands for itself
    bomb = 600 * block + packer.flush()
    package = repacked(docx_file(("Normal", "x")), {})
    out = io.BytesIO(package)
    with zipfile.ZipFile(out, "a") as new:
        new.writestr("word/more.xml", bomb, compress_type=zipfile.ZIP_STORED)
        member = new.getinfo("word/more.xml")
        member.compress_type, member.file_size = zipfile.ZIP_DEFLATED, 600 << 20
    return out.getvalue()


def mail(subject: str, text: str, *, files: Sequence[tuple[str, bytes]] = (), html: str = "") -> EmailMessage:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "Ann <a@example.org>", "b@example.org", subject
    message["Date"] = "Mon, 02 Mar 2026 10:00:00 +0000"
    message.set_content(text)
    if html:
        message.add_alternative(html, subtype="html")
    for name, data in files:
        message.add_attachment(data, maintype="application", subtype="octet-stream", filename=name)
    return message


def nested_mail(depth: int) -> bytes:
    message = mail("innermost", "the innermost text")
    for level in range(depth):
        outer = mail(f"level {level}", f"text of level {level}")
        outer.add_attachment(message)
        message = outer
    return message.as_bytes()


def nested_mime(depth: int) -> bytes:
    head = b"From: a@example.org\r\nTo: b@example.org\r\nSubject: deep\r\nMIME-Version: 1.0\r\n"
    parts = [
        f'Content-Type: multipart/mixed; boundary="b{level}"\r\n\r\n--b{level}\r\n'.encode() for level in range(depth)
    ]
    return head + b"".join(parts) + b"Content-Type: text/plain\r\n\r\nat the bottom\r\n"


def mailbox_of(messages: Sequence[EmailMessage]) -> bytes:
    return b"".join(b"From a@example.org Mon Mar  2 10:00:00 2026\n" + each.as_bytes() + b"\n\n" for each in messages)


def page(text: str) -> bytes:
    return (
        "<!DOCTYPE html><html><head><title>A page</title><script>document.write('from a script')</script></head><body>"
        f"<nav><a href='/'>Home</a></nav><article><h1>Terms</h1><p>{text}</p></article>"
        "<script src='http://127.0.0.1:9/x.js'></script></body></html>"
    ).encode()


def quoted_thread() -> str:
    """The HTML of a short answer above the thread that it quotes, as mail programs write it."""
    quoted = "".join(
        f"<div class='gmail_quote'><div>On day {number}, Ann &lt;a@example.org&gt; wrote:<br></div><blockquote>"
        f"<div>Point {number}: the fee is&nbsp;{number}00 euros.<!-- [if mso] --></div><div><br></div>"
        for number in range(9)
    )
    cells = "<tr><td>Item</td><td>Price</td></tr><tr><td>Paper</td><td>12</td></tr>"
    return (
        "<html><head><title>no text</title><style>p {color: red}</style></head><body>"
        "<div style='display: none'>A preview</div><p>Dear all,<br>we agree with <b>most</b> of it.</p>"
        f"<table>{cells}</table><pre>two\n  lines</pre><footer>Bob Signer, Example Ltd</footer>{quoted}"
        + "</blockquote></div>" * 9
        + "</body></html>"
    )


def xxe_docx() -> bytes:
    before = '<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
    return with_body("<w:p><w:r><w:t>before &x; after</w:t></w:r></w:p>", before=before)


def docx_with_header(header: str, *, text: str) -> bytes:
    document = docx.Document()
    document.add_paragraph(text)
    document.sections[0].header.paragraphs[0].text = header
    return saved(document)


def encrypted_docx() -> bytes:
    """How Word begins a file that asks for a password: an OLE container with one entry of this name."""
    return b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(1000) + "EncryptedPackage".encode("utf-16-le") + bytes(1000)

"""Files of all kinds with facts planted in them: whole ones with many features, and broken, encrypted or odd ones."""

import gzip
import io
import zipfile
import zlib
from base64 import b64encode
from binascii import b2a_uu
from collections.abc import Callable
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from tests.convert import files, office
from tests.convert.files import A_TEXT, mail, pdf, written, zipped

LONG = A_TEXT * 4
HEAD = b"From: a@example.org\r\nTo: b@example.org\r\nSubject: s\r\nMIME-Version: 1.0\r\n"

Maker = Callable[[str], bytes]
"""Makes the content of a file in which a fact is planted."""


def picture(fact: str, *, size: tuple[int, int] = (600, 200), form: str = "PNG") -> bytes:
    image, out = Image.new("L", size, 255), io.BytesIO()
    ImageDraw.Draw(image).text((20, size[1] // 3), f"The code is {fact}.", font=ImageFont.load_default(36))
    image.save(out, form)
    return out.getvalue()


def scanned(fact: str, *, text: str = "", box: tuple[int, int, int, int] = (0, 0, 600, 800)) -> bytes:
    """A PDF whose page shows the fact in an image at (left, bottom, width, height), and a text layer beside it."""
    image = Image.open(io.BytesIO(picture(fact, size=(2 * box[2], 2 * box[3]))))
    width, height = image.size
    body = files.stream(
        f"/Type /XObject /Subtype /Image /Width {width} /Height {height} /ColorSpace /DeviceGray /BitsPerComponent 8",
        image.tobytes(),
    )
    left, bottom, *sides = box
    page = f"{written(text)} q {sides[0]} 0 0 {sides[1]} {left} {bottom} cm /Im2 Do Q"
    return with_resource(page, "/XObject << /Im1 4 0 R /Im2 6 0 R >>", [body])


def with_resource(page: str, resource: str, objects: list[bytes]) -> bytes:
    """A PDF of a page; further objects follow from number 6 on."""
    data = pdf(page, extra=(b"<< >>", *objects))
    return data.replace(b"/XObject << /Im1 4 0 R >>", resource.encode()) if resource else data


def annotated(entries: str, *objects: bytes) -> bytes:
    """A PDF whose page has a text and an annotation; further objects follow from number 7 on."""
    annotation = f"<< /Type /Annot /Rect [50 500 300 600] {entries} >>".encode()
    data = pdf(written(LONG), extra=(b"<< >>", annotation, *objects))
    return data.replace(b"<< /Type /Page /Parent", b"<< /Type /Page /Annots [6 0 R] /Parent", 1)


def drawn(fact: str) -> bytes:
    """A PDF that shows a text, and below it the fact as small rectangles instead of letters."""
    image = Image.open(io.BytesIO(picture(fact))).point(lambda level: 0 if level > 128 else 1).convert("L")
    marks = [(x, y) for y in range(image.height) for x in range(image.width) if image.getpixel((x, y))]
    page = " ".join(f"{40 + x / 2:g} {400 - y / 2:g} .5 .5 re" for x, y in marks)
    return pdf(f"{written(LONG)} {page} f")


def glyphs(fact: str) -> bytes:
    """A PDF with a text, and the fact in a font whose letters have names without a meaning."""
    names = " ".join(f"/g{number}" for number in range(256))
    font = "<< /Type /Font /Subtype /Type3 /FontBBox [0 0 9 9] /FontMatrix [.1 0 0 .1 0 0] "
    font += f"/FirstChar 0 /LastChar 255 /Widths [{'9 ' * 256}] /Encoding << /Differences [0 {names}] >> /CharProcs << "
    font += " ".join(f"/g{number} 7 0 R" for number in range(256)) + " >> >>"
    page = f"{written(LONG)} BT /F2 10 Tf 40 400 Td ({''.join(chr(ord(each) + 128) for each in fact)}) Tj ET"
    data = pdf(page, extra=(b"<< >>", font.encode(), files.stream("", b"9 0 0 0 9 9 d1 0 0 9 9 re f")))
    return data.replace(b"/Font << /F1 3 0 R >>", b"/Font << /F1 3 0 R /F2 6 0 R >>")


def broken_stream(fact: str) -> bytes:
    """A PDF whose second page has content that can't be unpacked to its end."""
    text = " ".join(f"({number * 7919}) Tj T*" for number in range(4000))
    whole = zlib.compress(f"BT /F1 10 Tf 12 TL 40 750 Td {text} ({fact}) Tj ET".encode())
    cut = whole[: len(whole) // 2] + b"\xff" * (len(whole) // 2)
    body = files.stream("", b"here").replace(zlib.compress(b"here"), cut)
    data = pdf(written(LONG), "later")
    return data.replace(files.stream("", b"later"), body.replace(b"/Length 12", f"/Length {len(cut)}".encode()))


def xfa(fact: str) -> bytes:
    """A form that only Adobe's reader shows; its page says to wait."""
    packet = f"<xdp><template><field><value><text>{fact}</text></value></field></template></xdp>".encode()
    form = b"<< /Fields [] /XFA [(template) 7 0 R] >>"
    data = pdf(written("Please wait... " + A_TEXT * 4), extra=(b"<< >>", form, files.stream("", packet)))
    return data.replace(b"/Names 5 0 R", b"/AcroForm 6 0 R /NeedsRendering true")


def appearance(content: str) -> bytes:
    """What an annotation shows."""
    resources = "/Resources << /Font << /F1 3 0 R >> /XObject << /Im2 8 0 R >> >>"
    return files.stream(f"/Type /XObject /Subtype /Form /BBox [0 0 250 100] {resources}", content.encode())


def image_object(image: Image.Image) -> bytes:
    size = f"/Width {image.width} /Height {image.height} /ColorSpace /DeviceGray /BitsPerComponent 8"
    return files.stream(f"/Type /XObject /Subtype /Image {size}", image.convert("L").tobytes())


LEGEND = (
    "Case 1:24-cv-01234 Document 57-3 Filed 03/04/24 Page 12 of 80. Confidential, subject to protective order. "
    "Produced by Fernmill Ltd. FERN-0001234567. For the eyes of attorneys only. "
) * 2
"""What the producers of documents stamp on scanned pages."""


PDF: dict[str, Maker] = {
    "pdf-stamped_picture.pdf": lambda fact: annotated(
        "/Subtype /Stamp /AP << /N 7 0 R >>",
        appearance("q 250 0 0 100 0 0 cm /Im2 Do Q"),
        image_object(Image.open(io.BytesIO(picture(fact)))),
    ),
    "pdf-ink.pdf": lambda _: annotated("/Subtype /Ink /InkList [[60 510 100 550 150 520]]"),
    "pdf-film.pdf": lambda _: annotated("/Subtype /Screen /T (deposition.mp4)"),
    "pdf-attached_encrypted.pdf": lambda _: files.pdf_with_file("a.pdf", files.encrypted_pdf()),
    "pdf-scan.pdf": scanned,
    "pdf-mixed.pdf": lambda fact: scanned(fact, text=LONG, box=(50, 100, 500, 400)),
    "pdf-drawn.pdf": drawn,
    "pdf-glyphs.pdf": glyphs,
    "pdf-encrypted.pdf": lambda _: files.encrypted_pdf(),
    "pdf-cut.pdf": lambda fact: pdf(written(fact))[:400],
    "pdf-prefix.pdf": lambda fact: b"\0junk\r\n" * 40 + pdf(written(fact)),
    "pdf-count.pdf": lambda fact: pdf(written(LONG), written(fact)).replace(b"/Count 2", b"/Count 1"),
    "pdf-hole.pdf": lambda fact: pdf(written(LONG), written(fact)).replace(b"7 0 R] /Count", b"99 0 R] /Count"),
    "pdf-broken_stream.pdf": broken_stream,
    "pdf-xfa.pdf": xfa,
    "pdf-as_text.txt": lambda fact: pdf(written(fact)),
}


def page(body: str) -> bytes:
    return f"<!DOCTYPE html><html><head><title>t</title></head><body>{body}</body></html>".encode()


HTML: dict[str, Maker] = {
    "html-script.html": lambda fact: page(f"<div id=r></div><script>r.append('K' + {fact[1:]} * 1)</script>"),
    "html-frame_in_frame.html": lambda _: page(f"""{LONG}<iframe srcdoc="<iframe src='a.html'></iframe>"></iframe>"""),
    "html-picture.html": lambda fact: page(
        f"{LONG}<img src='data:image/png;base64,{b64encode(picture(fact)).decode()}'>"
    ),
    "html-utf16_unmarked.html": lambda fact: page(fact).decode().encode("utf-16-le"),
    "html-deep.html": lambda fact: page("<div>" * 3000 + fact),
    "html-as_word.doc": lambda fact: page(fact),
}


def run(text: str) -> str:
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"


def with_macros(fact: str) -> bytes:
    package, types = files.docx_file(("Normal", fact)), "[Content_Types].xml"
    plain = b"openxmlformats-officedocument.wordprocessingml.document.main+xml"
    with zipfile.ZipFile(io.BytesIO(package)) as members:
        content = members.read(types)
    return files.repacked(package, {types: content.replace(plain, b"ms-word.document.macroEnabled.main+xml")})


DOCX: dict[str, Maker] = {
    "docx-picture.docx": lambda fact: office.docx("", image=picture(fact)),
    "docx-twice.docx": lambda fact: office.twice(files.docx_file(("Normal", fact)), files.docx_file(("Normal", "x"))),
    "docx-cut.docx": lambda fact: files.docx_file(("Normal", fact))[:3000],
    "docx-encrypted.docx": lambda _: files.encrypted_docx(),
    "docx-bomb.docx": lambda _: files.zip_bomb(),
    "docx-entities.docx": lambda _: files.xxe_docx(),
    "docx-nul.docx": lambda fact: office.docx(run(f"a\0{fact}")),
    "docx-macros.docm": with_macros,
}


def parts(*bodies: bytes, kind: str = "mixed") -> bytes:
    inner = b"".join(b"--B\r\n" + body + b"\r\n" for body in bodies)
    return HEAD + f"Content-Type: multipart/{kind}; boundary=B\r\n\r\n".encode() + inner + b"--B--\r\n"


def attached(name: str, data: bytes) -> bytes:
    return mail("s", "see below", files=[(name, data)]).as_bytes()


PLAIN = b"Content-Type: text/plain\r\n\r\nsee below"
PGP = b"-----BEGIN PGP MESSAGE-----\n\nhQEMA0t1\n=abcd\n-----END PGP MESSAGE-----\n"

MAIL: dict[str, Maker] = {
    "mail-picture.eml": lambda fact: attached("a.png", picture(fact)),
    "mail-cid.eml": lambda fact: parts(
        b"Content-Type: text/html\r\n\r\n<img src='cid:x'>",
        b"Content-Type: image/png\r\nContent-ID: <x>\r\nContent-Transfer-Encoding: base64\r\n\r\n"
        + b64encode(picture(fact)),
        kind="related",
    ),
    "mail-tnef.eml": lambda fact: attached("winmail.dat", b"\x78\x9f\x3e\x22" + fact.encode()),
    "mail-pgp.eml": lambda _: parts(
        b"Content-Type: application/pgp-encrypted\r\n\r\nVersion: 1",
        b"Content-Type: application/octet-stream\r\n\r\n" + PGP,
        kind="encrypted",
    ),
    "mail-pgp_inline.eml": lambda _: HEAD + b"\r\nHello,\r\n" + PGP,
    "mail-smime.eml": lambda _: (
        HEAD + b"Content-Type: application/pkcs7-mime; name=smime.p7m\r\n"
        b"Content-Transfer-Encoding: base64\r\n\r\nMIIBAAAA"
    ),
    "mail-uu.eml": lambda fact: (
        HEAD + b"\r\nsee file\r\n\r\nbegin 644 a.txt\r\n" + b2a_uu(fact.encode()) + b"`\r\nend\r\n"
    ),
    "mail-base64.eml": lambda fact: (
        HEAD + b"Content-Transfer-Encoding: base64\r\n\r\n" + b64encode(f"{LONG}{fact}".encode())[:-9] + b"!"
    ),
    "mail-boundary.eml": lambda fact: parts(PLAIN, fact.encode()).replace(b"boundary=B", b"boundary=A"),
    "mail-no_end.eml": lambda fact: parts(PLAIN, b"\r\n" + fact.encode())[:-7],
    "mail-nul.eml": lambda fact: HEAD + f"\r\na\0b\r\n{fact}".encode(),
    "mail-line_ends.eml": lambda fact: HEAD.replace(b"\r\n", b"\n") + f"\r\na\rb\n{fact}".encode(),
    "mail-box_quoted.mbox": lambda fact: files.mailbox_of([mail("1", f"a\nFrom here on {fact}, 2026"), mail("2", "")]),
    "mail-too_deep.eml": lambda _: files.nested_mail(12),
    "mail-page.mht": lambda fact: parts(b"Content-Type: text/html\r\n\r\n" + page(fact), kind="related"),
    "mail-unnamed": lambda fact: mail("s", fact).as_bytes(),
}

TEXT: dict[str, Maker] = {
    "text-utf16_cut.txt": lambda fact: fact.encode("utf-16")[:-1],
    "text-packed.txt": lambda fact: gzip.compress(fact.encode(), mtime=0x01010101),
    "text-gz.gz": lambda fact: gzip.compress(fact.encode()),
    "text-pgp.txt": lambda _: PGP,
    "text-picture.png": picture,
    "text-picture.txt": picture,
    "text-picture.tif": lambda fact: picture(fact, form="TIFF"),
    "text-noise.txt": lambda fact: bytes(range(1, 256)) + fact.encode(),
}

ARCHIVE: dict[str, Maker] = {
    "zip-folder.zip": lambda fact: zipped({"a.txt": b"x", "b/": fact.encode()}),
    "zip-twice.zip": lambda fact: office.twice(zipped({"a.txt": fact.encode()}), zipped({"a.txt": b"x"})),
    "zip-outside.zip": lambda fact: zipped({"../../a.txt": fact.encode()}),
    "zip-encrypted.zip": lambda fact: office.marked_encrypted(zipped({"a.txt": fact.encode()})),
    "zip-method.zip": lambda fact: office.with_method(zipped({"a.txt": fact.encode()}), 12345),
    "zip-cut.zip": lambda fact: zipped({"a.txt": fact.encode() * 99}, stored=True)[:200],
    "zip-bomb.zip": lambda _: zipped({"a.txt": b"x", "b.txt": b"\n" * (300 << 20)}),
    "zip-prefix.zip": lambda fact: b"#!/bin/sh\n" + zipped({"a.txt": fact.encode()}),
    "zip-as_word.docx": lambda fact: zipped({"a.txt": fact.encode()}),
    "zip-as_book.epub": lambda fact: zipped({"META-INF/container.xml": b"<c/>", "a.xhtml": page(fact)}),
}


def odt(body: str, **more: Any) -> bytes:
    return office.opendocument(f"<office:text><text:p>Terms</text:p>{body}</office:text>", **more)


OFFICE: dict[str, Maker] = {
    "office-writer_encrypted.odt": lambda _: odt("", manifest="<encryption-data/>"),
    "office-ends_twice.rtf": lambda fact: rf"{{\rtf1 Before}}}} {{\b {fact}}}".encode(),
    "office-old.doc": lambda fact: b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600) + fact.encode() + bytes(600),
}


MAKERS = PDF | HTML | DOCX | MAIL | TEXT | ARCHIVE | OFFICE
"""All kinds of files, by the name that one has."""

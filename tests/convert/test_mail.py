"""What is read of mail: every word of it, or a loss that is named. In this process, as it is fast."""

import re
from base64 import b64encode, encodebytes
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from quopri import encodestring
from random import Random

import pytest

from memagent_batch.data.ingest.counts.mail import mail_contents
from memagent_batch.data.ingest.counts.words import Content, Given, words_of
from memagent_batch.data.ingest.readers.converter import Attachment, Part, PartStatus
from memagent_batch.data.ingest.readers.kinds import FileKind, recognise
from memagent_batch.data.ingest.readers.mail import MailConverter
from memagent_batch.data.ingest.readers.process.server import tell
from memagent_batch.data.ingest.readers.text import TextConverter

HEAD = "From: Ann <a@example.org>\r\nTo: b@example.org\r\nSubject: s\r\nMIME-Version: 1.0\r\n"


@dataclass(frozen=True, slots=True)
class Read:
    """What was read of a file, with its attachments."""

    items: Sequence[Part | Attachment]
    missing: Sequence[str]
    """What the count says that is missing."""

    @property
    def messages(self) -> list[str]:
        return [part.text for part in self.items if isinstance(part, Part) and part.text]

    @property
    def text(self) -> str:
        return "\n".join(self.messages).replace("\r\n", "\n")

    @property
    def losses(self) -> list[str]:
        """Reasons of what is not read, or may be wrong."""
        parts = [item for item in self.items if isinstance(item, Part)]
        failures = [item.failure for item in self.items if isinstance(item, Attachment) and item.failure]
        return [part.reason or "" for part in parts if part.status is not PartStatus.OK] + failures + [*self.missing]

    @property
    def names(self) -> list[str]:
        return [item.name for item in self.items if isinstance(item, Attachment)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "m.eml"


def read(file: Path, data: bytes | str) -> Read:
    """Reads a mail; attachments that are mails or texts too."""
    file.write_bytes(data.encode() if isinstance(data, str) else data)
    missing = list[str]()
    return Read([*_items(file, missing)], missing)


def _items(file: Path, missing: list[str]) -> Iterator[Part | Attachment]:
    given = Given()
    for item in MailConverter().convert(file):
        yield item
        tell(given, item)
        if isinstance(item, Attachment):
            inner = file.with_name(f"{len(item.number)}{file.name}").with_suffix(Path(item.name).suffix)
            inner.write_bytes(item.data)
            if recognise(inner) == FileKind.EMAIL:
                yield from _items(inner, missing)
            else:
                yield from TextConverter().convert(inner)
    missing += (f"{each.place}: {each.reason}" for each in given.missing(mail_contents(file)))


def leaf(content: str, kind: str = "text/plain", *headers: str) -> str:
    return "\r\n".join([f"Content-Type: {kind}", *headers, "", content])


def many(kind: str, *parts: str, boundary: str = "b", **parameters: str) -> str:
    more = "".join(f"; {name}={value}" for name, value in parameters.items())
    inner = "".join(f"--{boundary}\r\n{part}\r\n" for part in parts)
    return f'Content-Type: multipart/{kind}{more}; boundary="{boundary}"\r\n\r\n{inner}--{boundary}--\r\n'


INVITATION = "BEGIN:VCALENDAR\r\nSUMMARY:Audit\\, of\r\n  Walnut\r\nEND:VCALENDAR"
INNER = "From: Cy <c@example.org>\r\nSubject: Inner\r\n\r\nIt is 4,410 barrels."
ENCODED = encodebytes(b"<p>Some text that is not small.</p>" * 9).decode()
FORMS = {
    "html_before_calendar": (
        many("alternative", leaf("<p>EUR 5</p>", "text/html"), leaf(INVITATION, "text/calendar")),
        "EUR 5\n\nBEGIN:VCALENDAR\nSUMMARY:Audit, of Walnut\nEND:VCALENDAR",
    ),
    "amp_last": (
        many(
            "alternative",
            leaf("EUR 5"),
            leaf("<p>EUR 5</p>", "text/html"),
            leaf("<p>EUR 5 each</p>", "text/x-amp-html"),
        ),
        "EUR 5\n\nEUR 5 each",
    ),
    "html_with_a_name": (
        many("alternative", leaf("Plain."), leaf("<p>EUR 5</p>", "text/html; name=body.html")),
        "Plain.\n\nEUR 5",
    ),
    "ticks": (
        many("alternative", leaf("yes no"), leaf("<p>\u2611 yes \u2610 no</p>", "text/html; charset=utf-8")),
        "yes no\n\n\u2611 yes \u2610 no",
    ),
    "sign": (
        many("alternative", leaf("It is 5 %."), leaf("<p>It is -5 %.</p>", "text/html")),
        "It is 5 %.\n\nIt is -5 %.",
    ),
    "around_the_parts": (
        many("mixed", "\r\nEUR 5").replace("--b", "It is in MIME format.\r\n\r\nScanned.\r\n--b", 1) + "The list.",
        "Scanned.\n\nEUR 5\n\nThe list.",
    ),
    "report": (
        many(
            "report",
            leaf("Failed."),
            leaf("Final-Recipient: rfc822; c@example.org\r\n\r\nStatus: 5.1.1\r\n", "message/delivery-status"),
            leaf("Subject: =?utf-8?Q?Gr=C3=B6=C3=9Fe?=\r\n", "text/rfc822-headers"),
        ),
        "Failed.\n\nFinal-Recipient: rfc822; c@example.org\n\nStatus: 5.1.1\n\nSubject: Gr\u00f6\u00dfe",
    ),
    "flowed": (
        leaf("The fee is \r\nEUR 5.\r\n> It \r\n> is.\r\n-- \r\nAnn", "text/plain; format=flowed"),
        "The fee is EUR 5.\n> It is.\n-- \nAnn",
    ),
    "invitation_twice": (
        many(
            "mixed",
            leaf(INVITATION, "text/calendar"),
            leaf(INVITATION, "application/ics; name=invite.ics", "Content-Disposition: attachment"),
        ),
        "BEGIN:VCALENDAR\nSUMMARY:Audit, of Walnut\nEND:VCALENDAR",
    ),
    "no_boundary": (
        many(
            "mixed",
            leaf("EUR 5"),
            leaf(b64encode(b"in May").decode(), "text/html", "Content-Transfer-Encoding: base64"),
        ).replace("boundary", "border"),
        "EUR 5\n\nin May",
    ),
    "one_boundary_twice": (
        many("mixed", many("alternative", leaf("Plain."), leaf("<p>EUR 5</p>", "text/html")), leaf("in May")),
        "Plain.\n\nEUR 5\n\nin May",
    ),
    "footer_behind_base64": (
        leaf(
            encodebytes(b"EUR 5 each one").decode() + "____\r\nThe list",
            "text/plain",
            "Content-Transfer-Encoding: base64",
        ),
        "EUR 5 each one\n\n____\nThe list",
    ),
    "base64_in_two_pieces": (
        leaf("RVVS\r\nIDU=\r\nIGVhY2g=", "text/plain", "Content-Transfer-Encoding: base64"),
        "EUR 5 each",
    ),
    "digest_of_a_file": (
        "\r\n" + "cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce" * 3,
        "cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce" * 3,
    ),
}
"""What follows the headers of a mail, and all that is read of it, without a loss."""


@pytest.mark.parametrize("name", FORMS)
def test_mail_of_an_odd_form_is_read_whole(file: Path, name: str) -> None:
    body, shown = FORMS[name]
    mail = read(file, HEAD + body)
    assert mail.losses == []
    assert re.sub(r"\n{3,}", "\n\n", mail.text.split("Subject: s\n", 1)[1]).strip() == shown


def all_words(contents: Iterable[Content]) -> set[str]:
    return {word for content in contents for word in (*words_of(content.text), *all_words(content.instead))}


@pytest.mark.parametrize("name", FORMS)
def test_words_of_a_mail_of_an_odd_form_are_counted(file: Path, name: str) -> None:
    body, shown = FORMS[name]
    file.write_text(HEAD + body)
    assert {*words_of(shown)} <= all_words(mail_contents(file))


@pytest.mark.parametrize(
    ("plain", "page"),
    [
        (
            "Dear Bo,\r\n* one <https://example.org/a>\r\n1. two",
            "<p>Dear Bo,<ul><li><a href=''>one</a></ul><ol><li>two</ol>",
        ),
        ("see [image: logo] *our* _new_ terms[1]", "<p>see <img> <b>our</b> <i>new</i>&nbsp;terms"),
        ("TERMS\r\n\r\nItem\r\nPrice\r\n\u2026 end", "<h1>Terms</h1><table><tr><td>Item<td>Price</table>... end"),
        ("\u5951\u7d04\u306e\r\n\u671f\u9593", "<p>\u5951\u7d04\u306e\u671f\u9593"),
        ("mail me <mailto:a@example.org>: con\u00adtract", "<p>mail <a href=''>me</a>: contract"),
    ],
)
def test_mail_whose_forms_say_the_same_is_read_once(file: Path, plain: str, page: str) -> None:
    forms = [leaf(plain, "text/plain; charset=utf-8"), leaf(page, "text/html; charset=utf-8")]
    for parts in (forms, forms[::-1]):
        assert read(file, HEAD + many("alternative", *parts)).text.endswith(
            f"Subject: s\n\n{plain}".replace("\r\n", "\n")
        )


UNREAD = {
    "pictures that it shows and does not hold (offer.png)": "Content-Type: text/html\r\n\r\n"
    '<p>Hi<img src="https://example.org/offer.png"><img src="cid:logo"></p>',
    "a video": "Content-Type: text/html\r\n\r\n<p>Hi</p><video src=a.mp4></video>",
    "external": leaf(
        "Content-Type: text/plain\r\n\r\n", "message/external-body; access-type=URL; URL=https://example.org/b.pdf"
    ),
    "part 1 of 2": leaf("Content-Type: text/plain\r\n\r\nEUR 5 and", "message/partial; id=x; number=1; total=2"),
    "PGP": many("encrypted", leaf("Version: 1", "application/pgp-encrypted"), leaf("x", "application/octet-stream")),
    "S/MIME": leaf("MIIB", "application/pkcs7-mime; smime-type=enveloped-data; name=smime.p7m"),
    "signature (smime.p7m)": leaf("MIIB", "application/x-pkcs7-mime; smime-type=signed-data"),
    "base64": "\r\nSee below.\r\n" + ENCODED,
    "parts of a message": "\r\nReturned:\r\n\r\n--x\r\nContent-Type: text/plain\r\n\r\nEUR 5\r\n--x--",
    "a.pdf may be cut off": many("mixed", leaf("JVBERi0=", "application/pdf; name=a.pdf")).removesuffix("--b--\r\n"),
    "damaged": many(
        "mixed", leaf("AAAAA!", "application/octet-stream; name=a.txt", "Content-Transfer-Encoding: base64")
    ),
    "encoding is damaged": leaf(ENCODED + "VGhl!IGZlZQ==", "text/plain", "Content-Transfer-Encoding: base64"),
    "yEnc": "\r\n=ybegin line=128 size=5 name=a.bin\r\nxyz",
    "BinHex": "\r\n(This file must be converted with BinHex 4.0)\r\n:xyz:",
}


@pytest.mark.parametrize("reason", UNREAD)
def test_what_of_a_mail_is_not_read_is_named(file: Path, reason: str) -> None:
    mail = read(file, HEAD + UNREAD[reason])
    assert any(reason in loss for loss in mail.losses), mail
    assert ENCODED not in mail.text
    assert "EUR" not in UNREAD[reason] or "EUR 5" in mail.text


def test_picture_outside_of_a_mail_is_unread_and_no_failure(file: Path) -> None:
    mail = read(file, HEAD + UNREAD["pictures that it shows and does not hold (offer.png)"])
    parts = [(item.locator, item.status) for item in mail.items if isinstance(item, Part)]
    assert parts == [("message 1", PartStatus.OK), ("message 1, outside pictures", PartStatus.SKIPPED)]


def test_packed_files_of_outlook_in_a_mail_are_an_attachment(file: Path) -> None:
    body = many(
        "mixed",
        leaf(
            b64encode(b"\x78\x9f\x3e\x22abc").decode(),
            "application/ms-tnef; name=winmail.dat",
            "Content-Transfer-Encoding: base64",
        ),
    )
    file.write_text(HEAD + body)
    (_, packed) = MailConverter().convert(file)
    assert isinstance(packed, Attachment)
    assert (packed.name, packed.data, packed.failure) == ("winmail.dat", b"\x78\x9f\x3e\x22abc", None)


@pytest.mark.parametrize(
    ("subject", "shown"),
    [
        ("=?gb2312?B?1uzpRrrPzaw=?=", "\u6731\u9555\u5408\u540c"),
        ("=?iso-8859-1?Q?Geb=FChr_=80?=", "Geb\u00fchr \u20ac"),
        ("=?utf-8?B?R3LD?= =?utf-8?B?tsOfZQ==?=", "Gr\u00f6\u00dfe"),
        ("=?utf-8?Q?Gr=C3?=\r\n =?utf-8?Q?=B6=C3=9Fe?=", "Gr\u00f6\u00dfe"),
        ("=?utf-8?Q?Gr=C3=B6=C3=9Fe", "Gr\u00f6\u00dfe"),
        ("=?utf-8?Q?Really??= yes", "Really? yes"),
        ("=?utf-8?Q?a b?= c", "a b c"),
        ("=?utf-8*de?Q?Gr=C3=B6=C3=9Fe?=", "Gr\u00f6\u00dfe"),
        ("a =?utf-8?q?b?= c", "a b c"),
        ("=?", "=?"),
        ("Gr\u00f6\u00dfe", "Gr\u00f6\u00dfe"),
    ],
)
def test_header_is_decoded(file: Path, subject: str, shown: str) -> None:
    mail = read(file, f"From: a@example.org\r\nSubject: {subject}\r\n\r\nbody")
    assert mail.text == f"From: a@example.org\nSubject: {shown}\n\nbody"
    assert mail.losses == []


def test_bytes_in_headers_are_in_the_charset_of_the_message_or_guessed_with_a_doubt(file: Path) -> None:
    word = "\u0414\u043e\u0433\u043e\u0432\u043e\u0440"
    head, body = f"From: a@example.org\r\nSubject: {word}\r\n".encode("koi8-r"), word.encode("koi8-r")
    for parts in (
        b"Content-Type: text/plain; charset=koi8-r\r\n\r\n" + body,
        many("mixed", leaf("@", "text/plain; charset=koi8-r")).encode().replace(b"@", body),
    ):
        mail = read(file, head + parts)
        assert (mail.text, mail.losses) == (f"From: a@example.org\nSubject: {word}\n\n{word}", [])
    (doubt,) = read(file, head + b"\r\nbody").losses
    assert doubt.startswith("header Subject: its characters may be wrong")


def test_all_who_sent_and_got_a_mail_are_named(file: Path) -> None:
    names = ["From", "Sender", "Reply-To", "To", "Cc", "Bcc", "Resent-From", "Resent-To", "Disposition-Notification-To"]
    lines = [f"{name}: {name.lower()}@example.org" for name in names]
    head = "\r\n".join([*lines[::-1], "BCC: more@example.org", "Received: by x", "", "body"])
    lines[5] += "; more@example.org"
    assert read(file, head).text == "\n".join([*lines, "", "body"])


CHARSETS = [
    ("text/plain; charset=iso-8859-1", "\u20ac 5", "cp1252"),
    ("text/plain; charset=us-ascii", "Geb\u00fchr \u20ac", "utf-8"),
    ("text/plain", "Geb\u00fchr \u20ac", "utf-8"),
    ("text/plain; charset=utf-7", "Geb\u00fchr \u20ac", "utf-7"),
    ("text/plain; charset=gb2312", "\u6731\u9555", "gbk"),
    ("text/html", "<meta charset=windows-1251>\u0414\u043e\u0433\u043e\u0432\u043e\u0440", "cp1251"),
    ("text/html; charset=us-ascii", "<meta charset=utf-8>Geb\u00fchr \u20ac", "utf-8"),
    ("text/plain; charset=koi8-r; name=a.txt", "\u041f\u043b\u0430\u0442\u0430", "koi8-r"),
    ("text/plain; charset=iso-2022-jp; name=a.txt", "\u5951\u7d04", "iso2022_jp"),
]


@pytest.mark.parametrize(("kind", "text", "codec"), CHARSETS)
def test_text_is_in_the_charset_that_it_names_or_has(file: Path, kind: str, text: str, codec: str) -> None:
    head, tail = (HEAD + many("mixed", leaf("%s", kind))).encode().split(b"%s")
    mail = read(file, head + text.encode(codec) + tail)
    assert mail.text.endswith(f"\n{re.sub('<.*>', '', text)}")
    assert mail.losses == []


@pytest.mark.parametrize("kind", ["text/plain", "text/plain; charset=x-none", "text/html; charset=utf-8"])
def test_text_in_a_charset_that_nothing_names_may_be_wrong(file: Path, kind: str) -> None:
    mail = read(
        file,
        (HEAD + leaf("", kind)).encode()
        + "\u0414\u043e\u0433\u043e\u0432\u043e\u0440 \u043e \u043f\u043b\u0430\u0442\u0435".encode("cp1251"),
    )
    assert any("may be wrong" in loss for loss in mail.losses)
    assert "x-none" not in kind or any("charset" in loss for loss in mail.losses)


WHOLE = HEAD + "Content-Type: text/plain; charset=iso-8859-1\r\n\r\nGeb\u00fchr 5"
BEFORE = {
    "mark": b"\xef\xbb\xbf" + WHOLE.encode("latin-1"),
    "blank_lines": b"\r\n\r\n" + WHOLE.encode("latin-1"),
    "escaped_line": b">From a@example.org Mon Jan  5 10:00:00 2026\r\n" + WHOLE.encode("latin-1"),
    "line_of_a_mailbox": b"From a@example.org Mon Jan  5 10:00:00 2026\r\n" + WHOLE.encode("latin-1"),
    "utf-16": WHOLE.encode("utf-16"),
    "utf-16_without_mark": WHOLE.encode("utf-16-be"),
    "length": b"%d\n%b<?xml version='1.0'?><plist/>" % (len(WHOLE), WHOLE.encode("latin-1")),
    "blank_before_colon": WHOLE.encode("latin-1").replace(b": ", b" : "),
    "broken_list": WHOLE.encode("latin-1").replace(b"To: b@example.org", b"To:\r\nb@example.org"),
}


@pytest.mark.parametrize("name", BEFORE)
def test_mail_with_something_before_or_among_its_headers_is_a_mail(file: Path, name: str) -> None:
    nameless = file.with_suffix("")
    nameless.write_bytes(BEFORE[name])
    assert recognise(nameless) == FileKind.EMAIL
    mail = read(file, BEFORE[name])
    assert (mail.text, mail.losses) == (f"{HEAD.split('MIME')[0]}\nGeb\u00fchr 5".replace("\r\n", "\n"), [])


@pytest.mark.parametrize("name", ["m.eml", "m.mht", "m.msg", "m"])
def test_mail_that_names_the_mark_of_a_pdf_is_a_mail(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(f"{HEAD}\r\nA PDF begins with %PDF-1.4")
    assert recognise(tmp_path / name) == FileKind.EMAIL


@pytest.mark.parametrize(
    "text", ["From 2026 on we start at 9:30.\nNote: the fee is 5.", "Note: the fee is 5.", "The fee is 5."]
)
def test_text_without_headers_is_read_whole(file: Path, text: str) -> None:
    assert read(file, text).text == text


FROM = "From a@example.org Mon Jan  5 10:00:00 2026\n"


def test_mailbox_is_split_where_a_blank_line_stands_before_and_headers_behind(file: Path) -> None:
    first = "one\nFrom 2026 at 9:30.\nSubject: no\n\nFrom 2026 at 9:30.\n\nFrom 2026 at 9:30\nNote: no"
    box = f"{FROM}Subject: 1\n\n{first}\n\n{FROM}Subject: 2\n\n>From here\n>>From there\n"
    for data in (box, box.replace("\n", "\r\n"), f"\n{box}"):
        mail = read(file, data)
        assert [text.replace("\r\n", "\n") for text in mail.messages] == [
            f"Subject: 1\n\n{first}",
            "Subject: 2\n\nFrom here\n>From there",
        ]
    border = "\1\1\1\1\n"
    assert read(file, f"{border}Subject: 1\n\none\n{border}{border}Subject: 2\n\ntwo\n{border}").messages == [
        "Subject: 1\n\none",
        "Subject: 2\n\ntwo",
    ]


WORDS = {
    "utf-8": "Größe東京",
    "iso-8859-1": "Gebühr€",
    "windows-1251": "Договор",
    "koi8-r": "Плата",
    "iso-8859-2": "Smlouvařž",
    "gb2312": "朱镕合同",
    "shift_jis": "契約①",
    "iso-2022-jp": "契約期間",
    "ks_c_5601-1987": "계약똠",
    "utf-7": "Größe",
    "us-ascii": "",
    "": "Größe",
}
"""A word in each charset; some characters are not in the charset of that name, but in the one that browsers take."""
CODECS = {"iso-8859-1": "cp1252", "gb2312": "gbk", "shift_jis": "cp932", "ks_c_5601-1987": "cp949", "": "utf-8"}
KINDS = ("plain", "html", "enriched", "calendar", "x-notes", "x-amp-html", "plain; format=flowed", "csv")


class Tree:
    """A random MIME tree. Each leaf has words of its own."""

    def __init__(self, seed: int) -> None:
        self.words: list[str] = []
        self.losses = 0
        self._random = Random(seed)
        self.data = HEAD.encode() + self._entity(depth=0)

    def _word(self) -> str:
        return f"Zq{self._random.randrange(10**8)}x"

    def _entity(self, *, depth: int) -> bytes:
        if depth > 4 or (depth > 0 and self._random.random() < 0.35):
            return self._leaf()
        kind = self._random.choice(("mixed", "alternative", "related", "signed", "report", "digest", "rfc822", "odd"))
        if kind == "rfc822":
            return b"Content-Type: message/rfc822\r\n" + self._encoded(HEAD.encode() + self._entity(depth=depth + 1))
        if kind == "odd":
            return self._odd_leaf()
        num_children = 1 if kind == "signed" else self._random.randint(1, 3)
        children = [self._entity(depth=depth + 1) for _ in range(num_children)]
        if kind == "digest":
            children = [b"\r\n" + HEAD.encode() + child for child in children]
        if kind == "signed":
            children += [b"Content-Type: application/pgp-signature\r\n\r\n-----BEGIN PGP SIGNATURE-----"]
        boundary = b"=_%d" % self._random.randrange(10**6)
        inner = b"".join(b"--%b\r\n%b\r\n" % (boundary, child) for child in children)
        outer, after = b"", b""
        if self._random.random() < 0.2:
            self.words.append(word := self._word())
            outer = f"{word} before\r\n".encode()
        if self._random.random() < 0.2:
            self.words.append(word := self._word())
            after = f"{word} after\r\n".encode()
        head = b'Content-Type: multipart/%b; boundary="%b"\r\n\r\n' % (kind.encode(), boundary)
        return b"%b%b%b--%b--\r\n%b" % (head, outer, inner, boundary, after)

    def _leaf(self) -> bytes:
        kind, charset = self._random.choice(KINDS), self._random.choice([*WORDS])
        word = self._word()
        shown = f"{word} {WORDS[charset]}".strip()
        self.words.append(shown)
        content = f"<p>some <b>words</b> {shown}</p>" if "html" in kind else f"some words {shown}\r\nmore\r\n"
        head = f"Content-Type: text/{kind}{f'; charset={charset}' if charset else ''}\r\n"
        if self._random.random() < 0.2:
            head += 'Content-Disposition: attachment; filename="a.txt"\r\n'
        return head.encode() + self._encoded(content.encode(CODECS.get(charset, charset)))

    def _odd_leaf(self) -> bytes:
        word = self._word()
        lost = self._random.random() < 0.5
        if lost:
            self.losses += 1
            kind = self._random.choice(
                ("application/pkcs7-mime; name=smime.p7m", "message/external-body; name=far.pdf")
            )
            return f"Content-Type: {kind}\r\n\r\n{word}\r\n".encode()
        self.words.append(word)
        kind = self._random.choice(("delivery-status", "disposition-notification", "feedback-report", "x-unknown"))
        return f"Content-Type: message/{kind}\r\n".encode() + self._encoded(
            f"Reason: a\r\n\r\nAddress: {word}\r\n".encode()
        )

    def _encoded(self, data: bytes) -> bytes:
        bodies = {"8bit": data, "base64": encodebytes(data), "quoted-printable": encodestring(data)}
        encoding, body = self._random.choice([*bodies.items()])
        return f"Content-Transfer-Encoding: {encoding}\r\n\r\n".encode() + body


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_every_word_of_a_random_mime_tree_is_read_or_its_loss_is_named(file: Path, first: int) -> None:
    for seed in range(first, first + 50):
        tree = Tree(seed)
        mail = read(file, tree.data)
        text = " ".join(mail.text.split())
        missing = [word for word in tree.words if word not in text]
        assert not missing, (seed, missing, tree.data, mail.items)
        assert not tree.losses or any("not read" in loss for loss in mail.losses), (seed, tree.data)


SAVED_PAGE = (
    "MIME-Version: 1.0\nContent-Type: multipart/related; boundary=b\n\n--b\nContent-Type: text/html\n"
    "Content-Location: https://x/a/p.html\n\n<link rel=stylesheet href={}><p class=r><b>2</b><b>500 EUR</b>\n--b\n"
    "Content-Type: text/css\n{}\n\n.r{{display:flex}} .r b::after{{content:' net'}}\n--b--\n"
)


@pytest.mark.parametrize(
    ("address", "header"),
    [
        ("cid:c@m", "Content-ID: <c@m>"),
        ("../s.css", "Content-Location: https://x/s.css"),
        ("cid:d", "Content-Location: cid:d"),
    ],
)
def test_saved_page_is_read_with_the_style_sheets_that_were_saved_with_it(
    file: Path, address: str, header: str
) -> None:
    mail = read(file, SAVED_PAGE.format(address, header))
    assert mail.text.strip() == "2 net\n500 EUR net"

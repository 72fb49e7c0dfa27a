"""Features of pages, mails, archives and texts that `combined.py` combines, and files of all kinds inside them."""

from base64 import b64encode
from collections.abc import Callable
from quopri import encodestring

from tests.convert import files, outlook, planted
from tests.convert.combined import BLOCK, INLINE, MORE_LETTERS, Draft, Kind

HTML = Kind("html", lambda draft, body: planted.page(body), MORE_LETTERS, wrap=lambda text: f"<p>{text}</p>")
HTML.add(
    INLINE,
    INLINE,
    bold="<b>WORD</b> INNER",
    split="HEAD<b>TAIL</b> INNER",
    link="<a href='#x'>WORD</a> INNER",
    deleted="<del>WORD</del> INNER",
    abbreviation="<abbr title='WORD'>WORD</abbr> INNER",
    ruby="<ruby>WORD<rt>WORD</rt></ruby> INNER",
    field="<input type=text value='WORD'> INNER",
    placeholder="<input placeholder='WORD'> INNER",
    chosen="<select><option>other<option selected>WORD</select> INNER",
    box="<label><input type=checkbox checked>WORD</label> INNER",
    area="<textarea>WORD</textarea> INNER",
    button="<button>WORD</button><input type=submit value=WORD> INNER",
    equation="<math><mfrac><mi>WORD</mi><mi>WORD</mi></mfrac></math> INNER",
    alt_text="<img src='data:image/gif;base64,R0lGODlhAQABAAAAACw=' alt='WORD'> INNER",
    drawing="<svg><title>WORD</title><text>WORD</text></svg> INNER",
    label="<b aria-label='WORD'>x</b> INNER",
    hidden="<span style='display: none'>WORD</span> INNER",
)
HTML.add(
    paragraph="<p>WORD</p>INNER",
    heading="<h2>WORD</h2>INNER",
    items="<ol start=3><li>WORD<li>INNER</ol>",
    table="<table><caption>WORD</caption><tr><td colspan=2 rowspan=2>WORD INNER<td>WORD<tr><td>WORD</table>",
    terms="<dl><dt>WORD<dd>WORD INNER</dl>",
    details="<details><summary>WORD</summary>WORD INNER</details>",
    unscripted="<noscript><p>WORD</p></noscript>INNER",
    frame="<iframe srcdoc='<p>WORD</p>'></iframe>INNER",
    footer="<footer>WORD</footer>INNER",
    quote="<blockquote>WORD INNER</blockquote>",
    lines="<pre>WORD\n  WORD</pre>INNER",
    template="<template>WORD</template>INNER",
    conditional="<!--[if !mso]><!-->WORD<!--<![endif]-->INNER",
    film="<object data=a.bin>WORD</object>INNER",
    figure="<figure>INNER<figcaption>WORD</figcaption></figure>",
)


@HTML.feature
def picture(draft: Draft, inner: str) -> str:
    draft.unread("a picture")
    return f"<img src='data:image/png;base64,{b64encode(planted.picture('x')).decode()}'>{inner}"


@HTML.feature
def sound(draft: Draft, inner: str) -> str:
    draft.unread("a sound recording")
    return f"<audio src=a.mp3></audio>{inner}"


def _message(draft: Draft, body: str, *, end: str = "\r\n") -> bytes:
    """A message of parts; `body` are MIME entities."""
    headers = "".join(f"{each}{end}" for each in draft.beside.get("headers", ()))
    text = f"From: Ann <a@example.org>{end}To: b@example.org{end}MIME-Version: 1.0{end}{headers}"
    first = f"Content-Type: text/plain{end}{end}See below.{end}"
    return (text + _multipart(draft, "mixed", f"--B{end}{first}{body}")).replace("\r\n", end).encode("latin-1")


def _multipart(draft: Draft, kind: str, body: str) -> str:
    """An entity of entities, each of which begins with the border `--B`."""
    border = f"=_{draft.number()}_"
    inside = body.replace("--B\r\n", f"--{border}\r\n")
    return f'Content-Type: multipart/{kind}; boundary="{border}"\r\n\r\n{inside}--{border}--\r\n'


def _entity(headers: str, content: str) -> str:
    return f"--B\r\nContent-Type: {headers}\r\n\r\n{content}\r\n"


def _packed(headers: str, data: bytes) -> str:
    letters = b64encode(data).decode()
    lines = "\r\n".join(letters[at : at + 76] for at in range(0, len(letters), 76))
    return _entity(f"{headers}\r\nContent-Transfer-Encoding: base64", lines)


CALENDAR = (
    "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nSUMMARY:WORD\r\nLOCATION:WORD\r\nDESCRIPTION:WORD\r\nEND:VEVENT\r\n"
    "END:VCALENDAR"
)
BOUNCE = "Reporting-MTA: dns; x\r\n\r\nDiagnostic-Code: smtp; 550 WORD"
EML = Kind("eml", _message)
EML.add(
    plain=_entity("text/plain", "WORD") + "INNER",
    page=_entity("text/html", "<p>WORD</p>") + "INNER",
    enriched=_entity("text/enriched", "<bold>WORD</bold>") + "INNER",
    inline=_entity("text/plain; name=a.txt\r\nContent-Disposition: inline", "WORD") + "INNER",
    attached=_entity('text/plain\r\nContent-Disposition: attachment; filename="WORD.txt"', "WORD") + "INNER",
    calendar=_entity("text/calendar; method=REQUEST", CALENDAR) + "INNER",
    card=_entity("text/vcard", "BEGIN:VCARD\r\nFN:WORD\r\nEND:VCARD") + "INNER",
    delivery=_entity("message/delivery-status", BOUNCE) + "INNER",
    returned=_entity("text/rfc822-headers", "Subject: WORD\r\nFrom: c@example.org") + "INNER",
    message=_entity("message/rfc822", "From: WORD <c@example.org>\r\nSubject: WORD\r\n\r\nWORD") + "INNER",
    subject=("INNER", "headers", "Subject: WORD"),
    copies=("INNER", "headers", "Cc: WORD <c@example.org>"),
    blind=("INNER", "headers", "Bcc: WORD <d@example.org>"),
)


@EML.feature
def quoted(draft: Draft, inner: str) -> str:
    text = encodestring(f"{'The fee is due. ' * 6}Geb\u00fchr {draft.word()}".encode()).decode().replace("\n", "\r\n")
    return _entity("text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable", text) + inner


@EML.feature
def encoded(draft: Draft, inner: str) -> str:
    return _packed("text/plain; charset=utf-16", f"Geb\u00fchr {draft.word()}".encode("utf-16")) + inner


@EML.feature
def alternative(draft: Draft, inner: str) -> str:
    """A text, HTML that says more, and other parts among them."""
    word, more = draft.word(), draft.word()
    texts = _entity("text/plain", word) + _entity("text/html", f"<p>{word}</p><p>{more}</p>")
    return "--B\r\n" + _multipart(draft, "alternative", texts) + inner


@EML.feature
def related(draft: Draft, inner: str) -> str:
    return "--B\r\n" + _multipart(draft, "related", _entity("text/html", f"<p>{draft.word()}</p>") + inner)


@EML.feature
def mixed(draft: Draft, inner: str) -> str:
    return "--B\r\n" + _multipart(draft, "mixed", _entity("text/plain", draft.word()) + inner)


@EML.feature
def signed(draft: Draft, inner: str) -> str:
    signature = _packed("application/pkcs7-signature; name=smime.p7s", bytes(40))
    return "--B\r\n" + _multipart(draft, "signed", _entity("text/plain", draft.word()) + signature) + inner


@EML.feature
def digest(draft: Draft, inner: str) -> str:
    message = f"--B\r\n\r\nFrom: c@example.org\r\nSubject: {draft.word()}\r\n\r\n{draft.word()}\r\n"
    return "--B\r\n" + _multipart(draft, "digest", message) + inner


@EML.feature
def forwarded(draft: Draft, inner: str) -> str:
    """A message with all that stands inside it."""
    head = f"From: c@example.org\r\nSubject: {draft.word()}\r\n"
    body = _multipart(draft, "mixed", _entity("text/plain", draft.word()) + inner)
    return _entity("message/rfc822", head + body)


@EML.feature
def picture_attached(draft: Draft, inner: str) -> str:
    draft.unread("an image")
    return _packed("image/png\r\nContent-ID: <x>", planted.picture("x")) + inner


@EML.feature
def mail_file(draft: Draft, inner: str) -> str:
    name, data = draft.file_inside()
    return _packed(f'application/octet-stream\r\nContent-Disposition: attachment; filename="{name}"', data) + inner


def _mailbox(draft: Draft, body: str) -> bytes:
    first = b"From c@example.org Mon Mar  2 10:00:00 2026\nFrom: c@example.org\nSubject: one\n\nFrom here on.\n\n"
    message = _message(draft, body).replace(b"\r\n", b"\n")
    return first + b"From a@example.org Mon Mar  2 10:00:00 2026\n" + message + b"\n"


MBOX = Kind("mbox", _mailbox, features=dict(EML.features))


def _outlook(draft: Draft, body: str) -> bytes:
    texts: dict[int, str | bytes] = {
        0x1A: "IPM.Note",
        0xC1A: "Ann",
        0x5D01: "ann@example.org",
        0x1000: f"See below. {body}",
    }
    texts |= dict(draft.beside.get("texts", ()))
    recipients = [
        {"__properties_version1.0": bytes(8), "__substg1.0_3001001F": each.encode("utf-16-le")}
        for each in draft.beside.get("people", ())
    ]
    attached = draft.beside.get("attached", [])
    return outlook.compound_file(outlook.message(texts, attached=attached, recipients=recipients))


MSG = Kind("msg", _outlook)
MSG.add(body="WORD INNER")


def _property(name: str, make: Callable[[Draft, str], tuple[int, str | bytes]]) -> None:
    def feature(draft: Draft, inner: str) -> str:
        draft.add("texts", make(draft, draft.word()))
        return inner

    MSG.features[name] = (BLOCK, BLOCK, feature)


_property("subject", lambda _, word: (0x37, word))
_property("page", lambda _, word: (0x1013, f"<html><body>See below. <p>{word}</p></body></html>".encode()))
_property("sender", lambda _, word: (0xC1A, word))


@MSG.feature
def recipient(draft: Draft, inner: str) -> str:
    draft.add("people", draft.word())
    return inner


@MSG.feature
def attachment(draft: Draft, inner: str) -> str:
    name, data = draft.file_inside()
    draft.add("attached", outlook.attachment(name, data))
    return inner


@MSG.feature
def inner_message(draft: Draft, inner: str) -> str:
    texts: dict[int, str | bytes] = {0x1A: "IPM.Note", 0x37: draft.word(), 0x1000: draft.word()}
    deep = [outlook.attachment("a.txt", draft.word().encode())]
    draft.add("attached", outlook.attachment("b.msg", outlook.message(texts, attached=deep, header_bytes=24)))
    return inner


ZIP = Kind("zip", lambda draft, _: files.zipped(dict(draft.beside.get("members", ())) or {"a.txt": b"x"}))


def _member(name: str, make: Callable[[Draft], tuple[str, bytes]]) -> None:
    def feature(draft: Draft, inner: str) -> str:
        draft.add("members", make(draft))
        return inner

    ZIP.features[name] = (BLOCK, BLOCK, feature)


_member("text", lambda draft: (f"a{draft.number()}.txt", draft.word().encode()))
_member("in_folder", lambda draft: (f"b/c{draft.number()}/notes", draft.word().encode()))
_member("named", lambda draft: (f"{draft.word()}.txt", b"x"))
_member(
    "russian",
    lambda draft: (
        f"d{draft.number()}.txt",
        f"\u041f\u043b\u0430\u0442\u0438\u043c {draft.word()} \u0441\u0435\u0433\u043e\u0434\u043d\u044f".encode(
            "cp1251"
        ),
    ),
)
_member("file", lambda draft: draft.file_inside())

MARKDOWN = Kind("md", lambda draft, body: f"# Terms\n\n{body}".encode(), MORE_LETTERS)
MARKDOWN.add(
    heading="## WORD\n\nINNER",
    text="WORD\nINNER",
    table="| WORD | WORD |\n|---|---|\n| WORD | x |\n\nINNER",
    code="```\n# WORD\n```\nINNER",
    comment="<!-- WORD -->\nINNER",
    link="[WORD](https://example.org/ 'WORD')\nINNER",
)
TEXT = Kind(
    "txt", lambda draft, body: f"Terms\n{body}".encode(draft.random.choice(["utf-8", "utf-16", "utf-8-sig", "latin-1"]))
)
TEXT.add(
    line="WORD\nINNER",
    german="Die Geb\u00fchr WORD f\u00fcr M\u00e4rz ist f\u00e4llig\nINNER",
    record="a;WORD;5\nINNER",
    quote="> WORD\nINNER",
)

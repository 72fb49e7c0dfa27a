"""What is read of mail: every word of it, or a loss that is named. In this process, as it is fast."""

from base64 import encodebytes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from quopri import encodestring
from random import Random

import pytest

from memagent_batch.convert.charsets import decode_text
from memagent_batch.convert.converter import Attachment, Part, PartStatus
from memagent_batch.convert.kinds import FileKind, recognise
from memagent_batch.convert.mail import MailConverter

HEAD = "From: Ann <a@example.org>\r\nTo: b@example.org\r\nSubject: s\r\nMIME-Version: 1.0\r\n"


@dataclass(frozen=True, slots=True)
class Read:
    """What was read of a file, with its attachments."""

    items: Sequence[Part | Attachment]

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
        return [part.reason or "" for part in parts if part.status is not PartStatus.OK]

    @property
    def names(self) -> list[str]:
        return [item.name for item in self.items if isinstance(item, Attachment)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "m.eml"


def read(file: Path, data: bytes | str) -> Read:
    """Reads a mail; attachments that are mails or texts too."""
    file.write_bytes(data.encode() if isinstance(data, str) else data)
    return Read([*_items(file)])


def _items(file: Path) -> Iterator[Part | Attachment]:
    for item in MailConverter().convert(file):
        yield item
        if isinstance(item, Attachment):
            inner = file.with_name(f"{len(item.number)}{file.name}").with_suffix(Path(item.name).suffix)
            inner.write_bytes(item.data)
            if recognise(inner) == FileKind.EMAIL:
                yield from _items(inner)
            else:
                yield Part(text=decode_text(item.data).text)


def leaf(content: str, kind: str = "text/plain", *headers: str) -> str:
    return "\r\n".join([f"Content-Type: {kind}", *headers, "", content])


def many(kind: str, *parts: str, boundary: str = "b", **parameters: str) -> str:
    more = "".join(f"; {name}={value}" for name, value in parameters.items())
    inner = "".join(f"--{boundary}\r\n{part}\r\n" for part in parts)
    return f'Content-Type: multipart/{kind}{more}; boundary="{boundary}"\r\n\r\n{inner}--{boundary}--\r\n'


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
        encoding = self._random.choice(("8bit", "base64", "quoted-printable"))
        body = {"8bit": bytes, "base64": encodebytes, "quoted-printable": encodestring}[encoding](data)
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

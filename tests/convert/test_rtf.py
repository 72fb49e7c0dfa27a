r"""What a reader of an RTF file sees, and what of it is not read."""

import random
from pathlib import Path

import pytest

from memagent_batch.data.ingest.readers.converter import Part, PartStatus
from memagent_batch.data.ingest.readers.rtf import RtfConverter
from tests.convert import planted
from tests.convert.rows import RowsOf

FONTS = rb"""{\fonttbl{\f0\fnil\fcharset0 Arial;}{\f1\fcharset204 Arial CYR{\*\falt Helvetica};}
{\f2\fcharset2 Wingdings;}{\f3\fcharset2 Symbol;}{\f4\fcharset128 Gothic;}
{\f5\fcharset2 Unheard;}{\f6\fnil\cpg1250 Courier;}}"""
PAYMENT = rb"\'cf\'eb\'e0\'f2\'e0"
FIELD = rb"{\field{\*\fldinst %s}{\fldrslt %s}}"
FORM = rb"{\field{\*\fldinst{ FORM }{\*\formfield{%s{\*\ffname N}}}}{\fldrslt }}"
SHAPE = rb"{\shp{\*\shpinst\shpleft0%s{\shptxt In a box}}{\shprslt{\*\do}{\pict\wmetafile8 01}In a box}}"


def parts_of(folder: Path, inside: bytes, *, head: bytes = rb"\ansi\ansicpg1252\deff0") -> list[Part]:
    file = folder / "a.rtf"
    file.write_bytes(rb"{\rtf1" + head + FONTS + inside + b"}")
    return [part for part in RtfConverter().convert(file) if isinstance(part, Part)]


@pytest.mark.parametrize(
    ("inside", "text"),
    [
        (rb"The fee is \u8364?100 \'80 \u-10179?\u-8704?", "The fee is €100 € 😀"),
        (rb"\f1 " + PAYMENT + rb"\plain  Geb\'fchr", "Плата Gebühr"),
        (rb"{\f1 " + PAYMENT + rb"} f\'fcr {\f6 \'b3}", "Плата für ł"),
        (rb"\f4 \'8c\'5f\'96\'f1 ok", "契約 ok"),
        (rb"{\uc2\u1044\'84\'44x}{\uc0\u1044x}", "ДxДx"),
        (rb"30{\super 2} days, 10\up6 6\up0 5 H{\sub 2}O", "30^2 days, 10^6 5 H_2O"),
        (rb"{\strike 5}{\striked1 6} 7 \strike 8\strike0 9\plain", "[struck out: 56] 7 [struck out: 8]9"),
        (rb"{\f2\'fe\'a8} {\f3\'a3 5} {\f2\u-3842?} {\f5\'b7}", "☑☐ ≤ 5 ☑ •"),
        (rb"{\b one \*\unknown two}{\*\unknown three} four", "one two four"),
        (rb"{\upr{ansi}{\*\ud{\u1044?a}}}\par Next", "Дa\nNext"),
        (rb"{\*\htmltag64 <p>}\htmlrtf {\htmlrtf0 Due.\htmlrtf \par}\htmlrtf0", "Due."),
        (rb"{\listtext\pard\plain 7.2\tab}Late{\*\pn{\pntxtb (}}\par{\pntext (a)\tab}Other", "7.2\tLate\n(a)\tOther"),
        (FIELD % (rb'HYPERLINK "x"', rb"A link"), "A link"),
        (FIELD % (rb"SYMBOL 254 \\f \"Wingdings\"", b""), "☑"),
        (FORM % rb"\fftype1\ffres1" + b"yes" + FORM % rb"\fftype1\ffres0\ffdefres1" + b"no", "☑yes☐no"),
        (FORM % rb"\fftype1\ffres25\ffdefres1", "☑"),
        (FORM % rb"\fftype2\ffres1{\*\ffl monthly}{\*\ffl yearly}", "yearly"),
        (
            rb"Due{\super\chftn{\footnote\pard{\super\chftn} In a note.}} now.\par Next",
            "Due[^1] now.\n[^1] In a note.\nNext",
        ),
        (rb"\trowd\intbl one\par more\cell two\cell\row\pard after", "one more | two\nafter"),
        (
            rb"\trowd\intbl a\cell x\nestcell y\nestcell{\*\nesttableprops\trowd\nestrow}{\nonesttables\par}"
            rb"z\nestcell\nestrow b\cell\row",
            "a | x | y\nz\nb",
        ),
        (SHAPE % rb"{\sp{\sn gtextUNICODE}{\sv DRAFT}}{\sp{\sn x}{\sv 1}}", "DRAFT\nIn a box"),
        (rb"{\mmath{\mf{\mnum a+b}{\mden 12}} x{\msup{\mr 2}}}", "(a+b)/(12) x^2"),
        (rb"a\bin3 }{}b\~c\'ad\-d\_e{\v hidden}", "ab cd-ehidden"),
    ],
)
def test_rtf_is_read_as_it_is_shown(tmp_path: Path, inside: bytes, text: str) -> None:
    (part,) = parts_of(tmp_path, inside)
    assert (part.text, part.status, part.reason) == (text, PartStatus.OK, None)


@pytest.mark.parametrize(
    ("head", "inside", "text"),
    [
        (rb"\ansi\ansicpg1252\deff1", PAYMENT, "Плата"),
        (rb"\ansi\ansicpg1252\deff1", rb"\f0\'fc\plain " + PAYMENT, "üПлата"),
        (rb"\ansi\ansicpg1251\deff0", PAYMENT, "Плата"),
        (rb"\mac\ansicpg10000\uc1", rb"caf\'8e", "café"),
        (rb"\pc", rb"caf\'82", "café"),
        (rb"\ansi\ansicpg99999", rb"caf\'e9", "café"),
        (rb"\ansi\ansicpg65001", rb"caf\'c3\'a9", "café"),
    ],
)
def test_letters_are_read_in_the_code_page_of_their_font_or_file(
    tmp_path: Path, head: bytes, inside: bytes, text: str
) -> None:
    (part,) = parts_of(tmp_path, inside, head=head)
    assert (part.text, part.status) == (text, PartStatus.OK)


def test_texts_beside_the_body_have_parts_of_their_own(tmp_path: Path) -> None:
    comment = rb"{\*\atnid AB}{\*\atnauthor Ann}\chatn {\*\annotation{\*\atndate 12} Why?}"
    margins = rb"{\info{\title Unread}}{\header\pard Above\par}{\footer\pard Below\par}"
    texts = {part.locator: part.text for part in parts_of(tmp_path, margins + b"Body" + comment)}
    assert texts == {"header": "Above", "footer": "Below", "text": "Body", "comments": "[comment by Ann] Why?"}


@pytest.mark.parametrize("inside", [rb"{\deleted 900}{\revised 700}", rb"{\revised 700}", rb"{\mvf 900}700"])
def test_tracked_changes_are_read_as_accepted_and_noted(tmp_path: Path, inside: bytes) -> None:
    (part,) = parts_of(tmp_path, rb"The cap is " + inside)
    assert part.text == "The cap is 700"
    assert part.reason == "tracked changes are read as if all were accepted"


PICTURE = rb"{\pict\pngblip " + planted.picture("x").hex().encode() + b"}"


@pytest.mark.parametrize(
    ("inside", "status", "reason"),
    [
        (rb"{\*\shppict" + PICTURE + rb"}{\nonshppict{\pict\wmetafile8 01}}", "needs_ocr", "a picture"),
        (SHAPE % (rb"{\sp{\sn pib}{\sv " + PICTURE + b"}}"), "needs_ocr", "a picture"),
        (rb"{\pict\wmetafile8 0102}", "needs_ocr", "a picture"),
        (rb"{\pict\pngblip\bin4 }{}x}", "needs_ocr", "a picture"),
        (rb"{\object{\*\objclass X}{\*\objdata 0105}{\result Seen}}", "failed", "an object"),
        (FIELD % (b"LISTNUM", b""), "skipped", "LISTNUM"),
        (FIELD % (rb"EQ \\f(1,2)", b""), "skipped", "EQ"),
        (rb"{\b It is cut", "failed", "its end is missing"),
    ],
)
def test_what_is_not_read_is_named(tmp_path: Path, inside: bytes, status: str, reason: str) -> None:
    text, unread = parts_of(tmp_path, rb"Seen. " + inside)
    assert ("Seen." in text.text, unread.status) == (True, status)
    assert reason in (unread.reason or "")


def test_picture_is_read_by_ocr_if_it_is_asked_for(tmp_path: Path) -> None:
    _, picture = parts_of(tmp_path, PICTURE)
    assert picture.picture == planted.picture("x")


def test_letters_without_a_meaning_are_marked(tmp_path: Path) -> None:
    (part,) = parts_of(tmp_path, rb"Sum: {\f5 S}")
    assert (part.text, "U+FFFD" in (part.reason or "")) == ("Sum: \ufffd", True)
    (part,) = parts_of(tmp_path, rb"{\f4 \'81} 500")
    assert (part.status, "character sets of their fonts" in (part.reason or "")) == (PartStatus.NEEDS_REVIEW, True)


FEATURES = {
    "shown": rb"{\b %s}\par",
    "bold inside": rb"be{\b fore%s\i0}\par",
    "header": rb"{\header\pard %s\par}",
    "note": rb"Due{\super\chftn{\footnote\pard{\super\chftn} %s}} now.\par ",
    "comment": rb"{\*\atnid AB}{\*\atnauthor Ann}\chatn {\*\annotation{\*\atndate 12} %s?}",
    "link": FIELD % (rb'HYPERLINK "http://host/%s"', rb"A link"),
    "form": FORM % rb"\fftype2\ffres0{\*\ffdeftext none}{\*\ffl %s}{\*\ffl yearly}",
    "cell": rb"\trowd\intbl %s\cell two\cell\row\pard ",
    "deleted": rb"keep{\deleted %s}ing\par ",
    "deletion that ends": rb"{keep\deleted %s\deleted0  on}\par ",
    "two alphabets": rb"{\upr{?%s}{\*\ud{\u1044?%s}}}",
    "box": SHAPE.replace(b"In a box", b"%s").replace(b"%s", b"", 1),
    "box of Word 95": rb"{\*\do\dobxpage{\dptxbx{\dptxbxtext\pard %s\par}}}",
    "drawing": SHAPE % rb"{\sp{\sn gtextUNICODE}{\sv %s}}{\sp{\sn wzName}{\sv Box %s}}{\sp{\sn x}{\sv 1}}",
    "index": rb"lease{\xe {%s\:sub}}",
    "symbols": rb"{\f3 %s} 500",
    "other alphabet": rb"{\f1 %s\'cf\'eb}{\f4 \'8c\'5f%s}",
    "picture": rb"{\*\shppict" + PICTURE + rb"}{\nonshppict{\pict\wmetafile8 01}}%s\par",
    "settings": rb"{\*\rsidtbl\rsid1}{\*\generator Writer 1;}{\*\bkmkstart B}{\info{\title T}}%s\par",
    "unknown": rb"{\*\novel %s}",
}
"""RTF with a word in the place of `%s`."""


@pytest.mark.parametrize("seed", range(40))
def test_every_word_of_combined_features_is_read_or_missed(rows_of: RowsOf, seed: int) -> None:
    chosen = random.Random(seed).sample(sorted(FEATURES), 6)
    words = {name: f"word{number}x" for number, name in enumerate(chosen)}
    inside = b" ".join(FEATURES[name].replace(b"%s", word.encode()) for name, word in words.items())
    rows = rows_of("a.rtf", rb"{\rtf1\ansi\ansicpg1252\deff0" + FONTS + inside + b"}")
    text = " ".join(row["text"] or "" for row in rows)
    unshown = {"link", "deleted", "deletion that ends", "index", "symbols", "unknown"}
    assert {name for name, word in words.items() if word in text} == {*chosen} - unshown
    missed = [(row["locator"], row["reason"]) for row in rows if row["status"] == "missed"]
    known = [("novel", f"1 word of it, not in the text: {words['unknown']}")] if "unknown" in words else []
    assert missed == known

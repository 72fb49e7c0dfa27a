"""Sentences of a text as character spans, in any script. What evidence is shown and kept by.

A line of a table or list is a sentence too. Places are code points of the text as it is hashed.
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from memagent_batch.types import Document

SPLIT = 5
"""Raised with each change of where sentences end: evidence is then asked for again where its prompt is another one."""
MAX_SENTENCE_CHARS = 400
"""Longest sentence, characters; longer runs are cut, at white space if there is some."""
WRAPPED_LINE_CHARS = 40
"""A shorter line is an entry of a list, not prose that was broken at a margin."""
MARGIN_CHARS = 160
"""A longer line was not broken at a margin: it is a paragraph."""
FULL_SHARE = 0.75
"""Share of the next line's length that a line has at least, the next word included, if it was broken at a margin."""
WORD_CHARS = 24
"""Characters that are looked at before a full stop: longer words are not abbreviations."""

CLOSERS = "\"'”’»›)\\]}」』】》〉）］"
"""What may stand between the mark that ends a sentence and the space behind it."""
PLAIN_MARKS = ".!?…‽．"
"""Marks that end a sentence where white space follows: they also stand inside numbers, names and addresses."""
SURE_MARKS = "。！？｡；؟۔।॥።፧፨။།༎។៕։\u037e"
"""Marks that end a sentence whatever follows; many of their scripts put no space there."""
LINE_MARKS = f"{PLAIN_MARKS}{SURE_MARKS};:；："
"""A line that ends with one of these is not joined to a line that begins with a capital, a digit or a quote."""
OPENERS = "\"'“‘„«»($€£¥"
"""Beside letters and digits, what a line may begin with that continues the one before."""
BREAK = re.compile(
    rf"[{SURE_MARKS}]+[{CLOSERS}{SURE_MARKS}]*"
    rf"|(?<![{PLAIN_MARKS}])[{PLAIN_MARKS}]++(?:[ \t]++[{PLAIN_MARKS}]++)*[{CLOSERS}]*+(?=\s|$|[{SURE_MARKS}])"
    r"|[\n\r\u2028\u2029\x0b\x0c\x85]\s*+"
)
"""Where a sentence may end: behind a mark, or at a line's end with all white space that follows it. Written so that no
run of marks or spaces is looked at twice."""
DIGIT = re.compile(r"[\d€$£¥%]")
NUMBER_SIGN = re.compile(r"[\d.,'’€$£¥%-]")
CURRENCY_END = re.compile(r"(?:[€$£¥]|\b[A-Z]{3})$")
UNIT_START = re.compile(
    r"[€$£¥%]|(?:[A-Z]{3}|(?:thousand|[mb]illion)\w*|M(?:io|rd)|percent|per cent|euros?|dollars?)\b"
)
JOINERS = "\u200d\ufe0f"
"""Characters that join their neighbours to one sign."""
SPACE = re.compile(r"\s*")
LINE_ENDS = re.compile(r"\r\n|[\n\r\u2028\u2029\x0b\x0c\x85]")
ROW = re.compile(r"\t|\||(?:,\S[^,]{0,40}+){3}|[^\s.!?:] {2,}+\S")
"""What shows that a line is the row of a table."""
BULLET = re.compile(r"(?:[-*+•‣·–—]|\(?\w{1,3}[.)])\s")
"""What a line begins with that is an entry of a list."""
ENTRY = re.compile(r"(?:\d{1,3}\.)+\d{1,3}\s+[^a-z]|[^.:]{1,40}:(?:\s|$)")
"""What a line begins with that is a numbered clause (a number such as 2.5 is followed by a small letter), an entry of a
form, or who spoke."""
NUMBERED = re.compile(r"(?:^|[\n\r])[ \t]*(?:[#§(]\s*)?(?:\d{1,3}\.)*\d{1,3}\.$")
"""The end of a text that is the number of a heading or entry."""
ABBREVIATIONS = (
    " mr mrs ms dr prof st mt hon rev gen col capt lt sgt gov sen rep pres ed eds al vs v cf viz ca approx resp incl "
    "excl ref refs tel attn encl dept univ assn bros e.g i.e a.k.a n.b p.s u.s u.k jan feb mar apr jun jul aug sep "
    "sept oct okt nov dec dez jän janv févr avr juil déc ene abr ago dic bzw z.b d.h u.a str vgl ggf evtl zzgl abzgl "
    "inkl exkl sog gem bzgl hrsg gez geb mio mrd tsd hr fr bgbl az buchst mme mlle m mm mgr réf tél env éd sr sra "
    "srta srs dott ing arch avv dña ud uds ee gral lic ej apdo avda г ул им "
)
"""Words that a full stop shortens and that seldom end a sentence, with spaces between and around them."""
BEFORE_NUMBERS = (
    " no nos nr nrs fig figs eq sec secs sect art arts para paras cl ch chap cap vol p pp pg pt app annex ex exh sched "
    "reg tab abs abb ziff kap tz rn rz lit anl anm bl ff bd al núm núms pág págs párr inc п ст "
)
"""Words that a full stop shortens where a number follows, in digits, as a Roman numeral or with letters: No. A-12."""
NUMERAL = re.compile(r"\(?(?:\d|[IVXLC]{2,}\b|[A-Za-z]{1,4}[-/.]?\d)")
MONTHS = (
    "Jan Januar January Jänner Feb Februar February März Mär March Apr April Mai Jun Juni June Jul Juli July Aug "
    "August Sep Sept September Okt Oktober Oct October Nov November Dez Dezember Dec December"
)
DAY_OF_MONTH = re.compile(rf"(?<!\d)\d{{1,2}}\.\s*(?:{'|'.join(MONTHS.split())})\b")
"""A day as German writes it, with a full stop: 31. Dezember."""
ORDINAL = re.compile(
    r"(?:\b(?:am|im|d(?:er|ie|as|em|en|es)|vom|zum|zur|beim|ab|seit|bis|ein|eine[mnrs]?|jede[mnrs]?)[ \t]\d{1,3}"
    r"|[:;]\s\d{1,2})$",
    re.IGNORECASE,
)
"""The end of a text that is a German ordinal number, or the number of an entry that follows a colon or semicolon."""
ELISION = re.compile(r"^[dlDL]['’]")
"""What French and Italian put before a word."""
BEFORE_COMPANY_FORMS = " co corp inc ltd "
COMPANY_FORM = re.compile(r"Ltd|Inc|LLC|KG|&|\(")
NEXT_LETTERS = re.compile(r"\s?[^\W\d_]{1,2}\.")
LETTERS = re.compile(r"(?:^|[\s(])[^\W\d_]\.\s?[^\W\d_]{1,2}$")
"""The end of a text that is the last of several short words with full stops, such as `z. B` or `p. ej`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentences:
    """The sentences of a text in order. They do not overlap, and all between two of them is white space.

    Both sequences may be views of an Arrow buffer: they are what an actor holds in place of the text.
    """

    starts: Sequence[int] = ()
    ends: Sequence[int] = ()
    """Character after the last one of each."""

    def __len__(self) -> int:
        return len(self.starts)

    def span(self, index: int) -> tuple[int, int]:
        """The characters `[start, end)` of a sentence."""
        return int(self.starts[index]), int(self.ends[index])

    def within(self, char_start: int, char_end: int) -> range:
        """The sentences that have a character in `[char_start, char_end)`."""
        return range(bisect_right(self.ends, char_start), bisect_left(self.starts, char_end))

    def tokens(self, index: int, document: Document) -> tuple[int, int]:
        """The tokens `[start, end)` of a sentence: all that hold a character of it.

        The first and the last one may hold some of its neighbours too, mostly the white space between them.
        """
        char_start, char_end = self.span(index)
        chars = document.token_chars
        last = bisect_right(chars, char_start) - 1  # of the tokens that hold its first character
        return bisect_left(chars, chars[last]) if last >= 0 else 0, bisect_left(chars, char_end)


def split_sentences(text: str, *, max_chars: int = MAX_SENTENCE_CHARS) -> Sentences:
    """The sentences of a text, in time that grows with its length alone."""
    starts: list[int] = []
    ends: list[int] = []
    start = _after_space(text, 0)
    for end in _sentence_ends(text):
        for cut in _cut_places(text, start, end, max_chars=max_chars):
            starts.append(start)
            ends.append(_before_space(text, cut))
            start = _after_space(text, cut)
    return Sentences(starts=starts, ends=ends)


def _sentence_ends(text: str) -> Iterator[int]:
    """Where the sentences end, the last one at the end of the text."""
    last = 0
    line_start = 0
    for mark in BREAK.finditer(text):
        if mark[0].isspace():
            ends = _ends_at_line(text, line_start=line_start, mark=mark)
            line_start = mark.end()
        else:
            ends = mark[0][0] in SURE_MARKS or _ends_at_mark(text, mark)
        if ends:
            last = mark.end()
            yield last
    if last < len(text):
        yield len(text)


def _ends_at_mark(text: str, mark: "re.Match[str]") -> bool:
    after = _after_space(text, mark.end())
    if after < len(text) and text[after].islower():
        return bool(LINE_ENDS.search(text, mark.end(), after)) and mark[0] != "."
    if mark[0] != ".":
        return True
    before = text[max(0, mark.start() - WORD_CHARS) : mark.start()]
    word = "" if before[-1:].isspace() else "".join(before.split()[-1:])
    word = ELISION.sub("", word.lstrip("([\"'“‘«"))
    listed = f" {word.casefold()} "
    if listed in ABBREVIATIONS or (listed in BEFORE_NUMBERS and NUMERAL.match(text, after)):
        return False
    if listed in BEFORE_COMPANY_FORMS and COMPANY_FORM.match(text, after):
        return False
    if _is_initials(word) or LETTERS.search(before) or (len(word) == 1 and NEXT_LETTERS.match(text, mark.end())):
        return False
    if word.isdigit() and (ORDINAL.search(before) or DAY_OF_MONTH.match(text, mark.start() - len(word))):
        return False
    return NUMBERED.search(text[max(0, mark.start() - WORD_CHARS) : mark.end()]) is None


def _is_initials(word: str) -> bool:
    """Tells whether a word is made of initials, such as `J`, `J.R` or `Ph.D`."""
    is_short = "." in word and all(len(part) <= 2 and part.isalpha() for part in word.split("."))
    return is_short or (len(word) == 1 and word.isupper())


def _ends_at_line(text: str, *, line_start: int, mark: "re.Match[str]") -> bool:
    """Whether the end of a line ends a sentence: always, but where prose was broken at a margin."""
    line_end = _before_space(text, mark.start())
    if mark.end() == len(text) or line_end - line_start < WRAPPED_LINE_CHARS or len(LINE_ENDS.findall(mark[0])) > 1:
        return True
    following = text[mark.end() : mark.end() + WORD_CHARS]
    if BULLET.match(following) or ROW.search(text, line_start, line_end):
        return True
    first, last = following[0], text[line_end - 1]
    has_no_case = first.isalpha() and first.lower() == first.upper()
    if first.islower() or (last == "," and first.isalnum()) or (has_no_case and last.isalpha()):
        return False
    return not _is_broken_at_margin(text, line_start=line_start, line_end=line_end, following=mark.end())


def _is_broken_at_margin(text: str, *, line_start: int, line_end: int, following: int) -> bool:
    """Whether a line is continued by the next one, although that does not begin with a small letter.

    It is as long as a line of prose and ends without a mark; the next line is not a heading, an entry or a record.
    """
    if line_end - line_start > MARGIN_CHARS:
        return False
    line, below = text[line_start:line_end].lstrip(), text[following : following + MARGIN_CHARS]
    below = LINE_ENDS.split(below, 1)[0].rstrip()
    first, last = below[0], line.rstrip(CLOSERS.replace("\\", ""))[-1:]
    if not last or last in LINE_MARKS or not (first.isalnum() or first in OPENERS) or ENTRY.match(below):
        return False
    if line.isupper() != below.isupper() or (last.isdigit() and first.isupper()):
        return False  # a heading, or the rows of a table
    above, word = (re.sub(r"\d", "0", each.split(None, 1)[0]) for each in (line, below))
    if above == word:
        return False  # the records of a list
    is_title = first.isupper() and len(below) < WRAPPED_LINE_CHARS and below[-1] not in LINE_MARKS
    return not is_title and len(line) + 1 + len(word) >= FULL_SHARE * len(below)


def _cut_places(text: str, start: int, end: int, *, max_chars: int) -> Iterator[int]:
    """Where a sentence is cut so that no part is longer; its end is the last."""
    last = _before_space(text, end)
    while start < end:
        if last - start <= max_chars:
            yield end
            return
        place = cut_place(text, start, start + max_chars)
        yield place
        start = _after_space(text, place)


def cut_place(text: str, start: int, end: int) -> int:
    """The last good place up to `end` to cut a text at.

    That is between two words without a digit, else between words that are not one number; in the second half of
    `[start, end]` else between words, outside of a number, or where a character with its accents ends.
    """
    places = range(end, (start + end) // 2, -1)
    spaces = [place for place in range(end, start, -1) if text[place].isspace()]
    around = {
        place: (
            "".join(text[max(0, place - WORD_CHARS) : place].split()[-1:]),
            "".join(text[place : place + WORD_CHARS].split()[:1]),
        )
        for place in spaces
    }
    for has_digits in (any, all):
        for place in spaces:
            if not has_digits(DIGIT.search(word) for word in around[place]):
                return place
    whole = [place for place in places if not _is_inside_character(text, place)]
    in_number = (NUMBER_SIGN.match(text[place - 1]) and NUMBER_SIGN.match(text[place]) for place in whole)
    outside = (place for place, is_inside in zip(whole, in_number, strict=True) if not is_inside)
    return next(chain(spaces, outside, whole), end)


def splits_amount(text: str, place: int) -> bool:
    """Whether a number and its currency or unit stand on both sides of a place between two sentences."""
    before, after = text[max(0, place - WORD_CHARS) : place].rstrip(), text[place : place + WORD_CHARS].lstrip()
    if after[:1].isdigit():
        return CURRENCY_END.search(before) is not None
    return before[-1:].isdigit() and UNIT_START.match(after) is not None


def _is_inside_character(text: str, place: int) -> bool:
    """Whether what stands on both sides is one character to a reader."""
    category = unicodedata.category(text[place])
    return category[0] == "M" or text[place] in JOINERS or text[place - 1] in JOINERS


def _after_space(text: str, place: int) -> int:
    found = SPACE.match(text, place)
    return found.end() if found else place


def _before_space(text: str, place: int) -> int:
    while place > 0 and text[place - 1].isspace():
        place -= 1
    return place

"""The text layer of a PDF page, with what its format means: raised digits, struck-out words, hyphens and columns."""

import ctypes
import math
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise, repeat
from typing import Any

import pypdfium2.raw as pdfium

from memagent_batch.data.ingest.readers.marks import CHECKED, UNCHECKED, Run, Script, join_runs
from memagent_batch.data.ingest.readers.pdf_annotations import CheckBox
from memagent_batch.data.ingest.readers.pdf_shapes import Box

HYPHEN = "\ufffe"
"""What PDFium gives for a hyphen at the end of a line behind which a word goes on."""
UNKNOWN = "\ufffd"
COLUMN_MARK = "\x1f"
"""Stands between columns until their lines are put in order."""
SAMPLES = 50
"""Characters whose direction tells how a page is read."""
LETTER_GAPS = 4
"""Gaps between the letters before a space that tell how far its letters stand apart."""
SAME_GAP = 1.2
"""A gap of at most this many times those between letters does not separate words."""
LETTER_SPACING = 0.08
"""Least gap between letters, as a share of their height, that are set apart."""
SLANTED = 0.05
"""Least sine of twice the angle of a line that is neither level nor upright: 1.4 degrees."""
WORD_GAP = 0.1
"""Least gap between words as a share of their height."""
DOUBLED_SHIFT = 0.12
"""Greatest distance, as a share of their height, of two equal letters that are drawn to look bold."""
RAISED_SHARE, SMALL_SHARE = 0.15, 0.9
"""Least rise of a raised character and greatest size of a smaller one, as shares of the height of its neighbour."""
SHORT_NUMBER = 6
"""Characters of a number each of which is compared with its neighbours; of a longer one, the first and last are."""
MIN_RULES = 2
"""Lines across a gap from which it is one between the cells of a table."""
COLUMN_GAP, MIN_COLUMN_LINES, COLUMN_WORDS = 1.5, 4, 3
"""Least gap between columns as a share of the height of a line, their least number of lines, and of words a line."""
MIN_TORN_ROWS, MAX_PIECES = 2, 3000
"""A page needs review if so many rows of a table have their label after their amounts; pages with more pieces of text,
such as maps, are not checked."""
COMPOUND_HEAD = re.compile(
    "all|anti|co|counter|cross|ex|extra|full|half|high|in|inter|intra|large|long|low|mid|multi|non|off|on|one|open|out|"
    "over|post|pre|pro|quasi|right|second|self|semi|short|single|six|so|sub|super|third|three|time|two|up|vice|well|year|"
    "(?:twen|thir|for|fif|six|seven|eigh|nine)ty|four|five|seven|eight|nine|ten|first|[a-z]"
)
"""First parts of words that keep their hyphen, where the page does not tell."""
SUFFIX_LETTERS = 4
"""Longest second part of a broken word that belongs to the first one where only that is a word of its own."""

C1_CONTROL = re.compile(r"[\x80-\x9f]")
BLANK = re.compile(r"\s")
UNREADABLE = re.compile(
    r"(?=\S)[\0-\x1f\ue000-\uf8ff\ufff9-\ufffd\uffff\udb80-\udbff]"
    r"|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]"
)
RIGHT_TO_LEFT = re.compile(r"[\u05d0-\u05ea\u0620-\u064a\u0671-\u06d3\ufb1d-\ufdff\ufe70-\ufefc]{2,}")
"""A word in Hebrew or Arabic letters."""
SPACE_IN_WORD = re.compile(r"(?<=\w) (?=\w(?!\w))")
DOUBLED = re.compile(r"(\S)(?=\1)")
NUMBER = re.compile(r"[^\s\d]?(?:[-\N{MINUS SIGN}+]?\d)+(?:[^\W\d_](?![^\W\d_]))?")
"""Digits with the character before them and a single letter after them, some of which may be raised."""
BROKEN_WORD = re.compile(rf"(\w+){HYPHEN}(\w+)(-?)")
WORD = re.compile(r"[^\W\d_]+")
LABEL, DIGIT = re.compile(r"[^\W\d_]{3,}"), re.compile(r"\d")
AMOUNT_WORDS = 2
"""A cell of a table counts as an amount or a date if it has a digit, and at most so many words."""
LETTERS_TOKEN = re.compile(r"\W{0,3}([^\W\d_]+(?:['’./&-][^\W\d_]+)*)\W{0,3}")
NUMBER_TOKEN = re.compile(r"\W{0,3}[A-Za-z]{0,6}[-/.]?\d[\w.,:/%-]*\W{0,3}")
ONE_LETTER_WORDS = frozenset("aioAIOeyEYàÀ")
VOWEL = re.compile(r"[aeiouyAEIOUY]|[^\x00-\x7f]")
MIN_WORDS, PLAUSIBLE_SHARE = 5, 0.6
"""Words from which a text layer is judged, and the least share of them that must look like words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageText:
    """The text layer of a page."""

    text: str
    num_visible: int
    num_unreadable: int
    """Visible characters without a meaning."""
    longest_unreadable: int
    """Most of them in a row."""
    rects: Sequence[Box]
    """Where text stands."""
    has_mixed_columns: bool
    """Whether lines of several columns, or rows of a table, stand side by side."""
    has_torn_rows: bool
    """Whether rows of a table have words that are read after the amounts to the right of them, and after other rows."""
    has_right_to_left: bool
    """Whether words are written from right to left."""
    covered: str
    """Text under shapes that were drawn over it."""
    unplaced_boxes: Sequence[CheckBox]
    """Check boxes without a text beside them."""
    left_out: Sequence[str]
    """Words as the file has them that `text` writes otherwise."""


class TextReader:
    """Reads the text layer of a page."""

    def __init__(self, page: Any) -> None:
        self._texts, turns = upright_text(page)
        self._has_turned_text, self._is_turned = turns != {0}, turns <= {1, 3}
        self._text = text_of(self._texts)
        self._characters, self._changed = list(self._text), set[int]()
        self._boxes, self._loose_boxes = dict[int, Box](), dict[int, Box]()
        self.rects = [Box(*self._texts.get_rect(index)) for index in range(self._texts.count_rects())]

    def words_in(self, box: Box) -> str:
        """The text that stands in a box."""
        return str(self._texts.get_text_bounded(*box))

    def text_in(self, box: Box) -> str:
        """The text that stands in a box, without white space."""
        return "".join(self.words_in(box.grown(1)).split())

    def read(
        self,
        *,
        check_boxes: Sequence[CheckBox],
        strikes: Sequence[Box],
        rules: Sequence[Box],
        covers: Sequence[tuple[Box, set[int]]],
    ) -> PageText:
        """Reads the text, with marks for check boxes and struck-out words.

        `rules` may be lines between the rows of tables, `covers` are shapes with the addresses of the text objects
        that were drawn before them.
        """
        num_visible, num_unreadable, longest = self._count_unreadable()
        self._join_cut_words()
        self._drop_doubled_letters()
        self._turn_backward_words()
        columns = self._mark_columns(rules)
        scripts = self._scripts()
        struck = self._inside(strikes)
        unplaced = [box for box in check_boxes if not self._place(box)]
        hidden = self._covered(covers)
        covered = "".join(character if index in hidden else " " for index, character in enumerate(self._text))
        text, has_mixed_columns = _ordered_columns(self._joined(scripts, struck), columns)
        text = text.replace("\r\n", "\n").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        text, hyphenated = _without_line_hyphens(text)
        return PageText(
            text=text,
            num_visible=num_visible,
            num_unreadable=num_unreadable,
            longest_unreadable=longest,
            rects=self._tight_rects(),
            has_mixed_columns=has_mixed_columns,
            has_torn_rows=self._has_torn_rows(),
            has_right_to_left=RIGHT_TO_LEFT.search(self._text) is not None,
            covered=" ".join(covered.split()),
            unplaced_boxes=unplaced,
            left_out=[*self._changed_words(), *hyphenated],
        )

    def _tight_rects(self) -> Sequence[Box]:
        """Where text stands. That of a slanted line, which would cover what stands around it, is given by letters."""
        angles = map(pdfium.FPDFText_GetCharAngle, repeat(self._texts.raw), range(len(self._text)))
        if all(abs(math.sin(2 * angle)) < SLANTED for angle in angles):
            return self.rects
        return [self._box(index) for index, character in enumerate(self._text) if not character.isspace()]

    def _changed_words(self) -> list[str]:
        """The words, as PDFium gives them, of which some characters were dropped, parted or joined."""
        words, end = list[str](), -1
        for index in sorted(self._changed):
            if index >= end:
                start = max(self._text.rfind(blank, 0, index) for blank in " \n") + 1
                found = BLANK.search(self._text, index)
                end = found.start() if found else len(self._text)
                words.append(self._text[start:end].replace(HYPHEN, ""))
        return words

    def _box(self, index: int) -> Box:
        if index not in self._boxes:
            self._boxes[index] = Box(*self._texts.get_charbox(index))
        return self._boxes[index]

    def _loose_box(self, index: int) -> Box:
        """The box of a character that is as high as its font, turned so that its line runs from left to right."""
        if index not in self._loose_boxes:
            box = Box(*self._texts.get_charbox(index, loose=True))
            for _ in range(_quarter_turns(self._texts, index) if self._has_turned_text else 0):
                box = Box(box.bottom, -box.right, box.top, -box.left)
            self._loose_boxes[index] = box
        return self._loose_boxes[index]

    def _text_object(self, index: int) -> int:
        """The address of the object that draws a character, in one size and on one line."""
        handle = pdfium.FPDFText_GetTextObject(self._texts, index)
        return ctypes.addressof(handle.contents) if handle else 0

    def _count_unreadable(self) -> tuple[int, int, int]:
        """Counts the visible characters, those without a meaning, and most of these in a row."""
        num_visible = len(self._text) - len(BLANK.findall(self._text))
        errors = list(map(pdfium.FPDFText_HasUnicodeMapError, repeat(self._texts.raw), range(len(self._text))))
        unreadable = {found.start() for found in UNREADABLE.finditer(self._text)}
        if 1 in errors:
            unreadable |= {at for at, error in enumerate(errors) if error == 1 and not self._text[at].isspace()}
        longest = run = 0
        for index in sorted(unreadable):
            run = run + 1 if index - 1 in unreadable else 1
            longest = max(longest, run)
        return num_visible, len(unreadable), longest

    def _join_cut_words(self) -> None:
        """Drops spaces that PDFium puts between letters that stand no farther apart than those before them."""
        for space in SPACE_IN_WORD.finditer(self._text):
            index = space.start()
            if pdfium.FPDFText_IsGenerated(self._texts, index) != 1:
                continue
            gaps = list[float]()
            for left in range(index - 2, max(-1, index - 4 * LETTER_GAPS), -1):
                if self._text[left] == "\n" or len(gaps) == LETTER_GAPS:
                    break
                if self._text[left].isalnum() and self._text[left + 1].isalnum():
                    gaps.append(self._box(left + 1).left - self._box(left).right)
            widest = max(gaps, default=0.0)
            gap = self._box(index + 1).left - self._box(index - 1).right
            if gap <= SAME_GAP * widest and widest > LETTER_SPACING * self._loose_box(index - 1).height:
                self._characters[index] = ""
                self._changed |= {index - 1, index + 1}

    def _drop_doubled_letters(self) -> None:
        for found in DOUBLED.finditer(self._text):
            first, second = (self._loose_box(found.start() + step) for step in (0, 1))
            shift = max(abs(first.left - second.left), abs(first.bottom - second.bottom))
            if 0 < shift < DOUBLED_SHIFT * first.height:  # both letters of a ligature have the same box
                self._characters[found.start() + 1] = ""
                self._changed.add(found.start())

    def _turn_backward_words(self) -> None:
        """Puts letters that are read from right to left in that order, where PDFium gives them from left to right."""
        for word in RIGHT_TO_LEFT.finditer(self._text):
            indexes = range(*word.span())
            across = [self._loose_box(index).center[0] for index in indexes]
            if all(left < right for left, right in pairwise(across)):
                self._characters[word.start() : word.end()] = [self._characters[index] for index in reversed(indexes)]
                self._changed.add(word.start())

    def _mark_columns(self, rules: Sequence[Box]) -> list[tuple[float, float]]:
        """Marks wide gaps in lines, but not those of tables with rules across them; returns where the gaps are."""
        gaps = [
            (left, right)
            for left, right in pairwise(self.rects)
            if right.left - left.right > COLUMN_GAP * (left.top - left.bottom)
            and right.bottom < left.top
            and left.bottom < right.top
            and sum(rule.left < left.right and right.left < rule.right for rule in rules) < MIN_RULES
        ]
        if self._is_turned or len(gaps) < MIN_COLUMN_LINES:
            return []
        lengths = (len(WORD.findall(line)) for line in self._text.splitlines())
        if sum(num_words >= 2 * COLUMN_WORDS for num_words in lengths) < MIN_COLUMN_LINES:
            return []
        marked = dict[int, tuple[float, float]]()
        for left, right in gaps:
            index = pdfium.FPDFText_GetCharIndexAtPos(self._texts, right.left, right.center[1], 2, right.height)
            if index > 0 and self._text[index - 1] == " ":
                marked[index - 1] = (left.right, right.left)
        for index in marked:
            self._characters[index] = COLUMN_MARK
        return [marked[index] for index in sorted(marked)]

    def _has_torn_rows(self) -> bool:
        if self._has_turned_text or len(self.rects) > MAX_PIECES:
            return False
        amounts, num_torn, before = list[tuple[float, float]](), 0, None
        for line in self._lines():
            text = self.words_in(line)
            if before and not _is_beside(before, line) and LABEL.search(text):
                num_torn += any(left >= line.right and line.bottom < middle < line.top for left, middle in amounts)
            if DIGIT.search(text) and len(WORD.findall(text)) <= AMOUNT_WORDS:
                amounts.append((line.left, line.center[1]))
            before = line
        return num_torn >= MIN_TORN_ROWS

    def _lines(self) -> Iterator[Box]:
        """Yields where lines, or the parts of them that are drawn apart, stand in the order in which they are read."""
        line: Box | None = None
        for rect in self.rects:
            if line and not (_is_beside(line, rect) and rect.left >= line.left):
                yield line
                line = None
            line = line.union(rect) if line else rect
        if line:
            yield line

    def _scripts(self) -> dict[int, Script]:
        """Digits that are raised or lowered."""
        scripts = dict[int, Script]()
        for number in NUMBER.finditer(self._text):
            indexes = range(*number.span())
            scripts |= self._mark_on_its_own_line(indexes)
            if self._text_object(indexes[0]) == self._text_object(indexes[-1]):
                continue
            looked_at = indexes if len(indexes) <= SHORT_NUMBER else (indexes[0], indexes[-2], indexes[-1])
            boxes = {index: self._loose_box(index) for index in looked_at}
            usual = max(boxes.values(), key=lambda box: box.height)
            if all(_script(box, usual) is Script.NORMAL for box in boxes.values()):
                continue
            found = {index: _script(self._loose_box(index), usual) for index in indexes}
            scripts |= {index: script for index, script in found.items() if script is not Script.NORMAL}
            self._changed.add(indexes[0])
            self._join_line(indexes[-1] + 1, usual)
        return scripts

    def _mark_on_its_own_line(self, indexes: range) -> dict[int, Script]:
        """Joins a raised number, before which PDFium breaks the line, to the word that it stands at."""
        word = indexes[0] - len("\r\n") - 1
        if word < 0 or self._text[word + 1 : indexes[0]] != "\r\n":
            return {}
        usual, first = self._loose_box(word), self._loose_box(indexes[0])
        script = _script(first, usual)
        is_near = (
            abs(first.left - usual.right) < usual.height / 2 and first.bottom < usual.top < first.top + first.height
        )
        if script is Script.NORMAL or not is_near or first.height >= SMALL_SHARE * usual.height:
            return {}
        self._characters[word + 1] = self._characters[word + 2] = ""
        self._changed |= {word, indexes[0]}
        self._join_line(indexes[-1] + 1, usual)
        return dict.fromkeys(indexes, script)

    def _join_line(self, index: int, usual: Box) -> None:
        """Drops a line break that PDFium makes after a raised character in the middle of a line."""
        after = index + 2
        if self._text[index:after] == "\r\n" and after < len(self._text):
            box = self._loose_box(after)
            if abs(box.bottom - usual.bottom) < 1 and box.left >= usual.left:
                is_apart = box.left - self._loose_box(index - 1).right > WORD_GAP * usual.height
                self._characters[index], self._characters[index + 1] = "", " " if is_apart else ""
                self._changed.add(after)

    def _inside(self, boxes: Sequence[Box]) -> set[int]:
        """Characters whose middle lies in one of the boxes."""
        if not boxes:
            return set()
        return {
            index
            for index, character in enumerate(self._text)
            if not character.isspace() and any(box.holds(self._box(index).center) for box in boxes)
        }

    def _covered(self, covers: Sequence[tuple[Box, set[int]]]) -> set[int]:
        """Characters under shapes that were drawn after them."""
        covered = set[int]()
        for box, earlier in covers:
            handles = {index: pdfium.FPDFText_GetTextObject(self._texts, index) for index in self._inside([box])}
            found = {
                index
                for index, handle in handles.items()
                if handle
                and ctypes.addressof(handle.contents) in earlier
                and pdfium.FPDFTextObj_GetTextRenderMode(handle) != pdfium.FPDF_TEXTRENDERMODE_INVISIBLE
            }
            if any(self._text[index].isalnum() for index in found):  # a field covers the line that it stands on
                covered |= found
        return covered

    def _place(self, box: CheckBox) -> bool:
        """Puts the mark of a check box beside the nearest character of its line; returns whether there is one."""
        across, up = box.box.center
        widths = (1000.0, max(4.0, box.box.height / 2 + 2))
        index = pdfium.FPDFText_GetCharIndexAtPos(
            self._texts, across, up, *(widths[::-1] if self._is_turned else widths)
        )
        while index > 0 and self._text[index].isspace():
            index -= 1
        if index < 0:
            return False
        mark = CHECKED if box.is_checked else UNCHECKED
        is_before = self._box(index).center[self._is_turned] < box.box.center[self._is_turned]
        text = self._characters[index]
        self._characters[index] = f"{text} {mark}" if is_before else f"{mark} {text}"
        return True

    def _joined(self, scripts: dict[int, Script], struck: set[int]) -> str:
        if not scripts and not struck:
            return "".join(self._characters)
        is_struck = [index in struck for index in range(len(self._text))]
        for index, character in enumerate(self._text):  # white space between struck-out words
            if index and character.isspace() and is_struck[index - 1]:
                following = next((at for at in range(index, len(self._text)) if not self._text[at].isspace()), None)
                is_struck[index] = following is not None and following in struck
        runs = (
            Run(character, scripts.get(index, Script.NORMAL), is_struck[index])
            for index, character in enumerate(self._characters)
            if character
        )
        grouped = groupby(runs, key=lambda run: run[1:])
        return join_runs(Run("".join(run.text for run in stretch), *form) for form, stretch in grouped)


def upright_text(page: Any) -> tuple[Any, set[int]]:
    """Loads the text of a page; returns the quarter turns that set its characters upright, too.

    The page is turned so that most of the text reads from left to right: PDFium else reverses its lines.
    """
    texts, rotation = page.get_textpage(), page.get_rotation()
    num_characters = texts.count_chars()
    step = max(1, num_characters // SAMPLES)
    turns = Counter(_quarter_turns(texts, index) for index in range(0, num_characters, step))
    upright = 90 * turns.most_common(1)[0][0] if turns else rotation
    if upright != rotation:
        page.set_rotation(upright)
        texts = page.get_textpage()
        page.set_rotation(rotation)
    return texts, set(turns) or {0}


def _quarter_turns(texts: Any, index: int) -> int:
    """Quarter turns, clockwise, that set a character upright."""
    angle: float = pdfium.FPDFText_GetCharAngle(texts, index)
    return round(-angle / (math.pi / 2)) % 4


def text_of(texts: Any) -> str:
    """The text with one character for each index: U+FFFD for a code that no character has, halves of a surrogate pair.

    A font that gives codes of Windows-1252 instead of Unicode has its characters.
    """
    num_characters = texts.count_chars()
    buffer = (pdfium.c_ushort * (num_characters + 1))()
    num_units = pdfium.FPDFText_GetText(texts, 0, num_characters, buffer)
    text = bytes(buffer).decode("utf-16-le", "replace")[:-1]
    if num_units != num_characters + 1 or len(text) != num_characters or UNKNOWN in text:
        codes = (pdfium.FPDFText_GetUnicode(texts, index) for index in range(num_characters))
        text = "".join(UNKNOWN if code > sys.maxunicode else chr(code) for code in codes)
    return C1_CONTROL.sub(lambda found: found[0].encode("latin-1").decode("cp1252", "replace"), text)


def _is_beside(box: Box, other: Box) -> bool:
    """Whether two boxes stand on one line."""
    return box.common(other).height > min(box.height, other.height) / 2


def _script(box: Box, usual: Box) -> Script:
    rise = (box.bottom - usual.bottom) / max(usual.height, 1.0)
    is_small = box.height < SMALL_SHARE * usual.height
    if rise > RAISED_SHARE:
        return Script.SUPER
    return Script.SUB if is_small and rise < 0 else Script.NORMAL


def _without_line_hyphens(text: str) -> tuple[str, list[str]]:
    """Joins words that were broken at the end of a line; a word that has a hyphen anyway keeps it.

    Returns the letters of those that keep it, too.
    """
    if HYPHEN not in text:
        return text.replace("\N{SOFT HYPHEN}", ""), []
    words = {word.lower() for word in WORD.findall(BROKEN_WORD.sub(" ", text))}
    compounds, hyphenated = set(re.findall(r"\w+-\w+", text.lower())), list[str]()

    def join(word: re.Match[str]) -> str:
        head, tail = word[1].lower(), word[2]
        is_compound = f"{head}-{tail.lower()}" in compounds or COMPOUND_HEAD.fullmatch(head)
        is_pair = head in words and (tail in words or len(tail) > SUFFIX_LETTERS)
        may_join = tail[0].islower() and head.isalpha() and not word[3] and not (is_compound or is_pair)
        if may_join or f"{head}{tail.lower()}" in words:
            return f"{word[1]}{tail}{word[3]}"
        hyphenated.append(f"{word[1]}{tail}")
        return f"{word[1]}-{tail}{word[3]}"

    return BROKEN_WORD.sub(join, text).replace(HYPHEN, "-").replace("\N{SOFT HYPHEN}", ""), hyphenated


def _ordered_columns(text: str, gaps: Sequence[tuple[float, float]]) -> tuple[str, bool]:
    """Puts columns that are drawn line by line one after the other; returns whether some may be rows of a table."""
    if not gaps:
        return text, False
    waiting, lines = iter(gaps), list[tuple[str, tuple[tuple[float, float], ...]]]()
    for line in text.splitlines():
        lines.append((line, tuple(next(waiting, (0.0, 0.0)) for _ in range(line.count(COLUMN_MARK)))))
    ordered, is_mixed, at = list[str](), False, 0
    while at < len(lines):
        num_lines = _num_column_lines([line_gaps for _, line_gaps in lines[at:]])
        block = [line for line, _ in lines[at : at + max(1, num_lines)]]
        columns = list(zip(*(line.split(COLUMN_MARK) for line in block), strict=True))
        if num_lines >= MIN_COLUMN_LINES and all(map(_is_prose, columns)):
            goes_on = all(map(_goes_on, columns))
            is_mixed |= not goes_on
            ordered += [line for column in columns for line in column] if goes_on else block
        else:
            ordered += block
        at += len(block)
    return "\n".join(ordered).replace(COLUMN_MARK, " "), is_mixed


def _num_column_lines(gaps: Sequence[tuple[tuple[float, float], ...]]) -> int:
    """The number of first lines whose gaps stand below one another."""
    shared = list(gaps[0])
    for number, line_gaps in enumerate(gaps):
        if not line_gaps or len(line_gaps) != len(shared):
            return number
        shared = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(shared, line_gaps, strict=True)]
        if any(right - left < 1 for left, right in shared):
            return number
    return len(gaps)


def _is_prose(column: Sequence[str]) -> bool:
    return sum(len(WORD.findall(line)) for line in column) >= COLUMN_WORDS * len(column)


def _goes_on(column: Sequence[str]) -> bool:
    """Tells whether most lines begin in the middle of a sentence."""
    return 2 * sum(line.lstrip()[:1].islower() for line in column[1:]) > len(column) - 1


def is_garbled(text: str) -> bool:
    """Whether hardly anything in a text looks like a word, as in what OCR makes of noise."""
    words = text.split()
    return len(words) >= MIN_WORDS and sum(map(_is_plausible, words)) < PLAUSIBLE_SHARE * len(words)


def _is_plausible(word: str) -> bool:
    if NUMBER_TOKEN.fullmatch(word):
        return True
    letters = LETTERS_TOKEN.fullmatch(word)
    return letters is not None and all(map(_is_like_word, WORD.findall(letters[1])))


def _is_like_word(letters: str) -> bool:
    """Tells whether letters look like a word: all in one case, with a vowel or short enough for an abbreviation."""
    if len(letters) == 1:
        return letters in ONE_LETTER_WORDS or not letters.isascii()
    if not (letters.islower() or letters.isupper() or letters.istitle() or not letters.isascii()):
        return False
    return letters.isupper() or len(letters) == 2 or VOWEL.search(letters) is not None

"""Which words of a file are in none of its parts: the independent count behind every reader.

For each kind of file a module of this package lists all that a file contains, without interpreting it. Readers decide
what a text says and in which order; what they pass over by mistake is found here, and becomes a loss.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

WORD = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uac00-\ud7af\U00020000-\U0003ffff]"
    r"|[^\W_\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uac00-\ud7af"
    r"\U00020000-\U0003ffff]+"
)
"""A word; in scripts that put no space between words, a character."""
BORDER = re.compile(f"[\\W_]|{WORD.pattern.partition('|')[0]}")
"""A character behind which no word goes on."""
SMALL_LETTERS = bytes(ord(chr(byte).lower()) if chr(byte).isalnum() else ord(" ") for byte in range(0x80)) + bytes(
    range(0x80, 0x100)
)
"""What becomes of each byte of UTF-8: small letters and digits stay, other characters of ASCII become a space."""
UNSEEN = re.compile("[\N{SOFT HYPHEN}\u200b\u200c\u200d\u2060\ufeff]")
"""Characters inside words that nobody sees."""
JOINED_WORDS, JOINED_CHARACTERS = 16, 48
"""Most neighbours that are tried as one word, and its longest length: readers join and part words at line ends."""
NAMED_WORDS = 8
"""Missing words that a loss names."""
RECONCILED_WORDS = 100_000
"""Missing words of a file up to which that is tried; of more, most are missing."""
SLICE_CHARACTERS = 1 << 20
"""Characters whose words are in memory at a time."""
SMALL_BYTES = 512
"""Files inside of fewer bytes are pictures of lines and dots, or settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A piece of what a file contains."""

    place: str
    """Where it is, such as `page 3` or `word/footnotes.xml`."""
    text: str = ""
    """Its characters; white space where a word can't go on."""
    file: bytes | None = None
    """A file inside the file, such as a picture or an attachment, in place of `text`."""
    is_member: bool = False
    """Whether it is a file of an archive, with neither text nor `file`: its reader gives it as an attachment that has
    this place as its locator."""
    instead: "Sequence[Content]" = ()
    """With `file`: what it says, which a reader may give in place of the file."""
    unread: Callable[[], str] | None = None
    """Where there are no words, such as in a picture: says what of it is not read, if anything. It is asked only where
    the reader names nothing of `place`."""
    is_alternative: bool = False
    """Whether it says again what other contents say, as the HTML of a message does: it needs no words of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Words of a place, or a file inside, that a reader neither gave nor named."""

    place: str
    words: Sequence[str] = ()
    """Empty where a whole file is missing, or something that has no words."""
    what: str = ""
    """Without `words`: what is missing, for a person."""

    @property
    def reason(self) -> str:
        """What a loss says of it."""
        if not self.words:
            return self.what
        shown = " ".join(self.words[:NAMED_WORDS])
        more = " ..." if len(self.words) > NAMED_WORDS else ""
        noun = "word" if len(self.words) == 1 else "words"
        return f"{len(self.words):,} {noun} of it, not in the text: {shown}{more}"


@dataclass(slots=True)
class Given:
    """All that a reader gave of a file. Fill it with the `add_` methods, then ask for what is `missing`."""

    _texts: list[str] = field(default_factory=list)
    _files: set[bytes] = field(default_factory=set)
    _named: list[str] = field(default_factory=list)
    _locators: Counter[str] = field(default_factory=Counter)
    num_words: int = 0
    """Words that the contents looked at had."""
    num_missing: int = 0

    def add_text(self, text: str) -> None:
        """Takes a text: of a part, or one that the reader left out on purpose."""
        self._texts.append(text)

    def add_file(self, data: bytes, *, locator: str = "") -> None:
        """Takes a file inside: an attachment with its locator, or a picture that OCR may read."""
        self._files.add(sha256(data).digest())
        self._locators[locator] += 1

    def add_name(self, name: str) -> None:
        """Takes what a loss says of something that was not read, so that it is not named twice."""
        self._named.append(name)

    def missing(self, contents: Iterable[Content]) -> Iterator[Missing]:
        """Yields what of the contents the reader neither gave nor named, place by place.

        Words are compared by how often they occur: a word that the reader gives once too often somewhere can stand for
        a missing one elsewhere, a missing sentence can't.
        """
        left = Counter[str]()
        for piece in (piece for text in self._texts for piece in _slices(text)):
            left.update(_pieces(piece))
        _split_pieces(left)
        alternatives = Counter(left)
        found: dict[bool, list[tuple[str, list[tuple[int, str]]]]] = {False: [], True: []}
        for content in self._opened(contents):
            if content.is_member or content.file is not None or content.unread is not None:
                if what := self._what_is_missing(content):
                    yield Missing(place=content.place, what=what)
                continue
            missed = self._missed(content, alternatives if content.is_alternative else left)
            if missed:
                found[content.is_alternative].append((content.place, missed))
        for is_alternative, places in found.items():
            if places:
                yield from self._reconciled(places, alternatives if is_alternative else left)

    def _missed(self, content: Content, left: Counter[str]) -> list[tuple[int, str]]:
        """Returns the words of a content that are not left, with their positions, and takes the others away.

        An alternative takes nothing away from the other contents.
        """
        short = Counter[str]()
        for words in _word_counts(content.text):
            self.num_words += words.total()
            short.update(words if content.is_alternative else _take(words, left))
        if content.is_alternative:
            short = Counter({word: lack for word, number in short.items() if (lack := number - left[word]) > 0})
        return _last_places(content.text, short) if short else []

    def _opened(self, contents: Iterable[Content]) -> Iterator[Content]:
        """Yields what files say in place of those that were not given as files."""
        for content in contents:
            if not content.instead:
                yield content
            elif sha256(content.file or b"").digest() not in self._files:
                yield from self._opened(content.instead)

    def _what_is_missing(self, content: Content) -> str:
        """Says what was neither given nor named of something that has no words, if anything."""
        if content.unread is None:
            return "a file inside, which is not read" if self._is_missing(content) else ""
        begins = (f"{content.place} ", f"{content.place}, ")
        return "" if any(named.startswith(begins) for named in self._named) else content.unread()

    def _is_missing(self, content: Content) -> bool:
        """Returns whether a file inside was neither given nor named."""
        if content.file is None:
            self._locators[content.place] -= 1
            return self._locators[content.place] < 0
        is_given = len(content.file) < SMALL_BYTES or sha256(content.file).digest() in self._files
        name = re.compile(rf"(?<!\w){re.escape(content.place.rpartition('/')[2])}(?!\w)")
        return not is_given and not any(map(name.search, self._named))

    def _reconciled(self, found: Sequence[tuple[str, list[tuple[int, str]]]], left: Counter[str]) -> Iterator[Missing]:
        """Yields what is missing after words that are only joined or parted otherwise in the text."""
        is_tried = sum(len(missed) for _, missed in found) <= RECONCILED_WORDS
        wanted = {joined for _, missed in found for _, _, joined in _joins(missed)} if is_tried else set[str]()
        spare = self._spare_joins(wanted, {word for word, number in left.items() if number > 0})
        for place, missed in found:
            words, start = list[str](), 0
            while start < len(missed):
                end = max(
                    (end for begin, end, joined in _joins(missed, start) if begin == start and spare[joined] > 0),
                    default=None,
                )
                if end is None:
                    words.append(missed[start][1])
                    start += 1
                else:
                    spare["".join(word for _, word in missed[start:end])] -= 1
                    start = end
            if words:
                self.num_missing += len(words)
                yield Missing(place=place, words=words)

    def _spare_joins(self, wanted: set[str], spare: set[str]) -> Counter[str]:
        """Returns how often each wanted word is made by neighbours in the text that no content has asked for.

        Args:
            wanted: the words.
            spare: words of the text that no content has asked for as often as they are there.
        """
        joins = Counter[str]()
        longest = max(map(len, wanted), default=0)
        for words in (words for text in self._texts if wanted and spare for words in word_slices(text)):
            for start in [position for position, word in enumerate(words) if word in spare]:
                joined = ""
                for word in words[start : start + JOINED_WORDS]:
                    joined += word
                    if word not in spare or len(joined) > longest:
                        break
                    if joined in wanted:
                        joins[joined] += 1
        return joins


def word_slices(text: str) -> Iterator[list[str]]:
    """Yields the words of a text, those of some characters at a time."""
    return map(words_of, _slices(text))


def _slices(text: str) -> Iterator[str]:
    """Yields a text in pieces between which no word goes on."""
    start = 0
    while start < len(text):
        end = start + SLICE_CHARACTERS
        border = BORDER.search(text, end, end + SLICE_CHARACTERS)
        end = end + SLICE_CHARACTERS if border is None else border.end()
        yield text[start:end]
        start = end


def words_of(text: str) -> list[str]:
    """Returns the words of a text in one form: without case, compatibility characters and unseen characters."""
    pieces, words, start = _pieces(text), list[str](), 0
    others = {piece: _other_words(piece) for piece in {*pieces} if not piece.isascii()}
    for place in [place for place, piece in enumerate(pieces) if piece in others] if others else ():
        words += pieces[start:place]
        words += others[pieces[place]]
        start = place + 1
    return words + pieces[start:]


def _word_counts(text: str) -> Iterator[Counter[str]]:
    """Yields how often each word stands in a text, for some characters at a time."""
    for piece in _slices(text):
        words = Counter(_pieces(piece))
        _split_pieces(words)
        yield words


def _split_pieces(counts: Counter[str]) -> None:
    """Replaces pieces that are not in ASCII by the words in them."""
    for piece in [piece for piece in counts if not piece.isascii()]:
        number = counts.pop(piece)
        for word in _other_words(piece):
            counts[word] += number


def _pieces(text: str) -> list[str]:
    """Returns words in small letters of ASCII, and whatever stands in one piece with other letters."""
    return text.encode("utf-8", "surrogatepass").translate(SMALL_LETTERS).decode("utf-8", "surrogatepass").split()


def _other_words(piece: str) -> list[str]:
    """Returns the words of a piece of text that is not in ASCII."""
    return WORD.findall(unicodedata.normalize("NFKC", UNSEEN.sub("", piece)).casefold())


def _take(words: Mapping[str, int], left: dict[str, int]) -> dict[str, int]:
    """Takes words away from those that are left; returns how often each of them is not there."""
    lacking = dict[str, int]()
    for word, number in words.items():
        rest = left.get(word, 0) - number
        left[word] = rest
        if rest < 0:
            lacking[word], left[word] = -rest, 0
    return lacking


def _last_places(text: str, words: Counter[str]) -> list[tuple[int, str]]:
    """Returns words in order as often as they are counted, with the positions of the last of them in the text.

    Positions are counted from the end of the text, and negative.
    """
    wanted, num_wanted, places, end = dict(words), words.total(), list[tuple[int, str]](), 0
    for piece in reversed([*_slices(text)]):
        there = words_of(piece)
        for place, word in reversed([(place, word) for place, word in enumerate(there) if word in wanted]):
            if wanted[word] > 0:
                wanted[word] -= 1
                places.append((end - len(there) + place, word))
        end -= len(there)
        if len(places) == num_wanted:
            break
    return places[::-1]


def _joins(missed: Sequence[tuple[int, str]], start: int = 0) -> Iterator[tuple[int, int, str]]:
    """Yields neighbours among the missing words as one word: from, to, and the word."""
    for begin in range(start, len(missed) if start == 0 else start + 1):
        joined = ""
        for end in range(begin, min(begin + JOINED_WORDS, len(missed))):
            if missed[end][0] != missed[begin][0] + end - begin:
                break
            joined += missed[end][1]
            if len(joined) > JOINED_CHARACTERS:
                break
            yield begin, end + 1, joined

"""Which words of a file are in none of its parts: the independent count behind every reader.

For each kind of file a module of this package lists all that a file contains, without interpreting it. Readers decide
what a text says and in which order; what they pass over by mistake is found here, and becomes a loss.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
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
ASCII_WORD = re.compile("[a-z0-9]+")
"""The same, in small letters of ASCII: twice as fast."""
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
        left = Counter(self._words())
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

    def _words(self) -> Iterator[str]:
        """Yields the words of all texts."""
        return (word for text in self._texts for words in word_slices(text) for word in words)

    def _missed(self, content: Content, left: Counter[str]) -> list[tuple[int, str]]:
        """Returns the words of a content that are not left, with their positions, and takes the others away."""
        have = left
        if content.is_alternative:  # it takes nothing away from the other contents
            names = {word for words in word_slices(content.text) for word in words}
            have = Counter({word: left[word] for word in names})
        missed = list[tuple[int, str]]()
        start = 0
        for words in word_slices(content.text):
            missed += [(start + position, word) for position, word in _take(words, have)]
            start += len(words)
        self.num_words += start
        return missed

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
        spare = self._spare_joins(wanted, +left)
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

    def _spare_joins(self, wanted: set[str], spare: Counter[str]) -> Counter[str]:
        """Returns how often each wanted word is made by neighbours in the text that no content has asked for."""
        joins = Counter[str]()
        longest = max(map(len, wanted), default=0)
        for words in (words for text in self._texts if wanted for words in word_slices(text)):
            for start, first in enumerate(words):
                if not spare[first]:
                    continue
                joined = ""
                for word in words[start : start + JOINED_WORDS]:
                    joined += word
                    if not spare[word] or len(joined) > longest:
                        break
                    joins[joined] += joined in wanted
        return joins


def word_slices(text: str) -> Iterator[list[str]]:
    """Yields the words of a text, those of some characters at a time."""
    start = 0
    while start < len(text):
        end = start + SLICE_CHARACTERS
        border = BORDER.search(text, end, end + SLICE_CHARACTERS)
        end = end + SLICE_CHARACTERS if border is None else border.end()
        yield words_of(text[start:end])
        start = end


def words_of(text: str) -> list[str]:
    """Returns the words of a text in one form: without case, compatibility characters and unseen characters."""
    if text.isascii():
        return ASCII_WORD.findall(text.casefold())
    return WORD.findall(unicodedata.normalize("NFKC", UNSEEN.sub("", text)).casefold())


def _take(words: Sequence[str], left: Counter[str]) -> list[tuple[int, str]]:
    """Takes words away from those that are left; returns the others with their positions."""
    wanted = Counter(words)
    short = Counter({word: number - left[word] for word, number in wanted.items() if number > left[word]})
    left.subtract(wanted)
    if not short:
        return []
    missed = list[tuple[int, str]]()
    for position in range(len(words) - 1, -1, -1):
        word = words[position]
        if short[word] > 0:
            short[word] -= 1
            left[word] += 1
            missed.append((position, word))
    return missed[::-1]


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

"""Turns bodies of mail into plain text, and finds the phrases that two forms of a message share."""

import re
import unicodedata
from itertools import pairwise

IGNORED = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff_]")
"""Characters inside words that nobody sees, and the marks of emphasis in plain text."""
PLACEHOLDER = re.compile(r"\[(?:cid|image)\b[^\]]{0,200}\]|\[\d{1,3}\]|<?mailto:\S+", re.I)
URL = re.compile(r"<?\b(?:https?://|www\.)[^\s<>\"]+>?", re.I)
LIST_MARK = re.compile(r"^[ \t>]*(?:[-*+\u2022\u00b7\u25aa\u25cf\u25e6\u2013o]|\(?(?:\d{1,3}|[a-z])[.)])[ \t]+", re.M)
WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"  # characters of languages without blanks between words
    r"|(?<!\w)[-+\u2212]?\d(?:[\d.,:/-]*\d)?|\d+|[^\W\d]+|[$\u00a2-\u00a5\u20a0-\u20bf%\u00a7]"
    r"|[\u2190-\u2bff\U0001f300-\U0001faff]"
)
"""Words, numbers with their signs, currencies, and pictures such as ticks."""
ARMOUR = re.compile(r"(-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|\Z))", re.S)
BASE64 = re.compile(
    r"(?<![^\s:;,])(?:(?>[A-Za-z0-9+/]{60,})\s+){2,}[A-Za-z0-9+/]*={0,2}(?!\S)"
    r"|(?<![^\s:;,])(?>[A-Za-z0-9+/]{300,})={0,2}(?!\S)"
    r"|\A\s*(?:(?>[A-Za-z0-9+/]{60,})\s+)*(?>[A-Za-z0-9+/]{40,})={0,2}\s*\Z"
)
"""Lines of base64: several long ones, a very long one, or nothing else in the text."""
MIXED = re.compile(r"(?=.*[A-Z])(?=.*[g-z])(?=.*[0-9+/])", re.S)
"""What base64 has and numbers in hexadecimal digits, or words, lack."""


def find_phrases(text: str) -> set[tuple[str, ...]]:
    """Returns the words of a text, the pairs of neighbouring words, and its addresses (URLs).

    Two texts with the same phrases say the same to a reader, whatever their marks of lists and emphasis, blanks, line
    ends and placeholders of links and pictures are.
    """
    text = PLACEHOLDER.sub(" ", IGNORED.sub("", unicodedata.normalize("NFKC", text)).casefold())
    urls = {(re.sub(r"^(?:https?://)?(?:www\.)?", "", url.strip("<>")).rstrip("/.,;:)"),) for url in URL.findall(text)}
    words = WORD.findall(LIST_MARK.sub(" ", URL.sub(" ", text)))
    return urls | {(word,) for word in words} | set(pairwise(words))


def remove_base64(text: str) -> tuple[str, bool]:
    """Removes lines of base64, but not those of keys and signatures; returns the rest, and whether there were any."""
    pieces = ARMOUR.split(text)
    kept = [piece if position % 2 else BASE64.sub(_keep_digits, piece) for position, piece in enumerate(pieces)]
    shorter = "".join(kept)
    return shorter, len(shorter) < len(text)


def _keep_digits(lines: re.Match[str]) -> str:
    return "" if MIXED.match(lines[0]) else lines[0]


def unwrap_flowed(text: str, *, joins_words: bool) -> str:
    """Joins the lines of paragraphs (RFC 3676).

    Args:
        text: text whose lines end with a blank where the next one continues them.
        joins_words: whether that blank is not a part of the text (`DelSp`).
    """
    paragraphs, open_depth = list[list[str]](), -1
    for line in text.split("\n"):
        depth = len(line) - len(line.lstrip(">"))
        content = line[depth:].removeprefix(" ")
        is_open = content.endswith(" ") and content != "-- "
        shown = content[:-1] if is_open and joins_words else content
        if depth == open_depth and content != "-- ":
            paragraphs[-1].append(shown)
        else:
            paragraphs.append([">" * depth, " " if depth else "", shown])
        open_depth = depth if is_open else -1
    return "\n".join("".join(paragraph) for paragraph in paragraphs)


def unmark_enriched(text: str) -> str:
    """Removes the marks of text/enriched and text/richtext."""
    text = re.sub(r"<param>[^<]*</param>|<comment>[^<]*</comment>", "", text, flags=re.I)
    text = re.sub(r"<nl>", "\n", text.replace("<<", "\0"), flags=re.I)
    text = re.sub(r"<lt>", "\0", text, flags=re.I)
    return re.sub(r"</?[A-Za-z][\w-]*>", "", text).replace("\0", "<")


def unfold_calendar(text: str) -> str:
    """Joins the lines of properties of a calendar or an address card, and shows the characters that they escape."""
    text = re.sub(r"\n[ \t]", "", text)
    escapes = {"n": "\n", "N": "\n"}
    return re.sub(r"\\([nN,;\\])", lambda escape: escapes.get(escape[1], escape[1]), text)

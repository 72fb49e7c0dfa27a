"""DOCX: a part for each section with its notes, then what belongs to it."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from memagent_batch.data.ingest.readers.converter import Attachment, BuiltIn, Part, PartStatus
from memagent_batch.data.ingest.readers.docx_fields import fill_in_controls, resolve_fields
from memagent_batch.data.ingest.readers.docx_numbers import Numbering, W, formatted
from memagent_batch.data.ingest.readers.equations import OFF
from memagent_batch.data.ingest.readers.office import related_items, related_text
from memagent_batch.data.ingest.readers.packages import PackagePart, open_main_part
from memagent_batch.data.ingest.readers.paragraphs import Styles, TextReader, shown_elements
from memagent_batch.data.ingest.readers.symbols import symbol_note
from memagent_batch.data.ingest.readers.text import section_parts

TRACKED = (f"{W}ins", f"{W}del", f"{W}moveFrom", f"{W}moveTo", f"{W}cellIns", f"{W}cellDel")
TRACKED_CHANGES = "tracked changes are read as if all were accepted"
STORIES = frozenset({"header", "footer", "footnotes", "endnotes", "comments"})
"""Parts with paragraphs of the document, beside its body."""
NOTE_FORMATS = {"footnote": "decimal", "endnote": "lowerRoman"}
"""How Word numbers notes where the document does not say."""
ANCHOR_CHARACTERS = 200
"""Longest text that a comment quotes as what it is about."""


class DocxConverter(BuiltIn):
    """Text in content controls, text boxes and insertions is taken, what forms are filled in with, and Word's numbers.

    Notes follow the paragraph or table that they belong to. What a tracked change deleted, or moved elsewhere, is left
    out, and the part says so.
    """

    package, revision, modules = "lxml", 9, ("lxml.etree",)

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """Yields a part for each section of the body, then one for each header, footer and list of comments.

        Raises:
            ConversionError: the package is damaged, unpacks to too much, or declares entities.
        """
        with open_main_part(file, kind="a DOCX") as main:
            document = WordDocument(main)
            is_tracked = document.has_tracked_changes
            for part in section_parts(document.blocks(), separator="\n\n"):
                yield replace(part, reason=text_note(part.text, is_tracked=is_tracked))
                is_tracked = False
            yield from related_items(main, read=document.read_part)
            if document.lost_fields:
                fields = ", ".join(f"{name} ({count})" for name, count in document.lost_fields.items())
                reason = (
                    f"fields without a saved result, such as numbers of clauses, are not read: {fields}; save it as PDF"
                )
                yield Part(locator="fields", status=PartStatus.SKIPPED, reason=reason)


class WordDocument:
    """The body of a document, and the parts with further paragraphs of it."""

    def __init__(self, part: PackagePart) -> None:
        """Takes the main part of the package."""
        self._part = part
        self.lost_fields = Counter[str]()
        """Fields whose results are not in the file, by name."""
        self._styles = [style for each in part.related("styles") for style in each.root.iterfind(f"{W}style")]
        self._lists = [element for each in part.related("numbering") for element in each.root]
        self._reader = TextReader(Styles(self._styles))
        self._body = next(part.root.iter(f"{W}body"), part.root)
        self._prepare(self._body)
        self._anchors = _comment_anchors(self._body)
        self._notes = {kind: self._note_elements(kind) for kind in NOTE_FORMATS}
        for kind in NOTE_FORMATS:
            self._number_notes(kind)
        notes = [note for elements in self._notes.values() for note in elements.values()]
        self.has_tracked_changes = any(_is_tracked(root) for root in (self._body, *notes))

    def blocks(self) -> Iterator[tuple[str | None, str]]:
        """Yields the paragraphs and tables of the body, each with its notes; a heading with its title."""
        for title, text, block in self._reader.located_blocks(self._body):
            yield title, text
            for mark in shown_elements(block, *(f"{W}{kind}Reference" for kind in NOTE_FORMATS)):
                kind = mark.tag.removeprefix(W).removesuffix("Reference")
                note = self._notes[kind].pop(mark.get(f"{W}id"), None)
                if note is not None:
                    yield None, f"{mark.get('label')} {self._story_text(note).strip()}"

    def read_part(self, part: PackagePart, kind: str) -> tuple[str, str | None]:
        """Returns the text of a part beside the body, and what to know of it."""
        if kind not in STORIES:
            return related_text(part, kind)
        root = part.root
        if kind in ("footnotes", "endnotes"):  # those that stand in the body are taken from here
            notes = list(self._notes[kind.removesuffix("s")].values())
            text = "\n\n".join(map(self._story_text, notes))
            return text, text_note(text, is_tracked=any(map(_is_tracked, notes)))
        self._prepare(root)
        if kind == "comments":
            text = "\n\n".join(map(self._comment, root.iterfind(f"{W}comment")))
        else:
            text = self._story_text(root, separator="\n\n")
        return text, text_note(text, is_tracked=_is_tracked(root))

    def _prepare(self, root: Any) -> None:
        """Writes into a story what Word shows in it: numbers, results of fields, and states of controls."""
        fill_in_controls(root, self._reader.styles)
        self.lost_fields += resolve_fields(root)
        Numbering(self._lists, self._styles).write(root)

    def _story_text(self, root: Any, separator: str = "\n") -> str:
        return separator.join(text for _, text in self._reader.headed_blocks(root))

    def _note_elements(self, kind: str) -> dict[str, Any]:
        """Returns the notes of a kind, by id, without the lines that separate them from the text."""
        notes = dict[str, Any]()
        for part in self._part.related(f"{kind}s"):
            self._prepare(part.root)
            for number, note in enumerate(part.root.iterfind(f"{W}{kind}")):
                if note.get(f"{W}type", "normal") == "normal":
                    notes[note.get(f"{W}id", f"unnumbered {number}")] = note
        return notes

    def _number_notes(self, kind: str) -> None:
        """Writes the label of each note of a kind beside the mark that refers to it."""
        settings = [each.root.find(f"{W}{kind}Pr") for each in self._part.related("settings")]
        properties = next((each for each in settings if each is not None), None)
        number_format, start = (
            _value(None if properties is None else properties.find(f"{W}{name}"), default)
            for name, default in (("numFmt", NOTE_FORMATS[kind]), ("numStart", "1"))
        )
        number = int(start) if start.isdecimal() else 1
        for mark in shown_elements(self._body, f"{W}{kind}Reference"):
            if mark.get(f"{W}customMarkFollows", "0") not in OFF:
                custom = [text for text in mark.itersiblings(f"{W}t", f"{W}sym") if text.text]
                label = "".join(text.text for text in custom).strip() or "*"
                for text in custom:
                    text.text = ""
            else:
                label = formatted(number, number_format)
                number += 1
            mark.set("label", f"[^{label}]")

    def _comment(self, comment: Any) -> str:
        """Returns a comment with its author, its date and the text that it is about."""
        author, date = (comment.get(f"{W}{name}", "").strip() for name in ("author", "date"))
        anchor = " ".join(self._anchors.get(comment.get(f"{W}id"), "").split())
        shown = anchor if len(anchor) <= ANCHOR_CHARACTERS else f"{anchor[:ANCHOR_CHARACTERS]}\N{HORIZONTAL ELLIPSIS}"
        about = f"[comment{' by ' if author else ''}{author}{', ' if author and date else ''}{date[:10]}"
        about += f' on "{shown}"]' if shown else "]"
        return f"{about} {self._story_text(comment).strip()}"


def _comment_anchors(body: Any) -> dict[str, str]:
    """Returns the text that each comment is about, by its id."""
    anchors, open_ids = dict[str, list[str]](), set[str]()
    if next(body.iter(f"{W}commentRangeStart"), None) is None:
        return {}
    tags = (f"{W}commentRangeStart", f"{W}commentRangeEnd", f"{W}t", f"{W}tab", f"{W}p")
    for element in shown_elements(body, *tags):
        if element.tag == f"{W}commentRangeStart":
            open_ids.add(element.get(f"{W}id", ""))
        elif element.tag == f"{W}commentRangeEnd":
            open_ids.discard(element.get(f"{W}id", ""))
        else:
            for comment in open_ids:
                anchors.setdefault(comment, []).append(element.text or " " if element.tag == f"{W}t" else " ")
    return {comment: "".join(texts) for comment, texts in anchors.items()}


def text_note(text: str, *, is_tracked: bool) -> str | None:
    """Returns what to know of a text."""
    return "; ".join(filter(None, (TRACKED_CHANGES if is_tracked else None, symbol_note(text)))) or None


def _is_tracked(root: Any) -> bool:
    return next(root.iter(*TRACKED), None) is not None


def _value(element: Any, default: str) -> str:
    return default if element is None else str(element.get(f"{W}val", default))

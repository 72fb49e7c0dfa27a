"""DOCX: a part for each section with its notes, then what belongs to it."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from memagent_batch.data.ingest.readers.bound_controls import BoundData
from memagent_batch.data.ingest.readers.converter import Attachment, BuiltIn, Part, PartStatus
from memagent_batch.data.ingest.readers.equations import OFF
from memagent_batch.data.ingest.readers.marks import CHECKED, UNCHECKED
from memagent_batch.data.ingest.readers.numbering import Numbering, W, formatted
from memagent_batch.data.ingest.readers.packages import PackagePart, open_main_part, related_items, related_text
from memagent_batch.data.ingest.readers.paragraphs import (
    Styles,
    TextReader,
    left_out_text,
    shown_elements,
    written_text,
)
from memagent_batch.data.ingest.readers.symbols import symbol_note
from memagent_batch.data.ingest.readers.text import section_parts

TRACKED = (f"{W}ins", f"{W}del", f"{W}moveFrom", f"{W}moveTo", f"{W}cellIns", f"{W}cellDel")
TRACKED_CHANGES = "tracked changes are read as if all were accepted"
HIDDEN_TEXT = "text with the format hidden, which Word does not show, is read too"
STORIES = frozenset({"header", "footer", "footnotes", "endnotes", "comments"})
"""Parts with paragraphs of the document, beside its body."""
NOTE_FORMATS = {"footnote": "decimal", "endnote": "lowerRoman"}
"""How Word numbers notes where the document does not say."""
ANCHOR_CHARACTERS = 200
"""Longest text that a comment quotes as what it is about."""

COUNTED_FIELDS = frozenset({"LISTNUM", "AUTONUM", "AUTONUMLGL", "AUTONUMOUT", "EQ"})
"""Fields that Word computes whenever it shows them, and whose results it does not save."""
SAVED_FIELDS = frozenset({"REF", "NOTEREF", "STYLEREF", "SEQ", "DOCPROPERTY", "DOCVARIABLE", "MERGEFIELD", "IF", "="})
SAVED_FIELDS |= {"QUOTE", "INCLUDETEXT", "FILLIN", "DATABASE", "BARCODE", "DISPLAYBARCODE", "MERGEBARCODE", "FORMULA"}
"""Fields that show a text, and whose results Word saves."""
SYMBOL_FIELD = re.compile(r"SYMBOL\s+(?:0[xX](?P<hex>[0-9a-fA-F]+)|(?P<decimal>\d+))", re.I)
FONT_SWITCH = re.compile(r'\\f\s+(?:"(?P<quoted>[^"]+)"|(?P<word>\S+))', re.I)
NOT_FILLED_IN = "[not filled in]"
PLACEHOLDER_STYLE = "placeholder text"


class DocxConverter(BuiltIn):
    """Text in content controls, text boxes and insertions is taken, what forms are filled in with, and Word's numbers.

    Notes follow the paragraph or table that they belong to. What a tracked change deleted, or moved elsewhere, is left
    out, and the part says so.
    """

    package, revision, modules = "lxml", 13, ("lxml.etree",)

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """Yields a part for each section of the body, then one for each header, footer and list of comments."""
        with open_main_part(file, kind="a DOCX") as main:
            document = WordDocument(main)
            is_tracked, is_hidden = document.has_tracked_changes, document.has_hidden_text
            for part in section_parts(document.blocks(), separator="\n\n"):
                yield replace(part, reason=text_note(part.text, is_tracked=is_tracked, is_hidden=is_hidden))
                is_tracked = is_hidden = False
            yield from related_items(main, read=document.read_part)
            if left_out := "\n".join(filter(None, document.left_out)):
                yield Part(left_out=left_out)
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
        self._data = BoundData(part)
        self.lost_fields = Counter[str]()
        """Fields whose results are not in the file, by name."""
        self.left_out = list[str]()
        """What was deleted, codes of fields, prompts, and other words that are shown otherwise or not at all."""
        self._styles = [style for each in part.related("styles") for style in each.root.iterfind(f"{W}style")]
        self._lists = [element for each in part.related("numbering") for element in each.root]
        self._reader = TextReader(Styles(self._styles))
        self._reader.left_out = self.left_out
        self._body = part.root
        self._prepare(self._body)
        self._anchors = _comment_anchors(self._body)
        self._notes = {kind: self._note_elements(kind) for kind in NOTE_FORMATS}
        for kind in NOTE_FORMATS:
            self._number_notes(kind)
        notes = [note for elements in self._notes.values() for note in elements.values()]
        self.has_tracked_changes = any(_is_tracked(root) for root in (self._body, *notes))
        self.has_hidden_text = any(_has_hidden(root) for root in (self._body, *notes))

    def blocks(self) -> Iterator[tuple[str | None, str]]:
        """Yields the paragraphs and tables of the body, each with its notes; a heading with its title."""
        for title, text, block in self._reader.located_blocks(self._body):
            yield title, text
            for mark in shown_elements(block, *(f"{W}{kind}Reference" for kind in NOTE_FORMATS)):
                kind = mark.tag.removeprefix(W).removesuffix("Reference")
                note = self._notes[kind].pop(mark.get(f"{W}id"), None)
                if note is not None:
                    yield None, f"{mark.get('label')} {self._story_text(note).strip()}"

    def read_part(self, part: PackagePart, kind: str) -> Part:
        """Reads a part beside the body."""
        if kind == "glossaryDocument":
            return Part(left_out=written_text(part.root))
        if kind not in STORIES:
            return related_text(part, kind)
        root = part.root
        if kind in ("footnotes", "endnotes"):  # those that stand in the body are taken from here
            notes = list(self._notes[kind.removesuffix("s")].values())
            text = "\n\n".join(map(self._story_text, notes))
            is_tracked, is_hidden = any(map(_is_tracked, notes)), any(map(_has_hidden, notes))
            return Part(text=text, reason=text_note(text, is_tracked=is_tracked, is_hidden=is_hidden))
        self._prepare(root)
        if kind == "comments":
            text = "\n\n".join(map(self._comment, root.iterfind(f"{W}comment")))
        else:
            text = self._story_text(root, separator="\n\n")
        return Part(text=text, reason=text_note(text, is_tracked=_is_tracked(root), is_hidden=_has_hidden(root)))

    def _prepare(self, root: Any) -> None:
        """Writes into a story what Word shows in it: numbers, results of fields, and states of controls."""
        self.left_out.append(left_out_text(root))
        self.left_out += _fill_in_controls(root, self._reader.styles, self._data)
        self.lost_fields += _resolve_fields(root, self.left_out)
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
                else:
                    self.left_out.append(written_text(note))
        return notes

    def _number_notes(self, kind: str) -> None:
        """Writes the label of each note of a kind beside the mark that refers to it."""
        settings = [each.root.find(f"{W}{kind}Pr") for each in self._part.related("settings")]
        values = {each.tag: each.get(f"{W}val") for element in settings if element is not None for each in element}
        number_format, start = values.get(f"{W}numFmt", NOTE_FORMATS[kind]), values.get(f"{W}numStart", "1")
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


def text_note(text: str, *, is_tracked: bool, is_hidden: bool = False) -> str | None:
    """Returns what to know of a text."""
    notes = TRACKED_CHANGES if is_tracked else None, HIDDEN_TEXT if is_hidden else None, symbol_note(text)
    return "; ".join(filter(None, notes)) or None


def _is_tracked(root: Any) -> bool:
    return next(root.iter(*TRACKED), None) is not None


def _has_hidden(root: Any) -> bool:
    """Whether some text has the format `hidden` itself. Text that is hidden by its style is not found."""
    marks = (mark for mark in root.iter(f"{W}vanish") if mark.get(f"{W}val", "1") not in OFF)
    runs = (mark.getparent().getparent() for mark in marks)
    return any(run is not None and run.tag == f"{W}r" and written_text(run).strip() for run in runs)


@dataclass(slots=True)
class Field:
    """A field whose end has not been reached."""

    code: str = ""
    has_separator: bool = False
    has_result: bool = False
    inner_results: list[Any] = field(default_factory=list)
    """Texts inside the code: results of other fields, which are not shown."""


def _resolve_fields(root: Any, left_out: list[str]) -> Counter[str]:
    """Hides what stands inside the codes of fields, and writes symbols.

    Returns the number of fields without a result, by name; adds what is hidden to `left_out`.
    """
    lost, fields = Counter[str](), list[Field]()
    borders = (f"{W}fldChar", f"{W}fldSimple")
    if next(root.iter(*borders), None) is None:
        return lost
    for element in shown_elements(root, *borders, f"{W}instrText", f"{W}t"):
        name = str(element.tag).removeprefix(W)
        if name == "fldSimple":
            simple = Field(
                code=element.get(f"{W}instr", ""), has_result=any(each.text for each in element.iter(f"{W}t"))
            )
            lost += _unsaved(simple)
        elif name == "fldChar":
            lost += _pass_border(element, fields, left_out)
        elif name == "instrText" and fields and not fields[-1].has_separator:
            fields[-1].code += element.text or ""
        elif name == "t" and element.text:
            _pass_text(element, fields)
    return lost


def _pass_text(text: Any, fields: list[Field]) -> None:
    """Counts a text as a result of the fields around it, or as a part of the code of one of them."""
    around = next((each for each in reversed(fields) if not each.has_separator), None)
    if around is not None:
        around.inner_results.append(text)
    for each in fields:
        each.has_result |= each.has_separator and bool(text.text.strip())


def _pass_border(border: Any, fields: list[Field], left_out: list[str]) -> Counter[str]:
    """Opens or closes a field at its border, `w:fldChar`; returns its name if it has no result."""
    kind = border.get(f"{W}fldCharType")
    if kind == "begin":
        fields.append(Field())
    elif kind == "separate" and fields:
        fields[-1].has_separator = True
    elif kind == "end" and fields:
        closed = fields.pop()
        for text in closed.inner_results:
            left_out.append(text.text)
            text.text = ""
        is_inside_code = any(not each.has_separator for each in fields)
        return Counter() if is_inside_code or _write_symbol(closed, border) else _unsaved(closed)
    return Counter()


def _unsaved(closed: Field) -> Counter[str]:
    name = (closed.code.split() or [""])[0].upper()
    is_lost = name in COUNTED_FIELDS or (name in SAVED_FIELDS and not closed.has_separator)
    return Counter([name] if is_lost and not closed.has_result else [])


def _write_symbol(closed: Field, border: Any) -> bool:
    """Writes the character of a SYMBOL field, which has no result; tells whether the field is one."""
    symbol, font = SYMBOL_FIELD.match(closed.code.strip()), FONT_SWITCH.search(closed.code)
    if symbol is None or closed.has_result:
        return False
    code = int(symbol["hex"], 16) if symbol["hex"] else int(symbol["decimal"])
    name = "" if font is None else font["quoted"] or font["word"]
    border.addprevious(border.makeelement(f"{W}sym", {f"{W}char": f"{code:X}", f"{W}font": name}))
    return True


def _fill_in_controls(root: Any, styles: Styles, data: BoundData) -> Iterator[str]:
    """Writes states of check boxes and bound data, and marks what nobody filled in; yields what the controls held."""
    for control in list(root.iter(f"{W}sdt")):
        properties, content = control.find(f"{W}sdtPr"), control.find(f"{W}sdtContent")
        if properties is None or content is None:
            continue
        box, placeholder = properties.find("{*}checkbox"), properties.find(f"{W}showingPlcHdr")
        if box is not None:
            state = box.find("{*}checked")
            values = [] if state is None else [value for name, value in state.items() if name.endswith("}val")]
            yield _write_content(content, UNCHECKED if state is None or (values or ["1"])[0] in OFF else CHECKED)
            continue
        has_inner = next(content.iter(f"{W}sdt"), None) is not None
        bound = None if has_inner else data.shown(properties, written_text(content))
        if bound:
            yield _write_content(content, bound)
        elif placeholder is not None and placeholder.get(f"{W}val", "1") not in OFF:
            yield from _mark_placeholder(content, styles)
        elif bound == "":
            yield _write_content(content, NOT_FILLED_IN)


def _mark_placeholder(content: Any, styles: Styles) -> Iterator[str]:
    """Marks the text that a control shows as long as nobody filled it in; yields it.

    A text in another style may be one that a program put there, and is kept.
    """
    texts = [text for text in content.iter(f"{W}t") if text.text and text.text.strip()]
    if not texts or next(content.iter(f"{W}sdt"), None) is not None:
        return
    shown = "".join(text.text for text in texts)
    marks = (text.getparent().find(f"{W}rPr/{W}rStyle") for text in texts)
    names = {"" if mark is None else styles.name(mark.get(f"{W}val")) or mark.get(f"{W}val") for mark in marks}
    is_prompt = all(name.lower().replace("text", " text").split() == PLACEHOLDER_STYLE.split() for name in names)
    yield _write_content(content, NOT_FILLED_IN if is_prompt else f"[placeholder: {shown}]")


def _write_content(content: Any, text: str) -> str:
    """Replaces what a control holds by a text; returns what it held."""
    held = written_text(content)
    old = list(content.iter(f"{W}t", f"{W}sym"))
    for element in old[1:]:
        element.getparent().remove(element)
    shown = content.makeelement(f"{W}t")
    shown.text = text
    if old:
        old[0].getparent().replace(old[0], shown)
    else:
        (next(content.iter(f"{W}r", f"{W}p"), content)).append(shown)
    return held

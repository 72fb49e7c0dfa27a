"""Fields and content controls of Word: what they show, and which of them the file has no result of."""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from memagent_batch.data.ingest.readers.docx_numbers import W
from memagent_batch.data.ingest.readers.equations import OFF
from memagent_batch.data.ingest.readers.marks import CHECKED, UNCHECKED
from memagent_batch.data.ingest.readers.paragraphs import Styles, shown_elements

COUNTED_FIELDS = frozenset({"LISTNUM", "AUTONUM", "AUTONUMLGL", "AUTONUMOUT", "EQ"})
"""Fields that Word computes whenever it shows them, and whose results it does not save."""
SAVED_FIELDS = frozenset({"REF", "NOTEREF", "STYLEREF", "SEQ", "DOCPROPERTY", "DOCVARIABLE", "MERGEFIELD", "IF", "="})
SAVED_FIELDS |= {"QUOTE", "INCLUDETEXT", "FILLIN", "DATABASE", "BARCODE", "DISPLAYBARCODE", "MERGEBARCODE", "FORMULA"}
"""Fields that show a text, and whose results Word saves."""
SYMBOL_FIELD = re.compile(r"SYMBOL\s+(?:0[xX](?P<hex>[0-9a-fA-F]+)|(?P<decimal>\d+))", re.I)
FONT_SWITCH = re.compile(r'\\f\s+(?:"(?P<quoted>[^"]+)"|(?P<word>\S+))', re.I)
NOT_FILLED_IN = "[not filled in]"
PLACEHOLDER_STYLE = "placeholder text"


@dataclass(slots=True)
class Field:
    """A field whose end has not been reached."""

    code: str = ""
    has_separator: bool = False
    has_result: bool = False
    inner_results: list[Any] = field(default_factory=list)
    """Texts inside the code: results of other fields, which are not shown."""


def resolve_fields(root: Any) -> Counter[str]:
    """Hides what stands inside the codes of fields, and writes symbols.

    Returns the number of fields without a result, by name.
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
            lost += _pass_border(element, fields)
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


def _pass_border(border: Any, fields: list[Field]) -> Counter[str]:
    """Opens or closes a field at its border, `w:fldChar`; returns its name if it has no result."""
    kind = border.get(f"{W}fldCharType")
    if kind == "begin":
        fields.append(Field())
    elif kind == "separate" and fields:
        fields[-1].has_separator = True
    elif kind == "end" and fields:
        closed = fields.pop()
        for text in closed.inner_results:
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


def fill_in_controls(root: Any, styles: Styles) -> None:
    """Writes the states of check boxes, and marks the controls that nobody filled in."""
    for control in list(root.iter(f"{W}sdt")):
        properties, content = control.find(f"{W}sdtPr"), control.find(f"{W}sdtContent")
        if properties is None or content is None:
            continue
        box, placeholder = properties.find("{*}checkbox"), properties.find(f"{W}showingPlcHdr")
        if box is not None:
            state = box.find("{*}checked")
            values = [] if state is None else [value for name, value in state.items() if name.endswith("}val")]
            _write_content(content, UNCHECKED if state is None or (values or ["1"])[0] in OFF else CHECKED)
        elif placeholder is not None and placeholder.get(f"{W}val", "1") not in OFF:
            _mark_placeholder(content, styles)


def _mark_placeholder(content: Any, styles: Styles) -> None:
    """Marks the text that a control shows as long as nobody filled it in.

    A text in another style may be one that a program put there, and is kept.
    """
    texts = [text for text in content.iter(f"{W}t") if text.text and text.text.strip()]
    if not texts or next(content.iter(f"{W}sdt"), None) is not None:
        return
    shown = "".join(text.text for text in texts)
    marks = (text.getparent().find(f"{W}rPr/{W}rStyle") for text in texts)
    names = {"" if mark is None else styles.name(mark.get(f"{W}val")) or mark.get(f"{W}val") for mark in marks}
    is_prompt = all(name.lower().replace("text", " text").split() == PLACEHOLDER_STYLE.split() for name in names)
    _write_content(content, NOT_FILLED_IN if is_prompt else f"[placeholder: {shown}]")


def _write_content(content: Any, text: str) -> None:
    """Replaces what a control holds by a text."""
    old = list(content.iter(f"{W}t", f"{W}sym"))
    for element in old[1:]:
        element.getparent().remove(element)
    shown = content.makeelement(f"{W}t")
    shown.text = text
    if old:
        old[0].getparent().replace(old[0], shown)
    else:
        (next(content.iter(f"{W}r", f"{W}p"), content)).append(shown)

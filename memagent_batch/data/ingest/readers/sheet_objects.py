"""What a sheet shows beside its cells: comments, hints, controls of forms, drawings, pictures and files."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from memagent_batch.data.ingest.readers.converter import Attachment, Part
from memagent_batch.data.ingest.readers.marks import CHECKED, UNCHECKED
from memagent_batch.data.ingest.readers.packages import DAMAGE, RELATION, PackagePart, related_items

OFFICE = "{urn:schemas-microsoft-com:office:office}"
SHAPE_NUMBER = re.compile(r"_s(\d+)$")
"""In the name of a shape, `_x0000_s1025`."""
ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")
"""A character that XML does not allow, in texts of workbooks: `_x000D_`."""
INVISIBLE = dict.fromkeys((*range(9), *range(14, 28), 127))
THREAD_AUTHOR = "tc="
"""Beginning of the author of a comment that repeats a thread, for programs that know no threads."""
NO_CONTROLS = frozenset({"note", "pict"})
"""Kinds of shapes that are read elsewhere: comments, and pictures of files and controls."""
TRUE = frozenset({"1", "true"})
CHOICES = re.compile(r'"([^"]*)"')
"""Of a list in a rule for input; without quotes they stand in cells."""
RULE_MESSAGES = (("prompt", "showInputMessage", ""), ("error", "showErrorMessage", ", if something else is written"))
"""Texts of a rule for input: the attribute that has them, the one that shows them, and what is said before them."""
LIMITED = {"whole": "a whole number", "decimal": "a number", "textLength": "a text with a number of characters"}
LIMITS = {
    "between": "from {} to {}",
    "notBetween": "not from {} to {}",
    "equal": "equal to {}",
    "notEqual": "other than {}",
    "greaterThan": "greater than {}",
    "lessThan": "less than {}",
    "greaterThanOrEqual": "of at least {}",
    "lessThanOrEqual": "of at most {}",
}
"""What a rule for input demands, by its type and operator."""
UNDECIDED = frozenset({"Mixed", "2"})

CellLookup = Callable[[str, int], str | None]
"""Finds the text of a cell by a range, such as `Prices!$A$1:$A$9`, and its row there, from 0; None if it can't."""


@dataclass(slots=True, kw_only=True)
class Control:
    """A check box, a list or another control of a form."""

    name: str = ""
    caption: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    """By names in small letters: `objecttype`, `checked`, `sel`, `val`, `fmlarange`."""
    choices: list[str] = field(default_factory=list)


def sheet_objects(
    sheet: PackagePart,
    root: Any,
    *,
    comments: list[str],
    lookup: CellLookup,
    place: str,
    number: str,
    seen: set[str],
) -> Iterator[Part | Attachment]:
    """Yields the parts and files beside the cells of a sheet.

    Args:
        sheet: the part of the sheet.
        root: its XML without the rows; None if it is damaged.
        comments: the lines of `comment_lines`.
        lookup: finds what a list has as its choices.
        place: stands before the locators.
        number: stands before the numbers of files.
        seen: names of parts that were read; those that are read here are added.
    """
    drawings = [(part, part.root) for part in sheet.related("vmlDrawing")]
    controls = _controls(sheet, root, [shapes for _, shapes in drawings])
    repeated = _caption_controls(controls, sheet)
    rules, unshown = ([], []) if root is None else _input_rules(root)
    texts = {
        "comments": comments,
        "tooltips of links": [] if root is None else list(_tooltips(root)),
        "rules for input": rules,
        "controls": [line for control in controls.values() if (line := _control_line(control, lookup))],
    }
    for name, lines in texts.items():
        if lines:
            yield Part(locator=f"{place}{name}", text="\n".join(lines))
    seen.update(part.partname for part in sheet.related("comments", "threadedComment", "vmlDrawing"))
    for preview in _previews(sheet, root, drawings):
        seen.add(preview.partname)
        yield Part(picture=preview.blob)
    said = (part.root.iter("{*}author", "{*}text") for part in sheet.related("comments"))
    if left_out := "\n".join(
        [*repeated, *unshown, *("".join(each.itertext()) for elements in said for each in elements)]
    ):
        yield Part(left_out=left_out)
    for position, (part, _) in enumerate(drawings, start=1):
        yield from related_items(part, place=place, number=f"{number}0-{position}-", seen=seen)
    yield from related_items(sheet, place=place, number=number, seen=seen)


def people_of(book: PackagePart) -> dict[str, str]:
    """Returns the names of those who wrote in threads of comments, by their ids."""
    people = (person for part in book.related("person") for person in part.root.iter("{*}person"))
    return {person.get("id", ""): person.get("displayName", "") for person in people}


def commented_cells(sheet: PackagePart) -> frozenset[str]:
    """Returns the places of the cells with comments; none if the comments are damaged, which their own part says."""
    parts = sheet.related("comments", "threadedComment")
    with suppress(*DAMAGE):
        comments = [each for part in parts for each in part.root.iter("{*}comment", "{*}threadedComment")]
        return frozenset(each.get("ref", "") for each in comments)
    return frozenset()


def normalise(text: str | None) -> str:
    """Returns a text in one line, with the characters that are escaped in workbooks."""
    text = text or ""
    if "_x" in text:
        text = ESCAPED.sub(lambda code: chr(int(code[1], 16)), text)
        text = text.translate(INVISIBLE).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return " ".join(text.split())


def _comments(sheet: PackagePart, people: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yields the cell, author and text of each comment on a cell, and of each reply to one."""
    for part in sheet.related("threadedComment"):
        for each in part.root.iter("{*}threadedComment"):
            date = each.get("dT", "").partition("T")[0]
            state = "resolved" if each.get("done") in {"1", "true"} else ""
            author = ", ".join(filter(None, (people.get(each.get("personId", ""), ""), date, state)))
            yield each.get("ref", ""), author, normalise(each.findtext("{*}text"))
    has_threads = bool(sheet.related("threadedComment"))
    for part in sheet.related("comments"):
        root = part.root
        authors = [normalise(author.text) for author in root.iter("{*}author")]
        for each in root.iter("{*}comment"):
            index = each.get("authorId", "")
            author = authors[int(index)] if index.isdecimal() and int(index) < len(authors) else ""
            if not (has_threads and author.startswith(THREAD_AUTHOR)):
                text = "".join(piece.text or "" for piece in each.iterfind("{*}text//{*}t"))
                yield each.get("ref", ""), author, normalise(text)


def comment_lines(sheet: PackagePart, people: Mapping[str, str], cells: Mapping[str, str]) -> Iterator[str]:
    """Yields the comments of a sheet, each with its cell: `B2 (12.5 %), Ann Lee: Is this final?`."""
    for cell, author, text in _comments(sheet, people):
        value = f" ({cells[cell]})" if cell in cells else ""
        is_named = not author or text.startswith(f"{author}:")
        yield f"{cell}{value}{'' if is_named else f', {author}'}: {text}"


def _tooltips(root: Any) -> Iterator[str]:
    """Yields what Excel shows where somebody points at a cell with a link: `B2: See annex 3`."""
    for each in root.iter("{*}hyperlink"):
        if tooltip := normalise(each.get("tooltip")):
            yield f"{each.get('ref', '')}: {tooltip}"


def _input_rules(root: Any) -> tuple[list[str], list[str]]:
    """Returns what Excel shows where something is to be written: hints, choices and errors; and what it does not."""
    lines, left_out = list[str](), list[str]()
    for rule in root.iter("{*}dataValidation"):
        cells = rule.get("sqref") or rule.findtext("{*}sqref") or ""
        limits = ["".join(each.itertext()) for each in rule.iterchildren("{*}formula1", "{*}formula2")]
        choices = CHOICES.fullmatch(limits[0].strip()) if rule.get("type") == "list" and limits else None
        if choices:
            lines.append(f"{cells}, one of: {', '.join(map(normalise, choices[1].split(',')))}")
        elif limits and rule.get("type") in LIMITED and (limit := LIMITS.get(rule.get("operator", "between"))):
            lines.append(f"{cells}, {LIMITED[rule.get('type')]} {limit.format(*limits, '', '')}")
        else:
            left_out += limits
        for name, switch, about in RULE_MESSAGES:
            text = ": ".join(filter(None, (normalise(rule.get(f"{name}{part}")) for part in ("Title", ""))))
            if rule.get(switch) in TRUE:
                lines += [f"{cells}{about}: {text}"] if text else []
            else:
                left_out.append(text)
    return lines, left_out


def _controls(sheet: PackagePart, root: Any, drawings: list[Any]) -> dict[str, Control]:
    """Returns the controls of a sheet by the numbers of their shapes."""
    controls = dict[str, Control]()
    for shape, data in _shapes(drawings):
        settings = {child.tag.rpartition("}")[2].lower(): (child.text or "").strip() for child in data}
        settings["objecttype"] = data.get("ObjectType", "")
        if settings["objecttype"].lower() not in NO_CONTROLS:
            box = next(shape.iter("{*}textbox"), None)
            caption = "" if box is None else normalise(" ".join(box.itertext()))
            controls[_shape_number(shape)] = Control(caption=caption, settings=settings)
    for each in () if root is None else root.iter("{*}control"):
        relation = sheet.rels.get(each.get(RELATION, ""))
        if relation is not None and relation.kind == "ctrlProp" and relation.part is not None:
            control = controls.setdefault(each.get("shapeId", ""), Control())
            properties = relation.part.root
            control.name = each.get("name", "")
            control.settings |= {name.lower(): value for name, value in properties.attrib.items()}
            control.choices = [normalise(item.get("val")) for item in properties.iter("{*}item")]
    return controls


def _shapes(drawings: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Yields the shapes of drawings in VML that say what they are, with the element that does."""
    for drawing in drawings:
        for data in drawing.iter("{*}ClientData"):
            if data.getparent() is not None:
                yield data.getparent(), data


def _shape_number(shape: Any) -> str:
    found = SHAPE_NUMBER.search(shape.get(f"{OFFICE}spid") or shape.get("id", ""))
    return found[1] if found else shape.get("id", "")


def _caption_controls(controls: Mapping[str, Control], sheet: PackagePart) -> list[str]:
    """Moves captions of controls from the drawing to the controls: it shows them without their state.

    Returns those that controls have already.
    """
    repeated = list[str]()
    for drawing in sheet.related("drawing") if controls else ():
        root = drawing.root
        for shape in list(root.iter("{*}sp")):
            found = [SHAPE_NUMBER.search(each.get("spid", "")) for each in shape.iter("{*}compatExt")]
            control = controls.get(found[0][1]) if found and found[0] else None
            if control is not None:
                caption = normalise(" ".join(shape.itertext("{*}t")))
                repeated.append(caption if control.caption else "")
                control.caption = control.caption or caption
                shape.getparent().remove(shape)
    return repeated


def _control_line(control: Control, lookup: CellLookup) -> str:
    """Returns the caption of a control and what is checked, chosen or set; empty if it shows no words."""
    settings = control.settings
    kind, name = settings.get("objecttype", "").lower(), control.caption or control.name
    if kind in {"checkbox", "radio"}:
        state = settings.get("checked", "")
        box = CHECKED if state in {"Checked", "1"} else UNCHECKED
        return f"{box} {name}{' (neither checked nor unchecked)' if state in UNDECIDED else ''}".rstrip()
    if kind in {"drop", "list"}:
        return f"{name}: {_chosen(control, lookup)}"
    if kind in {"spin", "scroll"}:
        return f"{name}: {settings.get('val', '0')}"
    return control.caption


def _chosen(control: Control, lookup: CellLookup) -> str:
    """Returns what is chosen in a list, or its number there."""
    settings, texts = control.settings, list[str]()
    area = settings.get("fmlarange", "")
    for number in (settings.get("multisel") or settings.get("sel") or "").split(","):
        if not number.strip().isdecimal() or number.strip() == "0":
            continue
        row = int(number) - 1
        text = control.choices[row] if row < len(control.choices) else lookup(area, row)
        texts.append(text or f"number {row + 1} of {area or 'the list'}")
    return ", ".join(texts) or "nothing is chosen"


def _previews(sheet: PackagePart, root: Any, drawings: list[tuple[PackagePart, Any]]) -> Iterator[PackagePart]:
    """Yields the pictures that show a file or control of the package, which is read itself."""
    if root is None:
        return
    objects = [each for each in root.iter("{*}oleObject", "{*}control") if each.get(RELATION) in sheet.rels]
    numbers = {each.get("shapeId") for each in objects if sheet.rels[each.get(RELATION)].part is not None}
    shown = [(sheet, child.get(RELATION)) for each in objects for child in each.iter("{*}objectPr", "{*}controlPr")]
    for drawing, shapes in drawings:
        pictures = [shape for shape, _ in _shapes([shapes]) if _shape_number(shape) in numbers]
        shown += [(drawing, image.get(f"{OFFICE}relid")) for each in pictures for image in each.iter("{*}imagedata")]
    for part, relation_id in shown:
        relation = part.rels.get(relation_id or "")
        if relation is not None and relation.part is not None:
            yield relation.part

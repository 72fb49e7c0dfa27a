"""PPTX: a part for each slide, then what belongs to it."""

from collections.abc import Iterator
from pathlib import Path

from memagent_batch.data.ingest.readers.converter import Attachment, BuiltIn, Part, PartStatus
from memagent_batch.data.ingest.readers.numbering import number_slide
from memagent_batch.data.ingest.readers.packages import (
    RELATION,
    PackagePart,
    open_main_part,
    related_items,
    related_text,
)
from memagent_batch.data.ingest.readers.paragraphs import TextReader, left_out_text
from memagent_batch.data.ingest.readers.symbols import symbol_note


class SlidesConverter(BuiltIn):
    """Slides in the order of the show, hidden ones too; shapes in the order in which they are drawn."""

    package, revision, modules = "lxml", 8, ("lxml.etree",)

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """Yields a part for each slide, and for each text beside it."""
        with open_main_part(file, kind="a PPTX") as show:
            yield from _slides(show)


def _slides(show: PackagePart) -> Iterator[Part | Attachment]:
    seen = set[str]()
    roots = (part.root for part in show.related("commentAuthors", "authors"))
    authors = {each.get("id", ""): each.get("name", "") for root in roots for each in root.iterchildren("*")}

    def read(part: PackagePart, kind: str) -> Part:
        return _slide_comments(part, authors) if kind == "comments" else related_text(part, kind)

    for number, entry in enumerate(show.root.iter("{*}sldId"), start=1):
        relation, place = show.rels.get(entry.get(RELATION)), f"slide {number}"
        slide = None if relation is None else relation.part
        if slide is None:
            yield Part(locator=place, status=PartStatus.FAILED, reason="the file lacks this slide; is it whole?")
            continue
        seen.add(slide.partname)
        reader = TextReader()
        number_slide(slide.root)
        text = "\n\n".join(text for _, text in reader.headed_blocks(slide.root))
        left_out = "\n".join([*reader.left_out, left_out_text(slide.root)])
        yield Part(locator=place, text=text, reason=symbol_note(text), left_out=left_out)
        yield from related_items(slide, place=f"{place}, ", number=f"{number}-", seen=seen, read=read)
    yield from related_items(show, number="0-", seen=seen, read=read)


def _slide_comments(part: PackagePart, authors: dict[str, str]) -> Part:
    """Reads the comments of a slide and the replies to them, a paragraph each, with their authors and dates."""
    reader, texts = TextReader(), list[str]()
    for comment in part.root.iter("{*}cm", "{*}reply"):
        bodies = comment.iterfind("{*}txBody")
        lines = [text for body in bodies for _, text in reader.headed_blocks(body)]
        lines += [line.text for line in comment.iterfind("{*}text") if line.text]
        date = (comment.get("dt") or comment.get("created") or "")[:10]
        about = ", ".join(filter(None, (authors.get(comment.get("authorId", "")), date)))
        texts.append(f"[comment{' by ' if about else ''}{about}] " + "\n".join(lines))
    text = "\n\n".join(texts)
    return Part(text=text, reason=symbol_note(text), left_out="\n".join(reader.left_out))

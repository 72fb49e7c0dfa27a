"""PPTX by python-docx: a part for each slide, then what belongs to it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memagent_batch.data.ingest.readers.converter import Attachment, BuiltIn, Part, PartStatus
from memagent_batch.data.ingest.readers.office import (
    RELATION,
    main_part,
    parts_of_kind,
    related_items,
    related_text,
    root_of,
)
from memagent_batch.data.ingest.readers.paragraphs import TextReader
from memagent_batch.data.ingest.readers.symbols import symbol_note


class SlidesConverter(BuiltIn):
    """Slides in the order of the show, hidden ones too; shapes in the order in which they are drawn."""

    package, revision, modules = "python-docx", 3, ("docx",)

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """Yields a part for each slide, and for each text beside it.

        Raises:
            ConversionError: the package is damaged, unpacks to too much, or declares entities.
        """
        show, reader, seen = main_part(file, kind="a PPTX"), TextReader(), set[str]()
        authors = comment_authors(show)
        for number, entry in enumerate(root_of(show).iter("{*}sldId"), start=1):
            relation, place = show.rels.get(entry.get(RELATION)), f"slide {number}"
            if relation is None or relation.is_external:
                yield Part(locator=place, status=PartStatus.FAILED, reason="the file lacks this slide; is it whole?")
                continue
            slide = relation.target_part
            seen.add(slide.partname)
            text = "\n\n".join(text for _, text in reader.headed_blocks(root_of(slide)))
            yield Part(locator=place, text=text, reason=symbol_note(text))

            def read(part: Any, kind: str) -> tuple[str, str | None]:
                return slide_comments(part, authors) if kind == "comments" else related_text(part, kind)

            yield from related_items(slide, place=f"{place}, ", number=f"{number}-", seen=seen, read=read)


def comment_authors(show: Any) -> dict[str, str]:
    """Returns the names of those who wrote comments, by id."""
    roots = map(root_of, parts_of_kind(show, "commentAuthors", "authors"))
    return {each.get("id", ""): each.get("name", "") for root in roots for each in root.iterchildren("*")}


def slide_comments(part: Any, authors: dict[str, str]) -> tuple[str, str | None]:
    """Returns the comments of a slide and the replies to them, a paragraph each, with their authors and dates."""
    reader, texts = TextReader(), list[str]()
    for comment in root_of(part).iter("{*}cm", "{*}reply"):
        bodies = comment.iterfind("{*}txBody")
        lines = [text for body in bodies for _, text in reader.headed_blocks(body)]
        lines += [line.text for line in comment.iterfind("{*}text") if line.text]
        date = (comment.get("dt") or comment.get("created") or "")[:10]
        about = ", ".join(filter(None, (authors.get(comment.get("authorId", "")), date)))
        texts.append(f"[comment{' by ' if about else ''}{about}] " + "\n".join(lines))
    text = "\n\n".join(texts)
    return text, symbol_note(text)

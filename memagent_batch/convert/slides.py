"""PPTX by python-docx's reader of packages: a part for each slide, then its notes, charts, pictures and files."""

from collections.abc import Iterator
from pathlib import Path

from memagent_batch.convert.converter import Attachment, BuiltIn, Part
from memagent_batch.convert.docx import headed_blocks, main_part, related_items, root_of

RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"


class SlidesConverter(BuiltIn):
    """Slides in the order of the show, hidden ones too; shapes in the order in which they are drawn."""

    package, own, modules = "python-docx", 2, ("docx",)

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """A part for each slide, and for each text beside it."""
        show = main_part(file, kind="a PPTX")
        seen = set[str]()
        for number, entry in enumerate(root_of(show).iter("{*}sldId"), start=1):
            slide, place = show.related_parts[entry.get(RELATION)], f"slide {number}"
            seen.add(slide.partname)
            yield Part(locator=place, text="\n\n".join(text for _, text in headed_blocks(root_of(slide))))
            yield from related_items(slide, place=f"{place}, ", number=f"{number}-", seen=seen)

"""Numbers that Word makes for paragraphs."""

from pathlib import Path

import pytest

from memagent_batch.data.ingest.readers.converter import Part
from memagent_batch.data.ingest.readers.docx import DocxConverter
from memagent_batch.data.ingest.readers.numbering import formatted
from tests.convert import files

NAMESPACES = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
CLAUSES = ("%1.", "%1.%2", "(%3)", "(%4)")
FORMATS = ("decimal", "decimal", "lowerLetter", "lowerRoman")


def level(index: int, text: str, number_format: str = "decimal", more: str = "") -> str:
    return (
        f'<w:lvl w:ilvl="{index}"><w:start w:val="1"/><w:numFmt w:val="{number_format}"/>{more}'
        f'<w:lvlText w:val="{text}"/></w:lvl>'
    )


def numbered(text: str, *, index: int | None = None, num: int | None = None, style: str = "", more: str = "") -> str:
    place = "" if index is None else f'<w:ilvl w:val="{index}"/>'
    place += "" if num is None else f'<w:numId w:val="{num}"/>'
    named = f'<w:pStyle w:val="{style}"/>' if style else ""
    return f"<w:p><w:pPr>{named}<w:numPr>{place}</w:numPr>{more}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


def lines(tmp_path: Path, body: str, *, levels: str, nums: str, styles: str = "") -> list[str]:
    """What a document with these lists is read as."""
    lists = f'<w:abstractNum w:abstractNumId="5">{levels}</w:abstractNum>{nums}'
    members = {"word/numbering.xml": f"<w:numbering {NAMESPACES}>{lists}</w:numbering>".encode()}
    if styles:
        members["word/styles.xml"] = f"<w:styles {NAMESPACES}>{styles}</w:styles>".encode()
    file = tmp_path / "a.docx"
    file.write_bytes(files.repacked(files.with_body(body), members))
    parts = [part for part in DocxConverter().convert(file) if isinstance(part, Part) and not part.is_account]
    return [line for part in parts for line in part.text.split("\n\n")]


def num(num_id: int, more: str = "") -> str:
    return f'<w:num w:numId="{num_id}"><w:abstractNumId w:val="5"/>{more}</w:num>'


def test_clauses_have_the_numbers_that_word_shows(tmp_path: Path) -> None:
    levels = "".join(level(index, text, FORMATS[index]) for index, text in enumerate(CLAUSES))
    indexes = (0, 1, 1, 2, 2, 3, 1, 2, 0, 1)
    body = "".join(numbered("x", index=index, num=1) for index in indexes)
    shown = ["1.", "1.1", "1.2", "(a)", "(b)", "(i)", "1.3", "(a)", "2.", "2.1"]
    assert lines(tmp_path, body, levels=levels, nums=num(1)) == [f"{number} x" for number in shown]


def test_lists_count_on_together_unless_one_begins_again(tmp_path: Path) -> None:
    again = '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="7"/></w:lvlOverride>'
    body = "".join(numbered("x", index=0, num=each) for each in (1, 2, 3, 3, 1))
    shown = lines(tmp_path, body, levels=level(0, "%1)"), nums=num(1) + num(2) + num(3, again))
    assert shown == ["1) x", "2) x", "7) x", "8) x", "9) x"]


def test_styles_number_headings_and_a_paragraph_may_have_none(tmp_path: Path) -> None:
    heading = '<w:style w:type="paragraph" w:styleId="{0}"><w:name w:val="{1}"/>{2}</w:style>'
    place = '<w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr>'
    styles = heading.format("Clause", "heading 1", place) + heading.format("Sub", "sub", '<w:basedOn w:val="Clause"/>')
    levels = level(0, "Article %1", "upperRoman", '<w:pStyle w:val="Clause"/>')
    levels += level(1, "%1.%2", "decimal", '<w:pStyle w:val="Sub"/><w:isLgl/>')
    body = "".join(
        f'<w:p><w:pPr><w:pStyle w:val="{style}"/></w:pPr><w:r><w:t>x</w:t></w:r></w:p>' for style in ("Clause", "Sub")
    )
    body += numbered("none", num=0, style="Clause") + numbered("x", style="Clause")
    shown = lines(tmp_path, body, levels=levels, nums=num(1), styles=styles)
    assert shown == ["Article I x", "1.1 x", "none", "Article II x"]


@pytest.mark.parametrize(
    ("more", "shown"),
    [
        ("", ["1 a", "1.1 b", "2 c", "2.1 d"]),
        ('<w:lvlRestart w:val="0"/>', ["1 a", "1.1 b", "2 c", "2.2 d"]),
        ('<w:lvlRestart w:val="1"/>', ["1 a", "1.1 b", "2 c", "2.1 d"]),
        ('<w:suff w:val="nothing"/>', ["1 a", "1.1b", "2 c", "2.1d"]),
    ],
)
def test_a_level_begins_again_as_it_says(tmp_path: Path, more: str, shown: list[str]) -> None:
    levels = level(0, "%1") + level(1, "%1.%2", "decimal", more)
    body = "".join(numbered(text, index=index, num=1) for text, index in zip("abcd", (0, 1, 0, 1), strict=True))
    assert lines(tmp_path, body, levels=levels, nums=num(1)) == shown


def test_paragraphs_that_are_deleted_or_have_a_bullet_or_no_list_have_no_number(tmp_path: Path) -> None:
    gone = numbered("", index=0, num=1, more="<w:rPr><w:del/></w:rPr>")
    body = numbered("a", index=0, num=1) + gone + numbered("b", index=0, num=9) + numbered("c", index=8, num=1)
    cells = "".join(f"<w:tr><w:tc>{numbered(text, index=0, num=1)}</w:tc></w:tr>" for text in "de")
    shown = lines(tmp_path, f"{body}<w:tbl>{cells}</w:tbl>", levels=level(0, "%1."), nums=num(1))
    assert shown == ["1. a", "b", "c", "2. d\n3. e"]
    assert lines(tmp_path, body, levels=level(0, "\u2022", "bullet"), nums=num(1)) == ["a", "b", "c"]


def test_lists_of_a_style_take_its_levels(tmp_path: Path) -> None:
    linked = '<w:abstractNum w:abstractNumId="6"><w:numStyleLink w:val="Own"/></w:abstractNum>'
    nums = linked + num(1) + '<w:num w:numId="2"><w:abstractNumId w:val="6"/></w:num>'
    styles = (
        '<w:style w:type="numbering" w:styleId="Own"><w:name w:val="Own"/>'
        '<w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr></w:style>'
    )
    body = numbered("a", index=0, num=2) + numbered("b", index=0, num=2)
    shown = lines(tmp_path, body, levels=level(0, "\u00a7 %1"), nums=nums, styles=styles)
    assert shown == ["\u00a7 1 a", "\u00a7 2 b"]


@pytest.mark.parametrize(
    ("number", "number_format", "text"),
    [
        (4, "decimalZero", "04"),
        (1994, "lowerRoman", "mcmxciv"),
        (27, "upperLetter", "AA"),
        (53, "lowerLetter", "aaa"),
        (0, "lowerLetter", "0"),
        (4000, "upperRoman", "4000"),
    ],
)
def test_numbers_are_written_in_their_format(number: int, number_format: str, text: str) -> None:
    assert formatted(number, number_format) == text

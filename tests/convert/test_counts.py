"""The independent count behind the readers: which words of a file are in none of its parts."""

import io
import zipfile
from functools import partial
from pathlib import Path

import pytest

from memagent_batch.data.ingest.counts.packages import zip_contents
from memagent_batch.data.ingest.counts.text import text_contents
from memagent_batch.data.ingest.counts.words import Content, Given, words_of
from tests.convert import office
from tests.convert.rows import RowsOf


def missing_of(contained: str, *given: str) -> list[str]:
    """Words of a text that are in none of the texts of a reader."""
    reader = Given()
    for text in given:
        reader.add_text(text)
    return [word for each in reader.missing([Content(place="text", text=contained)]) for word in each.words]


@pytest.mark.parametrize(
    ("contained", "given"),
    [
        ("The fee is 1,200 EUR.", "fee: the 1,200 is EUR"),
        ("termi-\nnation", "termination"),
        ("S p a c e d", "Spaced"),
        ("302 days", "30^2 days"),
        ("\ufb01nal \u00bd Ver\u00adtrag", "final 1/2 Vertrag"),
        ("\u5951\u7d04\n\u671f\u9593", "\u5951\u7d04\u671f\u9593"),
    ],
)
def test_words_in_another_order_or_form_are_read(contained: str, given: str) -> None:
    assert missing_of(contained, given) == []


@pytest.mark.parametrize(
    ("contained", "given", "missing"),
    [
        ("not for sale, not for rent", "not for sale", ["not", "for", "rent"]),
        ("no notice", "notice", ["no"]),
        ("alpha termi-nation omega", "termination omega", ["alpha"]),
        ("due in 10 days", "due in 1 0 of the days", []),
        ("due in 10 days", "due in 100 days", ["10"]),
        ("an art", "a nart", []),
    ],
)
def test_words_that_stand_nowhere_else_are_missing(contained: str, given: str, missing: list[str]) -> None:
    assert missing_of(contained, given) == missing


def test_alternatives_need_no_words_of_their_own() -> None:
    given = Given()
    given.add_text("The fee is 100.")
    html = Content(place="html", text="the fee is 100 only", is_alternative=True)
    plain = Content(place="plain", text="The fee is 100.")
    assert [(each.place, each.words) for each in given.missing([plain, html])] == [("html", ["only"])]
    assert (given.num_words, given.num_missing) == (9, 1)


def test_alternatives_may_join_and_part_words_that_another_content_has_asked_for() -> None:
    given = Given()
    given.add_text("red violets, blue berries")
    plain = Content(place="plain", text="red violets, blue berries")
    page = Content(place="html", text="redviolets blueberries bluebells", is_alternative=True)
    assert [each.words for each in given.missing([plain, page])] == [["bluebells"]]


def test_file_that_is_also_a_text_is_given_as_either() -> None:
    text = Content(place="text", text="the fee")
    file = Content(place="file", file=b"the fee", instead=[text])
    read, attached = Given(), Given()
    read.add_text("The fee.")
    attached.add_file(b"the fee")
    assert [*read.missing([file]), *attached.missing([file])] == []
    assert [(each.place, each.words) for each in Given().missing([file])] == [("text", ["the", "fee"])]


def test_files_inside_are_given_or_named() -> None:
    given, files_inside = Given(), {name: name.encode() * 1000 for name in ("a.png", "b.png", "c.png")}
    given.add_file(files_inside["a.png"])
    given.add_name("media b.png is not read")
    contents = [Content(place=f"word/{name}", file=data) for name, data in files_inside.items()]
    assert [each.place for each in given.missing(contents)] == ["word/c.png"]


def test_member_of_an_archive_is_given_under_its_name(tmp_path: Path) -> None:
    file, given = tmp_path / "a.zip", Given()
    with zipfile.ZipFile(file, "w") as archive:
        for name in ("a.txt", "b/", "b/c.txt", "b/.DS_Store", "__MACOSX/._a.txt"):
            archive.writestr(name, b"x")
    given.add_file(b"x", locator="file a.txt")
    assert [each.place for each in given.missing(zip_contents(file))] == ["file b/", "file b/c.txt"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("Kündigung in 10 days".encode(), ["kündigung", "in", "10", "days"]),
        ("Kündigung in 10 days".encode("cp1252"), ["in", "10", "days"]),
        ("Kündigung in 10 days".encode("utf-16"), ["kündigung", "in", "10", "days"]),
        ("Kündigung in 10 days".encode("utf-16-be"), ["kündigung", "in", "10", "days"]),
        ("Kündigung in 10 days".encode("utf-32-le"), ["kündigung", "in", "10", "days"]),
        ("fee 契約 due".encode("iso2022_jp"), ["fee", "due"]),
        ("fee 契約A due".encode("cp932"), ["fee", "due"]),
    ],
)
def test_words_of_a_text_are_listed_in_each_encoding(tmp_path: Path, data: bytes, words: list[str]) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(data)
    (content,) = text_contents(file)
    assert words_of(content.text) == words


def test_what_has_no_words_is_a_loss_unless_its_place_is_named() -> None:
    given = Given()
    given.add_name("page 1 an image fills the page")
    given.add_name("page 22, picture 1 a picture")
    reasons = {"page 1": "a scan", "page 2": "a picture", "page 3": "", "page 22": "a stamp"}
    contents = [Content(place=place, unread=partial(str, reason)) for place, reason in reasons.items()]
    assert [(each.place, each.reason) for each in given.missing(contents)] == [("page 2", "a picture")]


def test_words_of_a_text_are_in_one_form() -> None:
    assert words_of("Stra\u00dfe STRASSE \uff11\uff12 _a_b") == ["strasse", "strasse", "12", "a", "b"]


def test_part_of_a_package_that_its_reader_does_not_know_is_a_loss(rows_of: RowsOf) -> None:
    data = io.BytesIO(office.pptx(office.shape("before")))
    with zipfile.ZipFile(data, "a") as package:
        package.writestr("ppt/novel.xml", "<n:story xmlns:n='urn:n'><n:p>the penalty is 4,410</n:p></n:story>")
    rows = rows_of("c.pptx", data.getvalue())
    assert [(row["status"], row["locator"]) for row in rows] == [("ok", "slide 1"), ("missed", "ppt/novel.xml")]
    assert rows[1]["reason"] == "5 words of it, not in the text: the penalty is 4 410"

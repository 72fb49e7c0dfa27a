import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from infra.docs.page_pictures import ANSWERS, DOCUMENT, PICTURES, draw
from tests.pages.reviewed_run import Scan, write_scan

GUIDE = PICTURES.parent / "how-to" / "page.md"


def test_guide_shows_the_pictures() -> None:
    assert all(f"../pictures/{name}" in GUIDE.read_text(encoding="utf-8") for name in (ANSWERS, DOCUMENT))


def test_pages_with_the_picture_of_an_answer_say_how_many_tokens_it_has() -> None:
    words = " ".join(ElementTree.parse(PICTURES / "answer.svg").getroot().itertext())
    for page in (PICTURES.parent / "index.md", PICTURES.parents[1] / "README.md"):
        (tokens,) = re.findall(r"drawn from its tables: ([0-9,]+) tokens", page.read_text(encoding="utf-8"))
        assert f" {tokens} tokens in " in words


@pytest.mark.system
def test_pictures_are_drawn_of_a_run(tmp_path: Path) -> None:
    draw(write_scan(tmp_path, Scan(num_documents=3)), folder=tmp_path)
    for name in (ANSWERS, DOCUMENT):
        with Image.open(tmp_path / name) as picture:
            colours = picture.convert("RGB").getcolors(1_000_000)
            assert len(colours or []) > 20

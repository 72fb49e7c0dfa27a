from pathlib import Path

import pytest
from PIL import Image

from infra.docs.page_pictures import ANSWERS, DOCUMENT, MADE_FROM, PICTURES, WIDTH, draw, made_from
from tests.pages.reviewed_run import Scan, write_scan

GUIDE = PICTURES.parent / "how-to" / "page.md"


@pytest.mark.parametrize("name", [ANSWERS, DOCUMENT])
def test_picture_in_docs_is_of_the_site_as_it_is_drawn_now(name: str) -> None:
    with Image.open(PICTURES / name) as picture:
        remedy = "the files that draw the site changed: make the pictures again, see infra/docs/page_pictures.py"
        assert picture.text[MADE_FROM] == made_from(), remedy  # type: ignore[attr-defined]
        assert picture.width == WIDTH
    assert f"../pictures/{name}" in GUIDE.read_text(encoding="utf-8")


@pytest.mark.browser
def test_pictures_are_drawn_of_a_run(tmp_path: Path) -> None:
    draw(write_scan(tmp_path, Scan(num_documents=3)), folder=tmp_path)
    for name in (ANSWERS, DOCUMENT):
        with Image.open(tmp_path / name) as picture:
            colours = picture.convert("RGB").getcolors(1_000_000)
            assert len(colours or []) > 20

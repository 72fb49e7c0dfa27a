"""Images of pages as a person sees them: files that a browser shows from the disk, with marks on the words."""

import base64
import io
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from selenium import webdriver
from selenium.webdriver.common.by import By

from tests.convert.files import pdf
from tests.pages.test_accessibility_in_browser import SCHEMES, WIDTHS, findings, screen, show
from tests.pages.test_page_images import LAW, OTHERS, answer, ingest, shown, span, write

__all__ = ["screen"]
pytestmark = pytest.mark.system

WIDE = "return document.scrollingElement.scrollWidth - window.innerWidth > 0"
LOADED = "const image = arguments[0]; return image.complete && image.naturalWidth"


def pixels(browser: webdriver.Chrome) -> npt.NDArray[np.int64]:
    """What the window shows."""
    taken = browser.execute_cdp_cmd("Page.captureScreenshot", {})
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(taken["data"]))).convert("L"), int)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_page_image_is_shown_with_a_mark_on_its_words_and_is_accessible(
    width: int, scheme: str, screen: webdriver.Chrome, tmp_path: Path
) -> None:
    output = ingest(tmp_path, {"a.pdf": pdf(shown([*OTHERS, LAW, *OTHERS], left=60))})
    answer(output, {"a.pdf": [span(output, "a.pdf", LAW, "page 1")]})
    write(output, has_page_images=True)
    (page,) = Path(output.path).glob("page/**/documents/**/*.html")
    show(screen, "document", f"{page.as_uri()}#", width=width, scheme=scheme)
    screen.execute_script("document.querySelector('details.facsimile').open = true")
    image = screen.find_element(By.CSS_SELECTOR, "details.facsimile img")
    screen.execute_script("arguments[0].scrollIntoView()", image)
    screen.execute_async_script("arguments[0].decode().finally(arguments[1])", image)
    assert screen.execute_script(LOADED, image) == 960
    assert findings(screen) == []
    assert not screen.execute_script(WIDE)
    marked = pixels(screen)
    screen.execute_script("document.querySelector('.sheet rect').remove()")
    plain = pixels(screen)
    box = screen.execute_script("const box = arguments[0].getBoundingClientRect(); return [box.x, box.y]", image)
    scale = screen.execute_script("return arguments[0].getBoundingClientRect().width", image) / 600
    rows, columns = np.nonzero(marked != plain)
    (right_edge, words_left, words_top) = (columns.max() + 1, box[0] + 60 * scale, box[1] + (800 - 660) * scale)
    assert abs(columns.min() - words_left) < 4
    assert abs((rows.min() + rows.max()) / 2 - (words_top - 4 * scale)) < 4
    assert right_edge > min(words_left + 200 * scale, width * 0.8)
    ink = plain[rows.min() : rows.max(), columns.min() : columns.max()] < 100
    assert ink.sum() > 50
    assert (marked[rows.min() : rows.max(), columns.min() : columns.max()][ink] < 130).all(), "words can still be read"

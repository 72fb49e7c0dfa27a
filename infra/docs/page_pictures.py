"""`docs/pictures/page-*.png`: the site of `memagent page` as Chromium shows it.

`python -m tests.pages.reviewed_run DIR` makes up a scan; `python -m infra.docs.page_pictures --run DIR/scan` draws it.
"""

import argparse
import io
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

from memagent_batch.pages.site import write_site
from memagent_batch.store.location import Location

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
ANSWERS, DOCUMENT = "page-answers.png", "page-document.png"
"""The table, and the page of one document."""
WIDTH, ANSWERS_HEIGHT, DOCUMENT_HEIGHT = 1240, 790, 1120
"""Pixels."""
CONTEXT_CHARACTERS = 2_000
WAIT_SECONDS = 30


def draw(run: Location, *, folder: Path) -> None:
    """Writes both pictures."""
    with TemporaryDirectory() as place, opened() as browser:
        site = Location(uri=place)
        write_site(run, site, context_chars=CONTEXT_CHARACTERS, is_large_allowed=False)
        browser.get((Path(place) / "index.html").as_uri())
        ready = "return document.body.dataset.ready"
        WebDriverWait(browser, WAIT_SECONDS).until(lambda it: it.execute_script(ready))
        _save(browser, folder / ANSWERS, height=ANSWERS_HEIGHT)
        link = "return document.querySelector('a.answer').href"
        browser.get(browser.execute_script(link).partition("#")[0])
        _save(browser, folder / DOCUMENT, height=DOCUMENT_HEIGHT)


@contextmanager
def opened() -> Iterator[webdriver.Chrome]:
    """A headless Chromium."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    flags = "--headless=new --no-sandbox --disable-gpu --hide-scrollbars --disable-dev-shm-usage"
    for argument in f"{flags} --disable-background-networking --disable-component-update --disable-sync".split():
        options.add_argument(argument)
    browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield browser
    finally:
        browser.quit()


def _save(browser: webdriver.Chrome, file: Path, *, height: int) -> None:
    size = {"width": WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    with Image.open(io.BytesIO(browser.get_screenshot_as_png())) as image:
        image.convert("RGB").quantize(128).save(file, optimize=True)


def main() -> None:
    """Draws the site of a run."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--run", required=True, help="output of a finished run")
    options.add_argument("--to", type=Path, default=PICTURES, help="folder to write to")
    arguments = options.parse_args()
    draw(Location(uri=arguments.run), folder=arguments.to)


if __name__ == "__main__":
    main()

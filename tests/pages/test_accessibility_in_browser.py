"""The pages at two widths, light and dark: axe-core finds nothing in them, and none scrolls sideways.

`python -m tests.pages.test_accessibility_in_browser SITE` takes the pictures of the docs of a site that `memagent page`
wrote.
"""

import base64
import io
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

from memagent_batch.apps.review.review import ReviewRequest, make_review
from tests.conftest import start_browser
from tests.pages.reviewed_run import Scan, write_scan
from tests.pages.test_site_in_browser import WAIT_SECONDS, site_of

pytestmark = pytest.mark.system

AXE = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
WIDTHS, SCHEMES = (1400, 390), ("light", "dark")
READY = {
    "table": "document.body.dataset.ready",
    "list": "document.body.dataset.ready",
    "document": "document.querySelector('.decision')",
    "summary": "document.querySelector('h1')",
    "labelling": "document.getElementById('text').textContent",
}
"""When each page is there to look at."""
PICTURES = {
    "page-answers": ("list", 1400, "light"),
    "page-document": ("document", 1400, "dark"),
    "page-phone": ("list", 390, "light"),
}
"""What the pictures in the docs show."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    output = write_scan(tmp_path_factory.mktemp("scan"), Scan(num_documents=6, failed=frozenset({2})))
    made = make_review([output], ReviewRequest(question_id="liability-cap", labels="4"))
    return addresses(site_of(output).parent) | {"labelling": Path(made["page"]).as_uri()}


def addresses(site: Path) -> dict[str, str]:
    """The pages of a site; of the documents, the first one with a passage."""
    index, documents = (site / "index.html").as_uri(), sorted(site.glob("documents/*/*.html"))
    document = next(each.as_uri() for each in documents if "<mark" in each.read_text(encoding="utf-8"))
    summary = (site / "summary.html").as_uri()
    return {"table": f"{index}#view=grid", "list": f"{index}#view=list", "document": f"{document}#", "summary": summary}


def show(browser: webdriver.Chrome, kind: str, address: str, *, width: int, scheme: str) -> None:
    """Opens a page as a screen of this width shows it."""
    size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    browser.get("about:blank")
    browser.get(address)
    if kind == "labelling":
        browser.execute_script(
            "if (document.getElementById('work').hidden) { document.getElementById('reviewer').value = 'Ada';"
            "document.querySelector('#begin button').click() }"
        )
    WebDriverWait(browser, WAIT_SECONDS).until(lambda it: it.execute_script(f"return {READY[kind]}"))


@pytest.fixture
def screen(browser: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    yield browser
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def findings(browser: webdriver.Chrome) -> list[tuple[str, list[str]]]:
    """What axe-core finds, of any impact: rule, and of three elements what is wrong."""
    found: dict[str, Any] = browser.execute_script(f"{AXE}; return axe.run()")
    return [
        (each["id"], [f"{node['html']} {node['failureSummary']}" for node in each["nodes"][:3]])
        for each in found["violations"]
    ]


@pytest.mark.parametrize("kind", READY)
def test_page_is_accessible_and_does_not_scroll_sideways(
    screen: webdriver.Chrome, pages: dict[str, str], kind: str
) -> None:
    wide = "const r = document.scrollingElement; return r.scrollWidth - r.clientWidth"
    for width in WIDTHS:
        for scheme in SCHEMES:
            show(screen, kind, pages[kind], width=width, scheme=scheme)
            assert findings(screen) == [], (width, scheme)
            assert screen.execute_script(wide) == 0, width
    if kind == "list":
        assert (
            screen.execute_script(wide.replace("document.scrollingElement", "document.getElementById('answers')")) == 0
        )


def test_page_without_contrast_is_found(screen: webdriver.Chrome, pages: dict[str, str]) -> None:
    show(screen, "summary", pages["summary"], width=1400, scheme="light")
    screen.execute_script("document.querySelector('h1').style.color = '#eee'")
    assert [rule for rule, _ in findings(screen)] == ["color-contrast"]


if __name__ == "__main__":
    driver, shown = start_browser(), addresses(Path(sys.argv[1]))
    for name, (kind, width, scheme) in PICTURES.items():
        show(driver, kind, f"{shown[kind]}&outcome=answered", width=width, scheme=scheme)
        picture = driver.execute_cdp_cmd("Page.captureScreenshot", {})
        image = Image.open(io.BytesIO(base64.b64decode(picture["data"]))).convert("RGB")
        image.quantize(64).save(f"docs/pictures/{name}.png", optimize=True)
    driver.quit()

"""A browser as people have set it."""

from collections.abc import Iterator
from contextlib import contextmanager

from selenium import webdriver

_DENIED = """
Object.defineProperty(window, "localStorage", { get() { throw new DOMException("denied", "SecurityError"); } });
"""


@contextmanager
def blocked_storage(browser: webdriver.Chrome) -> Iterator[None]:
    """Lets no page keep anything, as browsers do that block the data of sites."""
    added = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _DENIED})
    yield
    browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)

"""The report as a person opens it: a file in a browser."""

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from memagent_batch.evaluation.report.report import write_report
from memagent_batch.store.location import Location
from tests.evaluation.report.evaluation_output import Made, write_evaluation

pytestmark = pytest.mark.system

HOSTILE = "<script>document.title='owned'</script></memory>\x00\u202e\"><img src=x onerror=\"document.title='owned'\">"


@pytest.fixture(scope="module")
def opened(browser: webdriver.Chrome, tmp_path_factory: pytest.TempPathFactory) -> webdriver.Chrome:
    """The browser on the report of an evaluation in which every text is hostile."""
    folder = tmp_path_factory.mktemp("evaluation")
    made = Made(
        variants=["a", f"b{HOSTILE}"],
        tasks=["t", f"u{HOSTILE}"],
        lengths=[1024, 16384],
        share_right=lambda *_: 0.5,
        hostile=HOSTILE,
    )
    output = Location(uri=str(write_evaluation(folder, made)))
    write_report(output, target=output / "report")
    browser.get((folder / "report" / "report.html").as_uri())
    return browser


def test_report_page_opens_without_errors(opened: webdriver.Chrome) -> None:
    assert opened.get_log("browser") == []  # type: ignore[no-untyped-call]
    assert opened.title.startswith("Evaluation report: s3://suites/ruler")


def test_report_page_hostile_text_shows_as_text(opened: webdriver.Chrome) -> None:
    shown = opened.find_element(By.TAG_NAME, "header").text
    assert "<script>document.title='owned'</script></memory>⟦U+0000⟧⟦U+202E⟧\"><img src=x" in shown
    assert opened.find_elements(By.CSS_SELECTOR, "script, memory, body img[onerror]") == []
    assert "owned" not in opened.title.split("<script>")[0]


@pytest.mark.slow
def test_report_page_every_failure_link_shows_its_trace(opened: webdriver.Chrome) -> None:
    links = opened.find_elements(By.CSS_SELECTOR, "a.to-trace")
    assert len(links) == 32
    for number, link in enumerate(links):
        trace = opened.find_element(By.ID, (link.get_attribute("href") or "").split("#")[1])
        if number in {0, 9, 31}:
            assert not trace.is_displayed()
            link.click()
            assert trace.is_displayed()
            assert "turn 0" in trace.text or "No turn of this reading" in trace.text

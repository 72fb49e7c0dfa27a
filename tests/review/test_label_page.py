"""The label page as a person opens it: a file in a browser, by keyboard alone."""

import csv
import io
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from memagent_batch.apps.review.review import ReviewRequest, import_labels, make_estimate, make_review
from memagent_batch.apps.review.sheet import unquoted
from memagent_batch.data.store.location import Location
from memagent_batch.loop.texts.escapes import visible
from tests.browsers import blocked_storage
from tests.review.labelled_run import HOSTILE, QUESTION, MadeRun, write_run

pytestmark = pytest.mark.system

NUM_LABELS = 300
SECONDS = 10


@dataclass(frozen=True)
class Opened:
    """The page in a browser, and what it was made of."""

    driver: webdriver.Chrome
    output: Path
    folder: Path
    downloads: Path
    truth: dict[str, bool]
    """By document_id, as the page has it."""


def wait(until: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not until():
        assert time.monotonic() < deadline, "the page did not get there"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def opened(browser: webdriver.Chrome, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """A review of 300 readings in headless Chromium; all texts and ids are hostile."""
    output = tmp_path_factory.mktemp("scan") / "out"
    truth = write_run(output, MadeRun(num_documents=600, hostile=HOSTILE))
    made = make_review([Location(uri=str(output))], ReviewRequest(question_id="clause", labels=str(NUM_LABELS)))
    downloads = tmp_path_factory.mktemp("downloads")
    browser.execute_cdp_cmd("Page.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(downloads)})
    browser.get_log("browser")  # type: ignore[no-untyped-call]  # what other tests logged is gone then
    browser.get((Path(made["folder"]) / "page.html").as_uri())
    return Opened(
        driver=browser,
        output=output,
        folder=Path(made["folder"]),
        downloads=downloads,
        truth={visible(name): is_true for name, is_true in truth.items()},
    )


def press(driver: webdriver.Chrome, *keys: str) -> None:
    webdriver.ActionChains(driver).send_keys(*keys).perform()


def is_ready(driver: webdriver.Chrome, place: int) -> bool:
    """Whether the document at this place is shown, with its text."""
    shown = driver.execute_script(
        "return [document.getElementById('place').textContent, document.getElementById('text').textContent.length]"
    )
    return bool(shown[0].startswith(f"{place + 1} of ") and shown[1])


def begin(driver: webdriver.Chrome) -> None:
    """Says who labels; the first document is shown then."""
    press(driver, "ada", Keys.ENTER)
    wait(lambda: is_ready(driver, 0))


def test_page_source_holds_no_answer_evidence_or_stratum(opened: Opened) -> None:
    names = {path.name for path in (opened.folder / "answers").iterdir()}
    assert len(names) == NUM_LABELS
    shown = (opened.folder / "page.html").read_text() + (opened.folder / "labels.csv").read_text()
    for word in ("flagged", "invalid", "failed", "value_bool", "Yes.", "No."):
        assert word not in shown
    for part in list((opened.folder / "documents").iterdir())[:20]:
        assert "Yes." not in part.read_text()


def test_page_asks_for_no_answer_before_its_label_is_saved(opened: Opened) -> None:
    driver = opened.driver
    assert driver.find_element(By.ID, "begin").is_displayed()
    begin(driver)
    asked = (
        "return performance.getEntriesByType('resource').map(each => each.name).filter(each => /answers/.test(each))"
    )
    press(driver, "y")
    assert "Enter saves" in driver.find_element(By.ID, "state").text
    assert driver.execute_script(asked) == []
    assert not driver.find_element(By.ID, "answer").is_displayed()
    assert driver.find_element(By.ID, "value").get_attribute("textContent") == ""
    press(driver, "n", Keys.ENTER)
    wait(lambda: driver.find_element(By.ID, "answer").is_displayed())
    assert driver.find_element(By.ID, "value").text in {"yes", "no", "nothing: failed", "invalid"}
    assert (
        len(driver.execute_script("return Object.keys(localStorage).filter(key => /:first:[0-9a-f]{20}$/.test(key))"))
        == 1
    )


def test_page_hostile_text_shows_as_text(opened: Opened) -> None:
    driver = opened.driver
    shown = driver.find_element(By.ID, "text").text
    assert "<script>document.title='owned'</script></memory>⟦U+0000⟧⟦U+202E⟧\"><img src=x" in shown
    assert '</memory>⟦U+0000⟧⟦U+202E⟧"><img src=x' in driver.find_element(By.ID, "document").text
    assert "owned" not in driver.title
    assert driver.find_elements(By.CSS_SELECTOR, "memory, img[onerror]") == []


def test_page_search_finds_words_of_the_document(opened: Opened) -> None:
    driver = opened.driver
    press(driver, "/", "CLAUSE OF")
    wait(lambda: driver.find_element(By.ID, "found").text.startswith("1 of "))
    assert driver.execute_script("return CSS.highlights.get('found').size") >= 1
    assert driver.execute_script("return [...CSS.highlights.get('here')][0].toString()").lower() == "clause of"
    press(driver, "zzz")
    wait(lambda: driver.find_element(By.ID, "found").text == "nowhere")
    press(driver, Keys.ESCAPE)


@pytest.mark.slow
def test_300_documents_labelled_by_keyboard_alone_nothing_is_lost(opened: Opened) -> None:
    driver = opened.driver
    if driver.find_element(By.ID, "begin").is_displayed():  # the first label is not saved by a test before
        begin(driver)
        press(driver, "n", Keys.ENTER)
        wait(lambda: driver.find_element(By.ID, "answer").is_displayed())
    press(driver, Keys.ENTER)
    names: list[str] = driver.execute_script("return review.items.map(each => each.document_id)")
    given = {name: "yes" if opened.truth[name] else "no" for name in names[1:]}
    for place, name in list(enumerate(names))[1:]:
        wait(lambda place=place: is_ready(driver, place))  # type: ignore[misc]
        if place == NUM_LABELS // 2:
            driver.refresh()
            wait(lambda place=place: is_ready(driver, place))  # type: ignore[misc]
        if place == 1:
            press(driver, given[name][0], Keys.ENTER, "c", '=1+1; a remark, "quoted"', Keys.ENTER, Keys.ENTER)
        else:
            press(driver, given[name][0], Keys.ENTER, Keys.ENTER)
    assert "All are labelled" in driver.find_element(By.ID, "left").text
    rows = saved_rows(opened)
    labels = {unquoted(row["document_id"]): row["label"] for row in rows}
    assert len(labels) == NUM_LABELS
    assert {name: labels[name] for name in given} == given
    assert [row["comment"] for row in rows if row["comment"]] == ['\'=1+1; a remark, "quoted"']
    assert {row["blind"] for row in rows} == {"true"}
    assert {row["reviewer"] for row in rows} == {"ada"}


@pytest.mark.slow
def test_correction_after_the_answer_is_not_blind_and_its_sentence_is_found(opened: Opened) -> None:
    driver = opened.driver
    while not driver.find_elements(By.CSS_SELECTOR, "#evidence li"):
        place = int(driver.find_element(By.ID, "place").text.split()[0]) - 1
        press(driver, Keys.ARROW_LEFT)
        wait(lambda place=place: is_ready(driver, place - 1))  # type: ignore[misc]
        wait(lambda: driver.find_element(By.ID, "answer").is_displayed())
    driver.find_element(By.CSS_SELECTOR, "#evidence button").click()
    wait(lambda: driver.find_element(By.ID, "found").text.startswith("1 of 1"))
    press(driver, Keys.ESCAPE, "u", Keys.ENTER)
    wait(lambda: "Saved" in driver.find_element(By.ID, "state").text)
    rows = saved_rows(opened)
    assert [row["label"] for row in rows if row["blind"] == "false"] == ["unclear"]


@pytest.mark.slow
def test_saved_sheet_imports_and_estimates(opened: Opened) -> None:
    output = Location(uri=str(opened.output))
    (sheet,) = opened.downloads.glob("*.csv")
    taken = import_labels(output, [Location(uri=str(sheet))], reviewer=None)
    assert (taken["labels"], taken["added"], len(taken["reviewers"])) == (NUM_LABELS + 1, NUM_LABELS + 1, 1)
    _, page = make_estimate([output], None, so_far=False)
    assert QUESTION in page


def test_page_logs_no_error_and_breaks_no_policy(opened: Opened) -> None:
    assert opened.driver.get_log("browser") == []  # type: ignore[no-untyped-call]
    policy = re.findall(r'Content-Security-Policy" content="([^"]+)"', (opened.folder / "page.html").read_text())[0]
    assert "unsafe" not in policy
    assert "default-src &#39;none&#39;" in policy


def saved_rows(opened: Opened) -> list[dict[str, str]]:
    """Saves the sheet by its key; its rows."""
    for sheet in opened.downloads.glob("*.csv"):
        sheet.unlink()
    press(opened.driver, "e")
    wait(lambda: list(opened.downloads.glob("*.csv")))
    (sheet,) = opened.downloads.glob("*.csv")
    wait(lambda: sheet.stat().st_size)
    return list(csv.DictReader(io.StringIO(sheet.read_text(encoding="utf-8-sig"), newline="")))


def test_page_of_a_browser_that_blocks_storage_labels_and_says_that_labels_must_be_saved(opened: Opened) -> None:
    driver = opened.driver
    with blocked_storage(driver):
        driver.get((opened.folder / "page.html").as_uri())
        begin(driver)
        assert "keeps nothing for this page: save labels.csv" in driver.find_element(By.ID, "unkept").text
        press(driver, "y", Keys.ENTER)
        wait(lambda: driver.find_element(By.ID, "answer").is_displayed())
        press(driver, Keys.ENTER)
        wait(lambda: is_ready(driver, 1))
        assert [(row["label"], row["blind"], row["reviewer"]) for row in saved_rows(opened)] == [("yes", "true", "ada")]


def test_page_shows_the_source_and_what_of_it_was_not_read(opened: Opened, tmp_path: Path) -> None:
    write_run(tmp_path / "out", MadeRun(num_documents=4, num_with_losses=2, run_id="20261124T010000.000Z"))
    made = make_review([Location(uri=str(tmp_path / "out"))], ReviewRequest(question_id="clause", labels="4"))
    driver = opened.driver
    driver.get(Path(made["page"]).as_uri())
    begin(driver)
    shown = {}
    for place in range(4):
        wait(lambda place=place: is_ready(driver, place))  # type: ignore[misc]
        name = driver.find_element(By.ID, "document").text
        shown[name] = [driver.find_element(By.ID, each).text for each in ("source", "unread")]
        press(driver, Keys.ARROW_RIGHT)
    loss = "The text lacks a part of its source, so label it from the source. Not read: page 2: an image without text"
    assert shown == {
        f"doc-{number:05}": [f"Source: doc-{number:05}.pdf", loss if number < 2 else ""] for number in range(4)
    }

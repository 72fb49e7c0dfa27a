"""The site as a person opens it: files in a browser."""

from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait

from memagent_batch.apps.pages.site import write_site
from memagent_batch.data.store.location import Location
from tests.pages.reviewed_run import QUESTIONS, Scan, write_scan
from tests.runs.written_runs import write_answers

pytestmark = pytest.mark.system

HOSTILE = "<script>document.title='owned'</script>\x00\u202e\"'><img src=x onerror=\"document.title='owned'\">--><!--"
SEEN = HOSTILE.replace("\x00", "⟦U+0000⟧").replace("\u202e", "⟦U+202E⟧")
WAIT_SECONDS = 30


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return site_of(write_scan(tmp_path_factory.mktemp("scan"), Scan()))


def site_of(output: Location) -> Path:
    write_site([output], output / "page", context_chars=2000, is_large_allowed=False)
    return Path((output / "page/index.html").path)


def opened(browser: webdriver.Chrome, place: str) -> webdriver.Chrome:
    """The browser on the table, when all rows are there."""
    browser.get("about:blank")
    browser.get_log("browser")  # type: ignore[no-untyped-call]
    browser.get(place)
    WebDriverWait(browser, WAIT_SECONDS).until(lambda it: it.execute_script("return document.body.dataset.ready"))
    return browser


@pytest.fixture
def table(browser: webdriver.Chrome, site: Path) -> webdriver.Chrome:
    return opened(browser, site.as_uri())


def rows(browser: webdriver.Chrome) -> list[WebElement]:
    return browser.find_elements(By.CSS_SELECTOR, "#table tbody tr")


def column(browser: webdriver.Chrome, number: int) -> list[str]:
    return [row.find_elements(By.CSS_SELECTOR, "th, td")[number].text for row in rows(browser)]


def choose(browser: webdriver.Chrome, control: str, value: str) -> None:
    Select(browser.find_element(By.ID, control)).select_by_visible_text(value)


def search(browser: webdriver.Chrome, words: str) -> None:
    field = browser.find_element(By.ID, "search")
    field.clear()
    field.send_keys(words)
    searched = "return new URLSearchParams(location.hash.slice(1)).get('search')"
    WebDriverWait(browser, WAIT_SECONDS).until(lambda it: it.execute_script(searched) == words)


def state(browser: webdriver.Chrome) -> str:
    return browser.find_element(By.ID, "state").text


def log_of(browser: webdriver.Chrome) -> list[object]:
    found: list[object] = browser.get_log("browser")  # type: ignore[no-untyped-call]
    return found


def test_table_shows_every_answer_and_breaks_no_policy(table: webdriver.Chrome) -> None:
    assert state(table) == "60 answers in 12 documents"
    assert len(rows(table)) == 12
    assert len(table.find_elements(By.CSS_SELECTOR, "#table tbody a.answer")) == 60
    assert log_of(table) == []


@pytest.mark.slow
def test_table_filters_and_shows_all_again(table: webdriver.Chrome) -> None:
    choose(table, "outcome", "failed")
    assert state(table) == "1 of 60 answers in 1 document"
    choose(table, "outcome", "all")
    choose(table, "change", "changed")
    assert state(table).startswith("6 of 60")
    choose(table, "question", "end-date")
    choose(table, "change", "all")
    assert {len(row.find_elements(By.CSS_SELECTOR, "td")) for row in rows(table)} == {1}
    table.find_element(By.ID, "reset").click()
    assert state(table) == "60 answers in 12 documents"
    choose(table, "confidence", "below 90 %")
    found = [float(each.text.split(" ")[0]) for each in table.find_elements(By.CSS_SELECTOR, "tbody .confidence")]
    assert found
    assert max(found) < 90
    assert log_of(table) == []


def test_table_begins_with_what_needs_a_look_and_shows_the_answer_before(table: webdriver.Chrome) -> None:
    first_document = column(table, 0)[0]
    table.find_element(By.CSS_SELECTOR, "input[value=list]").click()
    outcomes, supports, changes = (column(table, number) for number in (3, 5, 6))
    assert column(table, 0)[0] == first_document
    assert any("\nSigned for the supplier by " in text and " to " in text for text in column(table, 2))
    is_weak = [text in ("contradicted", "not enough") for text in supports]
    place = outcomes.index("failed")
    assert all(is_weak[:place])
    assert not any(is_weak[place:])
    strong = [
        text for text, weak, support in zip(changes, is_weak, supports, strict=True) if not weak and support != "partly"
    ]
    changed = [text.startswith("changed") for text in strong[1:]]
    assert changed == sorted(changed, reverse=True)
    assert any("before: It was another answer" in text for text in changes)


@pytest.mark.slow
def test_table_sorts_by_its_headings_with_the_keyboard(table: webdriver.Chrome) -> None:
    heading = table.find_element(By.CSS_SELECTOR, "#table thead button")
    heading.send_keys(Keys.ENTER)
    documents = column(table, 0)
    assert documents == sorted(documents)
    table.find_element(By.CSS_SELECTOR, "#table thead button").send_keys(Keys.ENTER)
    assert column(table, 0) == documents[::-1]
    assert table.switch_to.active_element.text.startswith("document")
    table.find_element(By.CSS_SELECTOR, "input[value=list]").click()
    for heading in table.find_elements(By.CSS_SELECTOR, "#table thead button"):
        if heading.text.startswith("confidence"):
            heading.click()
            break
    shares = [float(text.split(" ")[0]) for text in column(table, 4) if text]
    assert shares == sorted(shares)
    assert len(shares) > 10
    head = table.find_elements(By.CSS_SELECTOR, "#table thead th")
    assert [each.get_attribute("aria-sort") for each in head].count("ascending") == 1


@pytest.mark.slow
def test_table_sorts_numbers_by_their_size(browser: webdriver.Chrome, tmp_path: Path) -> None:
    days = (-10, -5, 2000, 3999, 1500000)
    asked = tuple(each for each in QUESTIONS if each.question_id == "notice-period")
    scan = Scan(num_documents=24, questions=asked, paragraphs=3, notice_days=days, failed=frozenset({7}))
    index = site_of(write_scan(tmp_path, scan)).as_uri()
    for view, number in (("grid", 1), ("list", 2)):
        opened(browser, f"{index}#view={view}")
        for is_down in (False, True):
            heading = browser.find_elements(By.CSS_SELECTOR, "#table thead button")[number]
            heading.click()
            shown = [text.split("\n")[0] for text in column(browser, number)]
            texts = [text for text in shown if not text.endswith(" days")]
            found = [int(text.removesuffix(" days").replace(",", "")) for text in shown[: -len(texts)]]
            assert set(found) == set(days)
            assert found == sorted(found, reverse=is_down)
            assert set(texts) == {"failed", "not stated"}


def test_document_opens_with_its_evidence_and_back_finds_the_filters(table: webdriver.Chrome) -> None:
    search(table, "calder governing")
    table.find_element(By.CSS_SELECTOR, "a.answer").click()
    assert "Calder" in table.find_element(By.TAG_NAME, "h1").text
    link = table.find_element(By.CSS_SELECTOR, "a.to-evidence")
    sentence = link.text
    link.click()
    mark = table.find_element(By.CSS_SELECTOR, ".anchor:target + mark")
    assert mark.text == sentence
    place = table.execute_script("const r = arguments[0].getBoundingClientRect(); return [r.top, innerHeight]", mark)
    assert 0 <= place[0] < place[1]
    far = table.find_element(By.CSS_SELECTOR, "details.far p")
    assert not far.is_displayed()
    table.find_element(By.CSS_SELECTOR, "details.far summary").click()
    assert far.is_displayed()
    trace = table.find_element(By.CSS_SELECTOR, "details.trace")
    table.execute_script("arguments[0].scrollIntoView({block: 'center'})", trace)
    trace.find_element(By.TAG_NAME, "summary").click()
    assert "step 1" in trace.text
    assert "memagent show" in str(table.find_element(By.CSS_SELECTOR, ".commands").get_attribute("textContent"))
    assert log_of(table) == []
    table.back()
    table.back()
    WebDriverWait(table, WAIT_SECONDS).until(lambda it: it.execute_script("return document.body.dataset.ready"))
    assert table.find_element(By.ID, "search").get_attribute("value") == "calder governing"
    assert state(table).startswith("2 of 60")


def test_hostile_text_stays_text_and_runs_nothing(browser: webdriver.Chrome, tmp_path: Path) -> None:
    index = site_of(write_scan(tmp_path, Scan(num_documents=2, paragraphs=3, hostile=HOSTILE)))
    for view in ("grid", "list"):
        opened(browser, f"{index.as_uri()}#view={view}")
        assert SEEN in browser.find_element(By.CSS_SELECTOR, "#table tbody").text
        assert len(browser.find_elements(By.CSS_SELECTOR, "script")) == 2
        assert browser.find_elements(By.CSS_SELECTOR, "body img") == []
    browser.find_element(By.CSS_SELECTOR, "a.answer").click()
    WebDriverWait(browser, WAIT_SECONDS).until(lambda it: it.find_elements(By.CSS_SELECTOR, "section.reading"))
    assert len(browser.find_elements(By.CSS_SELECTOR, "script")) == 2
    assert browser.find_elements(By.CSS_SELECTOR, "body img") == []
    assert SEEN in browser.find_element(By.TAG_NAME, "h1").text
    assert SEEN in browser.find_element(By.CSS_SELECTOR, "mark").text
    assert not browser.title.startswith("owned")
    assert log_of(browser) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["table", "document"])
def test_policy_stops_what_the_page_does_not_name(table: webdriver.Chrome, kind: str) -> None:
    if kind == "document":
        table.find_element(By.CSS_SELECTOR, "a.answer").click()
    table.execute_script(
        "const s = document.createElement('script'); s.textContent = 'document.title = \"owned\"';"
        "document.body.append(s);"
        "const i = document.createElement('img'); i.src = 'https://example.com/x.png'; document.body.append(i)"
    )
    assert table.title != "owned"
    assert sum("Content Security Policy" in str(entry) for entry in log_of(table)) >= 2


@pytest.mark.slow
def test_ten_thousand_readings_stay_usable(browser: webdriver.Chrome, tmp_path: Path) -> None:
    output = Location(uri=str(tmp_path / "run"))
    questions = {f"q-{number:02d}": f"Question {number}?" for number in range(50)}
    answers = {f"document-{number:03d}": dict.fromkeys(questions, f"answer {number}") for number in range(200)}
    write_answers(output, answers, run_id="r", questions=questions)
    opened(browser, site_of(output).as_uri())
    assert state(browser) == "10,000 answers in 200 documents"
    assert len(rows(browser)) == 50
    search(browser, "document-199 q-49")
    assert state(browser) == "1 of 10,000 answers in 1 document"
    browser.find_element(By.ID, "reset").click()
    browser.find_element(By.ID, "after").click()
    browser.find_element(By.ID, "columns-after").click()
    assert column(browser, 0)[0] == "document-050"
    assert "questions 7 – 12 of 50" in browser.find_element(By.CSS_SELECTOR, ".pager").text

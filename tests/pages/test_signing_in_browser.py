"""A reviewer's evening with the page alone: of 256 answers ten need a decision, and are found, read and signed off."""

import csv
import io
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from memagent_batch.apps.pages.site import write_site
from memagent_batch.apps.review.sheet import quoted
from memagent_batch.apps.review.sign_offs import read_sign_offs
from memagent_batch.cli.main import main
from memagent_batch.data.store.location import Location
from tests.browsers import blocked_storage
from tests.pages.reviewed_run import QUESTIONS, Scan, write_scan
from tests.pages.test_site_in_browser import WAIT_SECONDS, choose, column, log_of, opened, search, state
from tests.pages.test_spreadsheets import FORMULAS, PLAIN, WITHIN
from tests.runs.written_runs import rewrite_answers

pytestmark = pytest.mark.system

NUM_DOCUMENTS, QUESTIONS_ASKED = 64, tuple(QUESTIONS[place] for place in (0, 4, 2, 3))
FAILED = {"status": "failed", "answer": None, "value": None, "value_status": None, "error_message": "the engine died"}
PLANTED: tuple[tuple[str, dict[str, Any]], ...] = (
    *[("the evidence contradicts the answer", {"support": "contradicted"})] * 3,
    *[("the evidence says too little", {"support": "not enough"})] * 2,
    ("reading it failed", {**FAILED, "error_type": "EngineRequestError"}),
    ("not all of its source was read", {"value_status": "not_read", "value": None}),
    *[("no valid answer", {"value_status": "invalid", "value": None})] * 2,
    ("the evidence says a part of the answer", {"support": "partly"}),
)
"""What is wrong with ten of the answers, in the words of the page."""


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Location, dict[tuple[str, str], str]]:
    """The run, and of the ten answers why each needs a look, by document and question."""
    scan = Scan(
        num_documents=NUM_DOCUMENTS, questions=QUESTIONS_ASKED, failed=frozenset(), has_night_before=False, paragraphs=8
    )
    output = write_scan(tmp_path_factory.mktemp("trial"), scan)
    truth: dict[tuple[str, str], str] = {}

    def plant(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        places = range(5, len(rows), len(rows) // len(PLANTED))
        rows = [{**row, "support": row["support"] and "supported"} for row in rows]
        for place, (why, changed) in zip(places, PLANTED, strict=False):
            rows[place] |= changed
            truth[rows[place]["document_id"], rows[place]["question_id"]] = why
        return rows

    rewrite_answers(output, "20261122T020000.000Z.planted", plant, since=None)
    return output, truth


def written(output: Location) -> str:
    write_site([output], output / "page", context_chars=2000, is_large_allowed=False)
    return Path((output / "page/index.html").path).as_uri()


@pytest.fixture
def small(tmp_path: Path) -> Location:
    """A run of four documents and five questions."""
    return write_scan(tmp_path, Scan(num_documents=4, failed=frozenset(), has_night_before=False, paragraphs=4))


def next_night(output: Location, run_id: str, *, changed: str = "") -> str:
    """Another run with the same answers, but for one reading; returns its page."""
    rewrite_answers(
        output,
        run_id,
        lambda rows: [{**row, "answer": "another one"} if name_of(row) == changed else row for row in rows],
    )
    return f"{written(output)}#view=list"


def name_of(row: dict[str, Any]) -> str:
    return f"{row['document_id']}, {row['question_id']}"


def decided(table: webdriver.Chrome) -> list[str]:
    """Answers that have a decision, by document and question."""
    pressed = table.find_elements(By.XPATH, "//tr[.//*[@aria-pressed='true']]")
    return [", ".join(row.find_element(By.CSS_SELECTOR, name).text for name in ("th", "bdi[title]")) for row in pressed]


def saved_sheet(table: webdriver.Chrome, folder: Path) -> Path:
    table.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})
    if not table.find_element(By.ID, "signer").get_property("value"):
        table.find_element(By.ID, "signer").send_keys("Ada")
    table.find_element(By.ID, "save-signed").click()
    sheet = folder / "signed.csv"
    WebDriverWait(table, WAIT_SECONDS).until(lambda _: sheet.exists() and sheet.stat().st_size)
    return sheet


def press(browser: webdriver.Chrome, *keys: str) -> None:
    webdriver.ActionChains(browser).send_keys(*keys).perform()


def test_ten_answers_that_need_a_decision_stand_first_with_reasons_and_are_signed_off(
    browser: webdriver.Chrome, planted: tuple[Location, dict[tuple[str, str], str]], tmp_path: Path
) -> None:
    output, truth = planted
    table = opened(browser, f"{written(output)}#view=list")
    table.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    assert state(table) == "256 answers in 64 documents"
    assert [option.text for option in table.find_elements(By.CSS_SELECTOR, "#look option")][1:] == [
        "needs a look (10)",
        "signed off (0)",
    ]
    first = [
        (document, question.splitlines()[0], why.splitlines()[0])
        for document, question, why in zip(*(column(table, number)[:10] for number in (0, 1, -1)), strict=True)
    ]
    assert {(document, question): why for document, question, why in first} == truth
    table.find_element(By.CSS_SELECTOR, "#table tbody tr a").click()
    reading = table.find_element(By.ID, urlsplit(table.current_url).fragment)
    assert reading.find_element(By.CSS_SELECTOR, ".why").text.lower().startswith(f"{first[0][2]}: accept")
    press(table, "a")  # marks the answer, and decides nothing yet
    assert table.find_elements(By.CSS_SELECTOR, "[aria-pressed=true]") == []
    press(table, "c", '=1+1; "as agreed", see mail', Keys.ENTER)
    assert reading.find_element(By.CSS_SELECTOR, "[aria-pressed=true]").text.startswith("Correct")
    table.back()
    WebDriverWait(table, WAIT_SECONDS).until(lambda it: it.execute_script("return document.body.dataset.ready"))
    choose(table, "look", "needs a look (9)")
    assert len(column(table, 0)) == 9
    press(table, Keys.ESCAPE, *"raaa", "a", *"rraaa")  # one that failed and one that was not read can't be accepted
    assert len(table.find_elements(By.CSS_SELECTOR, "#table [aria-pressed=true]")) == 9
    unread = [
        row for row in table.find_elements(By.CSS_SELECTOR, "#table tbody tr") if "there is none to accept" in row.text
    ]
    assert [row.find_element(By.CSS_SELECTOR, "[aria-pressed=true]").text for row in unread] == ["Reject"] * 2
    assert not any(row.find_element(By.CSS_SELECTOR, "[value=accept]").is_enabled() for row in unread)
    choose(table, "look", "all")
    choose(table, "look", "needs a look (0)")
    assert state(table) == "No answer fits: none of them needs a look."
    save = table.find_element(By.ID, "save-signed")
    save.click()
    assert state(table) == "Write your name first: sign-offs say who signed."
    table.find_element(By.ID, "signer").send_keys("Ada")
    search(table, "nothing like this")  # what is filtered out is signed too
    table.refresh()
    WebDriverWait(table, WAIT_SECONDS).until(lambda it: it.execute_script("return document.body.dataset.ready"))
    table.find_element(By.ID, "save-signed").click()
    assert state(table).startswith("signed.csv is saved")
    sheet = tmp_path / "signed.csv"
    WebDriverWait(table, WAIT_SECONDS).until(lambda _: sheet.exists() and sheet.stat().st_size)
    assert log_of(table) == []

    assert main(["review", "sign", output.uri, str(sheet)]) == 0
    signed = read_sign_offs(output)
    assert {(row["document_id"], row["question_id"]) for row in signed} == truth.keys()
    assert [row["correction"] for row in signed if row["correction"]] == ['=1+1; "as agreed", see mail']
    assert sorted(row["decision"] for row in signed) == ["accept"] * 6 + ["correct"] + ["reject"] * 3
    table = opened(browser, f"{written(output)}#look=needs+a+look")
    assert state(table).startswith("No answer fits")
    table = opened(browser, f"{written(output)}#look=signed+off&view=list")
    assert state(table) == "10 of 256 answers in 10 documents"
    assert all("by Ada, 20" in text for text in column(table, -1))


def test_correction_that_is_not_of_its_type_is_named_before_a_sheet_is_saved(
    browser: webdriver.Chrome, planted: tuple[Location, dict[tuple[str, str], str]]
) -> None:
    table = opened(browser, f"{written(planted[0])}#view=list")
    cases: dict[tuple[str | None, str | None, str], bool] = {
        **dict.fromkeys(
            [("number", "days", text) for text in ("60", "60 days", "-0.5", "not stated", "Not stated.")], False
        ),
        **dict.fromkeys([("number", "days", text) for text in ("sixty", "60 weeks", "1,000", "060")], True),
        ("date", None, "2026-01-31"): False,
        ("date", None, "31 January 2026"): True,
        ("bool", None, "Yes"): False,
        ("bool", None, "perhaps"): True,
        (None, None, "anything"): False,
    }
    asked = [{"decision": "correct", "type": of, "unit": unit, "correction": text} for of, unit, text in cases]
    assert table.execute_script("return arguments[0].map(isMiswritten)", asked) == list(cases.values())
    search(table, "end-date")
    table.find_element(By.CSS_SELECTOR, "#table [value=correct]").click()
    press(table, "31 January 2026", Keys.ENTER)
    table.find_element(By.ID, "signer").send_keys("Ada")
    table.find_element(By.ID, "save-signed").click()
    assert state(table).endswith("end-date must be a date such as 2026-01-31, or: not stated.")
    when = "return Object.values(decided)[0].signed_at"
    before = table.execute_script(when)
    field = table.find_element(By.CSS_SELECTOR, "#table [aria-label='the right answer']")
    field.clear()
    field.send_keys("2026-01-31")
    assert table.execute_script(when) > before, "what was written again is signed again"


def test_decisions_that_were_not_saved_outlive_the_night_and_stay_with_their_answers(
    browser: webdriver.Chrome, small: Location, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = opened(browser, f"{written(small)}#view=list&sort=document")
    for button in table.find_elements(By.CSS_SELECTOR, "#table [value=accept]")[:3]:
        button.click()
    before = decided(table)
    assert len(before) == 3
    table = opened(browser, next_night(small, "20261123T010000.000Z.cccc", changed=before[0]))
    assert table.find_element(By.ID, "save-signed").text == "Save signed.csv (3)"
    assert sorted(decided(table)) == sorted(before[1:])
    assert [why.text for why in table.find_elements(By.CSS_SELECTOR, ".decision .why") if why.is_displayed()] == [
        "Open again: you decided (accept) before its text or answer changed."
    ]
    assert main(["review", "sign", small.uri, str(saved_sheet(table, tmp_path / "one"))]) == 0
    assert json.loads(capsys.readouterr().out)["signed"] == 2
    table = opened(browser, next_night(small, "20261124T010000.000Z.dddd"))
    assert table.find_element(By.ID, "save-signed").text == "Save signed.csv (0)", "what was taken in is not kept on"


def test_decision_on_one_of_two_documents_with_the_same_text_is_saved_under_the_one_that_was_read(
    browser: webdriver.Chrome, small: Location, tmp_path: Path
) -> None:
    def copied(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        first, second = sorted({row["document_id"] for row in rows})[:2]
        originals = {row["question_id"]: row for row in rows if row["document_id"] == first}
        copies = [
            {**originals[row["question_id"]], "document_id": second} for row in rows if row["document_id"] == second
        ]
        return [*(row for row in rows if row["document_id"] != second), *copies]

    rewrite_answers(small, "20261123T010000.000Z.copy", copied)
    table = opened(browser, f"{written(small)}#view=list&sort=document")
    table.find_elements(By.CSS_SELECTOR, "#table [value=accept]")[0].click()
    shown = decided(table)
    assert len(shown) == 2, "both are decided, since they have the same text"
    (row,) = csv.DictReader(saved_sheet(table, tmp_path).read_text(encoding="utf-8-sig").splitlines())
    assert f"{row['document_id']}, {row['question_id']}" == shown[0]


def test_decision_is_taken_back_on_the_page_and_a_sign_off_that_was_taken_in_is_withdrawn(
    browser: webdriver.Chrome, small: Location, tmp_path: Path
) -> None:
    def buttons(table: webdriver.Chrome, words: str) -> list[WebElement]:
        return [each for each in table.find_elements(By.CSS_SELECTOR, ".decision button") if each.text == words]

    table = opened(browser, f"{written(small)}#view=list")
    for button in buttons(table, "Accept")[:2]:
        button.click()
    assert len(buttons(table, "Take back")) == 2
    buttons(table, "Take back")[0].click()
    assert len(decided(table)) == len(buttons(table, "Take back")) == 1
    assert main(["review", "sign", small.uri, str(saved_sheet(table, tmp_path / "one"))]) == 0
    table = opened(browser, f"{written(small)}#view=list&look=signed+off")
    table.find_element(By.CSS_SELECTOR, "#table tbody a").click()
    assert [button.text for button in buttons(table, "Withdraw")] == ["Withdraw"]
    for words in ("Withdraw", "Take back", "Withdraw"):
        buttons(table, words)[0].click()
    (comment,) = (field for field in table.find_elements(By.CSS_SELECTOR, ".withdrawal input") if field.is_displayed())
    comment.send_keys("another page says 60")
    table = opened(browser, f"{written(small)}#view=list")
    assert table.find_element(By.ID, "save-signed").text == "Save signed.csv (1)"
    assert main(["review", "sign", small.uri, str(saved_sheet(table, tmp_path / "two"))]) == 0
    table = opened(browser, f"{written(small)}#view=list")
    choose(table, "look", "signed off (0)")
    last = max(read_sign_offs(small), key=lambda row: row["signed_at"])
    assert (last["withdrawn"], last["comment"]) == (True, "another page says 60")


def test_page_of_a_browser_that_blocks_storage_works_and_says_that_decisions_must_be_saved(
    browser: webdriver.Chrome, small: Location, tmp_path: Path
) -> None:
    page = f"{written(small)}#view=list"
    with blocked_storage(browser):
        table = opened(browser, page)
        assert state(table) == "20 answers in 4 documents"
        assert "keeps nothing for this page: save signed.csv" in table.find_element(By.ID, "unkept").text
        table.find_element(By.CSS_SELECTOR, "#table [value=accept]").click()
        choose(table, "look", "signed off (1)")
        assert state(table).startswith("1 of 20 answers")
        assert len(saved_sheet(table, tmp_path / "sheet").read_text().splitlines()) == 2
        document = table.find_element(By.CSS_SELECTOR, "#table tbody a").get_property("href")
        table.get(str(document))
        assert table.find_element(By.ID, "unkept").is_displayed()
        assert table.find_elements(By.CSS_SELECTOR, ".decision button")
    table = opened(browser, page)
    assert not table.find_element(By.ID, "unkept").is_displayed()


def test_cells_are_quoted_by_the_page_as_by_the_commands(browser: webdriver.Chrome, small: Location) -> None:
    table = opened(browser, written(small))
    texts = [*FORMULAS, *WITHIN, *PLAIN, "'=1", "'' ;'=x", "\ufeff=1", "a;\x1c-1"]
    cells = table.execute_script("return arguments[0].map(sheetCell)", texts)
    sheet = io.StringIO("\r\n".join(f"x,{cell}" for cell in cells), newline="")
    assert [row[1] for row in csv.reader(sheet)] == [quoted(text) for text in texts]

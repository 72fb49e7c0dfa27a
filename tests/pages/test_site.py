"""The files of a site: what they hold, and that one build replaces another whole or not at all."""

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

import memagent_batch as ma
from memagent_batch.apps.pages import site
from memagent_batch.apps.pages.site import WrittenSite, vacuum_site, write_site
from memagent_batch.apps.review.estimates import Measure
from memagent_batch.apps.templates.pages import inert_json
from memagent_batch.data.store.delta import OutputTable
from memagent_batch.data.store.json_files import write_json
from memagent_batch.data.store.location import Location
from memagent_batch.errors import OutputError
from memagent_batch.loop.models.shipped import MODEL_LIMITS
from memagent_batch.run.history import find_run
from tests.documents.stored_documents import paged_row, store_documents, stored_row
from tests.pages.reviewed_run import LAST_NIGHT, TONIGHT, Scan, write_scan
from tests.runs.written_runs import answer_row, questions_of, rewrite_answers, write_answers, write_run

LATER, LATEST = "20261123T010000.000Z.cccc", "20261124T010000.000Z.dddd"


def write(output: Location, *, context_chars: int = 2000) -> WrittenSite:
    return write_site([output], output / "page", context_chars=context_chars, is_large_allowed=False)


def pages_of(output: Location) -> dict[str, str]:
    """The pages of documents, by title."""
    texts = [path.read_text(encoding="utf-8") for path in Path(output.path).glob("page/documents/*/*.html")]
    return {unescape(text.partition("<title>")[2].partition("</title>")[0]): text for text in texts}


def index_of(output: Location, **how: Any) -> str:
    write(output, **how)
    return (output / "page/index.html").read_bytes().decode().partition("</style>")[2]


def chosen_sentences(output: Location) -> list[dict[str, Any]]:
    return [row for row in ma.table(output.uri, "evidence").to_pylist() if row["how"] == "chosen"]


@pytest.fixture
def scan(tmp_path: Path) -> Location:
    return write_scan(tmp_path, Scan(num_documents=4, failed=frozenset({1})))


def test_site_shows_each_answer_with_its_sentence_and_place_in_the_text(scan: Location) -> None:
    told = write(scan)
    assert (told["readings"], told["documents"]) == (20, 4)
    pages, sentences = pages_of(scan), chosen_sentences(scan)
    assert pages.keys() == {*ma.table(scan.uri, "documents")["document_id"].to_pylist()}
    shown = {name: unescape(re.sub("<[^>]+>", "", text.partition("<figure")[2])) for name, text in pages.items()}
    assert all(row["text"] in shown[row["document_id"]] for row in sentences)
    assert all("<mark" in text for text in pages.values())
    (file,) = Path(scan.path).glob("page/rows/*/*.html")
    data = unescape(file.read_text().partition('<script type="application/json"')[2].partition("</script>")[0])
    listed = {(row[-2], row[-1]) for row in json.loads(data.partition(">")[2])["rows"]}
    places = {(row["text"], f"characters {row['char_start']:,} to {row['char_end']:,}") for row in sentences}
    assert listed == places | {("", "")}, "the reading that failed has none"
    assert any("FRAMEWORK AGREEMENT" in text for text in pages.values())
    write(scan, context_chars=0)  # the sentences, and not what is far from them
    vacuum_site(scan / "page")
    assert all("governed by the laws" in text or "not stated" in text for text in pages_of(scan).values())
    assert not any("FRAMEWORK AGREEMENT" in text for text in pages_of(scan).values())


def test_next_night_writes_only_pages_that_show_something_else(tmp_path: Path) -> None:
    scan = write_scan(tmp_path, Scan(num_documents=8))
    rewrite_answers(scan, LATER, lambda rows: rows)  # a night without changes
    assert write(scan)["new_files"] == 8 + 1 + 4, "pages, rows, index and summary"
    assert write(scan)["new_files"] == 4
    files, document = {*tmp_path.rglob("documents/??/*.html")}, min(pages_of(scan))
    rewrite_answers(
        scan, LATEST, lambda rows: [row | ({"answer": "X"} if row["document_id"] == document else {}) for row in rows]
    )
    told = write(scan)
    [page] = {*tmp_path.rglob("documents/??/*.html")} - files
    assert f"<title>{document}</title>" in unescape(page.read_text())
    assert (told["files"], told["new_files"]) == (8 + 1 + 4, 1 + 1 + 4)


def test_site_shows_the_version_of_a_text_that_was_read(scan: Location) -> None:
    pages = [text.partition("<figure")[2] for text in (write(scan), pages_of(scan))[1].values()]
    rows = [
        stored_row(name, "another text") for name in ma.table(scan.uri, "answers")["document_id"].unique().to_pylist()
    ]
    store_documents(scan, rows, number=3)
    write(scan)
    assert sorted(text.partition("<figure")[2] for text in pages_of(scan).values()) == sorted(pages)
    OutputTable(output=scan, name="documents").vacuum(days=0)
    with pytest.raises(OutputError, match="its version of the table `documents` was removed"):
        write(scan)
    assert sorted(text.partition("<figure")[2] for text in pages_of(scan).values()) == sorted(pages)


def test_summary_has_a_document_that_was_not_read_once_and_says_why_a_value_is_invalid(scan: Location) -> None:
    unread = {"status": "failed", "answer": None, "value": None, "value_status": "not_read", "error_message": "a scan"}
    odd = {"answer": "sixty", "value_status": "invalid", "value": None, "follow_up_error": "'sixty' is not a number"}
    first = ma.table(scan.uri, "answers")["document_id"][0].as_py()
    run = rewrite_answers(
        scan,
        LATER,
        lambda rows: [row | unread if row["document_id"] == first else row for row in rows[:-1]] + [rows[-1] | odd],
    )
    write(run.output)
    said = json.loads((scan / "page/summary.json").read_bytes())
    items = [item for item in said["items"] if item["why"] == "not all of its source was read"]
    assert [(item["document_id"], item["question"]) for item in items] == [(first, "several questions")]
    assert said["needs"]["not all of its source was read"] == 5
    (item,) = (item for item in said["items"] if item["why"] == "no valid answer")
    assert item["value"] == "sixty: 'sixty' is not a number"


def estimate_of(run_id: str, question_id: str, *, recall: float, flagged: str = "value_bool = true") -> dict[str, Any]:
    """What `memagent review estimate` writes, as far as a site shows it."""
    share = {"value": recall, "low": recall - 0.05, "high": recall + 0.05}
    strata = [
        {"name": "flagged", "num_readings": 900, "num_labelled": 750, "num_positive": 700},
        {"name": "invalid", "num_readings": 1200, "num_labelled": 0, "num_positive": 0},
    ]
    asked = {"review_id": run_id, "run_id": run_id, "question_id": question_id, "decision": flagged}
    found = {
        "measures": dict.fromkeys(Measure, share),
        "recall_at_worst": share,
        "labels": {"left": 80, "left_second": 0},
    }
    return {**asked, "strata": strata, **found, "num_unreadable": 7, "num_missed_at_worst": 7}


def test_site_shows_the_latest_estimate_of_each_question_and_condition(scan: Location) -> None:
    earlier, hostile = "20260101T000000.000Z.0000", "<script>x</script>"
    assert "estimates" not in index_of(scan)
    estimates = {
        "old": estimate_of(earlier, hostile, recall=0.5),
        "new": estimate_of(TONIGHT, hostile, recall=0.93),
        "other": estimate_of(earlier, "b", recall=0.8),
        "wider": estimate_of(TONIGHT, "b", recall=0.7, flagged="value_label in ('red')"),
    }
    for name, estimate in estimates.items():
        write_json(scan / f"review/{name}/estimate.json", estimate)
    panel = index_of(scan).partition('<section class="estimates"')[2].partition("</section>")[0]
    assert "<script>" not in panel
    assert unescape(panel).count(hostile) == 1
    shares = ("93.0 % (88.0 to 98.0)", "80.0 % (75.0 to 85.0)", "70.0 % (65.0 to 75.0)")
    assert [share for share in shares if share not in panel] == []
    assert "50.0 %" not in panel
    assert "80 readings of the sample are not labelled; nothing is known of the 1,200 readings invalid" in panel
    assert (panel.count("this one"), panel.count("2026-01-01 00:00 UTC")) == (2, 1)


def test_index_names_the_documents_that_are_gone_since_the_run_before(tmp_path: Path) -> None:
    output, asked = Location(uri=str(tmp_path)), {"q": "Why?"}
    for number, names in enumerate((("gone long ago", "a <b>", "c"), ("a <b>", "c"), ("c",))):
        write_answers(output, {name: {"q": "one"} for name in names}, run_id=f"2026112{number}", questions=asked)
    shown = index_of(output)
    assert "<bdi>a &lt;b&gt;</bdi>" in shown
    assert "gone long ago" not in shown


def test_site_marks_sentences_in_documents_of_pages_and_names_the_page(tmp_path: Path) -> None:
    output, pages = Location(uri=str(tmp_path)), {"page 1": "Some prose.", "page 2": "It is due in May. More."}
    text = "\n\n".join(pages.values())
    row = answer_row("d", "q", run_id=TONIGHT, text=text, question="When?", answer="May")
    sentence = {"char_start": 13, "char_end": 30, "text": "It is due in May.", "locator": "page 2"}
    evidence = row | {"how": "chosen", "rank": 1, "chunk_index": 0, "alignment": "exact", "quote": None} | sentence
    version = store_documents(output, [paged_row("d", pages)])
    write_run(
        output,
        {"answers": [row], "memories": [], "evidence": [evidence]},
        run_id=TONIGHT,
        questions=questions_of({"q": "When?"}),
        documents_table={"output": None, "version": version},
    )
    write(output)
    assert "It is due in May.</mark>" in pages_of(output)["d"]
    assert "page 2" in pages_of(output)["d"]


def test_site_of_many_answers_or_among_other_files_is_refused(
    scan: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OutputError, match=r"holds other files.*--to"):
        write_site([scan], Location(uri=str(tmp_path)), context_chars=2000, is_large_allowed=False)
    monkeypatch.setattr(site, "LARGE_ANSWERS", 19)
    with pytest.raises(OutputError, match=r"the site would show 20 answers; more than 19 take about 1 GB: pass --yes"):
        write(scan)
    assert not (scan / "page/index.html").exists()
    assert write_site([scan], scan / "page", context_chars=2000, is_large_allowed=True)["readings"] == 20


def test_site_says_what_changed_since_the_run_before_or_that_it_cannot_be_compared(scan: Location) -> None:
    assert "Compared with the run of" in index_of(scan)
    changed = [text for text in pages_of(scan).values() if '"chip change">changed' in text]
    assert "It was another answer." in "".join(changed)
    for file in Path(scan.path).glob(f"answers/*{LAST_NIGHT}*"):
        file.unlink()
    assert "is not known: " in index_of(scan)


def test_site_of_a_run_without_evidence_shows_answers_failures_and_changes(tmp_path: Path) -> None:
    output, asked = Location(uri=str(tmp_path)), {"q": "Why?", "r": "Who?"}
    for run_id, answer in ((LAST_NIGHT, "one"), (TONIGHT, "another")):
        write_answers(
            output, {"a": {"q": answer, "r": "Ann"}, "b": {"q": None, "r": None}}, run_id=run_id, questions=asked
        )
    assert (write(output)["documents"], write(output)["readings"]) == (2, 4)
    pages = pages_of(output)
    assert "since 20" in pages["a"]
    assert pages["a"].count('<section class="reading"') == 2
    assert "E: the engine refused it" in pages["b"]
    assert "Evidence" not in "".join(pages.values())


@pytest.mark.parametrize("model", ["reader-135m", "tiny", "another"])
def test_index_says_what_is_known_of_the_limits_of_a_shipped_model_and_what_confidence_is(
    scan: Location, model: str
) -> None:
    rewrite_answers(scan, LATER, lambda rows: rows, settings={**find_run(scan).manifest["settings"], "model": model})
    shown = unescape(index_of(scan))
    assert [name for name, limits in MODEL_LIMITS.items() if limits in shown] == [model] * (model in MODEL_LIMITS)
    meaning = "the probability that the model gives its own words, not that they are right"
    assert f"Confidence is {meaning}" in shown
    assert all(
        page.count(f'title="{meaning}"') == 2 * page.count('">confidence</span>') for page in pages_of(scan).values()
    )


def test_counts_of_one_stand_beside_a_noun_without_a_plural(tmp_path: Path) -> None:
    output = Location(uri=str(tmp_path))
    for run_id, names in ((LAST_NIGHT, ("a", "b")), (TONIGHT, ("a",))):
        run = write_answers(output, {name: {"q": "one"} for name in names}, run_id=run_id, questions={"q": "Why?"})
    rewrite_answers(
        run.output,
        LATER,
        lambda rows: [row | {"num_chunks": 1, "value_status": "not_stated", "num_document_tokens": 1} for row in rows],
        since=LAST_NIGHT,
        spent={"num_turns": 1, "num_prompt_tokens": 1, "num_completion_tokens": 1},
        changes={**run.manifest["changes"], "readings": {"read": 1}},
    )
    write_json(output / "review/r/estimate.json", estimate_of(LATER, "q", recall=0.5) | {"num_missed_at_worst": 1})
    index, (page,) = index_of(output), pages_of(output).values()
    shown = [
        index,
        page.partition("</style>")[2],
        *((output / f"page/summary.{kind}").read_bytes().decode() for kind in ("txt", "html")),
    ]
    told = [re.sub("<[^>]+>", "", unescape(text.partition("<script")[0])) for text in shown]
    assert "in 1 part." in told[1]
    assert (
        "if the 1 document that nobody can read, or that was not read to the end and not found, was missed" in told[0]
    )
    assert "1 of 1 answer needs a look; 1 was read in this run" in told[2]
    assert "1 turn, 1 prompt token, 1 completion token" in told[2]
    assert "1 of 1 answer needs a look" in told[3]


def test_json_in_a_page_cannot_end_its_element() -> None:
    text = inert_json({"a": ["</script><!--", "\u2028&\x00\u202e"]})
    assert not set("<>&\u2028\x00\u202e") & set(text)
    assert "⟦U+202E⟧" in text

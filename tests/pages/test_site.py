"""The files of a site: what they hold, and that one build replaces another whole or not at all."""

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from memagent_batch.errors import InputError, OutputError
from memagent_batch.pages import site
from memagent_batch.pages.site import WrittenSite, write_site
from memagent_batch.review.measures import Measure
from memagent_batch.runs.manifest import RUN_FILE, require_manifest
from memagent_batch.runs.tables import REMOVED_TABLE
from memagent_batch.store.json_files import read_json, write_json
from memagent_batch.store.location import Location
from memagent_batch.store.parquet import parquet_bytes
from memagent_batch.templates.pages import inert_json
from tests.pages.reviewed_run import LAST_NIGHT, Scan, write_scan
from tests.runs.recorded_nights import Nights
from tests.runs.written_documents import Form


def write(output: Location, target: Location, *, context_chars: int | None = 2000) -> WrittenSite:
    return write_site([output], target, context_chars=context_chars, is_large_allowed=False)


def document_pages(target: Location) -> dict[str, str]:
    texts = [Path(path).read_text(encoding="utf-8") for path in target.files() if "/documents/" in path]
    return {unescape(re.findall("<title>(.*?)</title>", text)[0]): text for text in texts}


@pytest.fixture
def scan(tmp_path: Path) -> Location:
    return write_scan(tmp_path, Scan(num_documents=4, failed=frozenset({1})))


def test_site_shows_the_sentences_of_the_document_itself(scan: Location, tmp_path: Path) -> None:
    told = write(scan, scan / "page")
    assert (told["readings"], told["documents"], told["documents_without_text"]) == (20, 4, 0)
    texts = dict(zip(*pq.read_table(tmp_path / "documents").to_pydict().values(), strict=True))
    pages = document_pages(scan / "page")
    evidence = pq.read_table((scan / "evidence").path).to_pylist()
    assert pages.keys() == texts.keys()
    for row in (row for row in evidence if row["how"] == "chosen"):
        assert texts[row["document_id"]][row["char_start"] : row["char_end"]] == row["text"]
        assert row["text"] in unescape(re.sub("<[^>]+>", "", pages[row["document_id"]].partition("<figure")[2]))


def test_list_has_the_sentence_of_each_answer_and_its_place(scan: Location) -> None:
    write(scan, scan / "page")
    (file,) = (path for path in (scan / "page").files() if "/rows/" in path)
    text = re.findall('<script type="application/json"[^>]*>(.*?)</script>', Path(file).read_text())[0]
    data = json.loads(unescape(text))
    shown = {(row[-2], row[-1]) for row in data["rows"]}
    chosen = [row for row in pq.read_table((scan / "evidence").path).to_pylist() if row["how"] == "chosen"]
    places = {(row["text"], f"characters {row['char_start']:,} to {row['char_end']:,}") for row in chosen}
    assert shown - {("", "")} == places
    assert ("", "") in shown  # of the reading that failed


def test_summary_has_a_document_that_was_not_read_once_and_says_why_a_value_is_invalid(scan: Location) -> None:
    (name,) = require_manifest(scan)["files"]["answers"]
    file = (scan / name).path
    table = pq.read_table(file)
    unread = {"status": "failed", "answer": None, "value": None, "value_status": "not_read", "error_message": "a scan"}
    odd = {"answer": "sixty", "value_status": "invalid", "value": None, "follow_up_error": "'sixty' is not a number"}
    rows = table.to_pylist()
    rows[:5] = [row | unread for row in rows[:5]]
    rows[-1] |= odd
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), file)
    write(scan, scan / "page")
    said = json.loads((scan / "page/summary.json").read_bytes())
    items = [item for item in said["items"] if item["why"] == "not all of its source was read"]
    assert [(item["document_id"], item["question"]) for item in items] == [(rows[0]["document_id"], "all questions")]
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
    found = {"measures": dict.fromkeys(Measure, share), "recall_at_worst": share, "labels": {"left": 80}}
    return {**asked, "strata": strata, **found, "num_unreadable": 7}


def test_site_shows_the_latest_estimates_of_reviews(scan: Location) -> None:
    run_id, hostile = require_manifest(scan)["run_id"], "<script>x</script>"
    assert "estimates" not in written_index(scan)
    write_json(scan / "review/old/estimate.json", estimate_of("20260101T000000.000Z.0000", hostile, recall=0.5))
    write_json(scan / "review/new/estimate.json", estimate_of(run_id, hostile, recall=0.93))
    write_json(scan / "review/other/estimate.json", estimate_of("20260101T000000.000Z.0000", "b", recall=0.8))
    wider = estimate_of(run_id, "b", recall=0.7, flagged="value_label in ('red')")
    write_json(scan / "review/wider/estimate.json", wider)
    panel = written_index(scan).partition('<section class="estimates"')[2].partition("</section>")[0]
    assert "<script>" not in panel
    assert unescape(panel).count(hostile) == 1
    assert "93.0 % (88.0 to 98.0)" in panel
    assert "50.0 %" not in panel
    assert "70.0 % (65.0 to 75.0)" in panel
    assert "80.0 % (75.0 to 85.0)" in panel, "another condition is another estimate"
    assert "<bdi>value_label in (&#39;red&#39;)</bdi>" in panel
    assert (
        "<p>errors of reviewers are not allowed for; 80 readings of the sample are not labelled; nothing is known of "
        "the 1,200 readings invalid; if all 7 documents that nobody can read, or that were not read to the end and not "
        "found, were missed, recall is 93.0 % (88.0 to 98.0)</p>"
    ) in panel
    assert panel.count("errors of reviewers are not allowed for") == 3
    assert panel.count("this one") == 2
    assert "2026-01-01 00:00 UTC" in panel


def written_index(scan: Location) -> str:
    write(scan, scan / "page", context_chars=None)
    return (scan / "page/index.html").read_bytes().decode().partition("</style>")[2]


def test_index_names_the_documents_that_are_gone_since_the_run_before(scan: Location) -> None:
    run_id = require_manifest(scan)["run_id"]
    common = {"document_hash": "0" * 64, "last_run_id": "before"}
    rows = [
        {"document_id": "gone <b>tonight.txt", "removed_run_id": run_id, **common},
        {"document_id": "gone-long-ago.txt", "removed_run_id": "before", **common},
    ]
    (scan / "removed/part.parquet").write_bytes(parquet_bytes(pa.Table.from_pylist(rows, schema=REMOVED_TABLE)))
    manifest = read_json(scan / "manifest.json")
    assert manifest is not None
    write_json(scan / "manifest.json", manifest | {"files": manifest["files"] | {"removed": ["removed/part.parquet"]}})
    shown = written_index(scan)
    assert "<bdi>gone &lt;b&gt;tonight.txt</bdi>" in shown
    assert "gone-long-ago.txt" not in shown


def test_site_without_text_has_the_sentences_and_no_passage(scan: Location) -> None:
    write(scan, scan / "page", context_chars=None)
    pages = document_pages(scan / "page").values()
    assert all("governed by the laws" in text or "not stated" in text for text in pages)
    assert not any("<mark" in text or "characters before" in text for text in pages)


def test_site_of_a_document_that_changed_shows_none_of_its_text(scan: Location, tmp_path: Path) -> None:
    file = tmp_path / "documents" / "contracts.parquet"
    rows = pq.read_table(file).to_pylist()
    changed = rows[2]["document_id"]
    rows[2]["text"] += " "
    pq.write_table(pa.Table.from_pylist(rows), file)
    assert write(scan, scan / "page")["documents_without_text"] == 1
    pages = document_pages(scan / "page")
    assert "changed or is gone since it was read" in pages[changed]
    assert [name for name, text in pages.items() if "<mark" not in text] == [changed]


@pytest.mark.parametrize("form", [Form.PAGES, Form.DELTA])
def test_site_shows_texts_of_pages_and_of_tables(form: Form, tmp_path: Path) -> None:
    scan = write_scan(tmp_path, Scan(num_documents=3, form=form))
    assert write(scan, scan / "page")["documents_without_text"] == 0
    assert all("<mark" in text for text in document_pages(scan / "page").values())


def test_site_of_a_table_shows_the_version_that_was_read_and_the_newest_where_that_is_gone(tmp_path: Path) -> None:
    scan = write_scan(tmp_path, Scan(num_documents=3, form=Form.DELTA))
    record = read_json(scan / RUN_FILE)
    assert record is not None
    write_json(scan / RUN_FILE, record | {"documents": f"delta://{record['documents']}"})
    table = DeltaTable(str(tmp_path / "documents"))
    changed = table.to_pyarrow_table()["document_id"][0].as_py()
    table.update({"text": "'another text'"}, predicate=f"document_id = '{changed}'")
    assert write(scan, scan / "page")["documents_without_text"] == 0
    DeltaTable(str(tmp_path / "documents")).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert write(scan, scan / "page")["documents_without_text"] == 1
    assert "<mark" not in document_pages(scan / "page")[changed]


def test_site_of_documents_that_are_gone_is_refused_and_the_one_before_stays(scan: Location, tmp_path: Path) -> None:
    write(scan, scan / "page")
    before = (scan / "page").files()
    (tmp_path / "documents").rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"texts of the documents can't be shown.*--without-text"):
        write(scan, scan / "page")
    assert (scan / "page").files() == before
    write(scan, scan / "page", context_chars=None)
    assert len((scan / "page").files()) == len(before)


def test_site_is_not_written_among_other_files(scan: Location, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"holds other files.*--to"):
        write(scan, Location(uri=str(tmp_path)))


def test_site_of_many_answers_is_refused_until_the_user_allows_it(
    scan: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "LARGE_ANSWERS", 19)
    with pytest.raises(OutputError, match=r"the site would show 20 answers; more than 19 take about 1 GB: pass --yes"):
        write(scan, scan / "page")
    assert not (scan / "page/index.html").exists()
    assert write_site([scan], scan / "page", context_chars=2000, is_large_allowed=True)["readings"] == 20


def test_site_says_what_changed_since_the_run_before_or_that_it_cannot_be_compared(scan: Location) -> None:
    write(scan, scan / "page")
    index = Path((scan / "page/index.html").path)
    assert "Compared with the run of" in index.read_text()
    changed = [text for text in document_pages(scan / "page").values() if '"chip change">changed' in text]
    assert changed
    assert "It was another answer." in changed[0]
    (scan / f"answers/part-00000-{LAST_NIGHT}.parquet").delete()
    write(scan, scan / "page")
    assert re.search(r"is not known: .* is gone", index.read_text())


def test_site_of_a_run_without_evidence_shows_answers_and_failures(tmp_path: Path) -> None:
    nights = Nights(Location(uri=str(tmp_path / "run")))
    nights.run({"a": "one", "b": "it fails"}, {"q": "Why?"})
    nights.run({"a": "another", "b": "it fails", "null": None}, {"q": "Why?", "r": "Who?"})
    told = write(nights.output, Location(uri=str(tmp_path / "site")))
    assert (told["documents"], told["readings"]) == (3, 6)
    pages = document_pages(Location(uri=str(tmp_path / "site")))
    assert "since 20" in pages["a"]
    assert "E: the engine refused it" in pages["b"]
    assert "p: the text is null" in pages["null"]
    assert "Evidence" not in "".join(pages.values())


def test_site_has_one_page_for_a_document_of_many_questions(tmp_path: Path) -> None:
    nights = Nights(Location(uri=str(tmp_path / "run")))
    nights.run({"a": "one"}, {f"q-{number}": f"Why {number}?" for number in range(120)})
    target = Location(uri=str(tmp_path / "site"))
    told = write(nights.output, target)
    (text,) = document_pages(target).values()
    assert (told["documents"], text.count('<section class="reading"')) == (1, 120)


def test_json_in_a_page_cannot_end_its_element() -> None:
    text = inert_json({"a": ["</script><!--", "\u2028&\x00\u202e"]})
    assert not set("<>&\u2028\x00\u202e") & set(text)
    assert "⟦U+202E⟧" in text

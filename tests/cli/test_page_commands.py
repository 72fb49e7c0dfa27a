"""`memagent page`, `show` and `export`, as they are typed."""

import csv
import json
import re
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import memagent_batch as ma
from memagent_batch.cli import main as cli
from memagent_batch.cli.status import status_lines
from memagent_batch.data.store.location import Location
from memagent_batch.errors import UsageError
from memagent_batch.run.history import begin, require_manifest
from memagent_batch.run.manifest import RunRecord
from memagent_batch.run.state import read_state, write_stop_note
from tests.pages.reviewed_run import TONIGHT, Scan, write_scan
from tests.runs.written_runs import record_of, write_answers, write_run

DOCUMENT = "Calder & Voss 2020/001"


@pytest.fixture(scope="module")
def scan(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_scan(tmp_path_factory.mktemp("scan"), Scan(num_documents=4, failed=frozenset({1}))).uri


def test_page_prints_where_it_is_and_how_large(scan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["page", scan, "--to", str(tmp_path), "--context", "50"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["readings"], told["documents"], told["page"]) == (20, 4, f"{tmp_path}/index.html")
    files = [path for path in tmp_path.rglob("*.*") if path.is_file() and path.name != "page.json"]
    assert told["bytes"] == sum(path.stat().st_size for path in files)


@pytest.mark.parametrize("has_note", [True, False])
def test_answers_of_the_night_before_a_failed_one_are_said_to_be_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], has_note: bool
) -> None:
    output = write_scan(tmp_path, Scan(num_documents=1, failed=frozenset()))

    def later(run_id: str) -> RunRecord:
        return record_of({**require_manifest(output), "run_id": run_id, "started_at": datetime.now(UTC).isoformat()})

    run = begin(output, later, writer="memagent", after="")
    if has_note:
        write_stop_note(output, run_id=run.run_id, why="EngineError: the engine is gone")
    said = ["a later run, begun at 20", "has not finished", "finished at 2026-11-22 01:07 UTC"]
    said += ["EngineError: the engine is gone"] if has_note else ["it is running, or was killed"]
    assert cli.main(["page", output.uri]) == 0
    pages = [(output / f"pages/{name}").read_bytes().decode() for name in ("index.html", "summary.txt", "summary.html")]
    told = capsys.readouterr().err
    assert cli.main(["show", output.uri, "Nordhafen Logistik 2020/000"]) == 0
    for text in (*pages, told, capsys.readouterr().err):
        assert [words for words in said if words not in text] == []
    lines = status_lines(read_state(output), output="scan")
    shown = f"{TONIGHT}, finished at 2026-11-22 01:07 UTC"
    assert f"answers, page and summary are still those of run {shown}" in lines


def test_export_writes_every_answer_with_its_sentence_and_only_to_its_own_ending(
    scan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["export", scan, "--to", "csv"]) == 0
    assert json.loads(capsys.readouterr().out) == {"file": f"{scan}/export/answers.csv", "rows": 20}
    with Path(f"{scan}/export/answers.csv").open(encoding="utf-8-sig", newline="") as stream:
        rows = [*csv.DictReader(stream)]
    assert len(rows) == 20
    places = {row["place"][:11] for row in rows if row["sentence"].endswith("agreement on 45 days' notice.")}
    assert places == {"characters "}
    assert cli.main(["export", scan, "--to", "csv", "--into", str(tmp_path / "a.xlsx")]) == UsageError.exit_code
    assert "does not end in .csv" in capsys.readouterr().err
    assert not (tmp_path / "a.xlsx").exists()


@pytest.mark.parametrize(("words", "name"), [(["2020/001"], f"'{DOCUMENT}'"), ([DOCUMENT, "signatry"], "'signatory'")])
def test_show_of_a_misspelt_id_offers_the_nearest(
    scan: str, words: list[str], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["show", scan, *words]) == UsageError.exit_code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"did you mean {name}?")


def test_show_lists_documents_and_prints_values_evidence_and_why_a_reading_failed(
    scan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown(*words: str) -> str:
        assert cli.main(["show", scan, *words]) == 0
        return capsys.readouterr().out

    ids = shown().splitlines()
    assert (len(ids), ids) == (4, sorted(ids))
    assert DOCUMENT in ids
    words = " ".join(shown(DOCUMENT, "notice-period").split())
    assert "answer 45 days" in words
    assert "support supported" in words
    assert "evidence Either party may end this agreement on 45 days' notice. [characters" in words
    failed = shown(DOCUMENT)
    assert failed.count("document    ") == 5
    assert "why         EngineRequestError: turn 3: the engine refused the request" in failed
    assert re.search(r"confidence [\d.]+ % \(of its own words, not of being right\)", " ".join(failed.split()))
    told = json.loads(shown(DOCUMENT, "notice-period", "--json"))
    assert told["answer"]["value_number"] == 45
    assert [row["how"] for row in told["evidence"]] == ["chosen", "aligned"]
    assert len(told["memories"]) == told["answer"]["num_turns"]


def test_show_wraps_long_texts_and_steers_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = "long \x1b[2J" + "word " * 400
    write_answers(Location(uri=str(tmp_path)), {"a": {"q": answer}}, run_id="r", questions={"q": "Why?"})
    assert cli.main(["show", str(tmp_path), "a"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert shown.count("word") == 400
    assert max(map(len, shown.splitlines())) <= 80


def test_locators_stand_beside_spans_wherever_they_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, place = write_scan(tmp_path, Scan(num_documents=1)), "a<b>.pdf, page 3"
    tables: dict[str, list[dict[str, Any]]] = {
        name: [{**row, "locator": place} for row in ma.table(output.uri, name).to_pylist()]
        for name in ("answers", "evidence", "memories")
    }
    write_run(output, tables, run_id=f"{TONIGHT}c", questions=ma.Run.at(output.uri)._past().questions)
    assert cli.main(["show", output.uri, "Nordhafen Logistik 2020/000", "notice-period"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert re.search(rf"notice\. \[characters [\d,]+ to [\d,]+, chunk \d+, {place}\]", words)
    assert cli.main(["page", output.uri, "--to", str(tmp_path / "site")]) == 0
    (sheet,) = (tmp_path / "site").glob("documents/*/*.html")
    page = sheet.read_text(encoding="utf-8")
    shown = "a&lt;b&gt;.pdf, page 3"
    in_evidence = re.findall(rf"chosen by the model; {shown}, characters [^<]*</span></li>", page)
    assert in_evidence
    assert page.count(shown) > len(in_evidence)  # in the trace, too
    assert place not in page
    assert cli.main(["export", output.uri, "--to", "xlsx"]) == 0
    with zipfile.ZipFile(Path(output.path) / "export/answers.xlsx") as book:
        sheets = "".join(book.read(name).decode() for name in book.namelist() if "worksheets" in name)
    assert f" notice. [{shown}]" in " ".join(sheets.replace("days&apos;", "days'").split())

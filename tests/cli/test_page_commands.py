"""`memagent page`, `show` and `export`, as they are typed."""

import csv
import json
import re
import zipfile
from pathlib import Path
from shutil import copytree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.cli import main as cli
from memagent_batch.cli.status import status_lines
from memagent_batch.errors import UsageError
from memagent_batch.runs.manifest import FORMAT, RUN_FILE, RunRecord
from memagent_batch.runs.state import read_state, write_stop_note
from memagent_batch.store.json_files import write_json
from memagent_batch.store.location import Location
from tests.pages.reviewed_run import Scan, write_scan
from tests.runs.recorded_nights import Nights

DOCUMENT = "Calder & Voss 2020/001"


@pytest.fixture(scope="module")
def scan(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_scan(tmp_path_factory.mktemp("scan"), Scan(num_documents=4, failed=frozenset({1}))).uri


def test_page_prints_where_it_is_and_how_large(scan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["page", scan, "--to", str(tmp_path), "--context", "50"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["readings"], told["documents"], told["page"]) == (20, 4, f"{tmp_path}/index.html")
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "page.json"]
    assert told["bytes"] == sum(path.stat().st_size for path in files)


def test_commands_find_the_answers_of_a_scan(scan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copytree(scan, tmp_path / "night/answers")
    night = str(tmp_path / "night")
    assert cli.main(["show", night]) == 0
    assert cli.main(["export", night, "--to", "csv"]) == 0
    assert cli.main(["page", night, "--without-text"]) == 0
    said = capsys.readouterr().out
    assert f"{night}/answers/export/answers.csv" in said
    assert f'"page": "{night}/pages/index.html"' in said
    assert '<h1 class="wrap">Answers of <bdi>night</bdi></h1>' in (tmp_path / "night/pages/index.html").read_text()
    with (tmp_path / "night/answers/export/answers.csv").open(encoding="utf-8-sig", newline="") as stream:
        rows = [*csv.DictReader(stream)]
    assert len(rows) == 20
    places = {row["place"][:11] for row in rows if row["sentence"].endswith("agreement on 45 days' notice.")}
    assert places == {"characters "}


@pytest.mark.parametrize("has_note", [True, False])
def test_answers_of_the_night_before_a_failed_one_are_said_to_be_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], has_note: bool
) -> None:
    output = write_scan(tmp_path, Scan(num_documents=1, failed=frozenset()))
    later = "20261123T010000.000Z.cccc"
    record = dict.fromkeys(RunRecord.__dataclass_fields__) | {"format": FORMAT, "run_id": later, "asked": 5}
    write_json(output / RUN_FILE, record | {"started_at": "2026-11-23T01:00:00+00:00"})
    if has_note:
        write_stop_note(output, run_id=later, why="EngineError: the engine is gone")
    said = ["a later run, begun at 2026-11-23 01:00 UTC, has not finished", "finished at 2026-11-22 01:07 UTC"]
    said += ["EngineError: the engine is gone"] if has_note else ["it is running, or was killed"]
    assert cli.main(["page", output.uri]) == 0
    pages = [(output / f"page/{name}").read_bytes().decode() for name in ("index.html", "summary.txt", "summary.html")]
    told = capsys.readouterr().err
    assert cli.main(["show", output.uri, "Nordhafen Logistik 2020/000"]) == 0
    for text in (*pages, told, capsys.readouterr().err):
        assert [words for words in said if words not in text] == []
    lines = status_lines(read_state(output), output="scan")
    shown = "20261122T010000.000Z.bbbb, finished at 2026-11-22 01:07 UTC"
    assert f"answers, page and summary are still those of run {shown}" in lines


def test_export_into_a_file_of_another_ending_is_refused(
    scan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["export", scan, "--to", "csv", "--into", str(tmp_path / "a.xlsx")]) == UsageError.exit_code
    assert "does not end in .csv" in capsys.readouterr().err
    assert not (tmp_path / "a.xlsx").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "{scan}", "Calder & Voss 2020/01"], f"did you mean '{DOCUMENT}'"),
        (["show", "{scan}", "2020/001"], f"has no document '2020/001'; did you mean '{DOCUMENT}'?"),
        (["show", "{scan}", DOCUMENT, "signatry"], "did you mean 'signatory'?"),
    ],
)
def test_mistake_is_one_line_that_says_what_to_do(
    scan: str, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([argument.format(scan=scan) for argument in arguments]) == UsageError.exit_code
    line = capsys.readouterr().err.strip()
    assert said in line
    assert "\n" not in line


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
    told = json.loads(shown(DOCUMENT, "notice-period", "--json"))
    assert told["answer"]["value_number"] == 45
    assert [row["how"] for row in told["evidence"]] == ["chosen", "aligned"]
    assert len(told["memories"]) == told["answer"]["num_turns"]


def test_show_wraps_long_texts_and_steers_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nights = Nights(Location(uri=str(tmp_path)))
    nights.run({"a": "long \x1b[2J" + "word " * 400}, {"q": "Why?"})
    assert cli.main(["show", str(tmp_path), "a"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert shown.count("word") == 400
    assert max(map(len, shown.splitlines())) <= 80


def test_locators_stand_beside_spans_wherever_they_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, place = write_scan(tmp_path, Scan(num_documents=1)), "a<b>.pdf, page 3"
    for name in ("evidence", "memories"):
        (path,) = (output / name).files()
        table = pq.read_table(path)
        column = table.schema.get_field_index("locator")
        pq.write_table(table.set_column(column, "locator", pa.array([place] * table.num_rows)), path)
    assert cli.main(["show", output.uri, "Nordhafen Logistik 2020/000", "notice-period"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert re.search(rf"notice\. \[characters [\d,]+ to [\d,]+, chunk \d+, {place}\]", words)
    assert cli.main(["page", output.uri, "--to", str(tmp_path / "site")]) == 0
    (sheet,) = (tmp_path / "site").rglob("0000000.html")
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

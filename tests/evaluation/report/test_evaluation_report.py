"""The report of whole outputs, read back as HTML."""

import html
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.config.job import TableFormat
from memagent_batch.errors import OutputError
from memagent_batch.evaluation.report.report import (
    FAILURES_PER_VARIANT,
    Fault,
    choose_failures,
    fault_of,
    make_page,
    memory_verdict,
    render_report,
    with_lengths,
    write_report,
)
from memagent_batch.runs.tables import table_bytes
from memagent_batch.store.location import Location
from tests.evaluation.report.evaluation_output import Made, write_evaluation
from tests.pages.test_traces import turns


class Tags(HTMLParser):
    """The elements of a page, and its ids and links."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.outside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append(tag)
        self.ids += [values["id"] or ""] if "id" in values else []
        self.links += [values["href"] or ""] if tag == "a" else []
        self.outside += [value for name in ("src", "href") if (value := values.get(name)) and value[:5] != "data:"]


def page_of(folder: Path, made: Made) -> str:
    """The text of the page."""
    return page_at(write_evaluation(folder, made))


def page_at(output: Path) -> str:
    return render_report(make_page(Location(uri=str(output)))).decode()


def words_of(page: str) -> str:
    """What a reader sees, white space folded."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page.split("</style>")[1])).split())


def test_report_is_one_file_that_loads_nothing(tmp_path: Path) -> None:
    output = Location(uri=str(write_evaluation(tmp_path, Made(tasks=["$x^", "u"]))))
    written = write_report(output, target=output / "report")
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert written["page"] == f"{output.uri}/report/report.html"
    assert [file.name for file in (tmp_path / "report").iterdir()] == ["report.html"]
    assert {address[0] for address in Tags(page).outside} == {"#"}
    assert {link[1:] for link in Tags(page).links} <= set(Tags(page).ids)


@pytest.mark.parametrize(
    "made",
    [
        Made(with_depth=False, outcomes=["failed"], share_right=lambda *_: 0),
        Made(lengths=[None], outcomes=["missing"], share_right=lambda *_: 0),
    ],
)
def test_report_of_readings_that_all_fail_has_every_part_that_it_links_to(made: Made, tmp_path: Path) -> None:
    tags = Tags(page_of(tmp_path, made))
    assert {link[1:] for link in tags.links} <= set(tags.ids)


def test_report_header_says_suite_models_dates_and_totals(tmp_path: Path) -> None:
    words = words_of(page_of(tmp_path, Made(variants=["a", "b"], outcomes=["failed", "missing"])))
    assert "Suite s3://suites/ruler Model models/tiny" in words
    assert "questions 8 variants 2 readings 16 failed 2 without answer 0 missing 2" in words
    assert "Read by 2026-11-21 04:31 UTC" in words


def test_report_table_has_n_score_interval_and_counts_of_each_cell(tmp_path: Path) -> None:
    words = words_of(page_of(tmp_path, Made(lengths=[1024, 4096], outcomes=["failed", "unanswered"])))
    assert "niah_single_1 1,024 overwrite 8 0.750 0.409 – 0.929 1 1 0" in words
    assert "all tasks 1,024 overwrite 8 0.750 0.409 – 0.929 1 1 0" in words


def test_report_lists_each_failure_with_its_reason_and_the_command_that_shows_its_memory(tmp_path: Path) -> None:
    made = Made(variants=["a", "b"], tasks=["t", "u"], lengths=[1024, 8192], share_right=lambda *_: 0.5)
    page = page_of(tmp_path, made)
    assert len(re.findall("in the last memory|lost on the way|never in the memory|no turn recorded", page)) == 32
    words = words_of(page)
    assert "lost on the way" in words
    assert "the engine refused the request" in words
    for run in json.loads((tmp_path / "evaluation.json").read_text())["variants"]:
        assert f"memagent page {tmp_path}/{run['run']}" in words


def test_report_over_the_cap_says_how_many_failures_are_left_out(tmp_path: Path) -> None:
    page = page_of(tmp_path, Made(per_cell=500, share_right=lambda *_: 0, lengths=[1024]))
    assert page.split('id="failures"')[1].count("<tr>") - 1 == FAILURES_PER_VARIANT == 50
    words = words_of(page)
    assert "500 of 500 readings: 100 failed, 100 without answer, 300 wrong." in words
    assert "50 are shown, 450 more are not" in words


def test_report_hostile_text_stays_text_everywhere(tmp_path: Path) -> None:
    hostile = "<script>document.title='owned'</script></memory>\x00\u202e\"><img src=x onerror=alert(1)>"
    made = Made(variants=[f"$a{hostile}"], tasks=[f"t$x^{hostile}", "u"], hostile=hostile, share_right=lambda *_: 0)
    page = page_of(tmp_path, made)
    assert {"script", "memory", "img"}.isdisjoint(Tags(page).tags)
    assert not re.search("[\x00\u202e]", page)
    assert "<script>document.title='owned'</script></memory>⟦U+0000⟧⟦U+202E⟧\"><img src=x" in html.unescape(page)


def test_report_all_right_says_that_there_are_no_failures(tmp_path: Path) -> None:
    assert "None: all 8 readings score 1." in words_of(page_of(tmp_path, Made(share_right=lambda *_: 1)))


def test_report_without_the_runs_says_that_no_turn_is_recorded(tmp_path: Path) -> None:
    output = write_evaluation(tmp_path, Made(outcomes=["lost"]))
    shutil.rmtree(output / "runs")
    assert "no turn recorded" in words_of(page_at(output))


def test_report_arrow_tables_are_read_as_parquet_ones(tmp_path: Path) -> None:
    output = write_evaluation(tmp_path, Made(outcomes=["lost"]))
    before = words_of(page_at(output))
    for file in (output / "runs").rglob("*.parquet"):
        file.with_suffix(".arrow").write_bytes(table_bytes(pq.read_table(file), table_format=TableFormat.ARROW))
        file.unlink()
    for manifest in (output / "runs").rglob("manifest.json"):
        manifest.write_text(manifest.read_text().replace(".parquet", ".arrow"))
    assert words_of(page_at(output)).split("Variants", 1)[1] == before.split("Variants", 1)[1]
    assert "lost on the way" in before


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("evaluation.json", "there is no evaluation.json; name the folder that was `--output` of `evaluate run`"),
        ({"format": "other/9"}, "layout 'other/9'"),
        ({"variants": [{}]}, r"evaluation.json is not whole \('name'\); restore it"),
        ({"variants": []}, "holds no finished variant; run `evaluate run` to its end"),
        ("scores/variant-0.parquet", "variant 'overwrite' are missing: .*variant-0.parquet; run `evaluate run` again"),
    ],
)
def test_report_of_an_evaluation_that_is_not_whole_is_refused_with_place_and_remedy(
    changed: str | dict[str, Any], message: str, tmp_path: Path
) -> None:
    output = write_evaluation(tmp_path, Made())
    if isinstance(changed, str):
        (output / changed).unlink()
    else:
        record = json.loads((output / "evaluation.json").read_text())
        (output / "evaluation.json").write_text(json.dumps(record | changed))
    with pytest.raises(OutputError, match=message):
        make_page(Location(uri=str(output)))


@pytest.mark.parametrize("file", ["scores/variant-0.parquet", "runs/variant-0/memories/part-0.parquet"])
def test_report_of_a_broken_table_is_refused_with_place_and_remedy(file: str, tmp_path: Path) -> None:
    output = write_evaluation(tmp_path, Made())
    (output / file).write_bytes(b"PAR1 and no more")
    with pytest.raises(OutputError, match=f"{Path(file).name} can't be read: .*; run `evaluate run` again"):
        make_page(Location(uri=str(output)))


def written(folder: Path, made: Made) -> str:
    output = Location(uri=str(write_evaluation(folder, made)))
    write_report(output, target=output / "report")
    return (folder / "report" / "report.html").read_text()


def test_report_of_typed_questions_shows_values_and_evidence(tmp_path: Path) -> None:
    page = written(tmp_path, Made(variants=["a", "b"], tasks=["aardvark", "zebra"], typed=True, per_cell=12))

    section = page.split('id="measures"')[1].split("<h2")[0]
    rows = [re.sub(r"<[^>]+>", " ", row).split() for row in section.split("<tr>")[2:]]
    assert [row[:2] for row in rows[:4]] == [["all", "tasks"], ["a", "0.750"], ["b", "0.750"], ["aardvark"]]
    assert section.index("all tasks") < section.index("aardvark") < section.index("zebra")


def test_report_of_plain_questions_leaves_these_parts_out(tmp_path: Path) -> None:
    page = written(tmp_path, Made())

    assert 'id="measures"' not in page
    assert 'id="comparison"' not in page


def test_report_of_several_variants_compares_them_over_the_same_documents(tmp_path: Path) -> None:
    made = Made(variants=["a", "b"], tasks=["aardvark", "zebra"], share_right=lambda variant, *_: (0.25, 1.0)[variant])
    page = written(tmp_path, made)

    section = page.split('id="comparison"')[1].split("<h2")[0]
    rows = [re.sub(r"<[^>]+>", " ", row).split() for row in section.split("<tr>")[2:]]
    assert rows[0] == ["b", "all", "tasks", "12", "0", "4", "&lt;", "0.001"]
    assert rows[1] == ["b", "aardvark", "6", "0", "2", "0.062"]


def reading(number: int = 0, **columns: Any) -> dict[str, Any]:
    row = {"document_id": f"d{number}", "question_id": "q", "sample": 0, "task": "niah", "length_tokens": 1000}
    return row | {"depth": None, "score": 0.0, "status": "ok", "answered": True} | columns


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ({"score": 1.0}, Fault.NONE),
        ({"score": 0.5}, Fault.PARTLY),
        ({}, Fault.WRONG),
        ({"answered": False}, Fault.UNANSWERED),
        ({"answered": False, "status": "failed"}, Fault.FAILED),
        ({"answered": False, "status": "missing"}, Fault.MISSING),
    ],
)
def test_fault_of_reading_says_what_is_wrong(columns: dict[str, Any], fault: Fault) -> None:
    assert fault_of(reading(**columns)) is fault


@pytest.mark.parametrize(
    ("memories", "references", "alternatives", "verdict"),
    [
        (["x", "FOX here"], ("Fox",), False, "in the last memory"),
        (["fox", "x"], ("fox",), False, "lost on the way"),
        (["x", "y"], ("fox",), False, "never in the memory"),
        (["fox", "dog"], ("fox", "dog"), True, "in the last memory"),
        (["fox", "dog"], ("fox", "dog", "cat"), False, "1 in the last memory, 1 lost, 1 never noted"),
        (["none yet"], ("fox",), False, "the memory never changed"),
    ],
)
def test_memory_verdict_says_where_the_reference_went(
    memories: list[str], references: tuple[str, ...], alternatives: bool, verdict: str
) -> None:
    assert memory_verdict(turns(*memories), references=references, alternatives=alternatives) == verdict
    assert memory_verdict([], references=references, alternatives=alternatives) == "no turn recorded"


def test_choose_failures_over_the_limit_takes_each_cell_in_turn_and_counts_all() -> None:
    rows = [reading(number, score=0.5) for number in range(90)]
    rows += [reading(100 + number, task="vt", score=number / 10) for number in range(11)]
    failures = choose_failures(rows, limit=6)
    assert [row["task"] for row in failures.shown] == ["niah"] * 3 + ["vt"] * 3
    assert [row["score"] for row in failures.shown[3:]] == [0.0, 0.1, 0.2]
    assert failures.total == 100
    assert failures.by_fault == {Fault.WRONG: 1, Fault.PARTLY: 99}


def test_choose_failures_all_right_shows_none() -> None:
    failures = choose_failures([reading(score=1.0)])
    assert (failures.shown, failures.total, failures.by_fault) == ([], 0, {})


def test_with_lengths_fills_from_the_document_where_the_suite_gives_none() -> None:
    rows: list[dict[str, Any]] = [
        {"document_id": "asked", "length_tokens": 1000, "num_document_tokens": 990},
        {"document_id": "own", "length_tokens": None, "num_document_tokens": 3000},
        {"document_id": "own", "length_tokens": None, "num_document_tokens": None},
        {"document_id": "exact", "length_tokens": None, "num_document_tokens": 4096},
        {"document_id": "never", "length_tokens": None, "num_document_tokens": None},
    ]
    assert with_lengths(pa.Table.from_pylist(rows))["length_tokens"].to_pylist() == [1000, 4096, 4096, 4096, None]

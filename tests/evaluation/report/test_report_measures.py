"""The parts of the report about values, evidence and places: there where they were asked for, and only there."""

import re
from pathlib import Path

from memagent_batch.evaluation.report.report import write_report
from memagent_batch.files.location import Location
from tests.evaluation.report.evaluation_output import Made, write_evaluation


def written(folder: Path, made: Made) -> str:
    output = Location(uri=str(write_evaluation(folder, made)))
    write_report(output, target=output / "report")
    return (folder / "report" / "report.html").read_text()


def test_report_of_typed_questions_shows_values_evidence_and_calibration(tmp_path: Path) -> None:
    page = written(tmp_path, Made(variants=["a", "b"], tasks=["aardvark", "zebra"], typed=True, per_cell=12))

    section = page.split('id="measures"')[1].split("<h2")[0]
    rows = [re.sub(r"<[^>]+>", " ", row).split() for row in section.split("<tr>")[2:]]
    assert [row[:2] for row in rows[:4]] == [["all", "tasks"], ["a", "0.750"], ["b", "0.750"], ["aardvark"]]
    assert "expected calibration error 0.150" in section
    assert section.index("all tasks") < section.index("aardvark") < section.index("zebra")
    assert {"chart-reliability", "spread", "depth"} <= set(re.findall(r'id="([^"]+)"', page))


def test_report_of_plain_questions_leaves_these_parts_out(tmp_path: Path) -> None:
    page = written(tmp_path, Made())

    assert 'id="measures"' not in page
    assert 'id="spread"' not in page
    assert 'id="chart-reliability"' not in page


def test_report_of_several_variants_compares_them_over_the_same_documents(tmp_path: Path) -> None:
    made = Made(variants=["a", "b"], tasks=["aardvark", "zebra"], share_right=lambda variant, *_: (0.25, 1.0)[variant])
    page = written(tmp_path, made)

    section = page.split('id="comparison"')[1].split("<h2")[0]
    rows = [re.sub(r"<[^>]+>", " ", row).split() for row in section.split("<tr>")[2:]]
    assert rows[0] == ["b", "all", "tasks", "12", "0", "4", "&lt;", "0.001"]
    assert rows[1] == ["b", "aardvark", "6", "0", "2", "0.062"]


def test_report_of_one_variant_compares_nothing(tmp_path: Path) -> None:
    assert 'id="comparison"' not in written(tmp_path, Made())

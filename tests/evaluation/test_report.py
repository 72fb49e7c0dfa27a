"""The report of an evaluation."""

import re
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.apps.evaluation.evaluate import EVALUATION_FORMAT, VariantRecord, claim_evaluation, read_scores
from memagent_batch.apps.evaluation.report import report_text
from memagent_batch.cli.evaluate import terminal_text
from memagent_batch.data.store.json_files import write_json
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.parquet import parquet_bytes
from memagent_batch.errors import OutputError
from tests.evaluation.test_scores import LABEL, answer, question, scored, value

TASKS = ("aardvark", "zebra")
SUITE = "s3://suites/ruler"


def write_output(
    folder: Path, right: dict[str, int], *, task: str = "", asked: dict[str, Any] | None = None, told: str = "fox"
) -> Location:
    """Writes an evaluation of variants that are right in so many of eight questions on two tasks; returns its place."""
    output = Location(uri=str(folder))
    evaluation = claim_evaluation(output, suite=SUITE)
    for name, num_right in right.items():
        questions = [
            question(number, task=task or TASKS[number % 2], length_tokens=(1024, 4096)[number // 4], **(asked or {}))
            for number in range(8)
        ]
        given = value(told) if asked else {}
        answers = [answer(number, told if number < num_right else "dog", **given) for number in range(7)]
        table = scored(questions, [*answers, answer(7, None, status="failed")], variant=name)
        (output / f"scores/{name}.parquet").write_bytes(parquet_bytes(table))
        evaluation.variants[name] = VariantRecord(model="models/tiny", policy="gated", seconds=12.0, fingerprint="f")
    write_json(output / "evaluation.json", evaluation.model_dump())
    return output


def report(output: Location) -> str:
    evaluation = claim_evaluation(output, suite=SUITE)
    return report_text(evaluation.model_dump(), read_scores(output, evaluation))


def rows(page: str, section: str) -> list[list[str]]:
    lines = page.split(f"## {section}")[1].split("## ")[0].splitlines()
    table = [line for line in lines if line.startswith("| ")]
    assert len({len(line) for line in table}) == 1  # columns stand below each other
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


def test_report_has_n_score_interval_counts_costs_and_comparison_of_variants(tmp_path: Path) -> None:
    page = report(write_output(tmp_path, {"a": 6, "b": 2}))
    assert page.startswith("# Evaluation of s3://suites/ruler")
    a, b = rows(page, "Variants")
    assert a[:8] == ["a", "gated", "models/tiny", "8", "0.750", "0.409 to 0.929", "1", "0"]
    assert a[8:] == ["0", "120", "1.5", "12"]
    assert b[4] == "0.250"
    cells = rows(page, "Every cell")
    together = [["all tasks", length, name] for length in ("1,024", "4,096") for name in "ab"]
    assert [cell[:3] for cell in cells[:4]] == together
    assert cells[4][:5] == ["aardvark", "1,024", "a", "2", "1.000"]
    assert cells[5][:5] == ["aardvark", "1,024", "b", "2", "0.500"]
    assert rows(page, "Compared with a")[0] == ["b", "all tasks", "0", "4", "4", "0.125"]


def test_report_leaves_out_parts_of_which_nothing_was_asked(tmp_path: Path) -> None:
    page = report(write_output(tmp_path / "plain", {"a": 6}))
    assert "Compared" not in page
    assert "Values, evidence" not in page
    typed = report(write_output(tmp_path / "typed", {"a": 8}, asked=LABEL, told="open"))
    assert [row[:3] for row in rows(typed, "Values, evidence, not stated")] == [
        ["all tasks", "a", "0.875 (0.529 to 0.978)"],
        ["aardvark", "a", "1.000 (0.510 to 1.000)"],
        ["zebra", "a", "0.750 (0.301 to 0.954)"],
    ]


def test_report_of_a_hostile_task_breaks_no_table_and_steers_no_terminal(tmp_path: Path) -> None:
    page = report(write_output(tmp_path, {"a": 6}, task="t|\n\x1b[2J<script>"))
    assert "t\\| \x1b\\[2J\\<script\\>" in page
    said = terminal_text(page)
    assert re.search(r"\| all tasks +\| +1,024 \| a +\|", said)
    assert "\x1b" not in said


@pytest.mark.parametrize(
    ("file", "written", "message"),
    [
        ("evaluation.json", '{"format": "other/9"}', "layout 'other/9'.*choose an empty"),
        ("evaluation.json", '{"format": ', r"\.json is not valid .*restore it"),
        (
            "evaluation.json",
            f'{{"format": "{EVALUATION_FORMAT}", "suite": "s", "variants": {{"a": {{}}}}}}',
            "is not whole; restore it",
        ),
        ("scores/a.parquet", "PAR1 and no more", r"a\.parquet can't be read: .*; run `evaluate run` again"),
    ],
)
def test_report_of_an_evaluation_that_is_not_whole_is_refused_with_place_and_remedy(
    file: str, written: str, message: str, tmp_path: Path
) -> None:
    output = write_output(tmp_path, {"a": 6})
    (tmp_path / file).write_text(written)
    with pytest.raises(OutputError, match=message):
        report(output)

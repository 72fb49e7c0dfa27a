"""`make demo`, the first command of the README, as a user gives it."""

import subprocess
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.tables import table_rows

CHECKOUT = Path(__file__).parents[1]
pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.vllm, pytest.mark.timeout(1800)]


def test_demo_reads_its_documents_right(tmp_path: Path) -> None:
    ended = subprocess.run(["make", "demo", f"DEMO_OUT={tmp_path}"], cwd=CHECKOUT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    scores = pq.read_table(tmp_path / "results" / "scores")
    assert scores.num_rows == 9
    assert pc.sum(scores["score"]).as_py() >= 8, ended.stdout  # 9 here; a processor may round otherwise
    assert (tmp_path / "results" / "runs" / "overwrite" / "pages" / "index.html").exists()
    read = table_rows(str(tmp_path / "licences" / "answers"), "answers")
    labels = {row["document_id"]: row["value_label"] for row in read if row["question_id"] == "licence"}
    assert labels == {"attrs": "MIT", "filelock": "MIT", "regex": "Apache-2.0"}
    differing = [line.split("\t") for line in ended.stdout.splitlines() if line.startswith("regex\t")]
    assert [(line[1], line[3][:13]) for line in differing] == [("Apache-2.0 CNRI-Python", "All additions")]
    assert (tmp_path / "licences" / "pages" / "index.html").exists()

"""`evaluate run` with real Ray, real vLLM, the shipped policy and a suite of ours."""

import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.cli import main as cli
from memagent_batch.evaluation.needles import Haystack, make_task
from memagent_batch.evaluation.suite import SUITE_DOCUMENTS, SUITE_FORMAT, SUITE_QUESTIONS
from memagent_batch.tokens.tokenizer import Tokenizer

pytestmark = [pytest.mark.ray, pytest.mark.vllm, pytest.mark.slow, pytest.mark.usefixtures("ray_here")]

CONFIG = Path(__file__).parents[2] / "jobs" / "tiny.yaml"
LENGTHS = (600, 600, 600, 9_000, 9_000, 9_000)
VARIANTS = "overwrite: {}\ngated: {policy: {kind: gated}}\n"


def write_suite(folder: Path, *, tokenizer: Tokenizer) -> None:
    rng = random.Random(11)
    tasks = [
        make_task(rng, length=length, length_of=lambda text: len(tokenizer.encode(text)), haystack=Haystack.NOISE)
        for length in LENGTHS
    ]
    (folder / "documents").mkdir(parents=True)
    documents = [{"document_id": f"d{number}", "text": task.document} for number, task in enumerate(tasks)]
    pq.write_table(pa.Table.from_pylist(documents, schema=SUITE_DOCUMENTS), folder / "documents" / "a.parquet")
    questions = [
        {"question_id": "q", "document_id": f"d{number}", "question": task.question, "references": [task.answer]}
        | {"task": "niah", "length_tokens": length, "metric": "ruler_all", "is_absent": False}
        for number, (task, length) in enumerate(zip(tasks, LENGTHS, strict=True))
    ]
    pq.write_table(pa.Table.from_pylist(questions, schema=SUITE_QUESTIONS), folder / "questions.parquet")
    (folder / "suite.json").write_text(json.dumps({"format": SUITE_FORMAT}))


def test_evaluate_run_shipped_policy_answers_a_suite_with_two_variants(
    tmp_path: Path, tiny_tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    write_suite(tmp_path / "suite", tokenizer=tiny_tokenizer)
    (tmp_path / "variants.yaml").write_text(VARIANTS)
    suite = ["--suite", str(tmp_path / "suite"), "--variants", str(tmp_path / "variants.yaml")]
    assert cli.main(["evaluate", "run", "--config", str(CONFIG), *suite, "--output", str(tmp_path / "out")]) == 0
    evaluation = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert [variant["name"] for variant in evaluation["variants"]] == ["overwrite", "gated"]
    assert len({variant["fingerprint"] for variant in evaluation["variants"]}) == 2
    told = {}
    for variant in ("overwrite", "gated"):
        rows = pq.read_table(tmp_path / "out" / "scores" / f"{variant}.parquet").to_pylist()
        assert sum(row["score"] for row in rows) >= len(LENGTHS) - 1, rows
        assert all(row["status"] == "ok" and row["num_turns"] > 1 for row in rows)
        told[variant] = sum(row["num_completion_tokens"] for row in rows)
    assert told["gated"] < told["overwrite"] / 2
    lines = [line.split()[:3] for line in capsys.readouterr().out.splitlines()]
    first = lines.index(["VARIANT", "TASK", "LENGTH"]) + 1  # Ray prints to stdout in a session of the tests'
    assert lines[first : first + 4] == [
        [variant, "niah", length] for variant in ("overwrite", "gated") for length in ("600", "9,000")
    ]

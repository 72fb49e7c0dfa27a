"""`evaluate run` with an engine that needs no model and always answers `simulated`."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.apps.evaluation import evaluate as flow
from memagent_batch.apps.evaluation.scores import SCORES
from memagent_batch.apps.evaluation.suite import SUITE_DOCUMENTS, SUITE_FORMAT, SUITE_QUESTIONS
from memagent_batch.cli import main as cli
from memagent_batch.data.store.location import Location
from memagent_batch.run.history import find_run
from tests.jobs import small_arguments
from tests.tables import table_rows

REFERENCES = ["simulated", "fox", "a Simulated thing", "simulated"]
VARIANTS = "small: {policy: {chunk_tokens: 30}}\nlarge: {policy: {chunk_tokens: 60}, openai: {api_key: hunter2}}\n"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, text_model: str) -> Path:
    """A folder in which two variants have read and scored a suite."""
    folder = tmp_path_factory.mktemp("evaluation")
    write_job(folder, model=text_model)
    assert evaluate(folder, "--variants", str(folder / "variants.yaml")) == 0
    return folder


@pytest.fixture
def job(tmp_path: Path, text_model: str) -> Path:
    write_job(tmp_path, model=text_model)
    return tmp_path


def write_job(folder: Path, *, model: str) -> None:
    write_suite(folder, [{"references": [reference]} for reference in REFERENCES])
    (folder / "variants.yaml").write_text(VARIANTS)
    small_arguments(folder, model, ask=["Why?"], input={"text_column": "body"})


def write_suite(folder: Path, questions: list[dict[str, Any]]) -> None:
    asked = {"question": "Who?", "task": "who", "metric": "sub_em", "is_absent": False}
    rows = [
        {"question_id": f"q{number}", "document_id": f"d{number}", **asked, **question}
        for number, question in enumerate(questions)
    ]
    documents = [{"document_id": f"d{number}", "text": "some text " * 40 * (number + 1)} for number in range(len(rows))]
    (folder / "asked" / "documents").mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(documents, schema=SUITE_DOCUMENTS), folder / "asked/documents/0.parquet")
    pq.write_table(pa.Table.from_pylist(rows, schema=SUITE_QUESTIONS), folder / "asked/questions.parquet")
    (folder / "asked" / "suite.json").write_text(json.dumps({"format": SUITE_FORMAT}))


def evaluate(folder: Path, *arguments: str, suite: str = "asked", output: Path | None = None) -> int:
    given = ["--suite", str(folder / suite), "--config", str(folder / "job.yaml")]
    return cli.main(["evaluate", "run", *given, "--output", str(output or folder / "out"), *arguments])


def evaluation(output: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((output / "evaluation.json").read_text())
    return value


def scores(folder: Path, variant: str) -> list[float]:
    table = pq.read_table(folder / "out" / "scores" / f"{variant}.parquet")
    assert table.schema.equals(SCORES)
    values: list[float] = table["score"].to_pylist()
    return values


def cells(said: str) -> list[list[str]]:
    """The cells of the report's tables, without their costs."""
    return [[cell.strip() for cell in line.strip("|").split("|")[:9]] for line in said.splitlines()]


def test_evaluate_run_scores_each_variant_keeps_its_run_and_writes_no_secret(finished: Path) -> None:
    assert scores(finished, "small") == scores(finished, "large") == [1.0, 0.0, 0.0, 1.0]
    found = evaluation(finished / "out")
    assert found["format"] == "memagent-evaluation/3"
    assert found["suite"].endswith("/asked")
    assert [*found["variants"]] == ["small", "large"]
    for name, variant in found["variants"].items():
        manifest = find_run(Location(uri=str(finished / "out" / "runs" / name))).manifest
        assert variant["fingerprint"] == manifest["fingerprint"]
        assert (variant["policy"], variant["model"]) == ("overwrite", manifest["settings"]["model"])
        assert manifest["counts"]["asked"] == manifest["counts"]["ok"] == len(REFERENCES)
    assert [path for path in (finished / "out").rglob("*.json") if "hunter2" in path.read_text()] == []


def test_variant_that_another_process_reads_meanwhile_stays_in_the_evaluation(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score, before = flow.score_variant, dict[str, Any]()

    def slowly(name: str, *arguments: Any, **settings: Any) -> None:
        if name == "overwrite":
            assert evaluate(job, "--policies", "truncate") == 0
            before.update(evaluation(job / "out")["variants"])
        score(name, *arguments, **settings)

    monkeypatch.setattr(flow, "score_variant", slowly)
    assert evaluate(job, "--policies", "overwrite") == 0
    found = evaluation(job / "out")["variants"]
    assert [*before] == ["truncate"]
    assert [*found] == ["truncate", "overwrite"]
    assert found == {**before, "overwrite": found["overwrite"]}
    assert found["overwrite"]["policy"] == "overwrite"


def test_evaluate_run_scores_values_and_evidence_of_typed_questions(job: Path, text_model: str) -> None:
    made = ["--tasks", "stated", "absent", "--typed", "--lengths", "512", "--samples", "1", "--model", text_model]
    assert cli.main(["evaluate", "make", "--output", str(job / "suite"), *made]) == 0

    assert evaluate(job, "--follow-ups.evidence", "--policy.question-tokens=100", suite="suite") == 0

    rows = pq.read_table(job / "out" / "scores" / "overwrite.parquet").to_pylist()
    evidence = [row for row in table_rows(job / "out/runs/overwrite", "evidence") if row["how"] == "chosen"]
    assert [(row["task"], row["answer_type"], row["is_absent"]) for row in rows] == [
        ("stated", "number", False),
        ("absent", "number", True),
    ]
    for row, asked in zip(rows, pq.read_table(job / "suite" / "questions.parquet").to_pylist(), strict=True):
        own = [each for each in evidence if each["question_id"] == row["question_id"]]
        gold = [place for span in asked["gold_spans"] for place in range(span["char_start"], span["char_end"])]
        hit = any(place in gold for each in own for place in range(each["char_start"], each["char_end"]))
        assert row["value_status"] is not None
        assert row["value_right"] is not None
        assert row["num_evidence"] == len(own)
        assert row["evidence_hit"] == (None if row["is_absent"] else hit)


def test_evaluate_run_again_reads_nothing_and_says_the_same(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    turns = set((finished / "out").rglob("log/turns/*"))
    assert evaluate(finished, "--variants", str(finished / "variants.yaml")) == 0
    printed = capsys.readouterr().out
    said = cells(printed)
    assert printed.startswith((finished / "out" / "report.md").read_text().splitlines()[0])
    for variant in ("small", "large"):
        assert ["who", "–", variant, "4", "0.500", "0.150 to 0.850", "0", "0", "0"] in said
    assert set((finished / "out").rglob("log/turns/*")) == turns


def test_evaluate_run_another_suite_in_its_output_is_refused(
    finished: Path, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate(job, output=finished / "out") == 2
    assert "belongs to an evaluation over the suite" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("questions", "message"),
    [
        ([], "questions.parquet holds no questions; write at least one"),
        (2 * [{"question_id": "q", "document_id": "d0", "references": ["fox"]}], "'q' is there twice for document_id"),
    ],
)
def test_evaluate_run_suite_that_cannot_be_asked_is_refused_before_anything_is_read(
    job: Path, capsys: pytest.CaptureFixture[str], questions: list[dict[str, Any]], message: str
) -> None:
    write_suite(job, questions)
    assert evaluate(job) == 2
    assert message in capsys.readouterr().err
    assert not (job / "out" / "runs").exists()


def test_evaluate_run_failed_samples_stay_in_the_n_until_the_suite_is_fixed(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_suite(job, [{"references": ["simulated"], "question": "Why? " * 40}, {"references": ["fox"]}])
    assert evaluate(job, "--sampling.samples=2", "--sampling.temperature=1") == 4
    assert ["who", "–", "overwrite", "4", "0.000", "0.000 to 0.658", "2", "0", "0"] in cells(capsys.readouterr().out)
    write_suite(job, [{"references": ["simulated"]}, {"references": ["simulated"]}])
    turns = set((job / "out" / "runs" / "overwrite" / "log" / "turns").iterdir())
    assert evaluate(job, "--sampling.samples=2", "--sampling.temperature=1") == 0
    assert scores(job, "overwrite") == [1.0] * 4
    added = set((job / "out" / "runs" / "overwrite" / "log" / "turns").iterdir()) - turns
    read = {row["document_hash"] for path in added for row in pq.read_table(path).to_pylist()}
    assert len(read) == 1

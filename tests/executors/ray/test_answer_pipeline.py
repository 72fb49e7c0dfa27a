"""The whole pipeline on real Ray, with an engine that needs no model."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from memagent_batch.cli.settings import job_of
from memagent_batch.config.job import JobConfig
from memagent_batch.domain.answers import Extraction
from memagent_batch.flows.answer import answer
from memagent_batch.runs.tables import ANSWERS, table_files
from memagent_batch.store.location import Location

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_here")]

CHUNK_TOKENS = 50
LONG_QUESTION = "Why? " * 100
QUESTIONS = ["Who?", "What?", LONG_QUESTION]
TEXTS = {
    "empty": "",
    "short": "a word",
    "exact": "one two three four five " * 20,
    "long": "the fox jumps over 12345 dogs. " * 60,
    "twin": "a word",
}
BROKEN = "broken"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards of two formats: five readable documents, and one without text."""
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder / "documents", TEXTS)
    (folder / "questions.txt").write_text("\n".join(QUESTIONS))
    return folder


@pytest.fixture(scope="module")
def finished(corpus: Path, text_model: str, ray_here: None) -> Path:
    """The output of one run over the corpus."""
    answer(settings_of(corpus, text_model))
    return corpus / "run"


@pytest.fixture
def output(finished: Path, tmp_path: Path) -> Path:
    """A copy of that output, to run in again."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def write_corpus(folder: Path, texts: dict[str, str]) -> None:
    folder.mkdir()
    names = list(texts)
    rows: list[dict[str, str | None]] = [
        {"document_id": name, "text": texts[name], "source": f"file {name}"} for name in names[:2]
    ]
    rows.append({"document_id": BROKEN, "text": None, "source": None})
    pq.write_table(pa.Table.from_pylist(rows), folder / "a.parquet", row_group_size=1)
    lines = [json.dumps({"document_id": name, "text": texts[name], "source": 7}) for name in names[2:]]
    (folder / "b.jsonl").write_text("\n".join(lines))


def settings_of(corpus: Path, model: str, *, output: Path | str | None = None, **settings: Any) -> JobConfig:
    given: dict[str, Any] = {
        "documents": str(corpus / "documents"),
        "questions": str(corpus / "questions.txt"),
        "output": str(output or corpus / "run"),
        "engine": "simulated",
        "model": model,
        "window_tokens": 1000,
        "policy": {"chunk_tokens": CHUNK_TOKENS, "question_tokens": 60, "memory_tokens": 40, "answer_tokens": 40},
        "input": {"carry_columns": ("source",)},
        "log": {"flush_seconds": 0.1},
    }
    return job_of(**given | settings)


def rows_in(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(folder).to_pylist()
    return rows


def log_files(output: Path) -> dict[str, int]:
    """Files of turns and outcomes, and when they were written."""
    return {str(path.relative_to(output)): path.stat().st_mtime_ns for path in output.glob("log/[to]*/*")}


def by_reading(output: Path) -> dict[tuple[str, str], dict[str, Any]]:
    rows = pa.concat_tables(pq.read_table(file) for file in table_files(str(output), "answers")).to_pylist()
    return {(row["document_id"], row["question"]): row for row in rows}


def test_run_gives_each_reading_asked_exactly_one_row(finished: Path) -> None:
    rows = rows_in(finished / "answers")
    keys = Counter((row["document_id"], row["question"].strip()) for row in rows)
    asked = {(name, question.strip()) for name in [*TEXTS, BROKEN] for question in QUESTIONS}
    assert keys == Counter(asked)
    counts = json.loads((finished / "manifest.json").read_text())["counts"]
    assert counts == {
        "asked": 18,
        "ok": 10,
        "failed": 8,
        "not_read": 0,
        "answers_rows": 18,
        "memories_rows": len(rows_in(finished / "memories")),
    }


def test_run_again_with_another_extraction_and_format_reads_nothing(
    corpus: Path, finished: Path, output: Path, text_model: str
) -> None:
    settings: dict[str, Any] = {"extraction": Extraction.RAW, "table_format": "arrow"}
    answer(settings_of(corpus, text_model, output=output, **settings))
    assert set(log_files(output)) == set(log_files(finished))
    (file,) = (output / "answers").glob("*.arrow")
    answers = pa.feather.read_table(file)
    assert answers.schema.equals(pa.schema([*ANSWERS, pa.field("source", pa.string())]), check_metadata=True)
    assert set(answers["answer"].to_pylist()) == {"\\boxed{simulated}", None}
    assert [*(output / "memories").glob("*.arrow")]


def test_run_with_another_chunk_size_reads_all_again_on_two_replicas(
    corpus: Path, output: Path, text_model: str
) -> None:
    settings: dict[str, Any] = {
        "policy": {"chunk_tokens": 40, "question_tokens": 60, "memory_tokens": 40, "answer_tokens": 40},
        "pool": {"replicas": 2, "readings_in_flight": 1},
        "simulated": {"turn_seconds": 0.1},
    }
    manifest = answer(settings_of(corpus, text_model, output=output, **settings))
    rows = by_reading(output)
    assert {row["run_id"] for row in rows.values()} == {manifest["run_id"]}
    assert {row["num_replayed_turns"] for row in rows.values()} == {0}
    assert (manifest["counts"]["ok"], manifest["counts"]["failed"]) == (10, 8)


def test_run_long_document_holds_no_short_one_back(text_model: str, tmp_path: Path) -> None:
    texts = {"long": "the fox jumps over 12345 dogs. " * 200} | {f"short{number}": "a b c" for number in range(8)}
    rows = [{"document_id": name, "text": f"{name} {text}"} for name, text in texts.items()]
    (tmp_path / "documents").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "documents" / "all.parquet")
    settings: dict[str, Any] = {"input": {}, "questions": None, "ask": ("Who?",), "simulated": {"turn_seconds": 0.1}}
    answer(settings_of(tmp_path, text_model, **settings))
    answered = {row["document_id"]: row for row in rows_in(tmp_path / "run" / "answers")}
    long = answered.pop("long")
    assert long["num_turns"] > 30
    assert len(answered) == 8
    assert all(row["finished_at"] < long["finished_at"] for row in answered.values())
    first = min((tmp_path / "run" / "log" / "outcomes").iterdir(), key=lambda path: path.name)
    assert long["document_hash"] not in {row["document_hash"] for row in rows_in(first)}


@pytest.mark.s3
def test_run_from_bucket_to_bucket_keeps_its_keys_to_itself(
    corpus: Path, finished: Path, text_model: str, s3_bucket: Location
) -> None:
    for path in (corpus / "documents").iterdir():
        (s3_bucket / f"in/{path.name}").write_bytes(path.read_bytes())
    (s3_bucket / "questions.txt").write_bytes((corpus / "questions.txt").read_bytes())
    options = {**s3_bucket.storage_options, "secret": "hunter2-hunter2"}
    settings: dict[str, Any] = {
        "documents": f"{s3_bucket.uri}/in",
        "questions": f"{s3_bucket.uri}/questions.txt",
        "storage_options": options,
    }
    output = s3_bucket / "runs" / "one"
    job = settings_of(corpus, text_model, output=output.uri, **settings)
    manifest = answer(job)
    again = answer(job)
    assert again["counts"] == manifest["counts"]
    (file,) = again["files"]["answers"]
    assert (output / "answers").files() == [(output / file).path]
    table = pq.read_table((output / file).path, filesystem=output.fs)
    rows = {(row["document_id"], row["question"]): row for row in table.to_pylist()}
    for key, row in by_reading(finished).items():
        assert (rows[key]["status"], rows[key]["answer"], rows[key]["num_turns"]) == (
            row["status"],
            row["answer"],
            row["num_turns"],
        )
    assert all(b"hunter2" not in output.at(path).read_bytes() for path in output.files())

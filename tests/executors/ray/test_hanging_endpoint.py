"""A server that takes a request and never answers: what it costs the readings beside it."""

import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.cli.settings import job_of
from memagent_batch.config.job import JobConfig
from memagent_batch.domain.addresses import text_hash
from memagent_batch.flows.answer import answer
from memagent_batch.tokens.tokenizer import Tokenizer
from tests.engines.scripted_server import Reply, scripted_server
from tests.engines.test_openai import completion_reply

TEXTS = {"fine": "a text to read " * 20, "cursed": "a cursed text " * 20, "other": "another text " * 20}


@contextmanager
def endpoint(model: str, *, hangs: bool = False, away: range = range(0)) -> Iterator[str]:
    """Answers every prompt with one word, but none that shows the cursed text, if it hangs.

    To the requests with numbers in `away`, those for one token included, it says that nobody is there.
    """
    tokenizer, over, numbers = Tokenizer(model), threading.Event(), itertools.count()

    def reply(body: dict[str, Any]) -> Reply:
        if hangs and "cursed" in tokenizer.decode(body["prompt"]):
            over.wait()
        return completion_reply("word", token_ids=tokenizer.encode("word")[: body["max_tokens"]])

    with scripted_server() as script:
        script.answer, script.is_away = reply, lambda: next(numbers) in away
        script.models = Reply(body=json.dumps({"data": [{"id": model}]}).encode())
        try:
            yield script.base_url
        finally:
            over.set()


def settings_of(folder: Path, model: str, base_url: str, **settings: Any) -> JobConfig:
    given: dict[str, Any] = {
        "documents": str(folder / "documents.parquet"),
        "output": str(folder / "run"),
        "ask": ("Who?",),
        "model": model,
        "engine": "openai",
        "executor": "local",
        "openai": {"base_url": base_url, "timeout_seconds": 3, "max_retries": 1, "backoff_seconds": 0.01},
        "window_tokens": 1000,
        "policy": {"chunk_tokens": 30, "question_tokens": 60, "memory_tokens": 40, "answer_tokens": 40},
        "log": {"flush_seconds": 0.05},
    }
    return job_of(**given | settings)


def read(job: JobConfig) -> dict[str, str]:
    """Reads what is to be read; statuses of what was read now, by document."""
    run_id = answer(job)["run_id"]
    names = {text_hash(text): name for name, text in TEXTS.items()}
    rows = pq.read_table(Path(job.output) / "log" / "outcomes").to_pylist()
    return {names[row["document_hash"]]: row["status"] for row in rows if row["run_id"] == run_id}


def test_reader_of_an_endpoint_that_never_answers_one_document_fails_that_one_and_mends_it_later(
    text_model: str, tmp_path: Path
) -> None:
    rows = [{"document_id": name, "text": text} for name, text in TEXTS.items()]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "documents.parquet")
    with endpoint(text_model, hangs=True) as base_url:
        assert read(settings_of(tmp_path, text_model, base_url)) == {"fine": "ok", "cursed": "failed", "other": "ok"}
    outcomes = pq.read_table(tmp_path / "run" / "log" / "outcomes").to_pylist()
    (failed,) = [row for row in outcomes if row["status"] == "failed"]
    assert failed["error_type"] == "EngineRequestError"
    assert "gave no whole answer within 3 s (2 tries)" in failed["error_message"]
    with endpoint(text_model, hangs=False) as base_url:
        assert read(settings_of(tmp_path, text_model, base_url, retry_failed=True)) == {"cursed": "ok"}


def test_reader_of_an_endpoint_that_goes_away_for_a_while_waits_and_reads_everything(
    text_model: str, tmp_path: Path
) -> None:
    rows = [{"document_id": name, "text": text} for name, text in TEXTS.items()]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "documents.parquet")
    with endpoint(text_model, away=range(4, 12)) as base_url:
        settings = {"base_url": base_url, "timeout_seconds": 5, "max_retries": 0, "backoff_seconds": 0.01}
        job = settings_of(tmp_path, text_model, base_url, openai=settings)
        assert read(job) == {"fine": "ok", "cursed": "ok", "other": "ok"}

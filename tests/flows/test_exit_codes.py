"""Exit codes and last lines of whole jobs."""

import json
import subprocess
import sys
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from memagent_batch.cli.main import main
from memagent_batch.data.store.delta import OutputTable, RunNumber
from memagent_batch.data.store.location import Location
from memagent_batch.errors import EngineRefusedError
from memagent_batch.loop.engines.engine import Engine
from memagent_batch.loop.prompt_sets.built_in import DEFAULT_PROMPTS
from memagent_batch.loop.prompt_sets.files import load_prompt_set, save_prompt_set
from memagent_batch.run import wiring
from memagent_batch.run.executors import reader
from memagent_batch.run.flows import answer as pipeline
from memagent_batch.run.history import RUNS, finished_runs, require_manifest
from memagent_batch.run.tables import READING_TABLES
from memagent_batch.run.wiring import make_engine
from memagent_batch.types import Completion, Prompt
from tests.engine_context import MadeEngine
from tests.jobs import put_documents, small_arguments
from tests.tables import rows_in, table_rows


@pytest.fixture
def arguments(text_model: str, tmp_path: Path) -> list[str]:
    texts = [" ".join(f"{number} and {word} words" for word in range(20)) for number in range(3)]
    documents = put_documents(tmp_path, {f"d{number}": text for number, text in enumerate(texts)})
    return small_arguments(tmp_path, text_model, documents=documents, ask="Who?", policy={"chunk_tokens": 40})


def test_job_superseded_while_it_writes_its_tables_ends_with_3_and_leaves_none(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = Location(uri=str(tmp_path / "run"))
    runs, write = OutputTable(output=output, name="runs"), pipeline.write

    def superseded(*read: Any, **run: Any) -> Any:
        runs.commit(run=RunNumber(number=2, run_id="newer"), schema=RUNS)
        return write(*read, **run)

    monkeypatch.setattr(pipeline, "write", superseded)
    assert main(["answer", *arguments]) == 3
    assert capsys.readouterr().err.splitlines()[-1].startswith("superseded: ")
    assert [OutputTable(output=output, name=name).exists() for name in READING_TABLES] == [False] * 4
    assert finished_runs(output) == []


def test_job_whose_output_has_doubled_slashes_finds_its_own_log_and_tables(
    arguments: list[str], tmp_path: Path
) -> None:
    for _ in range(2):
        assert main(["answer", *arguments, "--output", f"{tmp_path}//./run"]) == 0
    manifest = require_manifest(Location(uri=str(tmp_path / "run")))
    assert (manifest["counts"]["ok"], manifest["changes"]["readings"]["read"]) == (3, 0)
    assert len(table_rows(tmp_path / "run", "answers")) == 3


def test_job_whose_endpoint_is_not_there_ends_with_2_and_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint = ["--engine", "openai", "--openai.base-url", "http://127.0.0.1:9/v1", "--openai.max-retries", "0"]
    assert main(["answer", *arguments, *endpoint]) == 2
    *_, before, last = capsys.readouterr().err.splitlines()
    assert last.startswith("error: the endpoint http://127.0.0.1:9/v1 can't be reached")
    assert before.startswith("readings 0/3")


@pytest.mark.parametrize("process", ["this", "another"])
def test_job_whose_prompt_set_is_edited_after_its_start_reads_nothing_else_under_its_name(
    process: str,
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    prompts, read = tmp_path / "prompts.json", pipeline.read_documents
    save_prompt_set(DEFAULT_PROMPTS, prompts)

    def edited(*bundles: Any, **run: Any) -> Any:
        save_prompt_set(replace(DEFAULT_PROMPTS, first_memory="nothing at all"), prompts)
        if process == "another":
            monkeypatch.setattr(wiring, "_FILES", {})  # as a worker on another node, which has loaded nothing yet
        return read(*bundles, **run)

    monkeypatch.setattr(pipeline, "read_documents", edited)
    code = main(["answer", *arguments, "--prompt-set", str(prompts)])
    if process == "another":
        assert code == 1
        assert "edited since the run began" in capsys.readouterr().err.splitlines()[-1]
        assert not list((tmp_path / "run").glob("log/turns/*"))
        return
    assert code == 0
    reader = require_manifest(Location(uri=str(tmp_path / "run")))["reader"]
    assert reader["prompt_set_sha256"] == DEFAULT_PROMPTS.sha256 != load_prompt_set(str(prompts)).sha256


class ExpiringEngine(MadeEngine):
    """Answers five turns, then refuses."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._left = 5

    async def start(self) -> None:
        await self._engine.start()

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        if not self._left:
            raise EngineRefusedError("the endpoint answered 401: token expired; set a key that is good")
        self._left -= 1
        return await self._engine.complete(prompt, seed=seed)

    async def stop(self) -> None:
        await self._engine.stop()


def test_job_whose_key_expires_in_mid_run_stops_with_2_and_goes_on_with_another(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slow_log = [*arguments, "--log.flush-seconds", "600"]
    with monkeypatch.context() as expiring:
        expiring.setattr(reader, "make_engine", lambda agent, **_: ExpiringEngine(make_engine(agent)))
        assert main(["answer", *slow_log]) == 2
    *_, before, last = capsys.readouterr().err.splitlines()
    assert last == "error: the endpoint answered 401: token expired; set a key that is good"
    assert before.startswith("readings 0/3")
    assert pq.read_table(tmp_path / "run" / "log" / "turns").num_rows == 5
    assert not (tmp_path / "run" / "log" / "outcomes").exists()
    assert main(["answer", *arguments]) == 0
    rows = table_rows(tmp_path / "run", "answers")
    assert sum(row["num_replayed_turns"] for row in rows) >= 5
    turns = rows_in(tmp_path / "run" / "log" / "turns")
    asked = [(row["document_hash"], row["path"]) for row in turns if not row["is_copy"]]
    assert len(asked) == len(set(asked)), "no turn of a document was asked twice"


def test_job_with_a_share_of_failed_readings_ends_with_4_unless_that_share_is_allowed(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put_documents(tmp_path, {"a": None, "b": "some words"})
    assert main(["answer", *arguments]) == 4
    assert "1 of 2 readings failed, max_failed_share is 0.05" in capsys.readouterr().err.splitlines()[-1]
    assert main(["answer", *arguments, "--max-failed-share", "0.5"]) == 0
    last = capsys.readouterr().err.splitlines()[-1]
    assert "1 ok, 1 failed (1 x DocumentError: " in last
    assert "retry_failed" in last


def test_job_most_of_whose_documents_are_gone_ends_with_4_once_unless_that_is_allowed(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def night(num_documents: int, *words: str) -> int:
        put_documents(tmp_path, {f"d{number}": "some words" for number in range(num_documents)})
        return main(["answer", *arguments, *words])

    assert night(9) == 0
    capsys.readouterr()
    assert night(3) == 4
    said = capsys.readouterr()
    assert "6 of 9 documents of the last run are gone, max_removed_share is 0.5" in said.err.splitlines()[-1]
    assert json.loads(said.out)["answers_rows"] == 3
    assert [night(3), night(1, "--max-removed-share", "1")] == [0, 0]


class HangingStore(BaseHTTPRequestHandler):
    """Lists the one text, and lets whoever reads it wait."""

    num_reads = 0

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()

    def do_GET(self) -> None:
        HangingStore.num_reads += 1
        threading.Event().wait()


def test_command_that_is_terminated_while_a_store_hangs_ends_soon(text_model: str, tmp_path: Path) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), HangingStore)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    text = f"http://127.0.0.1:{server.server_port}/a.txt"
    arguments = small_arguments(tmp_path, text_model, documents=text, ask="Who?", policy={"chunk_tokens": 40})
    command = subprocess.Popen([sys.executable, "-m", "memagent_batch", "answer", *arguments], stderr=subprocess.PIPE)
    try:
        while not HangingStore.num_reads and command.poll() is None:
            time.sleep(0.1)
        command.terminate()
        _, lines = command.communicate(timeout=90)
    finally:
        command.kill()
        server.shutdown()
    assert (command.returncode, b"stopped: SIGTERM" in lines) == (143, True), lines

"""No secret of a job is in anything that the job, Ray or Ray Data writes."""

import base64
import functools
import http.server
import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest
import yaml

from memagent_batch.data.store.location import Location
from memagent_batch.run.history import find_run
from tests.job_process import run_job
from tests.tables import table_rows

pytestmark = pytest.mark.ray

SECRETS = {
    name: f"hunter2-{name}"
    for name in ("documents-p@ss", "base-url", "header", "api-key", "hf-token", "extra-body", "signature", "output")
}
"""What must not be found, by where it is planted."""
OUTPUT = f"run?token={SECRETS['output']}"
"""Name of the output folder, which a URL would take for a query."""
FOUND = "hunter2"
"""What all of them hold."""
ROWS = [{"document_id": "read", "text": "Ann signed. " * 30}, {"document_id": "null", "text": None}]


MESSAGE = f"bad\x1b[2J prompt at http://svc:{SECRETS['base-url']}@host/v1\nrun 1 closed: 9 ok"
"""What the endpoint says to every prompt: its address, an escape sequence, and a forged log line."""


class Server(http.server.SimpleHTTPRequestHandler):
    """Gives files to whoever brings password, signature and header; as an endpoint it answers probes alone."""

    def do_GET(self) -> None:
        """Serves the models, or a file."""
        if self.path == "/v1/models":
            self._say(200, {"data": [{"id": "tiny"}]})
        elif self._is_allowed():
            super().do_GET()

    def do_HEAD(self) -> None:
        """A file without its content."""
        if self._is_allowed():
            super().do_HEAD()

    def do_POST(self) -> None:
        """Answers one token to a probe, and refuses any other prompt."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if body["max_tokens"] > 1:
            self._say(400, {"error": {"message": MESSAGE}})
            return
        choice = {"text": "a", "token_ids": [1], "finish_reason": "length"}
        self._say(200, {"choices": [choice], "usage": {"prompt_tokens": len(body["prompt"])}})

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def _say(self, status: int, value: object) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    def _is_allowed(self) -> bool:
        password = base64.b64encode(f"alice:{SECRETS['documents-p@ss']}".encode()).decode()
        wanted = {"Authorization": f"Basic {password}", "X-Token": SECRETS["header"]}
        if SECRETS["signature"] in self.path and all(self.headers[name] == value for name, value in wanted.items()):
            return True
        self.send_error(403)
        return False


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Host and port of the documents and of the endpoint."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Server, directory=str(folder))) as served:
        threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"127.0.0.1:{served.server_port}"
        served.shutdown()


@pytest.fixture(scope="module")
def written(server: str, text_model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that a job over planted secrets wrote: output, stdout, stderr, and Ray's session."""
    folder = tmp_path_factory.mktemp("secrets")
    settings = {
        "documents": f"http://alice:{SECRETS['documents-p@ss']}@{server}/docs.jsonl?X-Amz-Signature={SECRETS['signature']}",
        "ask": ["Who?"],
        "output": f"file://{folder}/{OUTPUT}",
        "engine": "openai",
        "model": "tiny",
        "tokenizer": text_model,
        "openai": {
            "base_url": f"http://svc:{SECRETS['base-url']}@{server}/v1",
            "extra_body": {"user": SECRETS["extra-body"]},
        },
        "vllm": {"engine_args": {"hf_token": SECRETS["hf-token"]}},
        "input": {"format": "jsonl"},
        "window_tokens": 1000,
        "executor": "ray",
        "policy": {"chunk_tokens": 50, "question_tokens": 60, "memory_tokens": 40, "answer_tokens": 40},
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(settings))
    session = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # a socket's path has 107 bytes at the most
    planted = {
        "MEMAGENT_OPENAI__API_KEY": SECRETS["api-key"],
        "MEMAGENT_STORAGE_OPTIONS": json.dumps({"headers": {"X-Token": SECRETS["header"]}}),
    }
    switches = {"RAY_TMPDIR": session, "RAY_enable_export_api_write": "1"}
    command = [sys.executable, "-m", "memagent_batch", "answer", "--config", str(folder / "job.yaml")]
    done = run_job(command, env=os.environ | planted | switches)
    (folder / "job.yaml").unlink()
    (folder / "stdout").write_text(done.stdout)
    (folder / "stderr").write_text(done.stderr)
    shutil.move(session, folder / "session")
    return folder


def texts_in(folder: Path) -> dict[str, str]:
    """The content of every file; of tables the rows."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return {
        str(path.relative_to(folder)): str(pq.read_table(path).to_pylist())
        if path.suffix == ".parquet"
        else path.read_text(errors="replace")
        for path in files
    }


def test_job_over_planted_secrets_reads_with_them_and_writes_none(written: Path) -> None:
    texts = texts_in(written)
    counts = find_run(Location(uri=str(written / OUTPUT))).manifest["counts"]
    assert (counts["asked"], counts["answers_rows"]) == (2, 2), texts["stderr"]
    errors = " ".join(row["error_message"] for row in table_rows(written / OUTPUT, "answers"))
    assert "docs.jsonl?X-Amz-Signature=***, line 2: the text is null" in errors
    assert "prompt at http://host/v1" in errors
    own_folder = quote(OUTPUT, safe="=")  # the log of a Delta table has the place where it lies itself
    assert [name for name, text in texts.items() if FOUND in text.replace(own_folder, "")] == []


def test_job_over_planted_secrets_lets_ray_data_export_its_operators(written: Path) -> None:
    (exported,) = written.glob("session/**/event_EXPORT_DATASET_METADATA.log")
    text = exported.read_text()
    assert "tokenise" in text
    assert "storage_options=StorageOptions({'headers': '***'})" in text


def test_job_over_a_hostile_endpoint_keeps_its_log_lines_to_itself(written: Path) -> None:
    lines = (written / "stderr").read_text().splitlines()
    assert all(line.isprintable() for line in lines)
    assert [line for line in lines if line.lstrip().startswith("run 1 closed")] == []
    assert sum(line.startswith("run ") and " closed: " in line for line in lines) == 1

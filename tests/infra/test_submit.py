"""`jobs/submit.py` at a job server that breaks; a whole cluster is in test_submitted_job.py."""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import ray


class JobServer(BaseHTTPRequestHandler):
    """Has one job, which is running at the first look and has ended at the second; its log can't be followed."""

    num_looks = 0

    def do_GET(self) -> None:
        status = 200
        if self.path.endswith("/logs/tail"):
            status = 502
        elif self.path.startswith("/api/jobs/"):
            JobServer.num_looks += 1
        has_ended = JobServer.num_looks > 1
        job = {
            "type": "SUBMISSION",
            "submission_id": "job-1",
            "entrypoint": "python",
            "status": "FAILED" if has_ended else "RUNNING",
            "message": "",
            "driver_exit_code": 4 if has_ended else None,
        }
        self.answer(status, {"ray_version": ray.__version__, "version": "4", "ray_commit": "", **job})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200, {"job_id": "job-1", "submission_id": "job-1"})

    def answer(self, status: int, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def test_job_that_is_not_submitted_is_one_line_with_the_folder() -> None:
    address = {"RAY_API_SERVER_ADDRESS": "http://127.0.0.1:1"}
    command = [sys.executable, "jobs/submit.py", "answer"]
    end = subprocess.run(command, env={**os.environ, **address}, capture_output=True, text=True, timeout=120)
    assert (end.returncode, end.stdout) == (2, "")
    (line,) = end.stderr.splitlines()
    assert line.startswith(f"error: the folder {Path.cwd()} can't be submitted: Failed to connect")


def test_job_whose_log_breaks_off_is_waited_for_and_its_exit_code_is_the_runs() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), JobServer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = {"RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{server.server_port}"}
    command = [sys.executable, "jobs/submit.py", "answer"]
    try:
        end = subprocess.run(command, env={**os.environ, **address}, capture_output=True, text=True, timeout=120)
    finally:
        server.shutdown()
    assert (end.returncode, "breaks off here" in end.stdout) == (4, True), end.stdout + end.stderr

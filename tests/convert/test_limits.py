"""Limits that are truly struck, by converters that do what a hostile file could make them do."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from memagent_batch.data.ingest.readers.converter import PartStatus
from memagent_batch.data.ingest.readers.kinds import FileKind
from memagent_batch.data.ingest.readers.process.sandbox import Limits
from memagent_batch.data.ingest.readers.process.worker import Converted, ConverterServer
from memagent_batch.errors import RunFailedError
from tests.processes import left_after

ROOT = Path(__file__).parents[2]
SHORT = Limits(seconds=1.0)
LIMITS = Limits(seconds=60.0, memory_bytes=256 << 20, output_bytes=4 << 20)


@pytest.fixture(scope="module")
def server() -> Iterator[ConverterServer]:
    """One server, which all of them try to bring down."""
    with ConverterServer(search_path=(str(ROOT),)) as server:
        yield server


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("some words")
    return tmp_path / "file"


def converted(server: ConverterServer, file: Path, name: str, limits: Limits = LIMITS) -> Converted:
    return server.convert(file, converters={FileKind.TEXT: f"tests.convert.hostile:{name}"}, limits=limits)


def texts(server: ConverterServer, file: Path, name: str) -> list[str]:
    result = converted(server, file, name)
    assert result.failure is None
    return [str(item["text"]) for item in result.items if item["status"] != PartStatus.MISSED]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Endless", "not converted within 1 s"),
        ("Greedy", "more memory than 256 MiB"),
        ("Talkative", "more than 4 MiB of text"),
        ("Crashing", "crashed with SIGSEGV"),
        ("Starting", "PermissionError"),
        ("Killing", "PermissionError"),
        ("Limiting", "PermissionError"),
    ],
)
def test_converter_that_strikes_a_limit_costs_its_file_alone(
    server: ConverterServer, file: Path, name: str, why: str
) -> None:
    failure = converted(server, file, name, SHORT if name == "Endless" else LIMITS).failure
    assert why in (failure or "")
    assert texts(server, file, "Quiet") == ["SOME WORDS"]


def test_count_that_is_stopped_costs_no_text_and_is_said(server: ConverterServer, file: Path) -> None:
    result = converted(server, file, "Counted", SHORT)
    assert result.failure is None
    assert [(item["status"], item["text"]) for item in result.items] == [("ok", "SOME WORDS"), ("needs_review", "")]
    assert "its words were not counted (not converted within 1 s" in str(result.items[1]["reason"])


def test_converter_that_ignores_signals_is_killed_in_time(server: ConverterServer, file: Path) -> None:
    file.write_text("60")
    assert "not converted within 1 s" in (converted(server, file, "Sleeping", SHORT).failure or "")
    file.write_text("0.1")
    assert texts(server, file, "Sleeping") == ["awake"]


def test_converter_reaches_no_network(server: ConverterServer, file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        file.write_text(str(listener.getsockname()[1]))
        assert "PermissionError" in (converted(server, file, "Connecting").failure or "")


def test_converter_writes_nothing_outside_of_its_folder(server: ConverterServer, file: Path, tmp_path: Path) -> None:
    (tmp_path / "answers").mkdir()
    (tmp_path / "answers/of another").write_text("kept")
    file.write_text(str(tmp_path / "answers/of another"))
    assert texts(server, file, "Writing") == ["refused"] * 6
    assert [path.name for path in (tmp_path / "answers").iterdir()] == ["of another"]
    assert (tmp_path / "answers/of another").read_text() == "kept"


def test_converter_can_not_answer_for_the_next_file(server: ConverterServer, file: Path) -> None:
    file.write_text("forger")
    assert texts(server, file, "Forging") == ["FORGER"]
    file.write_text("victim")
    assert texts(server, file, "Forging") == ["VICTIM"]


def test_converter_sees_no_variable_of_another_process(file: Path, server: ConverterServer) -> None:
    script = "import sys; print('started', flush=True); sys.stdin.read()"
    environment = {**os.environ, "AWS_SECRET_ACCESS_KEY": "hunter2"}
    with subprocess.Popen(
        [sys.executable, "-c", script], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"started\n"
        assert b"hunter2" in Path(f"/proc/{other.pid}/environ").read_bytes()
        (shown,) = texts(server, file, "Peeking")
        other.kill()
    assert "PATH=" in shown
    assert "hunter2" not in shown


@pytest.mark.parametrize("name", ["Endless", "Stopping"])
def test_what_was_read_before_a_limit_or_a_failure_is_kept(server: ConverterServer, file: Path, name: str) -> None:
    result = converted(server, file, name, SHORT)
    assert result.failure
    assert [item["text"] for item in result.items] == ["the beginning"]


def test_converter_that_can_not_be_imported_stops_the_run_with_its_name(server: ConverterServer, file: Path) -> None:
    with pytest.raises(RunFailedError, match="Absent"):
        texts(server, file, "Absent")


def test_killed_owner_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("600")
    script = (
        "from pathlib import Path; from memagent_batch.data.ingest.readers.process.worker import ConverterServer;"
        "from memagent_batch.data.ingest.readers.process.sandbox import Limits;"
        "converters = {'text': 'tests.convert.hostile:Sleeping'};"
        f"file = Path({str(tmp_path / 'file')!r});"
        "ConverterServer().convert(file, converters=converters, limits=Limits(seconds=600))"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    owner = subprocess.Popen([sys.executable, "-c", script], env=environment, cwd=ROOT)
    children = wait_for_children(owner.pid, at_least=2)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    assert not left_after(30, children)
    deadline = time.monotonic() + 30
    while list(tmp_path.glob("memagent-convert-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not list(tmp_path.glob("memagent-convert-*"))


def wait_for_children(process: int, *, at_least: int) -> list[psutil.Process]:
    """The server and the process of its file, once they are there."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        children = psutil.Process(process).children(recursive=True)
        if len(children) >= at_least:
            return children
        time.sleep(0.05)
    pytest.fail("the server did not start")

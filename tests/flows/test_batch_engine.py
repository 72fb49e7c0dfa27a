"""Jobs through the batches of an endpoint: OpenAI's and Anthropic's."""

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.cli.main import main
from memagent_batch.cli.plan import plan_lines
from memagent_batch.loop.engines.openai import batch_api, batches
from tests.engines.batch_server import BatchServer, batch_server
from tests.jobs import put_texts, small_arguments
from tests.tables import rows_in

FILLER = "The committee took note of the report and went on to the next item of its list. " * 12
KEYS = ("access code", "order number", "room number", "invoice number", "page count", "postal code")
COMPARED = ("document_id", "question_id", "status", "answer", "memory", "error_type")


def report_text(number: int) -> str:
    """Some chunks, with a fact for each key in the middle."""
    facts = " ".join(f"The {key} is {1000 * (place + 1) + number}." for place, key in enumerate(KEYS))
    return f"Report {number}. {FILLER}{facts} {FILLER}"


def batch_arguments(folder: Path, server: BatchServer, *, api: str = "chat", **settings: Any) -> list[str]:
    folder.mkdir(exist_ok=True)
    return small_arguments(
        folder,
        "tiny",
        **{
            "documents": str(folder.parent / "in"),
            "tokenizer": "tiny",
            "engine": "openai-batch",
            "openai": {"api": api, "base_url": server.base_url, "outage_seconds": 60.0, "api_key": "secret"},
            "window_tokens": 6000,
            "ask": [f"What is the {key}?" for key in KEYS],
            "policy": {"kind": "parallel", "chunk_tokens": 400, "memory_tokens": 100, "answer_tokens": 100},
            "follow_ups": {"evidence": api == "chat"},
            **settings,
        },
    )


def answers(folder: Path) -> list[tuple[str, ...]]:
    return sorted(tuple(str(row[name]) for name in COMPARED) for row in rows_in(folder / "run/answers"))


@pytest.mark.parametrize("api", ["chat", "messages"])
def test_turns_of_all_readings_are_one_batch_and_the_answers_are_those_of_single_requests(
    api: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "TICK_SECONDS", 0.1)
    monkeypatch.setattr(batch_api, "FIRST_POLL_SECONDS", 0.1)
    put_texts(tmp_path / "in", {"report.txt": report_text(7)})
    with batch_server() as server:
        assert main(["answer", *batch_arguments(tmp_path / "batch", server, api=api)]) == 0
        assert server.num_single == 0
        assert main(["answer", *batch_arguments(tmp_path / "single", server, api=api, engine="openai")]) == 0
    in_batches = answers(tmp_path / "batch")
    assert sorted(row[3] for row in in_batches) == [str(1000 * place + 7) for place in range(1, len(KEYS) + 1)]
    assert answers(tmp_path / "single") == in_batches
    assert server.num_single == sum(server.sizes)
    # chunks, their notes, chunks again without news, answers; and evidence, for which Anthropic's API has no guide
    num_chunks = server.sizes[0]
    num_keys = len(KEYS)
    assert server.sizes == [num_chunks, num_keys, num_chunks, num_keys, *([num_keys] if api == "chat" else [])]
    assert set(server.paid.values()) == {1}
    assert list((tmp_path / "batch/run/log/batches").glob("*")) == []


@pytest.mark.parametrize(
    ("policy", "pool", "follow_ups", "planned"),
    [
        ("overwrite", {}, True, [6, 6]),  # four chunks of the longest document, its answer, its evidence
        ("gated", {}, False, [5, 5]),
        ("parallel", {}, True, [5, 11]),  # all chunks, their notes, all chunks again without news, answers, evidence
        ("parallel", {"readings_in_flight": 2}, False, [8, 16]),
        ("truncate", {}, False, [1, 1]),
        ("retrieve", {}, False, [1, 1]),
    ],
)
def test_plan_says_how_many_batches_the_endpoint_will_get(
    policy: str,
    pool: dict[str, int],
    follow_ups: bool,
    planned: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(batches, "TICK_SECONDS", 0.05)
    monkeypatch.setattr(batch_api, "FIRST_POLL_SECONDS", 0.05)
    texts = {f"{number}.txt": report_text(number) for number in range(2)}
    put_texts(tmp_path / "in", {**texts, "long.txt": FILLER * 2 + report_text(2)})
    shared = {"chunk_tokens": 400, "answer_tokens": 100}
    settings: dict[str, Any] = {
        "policy": {"kind": policy, **shared, **({} if planned == [1, 1] else {"memory_tokens": 100})},
        "follow_ups": {"evidence": follow_ups},
        "ask": ["What is the access code?"],
        "pool": pool,
        "prices": {"input": 2.0, "output": 8.0},
    }
    with batch_server() as server:
        plans = []
        for engine in ("openai", "openai-batch"):
            arguments = batch_arguments(tmp_path / "batch", server, engine=engine, **settings)
            assert main(["plan", "--json", *arguments]) == 0
            plans.append(json.loads(capsys.readouterr().out))
        assert server.sizes == []
        assert main(["answer", *arguments]) == 0
    single, batch = plans
    assert single["batches"] is None
    assert batch["batches"] == planned
    assert len(server.sizes) == planned[0]
    assert any("less 50% for batches (prices.batch_discount)" in line for line in plan_lines(batch))
    assert batch["cost"] == pytest.approx([cost / 2 for cost in single["cost"]])


@pytest.mark.slow
@pytest.mark.parametrize("api", ["chat", "messages"])
def test_command_killed_at_every_batch_pays_no_request_twice(api: str, tmp_path: Path) -> None:
    """It is killed as soon as a batch is made: in turn before and after it gets to know the id of the batch."""
    put_texts(tmp_path / "in", {f"{number:03}.txt": report_text(number) for number in range(100)})
    made, may_answer = threading.Event(), threading.Event()
    num_made = 0

    def on_batch(number: int) -> None:
        nonlocal num_made
        num_made = number
        made.set()
        if number % 2:
            may_answer.wait()

    with batch_server(on_batch=on_batch, batch_seconds=2.0) as server:
        arguments = batch_arguments(tmp_path / "batch", server, api=api, ask=[f"What is the {KEYS[0]}?"])
        num_killed = 0
        while True:
            made.clear()
            may_answer.clear()
            with (tmp_path / "console.txt").open("ab") as console:
                command = subprocess.Popen(
                    [sys.executable, "-m", "memagent_batch", "answer", *arguments], stdout=console, stderr=console
                )
                while not made.wait(0.2) and command.poll() is None:
                    pass
                if not made.is_set():
                    break
                if num_made % 2 == 0:
                    time.sleep(1.0)
                command.send_signal(signal.SIGKILL)
                command.wait()
                may_answer.set()
                num_killed += 1
        said = (tmp_path / "console.txt").read_text()
        assert command.returncode == 0, said[-3000:]
        server.on_batch = lambda _: None
        single = batch_arguments(tmp_path / "single", server, api=api, ask=[f"What is the {KEYS[0]}?"], engine="openai")
        assert main(["answer", *single]) == 0
    assert num_killed == len(server.sizes) >= (5 if api == "chat" else 4)
    assert set(server.paid.values()) == {1}
    assert answers(tmp_path / "batch") == answers(tmp_path / "single")
    assert [row[2:4] for row in answers(tmp_path / "batch")] == [("ok", str(1000 + each)) for each in range(100)]

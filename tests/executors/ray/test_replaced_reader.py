"""An actor that is killed while its endpoint is down: the one in its place waits for it, as all readings do."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray

from memagent_batch.cli.settings import job_of
from memagent_batch.executors.actor import ReaderProcess, ReaderTask
from memagent_batch.executors.ray import executor as executor
from memagent_batch.executors.reader import Reader
from memagent_batch.flows import answer as pipeline
from memagent_batch.runs.manifest import Manifest
from memagent_batch.tokens.tokenizer import Tokenizer
from tests.engines.scripted_server import Reply, scripted_server
from tests.engines.test_openai import completion_reply

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not find the modules of tests

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_here")]

PATIENCE_SECONDS = 120.0
"""Longest wait for the next thing that the run does."""


class KnownReader(Reader):
    """A reader that shows its process."""

    def __init__(self, task: ReaderTask, process: ReaderProcess) -> None:
        super().__init__(task, process)
        assert task.output is not None
        (Path(task.output.path).parent / f"actor-{os.getpid()}").touch()


@dataclass(slots=True)
class Endpoint:
    """A server of one word that may be down."""

    base_url: str = ""
    is_down: threading.Event = field(default_factory=threading.Event)
    num_answered: int = 0
    num_turned_away: int = 0


@contextmanager
def endpoint(model: str) -> Iterator[Endpoint]:
    state, word = Endpoint(), Tokenizer(model).encode("word")

    def reply(body: dict[str, Any]) -> Reply:
        return completion_reply("word", token_ids=word[: body["max_tokens"]])

    def is_away() -> bool:
        is_down = state.is_down.is_set()
        state.num_turned_away += is_down
        state.num_answered += not is_down
        time.sleep(0.05)
        return is_down

    with scripted_server() as script:
        state.base_url, script.answer, script.is_away = script.base_url, reply, is_away
        script.models = Reply(body=json.dumps({"data": [{"id": model}]}).encode())
        yield state


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_actor_killed_while_the_endpoint_is_down_is_replaced_and_the_run_reads_everything(
    text_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"document_id": f"d{number}", "text": f"{number} and some words " * 100} for number in range(4)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "documents.parquet")
    monkeypatch.setattr(executor, "Reader", KnownReader)
    manifests: list[Manifest] = []
    with endpoint(text_model) as there:
        job = job_of(
            documents=str(tmp_path / "documents.parquet"),
            output=str(tmp_path / "run"),
            ask=("Who?",),
            model=text_model,
            engine="openai",
            openai={"base_url": there.base_url, "max_retries": 1, "backoff_seconds": 0.05},
            window_tokens=1000,
            policy={"chunk_tokens": 30, "question_tokens": 60, "memory_tokens": 40, "answer_tokens": 40},
            log={"flush_seconds": 0.1},
        )
        run = threading.Thread(target=lambda: manifests.append(pipeline.answer(job)), daemon=True)
        run.start()
        wait_until(lambda: there.num_answered > 20)
        there.is_down.set()
        (first,) = tmp_path.glob("actor-*")
        os.kill(int(first.name.removeprefix("actor-")), signal.SIGKILL)
        wait_until(lambda: len(list(tmp_path.glob("actor-*"))) == 2)
        turned_away = there.num_turned_away
        wait_until(lambda: there.num_turned_away > turned_away + 5 or not run.is_alive())
        there.is_down.clear()
        run.join(PATIENCE_SECONDS)
    assert [manifest["counts"]["ok"] for manifest in manifests] == [4]
    assert [manifest["counts"]["not_read"] for manifest in manifests] == [0]

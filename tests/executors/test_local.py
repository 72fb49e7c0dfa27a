"""The executor of one process: engines that die, signals, kills, and a claim that is lost."""

import asyncio
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import memagent_batch as ma
from memagent_batch.apps.api import reader as api_reader
from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import ExecutorKind, JobConfig
from memagent_batch.data.store.location import Location
from memagent_batch.errors import EngineDeadError, EngineStartError, RunFailedError, SettingsError
from memagent_batch.loop.engines.engine import Engine
from memagent_batch.loop.prompt_sets.built_in import DEFAULT_PROMPTS
from memagent_batch.loop.prompt_sets.files import save_prompt_set
from memagent_batch.run.executors import local, reader
from memagent_batch.run.executors.leaving import CLAIM_SECONDS
from memagent_batch.run.flows.answer import answer
from memagent_batch.run.flows.check import check
from memagent_batch.run.history import finished_runs, require_manifest
from memagent_batch.run.state import read_state
from memagent_batch.run.wiring import make_engine, make_tokenizer
from memagent_batch.types import Completion, Prompt
from tests.engine_context import MadeEngine
from tests.executors.test_executors import settings, settings_of_job
from tests.jobs import BUDGETS, put_documents
from tests.tables import comparable, rows_in, table_rows

PATIENCE_SECONDS = 120.0
POISON = "POISON"


class FragileEngine(MadeEngine):
    """Passes prompts on until one holds the poison; then it is dead, for all that are in flight and all that come."""

    def __init__(self, agent: AgentConfig, engine: Engine) -> None:
        self._engine = engine
        self._tokenizer = make_tokenizer(agent)
        self._death: asyncio.Future[None] | None = None
        self.began = ""
        self.has_stopped = False

    async def start(self) -> None:
        self.began = self.began or "started"
        self._death = asyncio.get_running_loop().create_future()
        await self._engine.start()

    async def rejoin(self) -> None:
        self.began = "rejoined"
        await self.start()

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        assert self._death is not None
        turn = asyncio.ensure_future(self._engine.complete(prompt, seed=seed))
        if POISON in self._tokenizer.decode(list(prompt.token_ids)) and not self._death.done():
            await asyncio.sleep(0.02)
            if not self._death.done():
                self._death.set_result(None)
        either: list[asyncio.Future[Any]] = [turn, self._death]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if self._death.done():
            raise EngineDeadError("poisoned")
        return await turn

    async def stop(self) -> None:
        self.has_stopped = True
        await self._engine.stop()


def log_rows(job: JobConfig, folder: str) -> list[dict[str, Any]]:
    return rows_in(Path(job.output) / "log" / folder)


def test_turn_that_kills_its_engine_fails_its_reading_at_the_fourth_death_and_no_other(
    text_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {name: f"{name} " * 200 for name in ("first", "second", "third", "fourth")}
    put_documents(tmp_path, {**texts, "poisoned": "sound " * 100 + POISON + " sound" * 100})
    job = settings(tmp_path, text_model, ExecutorKind.LOCAL, ask=("What?",), simulated={"turn_seconds": 0.01})
    engines: list[FragileEngine] = []

    def make(agent: AgentConfig, **_: Any) -> FragileEngine:
        engines.append(FragileEngine(agent, make_engine(agent)))
        return engines[-1]

    monkeypatch.setattr(reader, "make_engine", make)
    manifest = answer(job)
    assert (manifest["counts"]["ok"], manifest["counts"]["failed"]) == (4, 1)
    assert [engine.has_stopped for engine in engines] == [True] * 5
    assert [engine.began for engine in engines] == ["started", *["rejoined"] * 4]
    (failed,) = [row for row in log_rows(job, "outcomes") if row["status"] == "failed"]
    assert failed["error_type"] == "EngineRequestError"
    assert "died 4 times" in failed["error_message"]
    turns = Counter((row["document_hash"], row["path"]) for row in log_rows(job, "turns"))
    assert set(turns.values()) == {1}


POLICY = """
from dataclasses import dataclass
from memagent_batch.loop.policies.overwrite import OverwritePolicy

@dataclass(frozen=True, slots=True, kw_only=True)
class Mine(OverwritePolicy):
    kind = "mine"
"""


def test_files_and_code_that_are_edited_while_a_run_reads_change_nothing_of_it(
    tiny_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, prompts, module = tmp_path / "model", tmp_path / "prompts.json", f"policy_{tmp_path.name.replace('-', '_')}"
    shutil.copytree(tiny_model, model)
    save_prompt_set(DEFAULT_PROMPTS, prompts)
    (tmp_path / f"{module}.py").write_text(POLICY)
    monkeypatch.syspath_prepend(tmp_path)
    put_documents(tmp_path, {"sound": "sound " * 200, "poisoned": POISON + " sound" * 200})
    values = {"prompt_set": str(prompts), "policy": {"kind": f"{module}:Mine", **BUDGETS}}
    undisturbed = settings(tmp_path, str(model), ExecutorKind.LOCAL, output=str(tmp_path / "undisturbed"), **values)
    before = answer(undisturbed)
    job = settings(tmp_path, str(model), ExecutorKind.LOCAL, **values)
    engines: list[Engine] = []

    def make(agent: AgentConfig, **context: Any) -> Engine:
        engines.append(make_engine(agent, **context))
        if len(engines) > 1:
            return engines[-1]
        save_prompt_set(replace(DEFAULT_PROMPTS, first_memory="nothing at all"), prompts)
        (tmp_path / f"{module}.py").write_text(POLICY.replace("mine", "edited"))
        template = model / "chat_template.jinja"
        template.write_text(template.read_text() + "edited")
        vocabulary = json.loads((model / "tokenizer.json").read_text())
        (model / "tokenizer.json").write_text(json.dumps(vocabulary | {"normalizer": {"type": "NFC"}}))
        return FragileEngine(agent, engines[-1])

    with monkeypatch.context() as patch:
        patch.setattr(reader, "make_engine", make)
        manifest = answer(job)
    assert (manifest["counts"]["ok"], len(engines)) == (4, 2)
    assert {row["fingerprint"] for row in log_rows(job, "turns")} == {manifest["fingerprint"]}
    assert (manifest["fingerprint"], manifest["reader"]) == (before["fingerprint"], before["reader"])
    assert answers_of(job) == answers_of(undisturbed)
    with pytest.raises(SettingsError, match="was changed after this process imported it"):
        check(job)  # the next run in this process is refused until its code is loaded again


class LoadingEngine(MadeEngine):
    """Holds the event loop while it loads its model, as vLLM does; somebody presses Ctrl-C meanwhile."""

    def __init__(self) -> None:
        self.has_stopped = threading.Event()

    async def start(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1.0)  # noqa: ASYNC251 - it holds the event loop

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        raise AssertionError("nothing is asked")

    async def stop(self) -> None:
        self.has_stopped.set()


def test_engine_that_loads_its_model_for_longer_than_a_run_waits_for_is_stopped_then(
    text_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_documents(tmp_path, {"sound": "sound " * 200})
    job, engine = settings(tmp_path, text_model, ExecutorKind.LOCAL), LoadingEngine()
    monkeypatch.setattr(reader, "make_engine", lambda *_, **__: engine)
    monkeypatch.setattr(local, "CLOSE_SECONDS", 0.1)
    with pytest.raises(KeyboardInterrupt):
        answer(job)
    assert engine.has_stopped.wait(PATIENCE_SECONDS)


def test_engine_of_a_reader_that_is_interrupted_while_it_loads_its_model_is_stopped(
    text_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = LoadingEngine()
    monkeypatch.setattr(api_reader, "make_engine", lambda *_, **__: engine)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # tests that a shell runs in the background ignore it
    with pytest.raises(KeyboardInterrupt), ma.Agent(model=text_model, engine="simulated", window_tokens=4096).open():
        pass
    assert engine.has_stopped.is_set()


@pytest.mark.parametrize(("failures", "is_read"), [(2, True), (3, False)])
def test_engine_that_died_is_started_three_times_before_the_run_ends_with_its_error(
    text_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int, is_read: bool
) -> None:
    put_documents(tmp_path, {"sound": "sound " * 200, "poisoned": POISON + " sound" * 200})
    job = settings(tmp_path, text_model, ExecutorKind.LOCAL)
    starts = itertools.count()

    def make(agent: AgentConfig, **_: Any) -> Engine:
        number = next(starts)
        if 0 < number <= failures:
            raise EngineStartError("no memory is left on the GPU")
        return make_engine(agent) if number else FragileEngine(agent, make_engine(agent))

    monkeypatch.setattr(local, "RESTART_SECONDS", 0)
    with monkeypatch.context() as patch:
        patch.setattr(reader, "make_engine", make)
        if is_read:
            assert answer(job)["counts"]["ok"] == 4
            return
        with pytest.raises(RunFailedError, match="3 times: no memory is left on the GPU; the same command goes on"):
            answer(job)
    assert next(starts) == 4
    assert read_state(Location(uri=job.output))["state"] == "stopped"
    assert answer(job)["counts"]["ok"] == 4


@contextmanager
def command(folder: Path, model: str) -> Iterator["subprocess.Popen[str]"]:
    """`memagent answer --executor local` in its own process, whose every turn takes a while."""
    values = settings_of_job(folder, model, ExecutorKind.LOCAL) | {"allow_code": True, "max_failed_share": 1.0}
    values["engine_options"] = {"turn_seconds": 0.3}
    (folder / "job.yaml").write_text(json.dumps(values))
    line = [sys.executable, "-m", "memagent_batch", "answer", "--config", str(folder / "job.yaml")]
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def wait_until(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)


def num_turns(job: JobConfig) -> int:
    return len(log_rows(job, "turns"))


def answers_of(job: JobConfig) -> list[str]:
    return comparable(table_rows(job.output, "answers"))


@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGKILL, -signal.SIGKILL, id="kill"),
        pytest.param(signal.SIGINT, 130, id="int"),
        pytest.param(signal.SIGTERM, 143, id="term", marks=pytest.mark.slow),
    ],
)
def test_run_that_was_ended_by_a_signal_goes_on_with_the_same_command(
    text_model: str, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    job = settings(tmp_path, text_model, ExecutorKind.LOCAL)
    with command(tmp_path, text_model) as process:
        wait_until(lambda: num_turns(job) > 0, process)
        process.send_signal(number)
        process.wait(PATIENCE_SECONDS)
        assert process.returncode == code
    assert finished_runs(Location(uri=job.output)) == []
    with command(tmp_path, text_model) as process:
        said, _ = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0, said
    turns = Counter((row["document_hash"], row["question_hash"], row["path"]) for row in log_rows(job, "turns"))
    if number != signal.SIGKILL:
        assert set(turns.values()) == {1}  # all that was finished was kept
    undisturbed = settings(tmp_path, text_model, ExecutorKind.LOCAL, output=str(tmp_path / "undisturbed"))
    answer(undisturbed)
    assert answers_of(job) == answers_of(undisturbed)


def test_run_whose_output_was_claimed_by_a_newer_attempt_leaves_it(text_model: str, tmp_path: Path) -> None:
    job = settings(tmp_path, text_model, ExecutorKind.LOCAL)
    with command(tmp_path, text_model) as process:
        wait_until(lambda: num_turns(job) > 0, process)
        second = answer(job)
        said, _ = process.communicate(timeout=PATIENCE_SECONDS + CLAIM_SECONDS)
        assert process.returncode == 3, said
    assert require_manifest(Location(uri=job.output))["run_id"] == second["run_id"]
    assert second["counts"]["ok"] == 6

"""Commands in processes that can be stopped and killed at any moment, and looks at the tables that they write.

Processes are forked from a server that has imported the product, so that a run takes a second and not five.
"""

import faulthandler
import json
import multiprocessing
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import yaml
from pydantic import PrivateAttr

import memagent_batch as ma
from memagent_batch.cli.main import main
from memagent_batch.data.documents import listing
from memagent_batch.data.ingest import row_tasks
from memagent_batch.data.store.delta import OutputTable
from memagent_batch.data.store.location import Location
from memagent_batch.loop.addresses import text_hash, token_hash
from memagent_batch.loop.engines.engine import EngineContext
from memagent_batch.run import ingest, parts
from memagent_batch.run.history import finished_runs
from memagent_batch.types import Completion, Prompt
from tests.jobs import small_settings
from tests.prompt_dependent_engine import PromptDependent
from tests.tables import comparable

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["memagent_batch.cli.answer", "memagent_batch.run.flows.answer", __name__])
FLUSH_SECONDS, TURN_SECONDS = 0.3, 0.03
PATIENCE_SECONDS = 600.0
"""Time after which a command hangs, rather than waits for a busy machine."""
TABLES: Mapping[str, tuple[str, ...]] = {
    "answers": ("document_id", "question_id", "sample"),
    "memories": ("document_id", "question_id", "sample", "turn"),
    "evidence": ("document_id", "question_id", "sample", "how", "rank"),
    "documents": ("document_id",),
    "sources": ("source", "scope"),
    "runs": ("run_id",),
}
"""Tables, and the columns that name a row."""
ASK = [{"question_id": "who", "question": "Who is it?"}, {"question_id": "where", "question": "Where is it?"}]


class RecordedCalls(PromptDependent):
    """Notes each call in a file as soon as it has been answered."""

    calls: str
    _file: int = PrivateAttr()

    def open(self, context: EngineContext) -> Self:
        self._file = os.open(self.calls, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        return super().open(context)

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        completion = await super().complete(prompt, seed=seed)
        os.write(self._file, f"{time.time()} {token_hash(prompt.token_ids)}\n".encode())
        return completion


def text_of(name: str, *, days: int) -> str:
    return "".join(f"On day {day} of {name} the fox went over hill {day} and met {name}. " for day in range(days))


FIRST_NIGHT = {name: text_of(name, days=4) for name in ("Ann", "Bob", "Carla", "Dora", "Emil", "Fay")}
SECOND_NIGHT = {
    **{name: text for name, text in FIRST_NIGHT.items() if name != "Ann"},  # gone
    "Bob": text_of("Bob", days=9),  # grown
    "Carla": f"No. {text_of('Carla', days=8)}",  # another text
    **{name: text_of(name, days=7) for name in ("Gus", "Hans", "Ida")},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """How long a command takes that nothing disturbs."""

    seconds: float
    num_commits: int


@dataclass(kw_only=True)
class StruckJob:
    """A job over a folder of documents, whose commands run in processes of their own."""

    folder: Path
    output: Location
    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def calls(self) -> list[tuple[float, str]]:
        """When each answer of the engine came, and the hash of its prompt."""
        file = self.folder / "calls.txt"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(float(at), prompt_hash) for at, prompt_hash in map(str.split, lines)]

    def put(self, texts: Mapping[str, str]) -> None:
        """Makes these the documents, two in a file; a file that stays the same is left alone."""
        (self.folder / "in").mkdir(exist_ok=True)
        wanted: dict[str, list[str]] = {}
        for name, text in texts.items():
            row = json.dumps({"document_id": name, "text": text})
            wanted.setdefault(f"{(ord(name[0]) - ord('A')) // 2}.jsonl", []).append(row)
        for path in (self.folder / "in").iterdir():
            if path.name not in wanted:
                path.unlink()
        for file, rows in wanted.items():
            path, content = self.folder / "in" / file, "\n".join(rows)
            if not path.exists() or path.read_text() != content:
                path.write_text(content)

    def start(self, command: str = "answer", *words: str, **settings: Any) -> ForkServerProcess:
        """Gives a command: `answer` or `ingest` with the job's settings, any other with the output."""
        options = {"storage_options": {**self.output.storage_options}}
        given = {
            **options,
            "output": self.output.uri,
            "adopt_output": True,  # a copy of an output has documents of its own
            "ask": ASK,
            "engine": f"{__name__}:RecordedCalls",
            "engine_options": {"calls": str(self.folder / "calls.txt"), "turn_seconds": TURN_SECONDS},
            "follow_ups": {"evidence": True},
            "pool": {"readings_in_flight": 4},
            "log": {"flush_seconds": FLUSH_SECONDS},
            **self.settings,
            **settings,
        }
        file = self.folder / f"job-{uuid4().hex}.yaml"
        file.write_text(yaml.safe_dump(small_settings(self.folder, self.model, **given)))
        arguments = [command, "--config", str(file), "--allow-code"]
        if command == "ingest":
            places = ["--documents", str(self.folder / "in"), "--output", self.output.uri]
            arguments = [command, *places, "--executor", "local", "--input.format", "auto"]
        elif command != "answer":
            arguments = [command, self.output.uri]
        if command != "answer" and self.output.storage_options:
            arguments += ["--storage-options", json.dumps(options["storage_options"])]
        process = FORKS.Process(target=run_command, args=([*arguments, *words], str(self.console)))
        process.start()
        return process

    @property
    def console(self) -> Path:
        return self.folder / "console.txt"

    def run(self, command: str = "answer", *words: str, **settings: Any) -> Length:
        """Runs a command to its end, which is a good one."""
        began, commits = time.monotonic(), self.num_commits()
        assert wait(self.start(command, *words, **settings)) == 0, self.console.read_text()[-3000:]
        return Length(seconds=time.monotonic() - began, num_commits=max(1, self.num_commits() - commits))

    def rows(self, name: str) -> list[dict[str, Any]]:
        """A table as the last finished run left it."""
        found = ma.table(self.output.uri, name, storage_options=self.output.storage_options).to_pylist()
        return [dict(row) for row in found]

    def num_commits(self) -> int:
        """Commits of all tables so far."""
        return sum(path.endswith(".json") and "/_delta_log/" in path for path in self.output.files())

    def copy_to(self, folder: Path, output: Location) -> "StruckJob":
        """The same job over the same documents, into a copy of its output."""
        folder.mkdir()
        for path in self.output.files():
            (output / path.removeprefix(f"{self.output.path}/")).write_bytes(self.output.at(path).read_bytes())
        return StruckJob(folder=folder, output=output, model=self.model, settings=self.settings)


def run_command(arguments: list[str], console: str) -> None:
    """Runs a command in this process, with small parts and with commits of what is ingested after every task."""
    file = os.open(console, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(file, stream)
    listing.UNSURE_SECONDS = 0.0  # else files as young as these are read every time
    parts.PART_READINGS = 2
    row_tasks.MIN_TASK_FILES = 1
    ingest.CHECKPOINT_SECONDS, ingest.CHECKPOINT_SHARE = 0.0, 0
    faulthandler.enable()  # `wait` ends a command that hangs with SIGABRT
    os._exit(main(arguments))


def wait(process: ForkServerProcess) -> int:
    """Waits for its end; returns the exit code, or the negative number of the signal."""
    process.join(PATIENCE_SECONDS)
    if process.exitcode is None:
        strike(process, signal.SIGABRT)
        process.join()
        raise AssertionError("the command hangs: the stacks of its threads are at the end of its console.txt")
    return process.exitcode


def strike(process: ForkServerProcess, number: signal.Signals) -> None:
    """Sends it a signal, if it has not ended."""
    if process.is_alive() and process.pid is not None:
        os.kill(process.pid, number)


def await_moment(job: StruckJob, process: ForkServerProcess, rng: random.Random, length: Length) -> None:
    """Waits for a moment of a run: any moment, or one shortly after a commit, as often."""
    deadline = time.monotonic() + rng.uniform(0, length.seconds)
    commits = job.num_commits() + rng.randint(1, length.num_commits)
    by_commit = rng.random() < 0.5
    while process.is_alive() and (job.num_commits() < commits if by_commit else time.monotonic() < deadline):
        time.sleep(0.01)
    time.sleep(rng.uniform(0, 0.03))


def look(output: Location, *, is_sliced: bool = False) -> str:
    """Requires that tables are whole and that those of the last finished run fit each other; returns its id.

    With slices, documents of slices that have not finished have no answers yet, or those of their last texts.
    """
    for name, keys in TABLES.items():
        table = OutputTable(output=output, name=name).dataset_if_there()
        if table is not None:
            require_single(table.to_table(columns=[*keys]).to_pylist(), keys, where=name)
    runs = finished_runs(output)
    if runs:
        require_fit(output, runs[-1], is_sliced=is_sliced)
    return runs[-1] if runs else ""


def require_single(rows: list[dict[str, Any]], keys: tuple[str, ...], *, where: str) -> None:
    counts = Counter(tuple(row[key] for key in keys) for row in rows)
    assert max(counts.values(), default=1) == 1, f"{where}: {counts.most_common(3)}"


def require_fit(output: Location, run_id: str, *, is_sliced: bool) -> None:
    """Requires that the tables of a run have rows of the same readings, of the texts that are stored with it."""

    def rows(name: str) -> list[dict[str, Any]]:
        found = ma.table(output.uri, name, run_id=run_id, storage_options=output.storage_options)
        return [dict(row) for row in found.to_pylist()]

    texts = {row["document_id"]: row["text"] for row in rows("documents")}
    answers = {(row["document_id"], row["question_id"]): row for row in rows("answers")}
    asked = {(name, each["question_id"]) for name in texts for each in ASK}
    assert is_sliced or answers.keys() == asked
    for (name, _), row in answers.items():
        assert row["status"] == "ok", name
        assert is_sliced or row["document_hash"] == text_hash(texts[name]), name
    memories, evidence = rows("memories"), rows("evidence")
    last = {(row["document_id"], row["question_id"]): row for row in sorted(memories, key=lambda row: row["turn"])}
    assert {key: row["memory"] for key, row in last.items()} == {key: row["memory"] for key, row in answers.items()}
    for row in evidence:
        assert row["document_hash"] == answers[row["document_id"], row["question_id"]]["document_hash"]
        text = texts.get(row["document_id"], "")
        if row["char_start"] is not None and row["document_hash"] == text_hash(text):
            assert row["text"] == text[row["char_start"] : row["char_end"]]
    num_evidence = Counter((row["document_id"], row["question_id"]) for row in evidence if row["how"] == "chosen")
    assert num_evidence == {key: row["num_evidence"] for key, row in answers.items() if row["num_evidence"]}


@contextmanager
def looked_at(output: Location, *, is_sliced: bool = False) -> Iterator[Callable[[], int]]:
    """Looks at the tables again and again while the block lasts; gives the number of looks so far."""
    ended, looks = threading.Event(), list[str]()

    def keep_looking() -> None:
        while not ended.is_set():
            looks.append(look(output, is_sliced=is_sliced))

    with ThreadPoolExecutor(1) as threads:
        looking = threads.submit(keep_looking)
        try:
            yield lambda: len(looks)
        finally:
            ended.set()
        looking.result()


def results(job: StruckJob) -> dict[str, list[Any]]:
    """The rows of all tables that a reader compares, without the columns of the run."""
    rows: dict[str, list[Any]] = {
        name: comparable({key: value for key, value in row.items() if key != "inputs_hash"} for row in job.rows(name))
        for name in ("answers", "memories", "evidence")
    }
    return {**rows, "documents": sorted((row["document_id"], row["text"]) for row in job.rows("documents"))}

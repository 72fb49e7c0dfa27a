"""The jobs that are recorded. Each runs as a user runs it, through the command line, in its own processes.

Nothing of the product is imported here, so that these jobs run at any commit, wherever its modules lie.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.job_process import run_job
from tools.golden.recording import read_output, save

JOB_SECONDS = 1800
"""Longest time for one command; the demo takes a minute on two idle cores."""

SETTINGS = {
    "model": "tiny",
    "window_tokens": 2048,
    "policy": {
        "chunk_tokens": 512,
        "overlap_tokens": 64,
        "question_tokens": 128,
        "memory_tokens": 128,
        "answer_tokens": 64,
    },
    "vllm": {"cpu_kv_cache_gib": 1},
    "pool": {"readings_in_flight": 1},
    "log": {"flush_seconds": 1},
}
"""The shipped policy on CPU; one reading at a time, so that what the prefix cache holds is the same each time."""
SIMULATED = ("--engine", "simulated")
NUM_FILLERS = 20
"""Sentences before and after each fact: some 1,000 tokens in all, which is three chunks."""
UNSURE_CODE = 40719361234
"""Longer than the codes that the shipped policy knows, so that its samples differ."""
UNSURE_REFERENCES = ["40719361", str(UNSURE_CODE)]
"""What some of the samples answer, so that rewards differ too."""
KEYS = ("copper-falcon", "quiet-harbour", "amber-lantern", "silver-meadow")
QUESTIONS = {key: f"What is the access code of {key}?" for key in KEYS}
Texts = Mapping[str, str | None]


class JobFailedError(Exception):
    """A command of a job did not end well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """Where a job finds its inputs and leaves its output."""

    folder: Path
    """An empty folder, with links resolved."""
    code: Path
    kept: Path

    def memagent(self, command: str, *options: str) -> None:
        """Runs a command over `documents` and `questions.jsonl` into `out`, with `SETTINGS`; `options` go before
        them.
        """
        inputs = ("--documents", "documents", "--questions", "questions.jsonl", "--output", "out")
        (self.folder / "job.yaml").write_text(json.dumps(SETTINGS), encoding="utf-8")
        self.python("memagent_batch", command, "--config", "job.yaml", *inputs, *options)

    def python(self, module: str, *arguments: str) -> None:
        """Runs a module of the checkout in the folder.

        Raises:
            JobFailedError: it did not end with exit code 0; shows what it wrote last.
        """
        own = {name: value for name, value in os.environ.items() if not name.startswith("MEMAGENT_")}
        done = run_job(
            [sys.executable, "-m", module, *arguments],
            cwd=self.folder,
            env=own | {"PYTHONPATH": str(self.code), "HF_HUB_OFFLINE": "1"},
            timeout=JOB_SECONDS,
        )
        if done.returncode:
            written = (done.stdout + done.stderr)[-3000:]
            raise JobFailedError(f"{module} {' '.join(arguments)} ended with {done.returncode}:\n{written}")

    def keep(self, name: str, *, output: str = "out", runs: Sequence[str] = ()) -> None:
        """Records a folder as it is now; `runs` are ids of runs, beside those in names of its files."""
        save(read_output(self.folder / output, work=self.folder, runs=runs), self.kept / name)

    def put(self, texts: Texts, questions: Sequence[Mapping[str, Any]]) -> None:
        """Makes these the documents, one file each, and the question list."""
        documents = self.folder / "documents"
        documents.mkdir(exist_ok=True)
        for old in documents.iterdir():
            old.unlink()
        for name, text in texts.items():
            row = {"document_id": [name], "text": pa.array([text], pa.string()), "source": [f"shelf of {name}"]}
            pq.write_table(pa.table(row), documents / f"{name}.parquet")
        lines = [json.dumps(question, ensure_ascii=False) for question in questions]
        (self.folder / "questions.jsonl").write_text("\n".join(lines), encoding="utf-8")


def demo(place: Workplace) -> None:
    """`make demo`: 24 documents of up to 200 K tokens, side by side."""
    place.python("memagent_batch.cli.demo", "--output", "demo")
    place.keep("demo", output="demo/run")


def nights(place: Workplace) -> None:
    """Three nights of a scan: documents added, changed and removed, a question added; and the differences."""
    carried = (*SIMULATED, "--input.carry-columns", "source", "--prompt-set", "default")
    monday = {
        "same": text_with("copper-falcon", 4071936),
        "changing": text_with("quiet-harbour", 5225404),
        "leaving": "Two words",
        "empty": "",
        "null": None,
        "other-writing": "Grüße \U0001f33b.\r\nThe access code of café is 11.\r\n" * 30,
    }
    asked = [{"question_id": key, "question": QUESTIONS[key]} for key in KEYS[:2]]
    bound = {"question_id": "bound", "document_id": "same", "question": "Who?", "references": ["nobody"]}
    long = {"question_id": "long", "document_id": "changing", "question": "Who is that? " * 60}
    place.put(monday, [*asked, bound, long])
    place.memagent("answer", *carried)
    place.keep("nights/1")
    tuesday = {name: text for name, text in monday.items() if name != "leaving"}
    tuesday |= {"changing": text_with("quiet-harbour", 9282777), "added": text_with("amber-lantern", 1740490)}
    place.put(tuesday, [*asked, bound, long, {"question_id": KEYS[2], "question": QUESTIONS[KEYS[2]]}])
    place.memagent("answer", *carried)
    place.keep("nights/2")
    place.memagent("answer", *carried, "--retry-failed")
    place.keep("nights/3")
    runs = sorted(path.name for path in (place.folder / "out" / "runs").iterdir())
    (place.folder / "diff").mkdir()
    place.python(
        "memagent_batch", "diff", "out", "--before", runs[0], "--after", runs[1], "--to", "diff/differences.parquet"
    )
    place.keep("nights/diff", output="diff", runs=runs)


def collect(place: Workplace) -> None:
    """Groups of samples with rewards and advantages; a document that can't be read is one of them."""
    bound = {"question_id": "q", "question": QUESTIONS[KEYS[0]], "references": UNSURE_REFERENCES}
    texts = {"unsure": text_with(KEYS[0], UNSURE_CODE), "null": None}
    place.put(texts, [bound | {"document_id": name} for name in texts])
    place.memagent("collect", "--rollouts.group-size", "4")
    place.keep("collect")


def gated(place: Workplace) -> None:
    """The memory is kept by a word."""
    place.put(one_document(), questions())
    place.memagent("answer", "--policy.kind", "gated", "--sampling.logprobs")
    place.keep("gated")


def truncate(place: Workplace) -> None:
    """Head and tail of the document in one prompt."""
    place.put(one_document(), questions())
    place.memagent("answer", "--policy.kind", "truncate")
    place.keep("truncate")


def retrieve(place: Workplace) -> None:
    """The nearest passages in one prompt; tables as Arrow files."""
    place.put(one_document(), questions())
    place.memagent("answer", "--policy.kind", "retrieve", "--policy.passage-tokens", "128", "--table-format", "arrow")
    place.keep("retrieve")


JOBS: Sequence[Callable[[Workplace], None]] = (demo, nights, collect, gated, truncate, retrieve)


def record_jobs(names: Sequence[str], *, code: Path, work: Path, kept: Path) -> list[str]:
    """Runs jobs, all of them where none is named, and writes their recordings below `kept`; returns what failed."""
    failures = []
    for job in JOBS:
        if names and job.__name__ not in names:
            continue
        folder = (work / job.__name__).resolve()
        folder.mkdir(parents=True)
        began = time.monotonic()
        try:
            job(Workplace(folder=folder, code=code, kept=kept))
        except JobFailedError as error:
            failures.append(f"{job.__name__}: {error}")
        print(f"{job.__name__}: {time.monotonic() - began:.0f} s", flush=True)
    return failures


def one_document() -> dict[str, str]:
    """A document of some five chunks, with two facts."""
    return {"first": text_with("copper-falcon", 4071936) + text_with("amber-lantern", 6228358)}


def questions() -> list[dict[str, str]]:
    """A question for each key, asked of every document."""
    return [{"question_id": key, "question": question} for key, question in QUESTIONS.items()]


def text_with(key: str, code: int) -> str:
    """Plain sentences, with one fact in their middle."""
    sentences = [f"Train {number} left platform {number % 9} on time. It rained." for number in range(NUM_FILLERS)]
    return " ".join([*sentences, f"The access code of {key} is {code}.", *sentences]) + " "

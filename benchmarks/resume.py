"""Memory of the process that goes on with many questions over one long document, of which the log has all turns but
the answers.

`read_mib` is the most that the process holds while it reads (`RssAnon`, which leaves files that are mapped out),
`before_mib` what it held when the first reading began. The engine is simulated.
"""

import argparse
import asyncio
import tempfile
import threading
import time
from array import array
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.cli.settings import job_of
from memagent_batch.config.job import JobConfig
from memagent_batch.data.store.turn_log.files import TURNS_FOLDER, write_log_files
from memagent_batch.data.store.turn_log.rows import TURN_LOG, turn_row
from memagent_batch.loop.addresses import ReadingAddress, text_hash, token_hash
from memagent_batch.run.executors.progress import Progress
from memagent_batch.run.flows.answer import read_documents
from memagent_batch.run.flows.check import CheckedJob, check
from memagent_batch.run.flows.plan import ingest_sources, make_plan, scan_plan
from memagent_batch.run.reading.agent import make_agent
from memagent_batch.run.run import begin_run
from memagent_batch.run.wiring import make_output, make_tokenizer
from memagent_batch.types import Completion, FinishReason, Prompt, QuestionTokens

CHUNK_TOKENS = 32
FILE_QUESTIONS = 20
"""Questions whose turns are in one file of the log."""
EARLIER_RUN = "20260101T000000.000Z.aaaa"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--questions", type=int, default=1000, help="(default: 1000)")
    parser.add_argument("--chunks", type=int, default=2000, help="(default: 2000)")
    parser.add_argument("--memory-tokens", type=int, default=200, help="of every turn (default: 200)")
    parser.add_argument("--readings-in-flight", type=int, default=32, help="(default: 32)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        job = _job(Path(folder), arguments)
        num_turns = asyncio.run(_write_log(check(job), arguments.memory_tokens))
        context = get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=_resume, args=(job, there))
        process.start()
        there.close()
        yield {"questions": arguments.questions, "logged_turns": num_turns, **here.recv()}
        process.join()


def _job(folder: Path, arguments: argparse.Namespace) -> JobConfig:
    tokenizer, words = make_tokenizer(job_of(documents="d", ask=("q",), output="o", model="tiny").agent), 0
    lines: list[str] = []
    while words < arguments.chunks * CHUNK_TOKENS:
        lines.append(f"Line {len(lines)} of the minutes, which says nothing about what is asked.")
        words += len(tokenizer.encode(lines[-1] + "\n"))
    pq.write_table(pa.table({"document_id": ["d"], "text": ["\n".join(lines)]}), folder / "documents.parquet")
    questions = [
        {"question_id": f"q{number}", "question": f"What is item {number}?"} for number in range(arguments.questions)
    ]
    pq.write_table(pa.Table.from_pylist(questions), folder / "questions.parquet")
    return job_of(
        executor="local",
        documents=str(folder / "documents.parquet"),
        questions=str(folder / "questions.parquet"),
        output=str(folder / "run"),
        engine="simulated",
        model="tiny",
        window_tokens=2000,
        policy={
            "chunk_tokens": CHUNK_TOKENS,
            "question_tokens": 60,
            "memory_tokens": arguments.memory_tokens,
            "answer_tokens": 40,
            "break_at": "length",
        },
        pool={"readings_in_flight": arguments.readings_in_flight},
    )


async def _write_log(checked: CheckedJob, memory_tokens: int) -> int:
    """Writes all turns of all readings but the answers, as the policy would ask them; returns their number."""
    job, output = checked.job, make_output(checked.job)
    text = pq.read_table(job.documents[0])["text"][0].as_py()
    agent, tokenizer = make_agent(job.agent), make_tokenizer(job.agent)
    document = tokenizer.document(text)
    token_ids = (tokenizer.encode("Nothing about it was said so far, as far as the notes go. ") * memory_tokens)[
        :memory_tokens
    ]
    completion = Completion(
        token_ids=token_ids, text=tokenizer.decode(token_ids), finish_reason=FinishReason.STOP, num_prompt_tokens=400
    )
    hashes: list[str] = []
    prompts: list[Prompt] = []

    async def turns(prompt: Prompt) -> Completion:
        hashes.append(token_hash(array("I", prompt.token_ids)))
        prompts.append(prompt)
        return completion

    address = ReadingAddress(
        document_hash=text_hash(text), question_hash="", sample=0, fingerprint=checked.reader.fingerprint
    )
    first: pa.Table | None = None
    waiting: list[pa.Table] = []
    num_turns = 0
    questions = pq.read_table(job.questions)["question"].to_pylist()
    for number, question in enumerate(questions, 1):
        hashes.clear()
        prompts.clear()
        tokens = QuestionTokens(token_ids=agent.encode(question))
        await agent.policy.read(document, tokens, prompts=agent.prompts, turns=turns)
        if first is None:
            rows = [turn_row(address, each, completion, run_id=EARLIER_RUN, document_id="d") for each in prompts[:-1]]
            first = pa.Table.from_pylist(rows, schema=TURN_LOG)
        of_question = {
            "question_hash": [text_hash(question)] * len(first),
            "prompt_hash": hashes[:-1],
            "turn_hash": hashes[:-1],
        }
        table = first
        for name, values in of_question.items():
            place = TURN_LOG.get_field_index(name)
            table = table.set_column(place, TURN_LOG.field(place), pa.array(values, pa.string()))
        waiting.append(table)
        num_turns += len(table)
        if len(waiting) == FILE_QUESTIONS or number == len(questions):
            name = f"{EARLIER_RUN}-w-{number:06d}.parquet"
            write_log_files(output, {TURNS_FOLDER: pa.concat_tables(waiting)}, name=name)
            waiting = []
    return num_turns


def _resume(job: JobConfig, connection: Any) -> None:
    checked = check(job)
    job, output, executor = checked.job, make_output(checked.job), checked.executor
    with executor.session(job):
        plan = make_plan(checked, ingest_sources(checked))
        index = scan_plan(output, plan, fingerprint=checked.reader.fingerprint, executor=executor)
        bundles = list(plan.pending(index, retry_failed=False))
        run = begin_run(output, job, reader=checked.reader, plan=plan)
        progress = Progress(
            run_id=run.run_id, asked=run.record.asked, model="tiny", policy=job.agent.policy.kind, bound_met=None
        )
        before, began, peaks = _anonymous_mib(), time.monotonic(), [0.0]
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(0.1):
                peaks.append(max(peaks.pop(), _anonymous_mib()))

        watching = threading.Thread(target=watch, daemon=True)
        watching.start()
        not_read = read_documents(bundles, run=run, executor=executor, progress=progress)
        ended.set()
        watching.join()
    connection.send(
        {
            "new_turns": progress.spent()["num_turns"],
            "not_read": not_read.num_rows,
            "before_mib": round(before),
            "read_mib": round(peaks[0]),
            "seconds": round(time.monotonic() - began, 1),
        }
    )


def _anonymous_mib() -> float:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in lines if line.startswith("RssAnon")]
    return int(line.split()[1]) / 1024

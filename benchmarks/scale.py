"""What a corpus costs the driver: seconds and memory by phase, of a first run and of runs in which nothing changed.

Documents are one line each and the engine answers at once, so that what is measured grows with the corpus and not with
its texts. Each run is a process of its own, which also reads.

With `--replicas`, actors read on Ray, each turn takes a second, and `documents_per_second` is how fast the driver has
them read from the first quarter of the documents to the last one.

With `--read`, all documents are indexed and a sample of them is read, as by `--limit`: so the index of millions of
documents, or of their pages, is measured in minutes.

With `--plan-only` nothing is read or written but the plan and its record: index and keys of the log are made by a
query, and an inventory lists the files. So millions of documents can be measured in minutes. The first run plans with
an empty log, too.

Of a phase, `cpu_seconds` are those of this process. `anonymous_mib` is the most memory that only this process can hold,
without mapped files, which the system takes back when others need the memory; from `/proc`, looked at every 20 ms.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from benchmarks.harness import MemoryWatch, copy_tokenizer, simulated_job
from memagent_batch.config.job import JobConfig
from memagent_batch.config.sources import InputConfig
from memagent_batch.data.documents.document_index import (
    INDEX_SCHEMA,
    IndexedFiles,
    in_order,
    require_unique_ids,
    reuse_index,
)
from memagent_batch.data.documents.questions import read_questions
from memagent_batch.data.documents.shards import find_shards
from memagent_batch.data.store.database import limit_memory, open_database, query_to_disk
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.parquet import write_parquet
from memagent_batch.data.store.turn_log.index import LogIndex
from memagent_batch.data.store.turn_log.keys import KEYS_FOLDER, LOG_KEYS, LOG_SCHEMAS, OUTCOMES_FOLDER, TURNS_FOLDER
from memagent_batch.data.store.turn_log.question_list import write_asked
from memagent_batch.data.store.turn_log.writer import new_run_id
from memagent_batch.loop.addresses import text_hash
from memagent_batch.run.executors.local import LocalExecutor
from memagent_batch.run.flows import answer
from memagent_batch.run.history import (
    PastRun,
    find_changes,
    last_run,
    read_kept_index,
    removed_documents,
    write_plan,
    write_record_manifest,
)
from memagent_batch.run.manifest import FORMAT
from memagent_batch.run.plan import Plan, group_documents
from memagent_batch.run.wiring import make_documents, make_output

flow: Any = answer
"""The flow, whose functions a measured run replaces by timed ones."""
FUNCTIONS = (
    "check",
    "make_plan",
    "begin_run",
    "scan_plan",
    "read_documents",
    "plan_parts",
    "write",
    "write_kept_index",
    "recorded_plan",
    "close_run",
)
"""Of the flow: its phases, beside `Plan.pending`. Some run twice."""
FILES_IN_FOLDER = 1000
PAGES = 10
"""Rows of a document of pages."""
GROUP_ROWS = 100_000
"""Rows of a row group of the Parquet file."""
KEYED_READINGS = 50_000
"""Readings of a file of keys that the script writes."""
MADE_RUN, FINGERPRINT = "20260101T000000.000Z.aaaa", "f"
INDEX_ROWS = """
select format('{:06d}/{:010d}.txt', number // 1000, number) as document_id, sha256('Line ' || number) as document_hash,
       $root || document_id as path, 'text' as format, 0 as start, 0 as stop, 25 as num_bytes,
       null as error, null as error_type, null as rows
from range($num_documents) as numbers(number)
"""
_INVENTORY = """
select format('{:06d}/{:010d}.txt', number // 1000, number) as path, 25 as size, md5(path) as etag
from range($num_documents) as numbers(number)
"""
INVENTORY, INVENTORY_COLUMNS = "inventory.parquet", [("path", pa.string()), ("size", pa.int64()), ("etag", pa.string())]
_KEYS = """
select sha256('Line ' || number) as document_hash, question_hash, 0 as sample, $fingerprint as fingerprint,
       $run_id as run_id, folder || '/' || $name as file, if(folder = 'log/turns', null, 'ok') as status,
       timestamptz '2026-01-01' as finished_at, null as document_id, (folder = 'log/turns')::int as num_turns,
       0 as num_copies
from range($first, $stop) as numbers(number), unnest($questions) as questions(question_hash),
     unnest(['log/turns', 'log/outcomes']) as folders(folder)
"""
CHUNK_TOKENS = 64
READINGS_IN_FLIGHT = 16
NO_CPUS = 0.01
"""CPUs that Ray sets aside for a replica that only sleeps."""
CHANGED_SECONDS = 2.5
"""Age from which a file's times count; see `documents.listing.UNSURE_SECONDS`."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--documents", type=int, default=100_000, help="documents (default: 100000)")
    parser.add_argument("--questions", type=int, default=1, help="questions of each document (default: 1)")
    forms = f"text files, rows of a file, or {PAGES} rows for each document"
    parser.add_argument("--form", choices=("files", "rows", "pages"), default="files", help=forms)
    parser.add_argument("--read", type=int, help="documents that are read (default: all)")
    parser.add_argument("--unchanged", type=int, default=3, help="runs in which nothing changed (default: 3)")
    parser.add_argument("--memory-gib", type=float, default=1.25, help="driver.memory_gib (default: 1.25)")
    parser.add_argument("--replicas", type=int, help="readers on Ray (default: this process reads)")
    parser.add_argument("--plan-only", action="store_true", help="read and write nothing but the plan, over a made log")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        copy_tokenizer(place / "model")
        _write(place, num_documents=1 if arguments.plan_only else arguments.documents, form=arguments.form)
        time.sleep(CHANGED_SECONDS)
        job = simulated_job(
            place,
            chunk_tokens=CHUNK_TOKENS,
            documents=str(place / "documents"),
            ask=tuple(f"What is line {number}?" for number in range(arguments.questions)),
            model=str(place / "model"),
            driver={"memory_gib": arguments.memory_gib},
            input={"order_columns": ["page"]} if arguments.form == "pages" else {},
            limit=arguments.read,
            **_pool(arguments.replicas),
        )
        planned = arguments.documents if arguments.plan_only else None
        if planned:
            in_process(_write_made, job, planned)
        shape = {name: getattr(arguments, name) for name in ("documents", "questions", "form", "read", "memory_gib")}
        for run in range(1 + arguments.unchanged):
            phases = in_process(_run, job, planned)
            figures = {
                "seconds": round(sum(phase["seconds"] for phase in phases.values()), 1),
                "anonymous_mib": max(phase["anonymous_mib"] for phase in phases.values()),
            }
            if arguments.replicas and not run:
                figures |= {"replicas": arguments.replicas, "documents_per_second": _read_per_second(job)}
            yield {"what": "unchanged" if run else "first", **shape, **figures, "phases": phases}


def in_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns in a new process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(function, *arguments).result()


def _pool(replicas: int | None) -> dict[str, Any]:
    if replicas is None:
        return {"executor": "local"}
    pool = {"replicas": replicas, "readings_in_flight": READINGS_IN_FLIGHT, "cpus_per_replica": NO_CPUS}
    return {"executor": "ray", "pool": pool, "simulated": {"turn_seconds": 1.0}}


def _read_per_second(job: JobConfig) -> float:
    """Documents that ended in a second, after the first quarter of them: then all readers are at work."""
    ended = sorted(ds.dataset(f"{job.output}/answers").to_table(columns=["finished_at"])["finished_at"].to_pylist())
    quarter = len(ended) // 4
    seconds: float = (ended[-1] - ended[quarter]).total_seconds()
    return round((len(ended) - 1 - quarter) / seconds, 1)


def _pieces(count: int, length: int) -> Iterator[range]:
    yield from (range(start, min(start + length, count)) for start in range(0, count, length))


def _text(number: int) -> str:
    return f"Line {number} of the corpus."


def _write(place: Path, *, num_documents: int, form: str) -> None:
    folder = place / "documents"
    folder.mkdir()
    if form == "files":
        for number in range(num_documents):
            below = folder / f"{number // FILES_IN_FOLDER:06}"
            if not number % FILES_IN_FOLDER:
                below.mkdir()
            (below / f"{number}.txt").write_text(_text(number))
        return
    pages = PAGES if form == "pages" else 1
    schema = pa.schema([("document_id", pa.string()), ("page", pa.int32()), ("text", pa.string())])
    with pq.ParquetWriter(folder / "documents.parquet", schema) as writer:
        for rows in _pieces(num_documents * pages, GROUP_ROWS):
            columns = [[f"d{row // pages}" for row in rows], [row % pages for row in rows], [*map(_text, rows)]]
            writer.write_table(pa.table(columns, schema=schema), row_group_size=GROUP_ROWS)


class Phases:
    """Seconds and memory of the phases of this process."""

    def __init__(self) -> None:
        self.figures: dict[str, dict[str, float]] = {}
        self._memory = MemoryWatch()

    @classmethod
    def of_flow(cls) -> "Phases":
        """Has the functions of the flow timed from now on."""
        phases, pending = cls(), Plan.pending
        Plan.pending = phases.timed(lambda *given, **options: [*pending(*given, **options)], name="pending")  # type: ignore[method-assign]
        for name in FUNCTIONS:
            setattr(flow, name, phases.timed(getattr(flow, name), name=name))
        return phases

    def timed(self, phase: Callable[..., Any], *, name: str) -> Callable[..., Any]:
        """The function, as a phase."""

        def run(*arguments: Any, **options: Any) -> Any:
            self._memory.reset()
            began, cpu = time.monotonic(), time.process_time()
            result = phase(*arguments, **options)
            seconds, cpu = time.monotonic() - began, time.process_time() - cpu
            figures = self.figures.setdefault(name, {"seconds": 0.0, "cpu_seconds": 0.0, "anonymous_mib": 0.0})
            figures["seconds"] = round(figures["seconds"] + seconds, 2)
            figures["cpu_seconds"] = round(figures["cpu_seconds"] + cpu, 2)
            figures["anonymous_mib"] = max(figures["anonymous_mib"], round(self._memory.most))
            return result

        return run


def _run(job: JobConfig, planned: int | None) -> dict[str, dict[str, float]]:
    phases = Phases.of_flow()
    if planned:
        _plan_only(job, planned, phases)
    else:
        flow.answer(job)
    return phases.figures


def _plan_only(job: JobConfig, num_documents: int, phases: Phases) -> None:
    """What `answer` does before and after readings and tables: it leaves a record, from which the next run goes on."""
    output = make_output(job)
    limit_memory(job.driver.memory_gib)
    kept = phases.timed(read_kept_index, name="read_kept_index")(output)
    before = phases.timed(last_run, name="last_run")(output)
    (place,) = make_documents(job)
    settings = InputConfig(inventory=str(Path(place.path).parent / INVENTORY))
    found = phases.timed(find_shards, name="find_shards")(place, settings=settings)
    indexed = IndexedFiles.found(found, settings=settings)
    given = (kept, indexed, found.shards)
    reused = phases.timed(reuse_index, name="reuse_index")(*given, settings=settings)
    assert reused.is_whole is (kept is not None)
    documents = reused.rows
    if not reused.is_whole:
        documents = made(INDEX_ROWS, schema=INDEX_SCHEMA, num_documents=num_documents, root=f"{place.path}/")
        documents = phases.timed(in_order, name="in_order")(documents)
    phases.timed(require_unique_ids, name="require_unique_ids")(documents, documents=output)
    files = replace(indexed, is_kept=reused.is_whole)
    plan = Plan(documents, read_questions(None, ask=job.ask), samples=1, indexed=files)
    if kept is None:
        everything = plan.pending(LogIndex(), retry_failed=False)  # as where nothing is read yet
        phases.timed(lambda: sum(1 for _ in group_documents([*everything], readings_in_flight=64)), name="group")()
    index = flow.scan_plan(output, plan, fingerprint=FINGERPRINT, executor=LocalExecutor())
    assert not list(plan.pending(index, retry_failed=False))
    phases.timed(lambda: sum(part.num_rows for part in flow.plan_parts(plan, index)), name="plan_parts")()
    recorded, questions = flow.recorded_plan(plan, index), plan.asked.hashed
    run_id = new_run_id(after=before.run_id if before else "")
    removed = phases.timed(removed_documents, name="removed_documents")(recorded, run_id=run_id, before=before)
    phases.timed(find_changes, name="find_changes")(recorded, questions, before=before, turns=index.turns)
    write_asked(output, questions, run_id=run_id)
    manifest: Any = {"format": FORMAT, "run_id": run_id, "tables": {}, "files": {}, "parts": []}
    past = PastRun(output=output, run_id=run_id, manifest=manifest, plan=recorded, questions=questions, removed=removed)
    phases.timed(write_plan, name="write_plan")(past)
    flow.write_kept_index(output, plan, run_id=run_id)
    write_record_manifest(past)


def made(sql: str, *, schema: pa.Schema, **parameters: object) -> pa.Table:
    """Rows that a query makes of nothing."""
    with open_database({}) as database:
        return query_to_disk(database, sql, schema=schema, **parameters)


def _write_made(job: JobConfig, num_documents: int) -> None:
    """An inventory of documents that are not there, and the keys of a log of them."""
    inventory = made(_INVENTORY, schema=pa.schema(INVENTORY_COLUMNS), num_documents=num_documents)
    pq.write_table(inventory, Path(job.documents[0]).parent / INVENTORY)
    write_keys(make_output(job), num_documents, ask=job.ask, fingerprint=FINGERPRINT)


def write_keys(output: Location, num_documents: int, *, ask: Sequence[object], fingerprint: str) -> None:
    """Keys of a turn and an outcome of each reading; the files that they are of have no rows."""
    questions = [text_hash(str(question)) for question in ask]
    for number, rows in enumerate(_pieces(num_documents, KEYED_READINGS // len(questions))):
        name = f"{MADE_RUN}-w-{number:06d}.parquet"
        values: dict[str, Any] = {"name": name, "first": rows.start, "stop": rows.stop, "questions": questions}
        keys = made(_KEYS, schema=LOG_KEYS, run_id=MADE_RUN, fingerprint=fingerprint, **values)
        write_parquet(output / f"{KEYS_FOLDER}/{name}", keys)
        for folder in (TURNS_FOLDER, OUTCOMES_FOLDER):
            write_parquet(output / f"{folder}/{name}", LOG_SCHEMAS[folder].empty_table())

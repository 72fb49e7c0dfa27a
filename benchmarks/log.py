"""The turn log at the size of a large run: writing, scanning, resuming and projecting millions of turns.

Synthetic readings go through the real writer, so many in flight that each flush holds a turn or two of each; documents
are read in another order than they stand in the input, as in a run. Each phase is a process of its own, so that its
peak memory is its own. On a local disk, and with `--store s3` on an S3 API served on loopback.
"""

import argparse
import asyncio
import logging
import math
import multiprocessing
import pickle
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
from moto.server import ThreadedMotoServer

from memagent_batch.config import LogConfig, TableFormat
from memagent_batch.domain.addresses import ReadingAddress, text_hash
from memagent_batch.domain.answers import Extraction
from memagent_batch.domain.readings import Status
from memagent_batch.domain.turns import Completion, FinishReason, Prompt
from memagent_batch.files.location import Location
from memagent_batch.files.parquet import parquet_bytes
from memagent_batch.inputs.documents import INDEX_SCHEMA
from memagent_batch.inputs.questions import QUESTION_SCHEMA
from memagent_batch.log.index import read_turns, scan_log
from memagent_batch.log.schemas import OUTCOME_LOG, TURN_LOG, ResultRow
from memagent_batch.log.writer import OUTCOMES_FOLDER, TURNS_FOLDER, TurnLogWriter, new_run_id
from memagent_batch.runs.plan import Plan
from memagent_batch.runs.rows.projection import Projection
from memagent_batch.runs.tables import project
from tests.faults.loopback.proxy import FaultProxy, RequestFault
from tests.faults.peak_memory import peak_mib

FINGERPRINT = text_hash("a reader")
QUESTION = "What colour is the sky?"
PROMPT_TOKENS = 1000
COMPLETION_TOKENS = 200
NUM_COMPLETIONS = 2000
IN_FLIGHT = 64
NIGHT_READINGS = 3
NIGHT_TURNS = 4
"""What a small flush holds: some readings, of some turns each."""
FLUSHES_A_NIGHT = 150
WRITE_THREADS = 8
CHUNK_BYTES = 20_000
"""Text of one turn: a chunk of 5,000 tokens."""
NEVER_SECONDS = 3600.0
"""The benchmark flushes by itself, so that a file holds a known number of turns."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--turns", type=int, nargs="+", default=[20_000, 100_000], help="default: 20000 100000")
    parser.add_argument("--reading-turns", type=int, default=20, help="turns of a reading (default: 20)")
    parser.add_argument("--file-turns", type=int, default=1000, help="turns of a log file (default: 1000)")
    parser.add_argument("--parts", type=int, default=3, help="parts of the tables that are projected (default: 3)")
    parser.add_argument(
        "--nights", type=int, nargs="+", default=[], help="instead: scan logs of so many small files, as nights leave"
    )
    parser.add_argument("--store", choices=["disk", "s3"], default="disk", help="where the log lies (default: disk)")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds that each request to S3 takes longer")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    about = {"store": arguments.store, "delay_seconds": arguments.delay}
    for files in arguments.nights:
        with _store(arguments.store, delay_seconds=arguments.delay) as (place, direct):
            figures = {**_apart(_write_nights, direct, files), **_apart(_scan_nights, place, files)}
        yield {"what": "nights", **about, "files": files, **figures}
    for turns in () if arguments.nights else arguments.turns:
        with (
            _store(arguments.store, delay_seconds=arguments.delay) as (place, _),
            tempfile.NamedTemporaryFile() as parts,
        ):
            shape = (place, turns // arguments.reading_turns, arguments.reading_turns)
            figures = {
                **_apart(_write, *shape, arguments.file_turns),
                **_apart(_scan, *shape),
                **_apart(_resume, *shape),
                **_apart(_part, *shape, arguments.parts, parts.name),
                **_apart(_project, place, parts.name),
            }
        yield {"what": "turns", **about, "turns": turns, **figures}


def _apart(phase: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """Figures of a phase, and the memory that it took beyond its start, in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        before = pool.apply(_peak_mib)
        figures = pool.apply(phase, arguments)
        return {**figures, f"{phase.__name__[1:]}_mib": round(pool.apply(_peak_mib) - before, 1)}


def _peak_mib() -> float:
    """Peak memory of this process, which has imported this module when it gets here."""
    return peak_mib()


def _write(place: Location, num_readings: int, reading_turns: int, file_turns: int) -> dict[str, Any]:
    timer = _Timer()
    num_bytes = asyncio.run(_write_log(place, num_readings, reading_turns, file_turns))
    return {
        **timer.figures("write", per=num_readings * reading_turns / 1000, unit="_per_1000_turns"),
        "bytes_per_turn": round(num_bytes / (num_readings * reading_turns)),
        "files": len((place / TURNS_FOLDER).files()),
    }


async def _write_log(place: Location, num_readings: int, reading_turns: int, file_turns: int) -> int:
    """Reads the documents in a random order, `IN_FLIGHT` at a time, turn by turn in step."""
    settings = LogConfig(flush_seconds=NEVER_SECONDS, flush_bytes=1 << 40)
    log = TurnLogWriter(place, run_id=new_run_id(), writer_id="w", settings=settings)
    order = random.Random(0).sample(range(num_readings), num_readings)
    rng, waiting, num_turns = random.Random(1), set(), 0
    completions = _completions(rng)
    under_way = {number: rng.randrange(reading_turns) for number in order[:IN_FLIGHT]}  # so that they end apart
    rest = iter(order[IN_FLIGHT:])
    while under_way:
        for number, turn in list(under_way.items()):
            log.record_turn(_address(number), _prompt(turn, reading_turns), completions[num_turns % NUM_COMPLETIONS])
            num_turns += 1
            under_way[number] += 1
            if under_way[number] == reading_turns:
                del under_way[number]
                waiting.add(asyncio.ensure_future(log.record_outcome(_address(number), _result(reading_turns))))
                if (following := next(rest, None)) is not None:
                    under_way[following] = 0
            if num_turns % file_turns == 0:
                await log.flush()
    await asyncio.sleep(0)
    await log.close()
    await asyncio.gather(*waiting)
    return log.num_bytes


def _write_nights(place: Location, num_files: int) -> dict[str, Any]:
    """Half as many files of turns as of outcomes, each as one flush leaves it: a few turns of a few readings."""
    with ThreadPoolExecutor(WRITE_THREADS) as threads:
        sizes = list(threads.map(partial(_write_night, place), range(num_files // 2)))
    return {"bytes_per_file": round(statistics.mean(chain.from_iterable(sizes)))}


def _write_night(place: Location, number: int) -> tuple[int, int]:
    now = datetime.now(UTC)
    run_id = f"2026{number // FLUSHES_A_NIGHT:05}"
    addresses = [asdict(_address(number * NIGHT_READINGS + reading)) for reading in range(NIGHT_READINGS)]
    about = [{**address, "run_id": run_id, "finished_at": now} for address in addresses]
    completion = _completion([(number + token) % 50_000 for token in range(COMPLETION_TOKENS)])
    turn = {
        **{field.name: 0 for field in TURN_LOG if pa.types.is_integer(field.type)},
        "kind": "update",
        "prompt_hash": "0" * 16,
        "engine_seconds": 0.1,
        "finish_reason": "stop",
        "token_ids": completion.token_ids,
        "text": completion.text,
    }
    turns = [{**turn, **row, "path": f"update/{turn_number}"} for row in about for turn_number in range(NIGHT_TURNS)]
    outcomes = [{**_result(NIGHT_TURNS), **row} for row in about]
    sizes = []
    for folder, rows, schema in ((TURNS_FOLDER, turns, TURN_LOG), (OUTCOMES_FOLDER, outcomes, OUTCOME_LOG)):
        data = parquet_bytes(pa.Table.from_pylist(rows, schema=schema))
        (place / f"{folder}/{run_id}-w-{number:06}.parquet").write_bytes(data)
        sizes.append(len(data))
    return (sizes[0], sizes[1])


def _scan_nights(place: Location, num_files: int) -> dict[str, Any]:
    timer = _Timer()
    index = scan_log(place, reader_fingerprint=FINGERPRINT)
    if len(index.outcomes) != num_files // 2 * NIGHT_READINGS:
        raise RuntimeError(
            f"{num_files // 2 * NIGHT_READINGS} readings were logged, the scan found {len(index.outcomes)}"
        )
    figures = timer.figures("scan_nights")
    return {**figures, "files_per_second": round(num_files / figures["scan_nights_seconds"])}


def _scan(place: Location, num_readings: int, reading_turns: int) -> dict[str, Any]:
    timer = _Timer()
    index = scan_log(place, reader_fingerprint=FINGERPRINT)
    if len(index.outcomes) != num_readings or len(index.turn_files) != num_readings:
        raise RuntimeError(f"{num_readings} readings were logged, the scan found {len(index.outcomes)}")
    return timer.figures("scan")


def _resume(place: Location, num_readings: int, reading_turns: int) -> dict[str, Any]:
    """Finds the turns of single documents, as a reader does that goes on with them."""
    index = scan_log(place, reader_fingerprint=FINGERPRINT)
    seconds = []
    for key in random.Random(2).sample(sorted(index.turn_files), 5):
        began = time.monotonic()
        read_turns(
            place,
            index.turn_files[key],
            reader_fingerprint=FINGERPRINT,
            document_hashes=[key[0]],
        )
        seconds.append(time.monotonic() - began)
    return {"resume_seconds_median": round(statistics.median(seconds), 3)}


def _part(place: Location, num_readings: int, reading_turns: int, num_parts: int, chosen: str) -> dict[str, Any]:
    """Divides the tables into parts, as the driver does; some, spread over the whole plan, go to the file `chosen`."""
    plan = _plan(num_readings, reading_turns)
    index = scan_log(place, reader_fingerprint=FINGERPRINT)
    timer = _Timer()
    parts = list(plan.parts(index))
    figures = timer.figures("part")
    step = max(len(parts) // num_parts, 1)
    Path(chosen).write_bytes(pickle.dumps(parts[::step][:num_parts]))
    size = math.ceil(num_readings / len(parts))
    in_order = [range(first, min(first + size, num_readings)) for first in range(0, num_readings, size)]
    return {
        "parts": len(parts),
        "files_per_part": _mean_files(part["turn_files"].to_pylist() for part in parts),
        "files_per_part_in_input_order": _mean_files(
            [index.turn_files[_document_hash(number), text_hash(QUESTION)] for number in numbers]
            for numbers in in_order
        ),
        **figures,
    }


def _project(place: Location, chosen: str) -> dict[str, Any]:
    """Makes the tables of the chosen parts, as a task does that gets a part."""
    parts = pickle.loads(Path(chosen).read_bytes())
    timer = _Timer()
    num_turns = 0
    for part in parts:
        tables = project(part, projection=_projection(place))
        if tables.missing:
            raise RuntimeError("the tables miss readings that were logged")
        num_turns += tables.memories.num_rows
    return timer.figures("project", per=num_turns / 1000, unit="_per_1000_turns")


def _mean_files(parts: Iterable[list[list[str]]]) -> int:
    """Different log files of a part, on average."""
    return round(statistics.mean(len(set(chain.from_iterable(files))) for files in parts))


def _plan(num_readings: int, reading_turns: int) -> Plan:
    rows = [
        {
            "document_id": f"d{number}",
            "document_hash": _document_hash(number),
            "path": "documents.parquet",
            "format": "parquet",
            "start": 0,
            "stop": number,
            "num_bytes": CHUNK_BYTES * (reading_turns - 1),
        }
        for number in range(num_readings)
    ]
    question = {"question_id": "q", "document_id": None, "question": QUESTION, "references": None}
    questions = pa.Table.from_pylist([question], schema=QUESTION_SCHEMA)
    return Plan(pa.Table.from_pylist(rows, schema=INDEX_SCHEMA), questions, samples=1)


def _projection(place: Location) -> Projection:
    return Projection(
        output=place,
        run_id="r",
        reader_fingerprint=FINGERPRINT,
        model="none",
        first_memory="",
        keep_word="",
        extraction=Extraction.RAW,
        table_format=TableFormat.PARQUET,
    )


def _document_hash(number: int) -> str:
    return text_hash(str(number))


def _address(number: int) -> ReadingAddress:
    return ReadingAddress(
        document_hash=_document_hash(number),
        question_hash=text_hash(QUESTION),
        sample=0,
        reader_fingerprint=FINGERPRINT,
    )


def _prompt(turn: int, reading_turns: int) -> Prompt:
    is_last = turn == reading_turns - 1
    return Prompt(
        path="answer" if is_last else f"update/{turn}",
        kind="answer" if is_last else "update",
        token_ids=_PROMPT,
        max_tokens=COMPLETION_TOKENS,
    )


_PROMPT = list(range(PROMPT_TOKENS))


def _completions(rng: random.Random) -> list[Completion]:
    """Many different ones: what repeats would shrink in the file as no model's words do."""
    return [_completion([rng.randrange(50_000) for _ in range(COMPLETION_TOKENS)]) for _ in range(NUM_COMPLETIONS)]


def _completion(token_ids: list[int]) -> Completion:
    text = " ".join(f"{token:x}" for token in token_ids)
    return Completion(token_ids=token_ids, text=text, finish_reason=FinishReason.STOP, num_prompt_tokens=PROMPT_TOKENS)


def _result(reading_turns: int) -> ResultRow:
    now = datetime.now(UTC)
    return {
        "memory_truncations": 0,
        "num_document_tokens": None,
        "num_chunks": None,
        "num_replayed_turns": 0,
        "num_prompt_tokens": 0,
        "num_cached_prompt_tokens": 0,
        "num_completion_tokens": 0,
        "engine_seconds": 0,
        "error_type": None,
        "error_message": None,
        "status": Status.OK,
        "response": "blue",
        "memory": "the sky is blue",
        "finish_reason": FinishReason.STOP,
        "num_turns": reading_turns,
        "started_at": now,
        "finished_at": now,
        "model": "none",
    }


class _Timer:
    """Seconds since it was made: of the clock, and of this process on a core."""

    def __init__(self) -> None:
        self._began, self._used = time.monotonic(), time.process_time()

    def figures(self, name: str, *, per: float = 1, unit: str = "") -> dict[str, float]:
        seconds, used = time.monotonic() - self._began, time.process_time() - self._used
        return {f"{name}_seconds{unit}": round(seconds / per, 3), f"{name}_cpu_seconds{unit}": round(used / per, 3)}


@contextmanager
def _store(kind: str, *, delay_seconds: float) -> Iterator[tuple[Location, Location]]:
    """An empty folder, or an empty bucket of a server that ends with the block; reached with the delay, and without."""
    if kind == "disk":
        with tempfile.TemporaryDirectory() as folder:
            yield (Location(uri=f"{folder}/run"),) * 2
        return
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    direct = Location(uri="s3://log/run", storage_options=_options(url))
    try:
        direct.fs.mkdir("log")
        with FaultProxy(upstream=url, slow_seconds=delay_seconds) as proxy:
            proxy.strike(RequestFault.SLOW, rate=1.0)
            yield replace(direct, storage_options=_options(proxy.url)) if delay_seconds else direct, direct
    finally:
        server.stop()


def _options(url: str) -> dict[str, Any]:
    return {"key": "test", "secret": "test", "client_kwargs": {"endpoint_url": url}}

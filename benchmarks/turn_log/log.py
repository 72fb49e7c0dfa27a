"""The turn log at the size of a large run: writing, scanning, resuming and projecting millions of turns.

Synthetic readings go through the real writer, so many in flight that each flush holds a turn or two of each; documents
are read in another order than they stand in the input, as in a run. Each phase is a process of its own, so that its
peak memory is its own. On a local disk, and with `--store s3` on an S3 API served on loopback.
"""

import argparse
import asyncio
import math
import multiprocessing
import pickle
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks.turn_log.nights import scan_nights, write_nights
from benchmarks.turn_log.store import opened_store
from benchmarks.turn_log.synthetic import (
    FINGERPRINT,
    NUM_COMPLETIONS,
    QUESTION,
    address_of,
    document_hash,
    make_completions,
    prompt_of,
    result_of,
    synthetic_plan,
    synthetic_projection,
)
from benchmarks.turn_log.timer import Timer
from memagent_batch.config.job import LogConfig
from memagent_batch.domain.addresses import text_hash
from memagent_batch.files.location import Location
from memagent_batch.log.index import scan_log
from memagent_batch.log.turns import read_turns
from memagent_batch.log.writer import TURNS_FOLDER, TurnLogWriter, new_run_id
from memagent_batch.runs.planning.parts import plan_parts
from memagent_batch.runs.tables.tables import project
from tests.faults.peak_memory import peak_mib

IN_FLIGHT = 64
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
        with opened_store(arguments.store, delay_seconds=arguments.delay) as (place, direct):
            figures = {**_apart(write_nights, direct, files), **_apart(scan_nights, place, files)}
        yield {"what": "nights", **about, "files": files, **figures}
    for turns in () if arguments.nights else arguments.turns:
        with (
            opened_store(arguments.store, delay_seconds=arguments.delay) as (place, _),
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
        return {**figures, f"{phase.__name__.removeprefix('_')}_mib": round(pool.apply(_peak_mib) - before, 1)}


def _peak_mib() -> float:
    """Peak memory of this process, which has imported this module when it gets here."""
    return peak_mib()


def _write(place: Location, num_readings: int, reading_turns: int, file_turns: int) -> dict[str, Any]:
    timer = Timer()
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
    completions = make_completions(rng)
    under_way = {number: rng.randrange(reading_turns) for number in order[:IN_FLIGHT]}  # so that they end apart
    rest = iter(order[IN_FLIGHT:])
    while under_way:
        for number, turn in list(under_way.items()):
            log.record_turn(
                address_of(number), prompt_of(turn, reading_turns), completions[num_turns % NUM_COMPLETIONS]
            )
            num_turns += 1
            under_way[number] += 1
            if under_way[number] == reading_turns:
                del under_way[number]
                waiting.add(asyncio.ensure_future(log.record_outcome(address_of(number), result_of(reading_turns))))
                if (following := next(rest, None)) is not None:
                    under_way[following] = 0
            if num_turns % file_turns == 0:
                await log.flush()
    await asyncio.sleep(0)
    await log.close()
    await asyncio.gather(*waiting)
    return log.num_bytes


def _scan(place: Location, num_readings: int, reading_turns: int) -> dict[str, Any]:
    timer = Timer()
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
    plan = synthetic_plan(num_readings, reading_turns)
    index = scan_log(place, reader_fingerprint=FINGERPRINT)
    timer = Timer()
    parts = list(plan_parts(plan, index))
    figures = timer.figures("part")
    step = max(len(parts) // num_parts, 1)
    Path(chosen).write_bytes(pickle.dumps(parts[::step][:num_parts]))
    size = math.ceil(num_readings / len(parts))
    in_order = [range(first, min(first + size, num_readings)) for first in range(0, num_readings, size)]
    return {
        "parts": len(parts),
        "files_per_part": _mean_files(part["turn_files"].to_pylist() for part in parts),
        "files_per_part_in_input_order": _mean_files(
            [index.turn_files[document_hash(number), text_hash(QUESTION)] for number in numbers] for numbers in in_order
        ),
        **figures,
    }


def _project(place: Location, chosen: str) -> dict[str, Any]:
    """Makes the tables of the chosen parts, as a task does that gets a part."""
    parts = pickle.loads(Path(chosen).read_bytes())
    timer = Timer()
    num_turns = 0
    for part in parts:
        tables = project(part, projection=synthetic_projection(place))
        if tables.missing:
            raise RuntimeError("the tables miss readings that were logged")
        num_turns += tables.memories.num_rows
    return timer.figures("project", per=num_turns / 1000, unit="_per_1000_turns")


def _mean_files(parts: Iterable[list[list[str]]]) -> int:
    """Different log files of a part, on average."""
    return round(statistics.mean(len(set(chain.from_iterable(files))) for files in parts))

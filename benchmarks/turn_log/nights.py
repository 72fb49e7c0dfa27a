"""A log of many small files, as nights leave it: written, and scanned."""

import statistics
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa

from benchmarks.turn_log.synthetic import COMPLETION_TOKENS, FINGERPRINT, address_of, completion_of, result_of
from benchmarks.turn_log.timer import Timer
from memagent_batch.files.location import Location
from memagent_batch.files.parquet import parquet_bytes
from memagent_batch.log.index import scan_log
from memagent_batch.log.schemas import OUTCOME_LOG, TURN_LOG
from memagent_batch.log.writer import OUTCOMES_FOLDER, TURNS_FOLDER

NIGHT_READINGS = 3

NIGHT_TURNS = 4
"""What a small flush holds: some readings, of some turns each."""

FLUSHES_A_NIGHT = 150

WRITE_THREADS = 8


def write_nights(place: Location, num_files: int) -> dict[str, Any]:
    """Half as many files of turns as of outcomes, each as one flush leaves it: a few turns of a few readings."""
    with ThreadPoolExecutor(WRITE_THREADS) as threads:
        sizes = list(threads.map(partial(_write_night, place), range(num_files // 2)))
    return {"bytes_per_file": round(statistics.mean(chain.from_iterable(sizes)))}


def _write_night(place: Location, number: int) -> tuple[int, int]:
    now = datetime.now(UTC)
    run_id = f"2026{number // FLUSHES_A_NIGHT:05}"
    addresses = [asdict(address_of(number * NIGHT_READINGS + reading)) for reading in range(NIGHT_READINGS)]
    about = [{**address, "run_id": run_id, "finished_at": now} for address in addresses]
    completion = completion_of([(number + token) % 50_000 for token in range(COMPLETION_TOKENS)])
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
    outcomes = [{**result_of(NIGHT_TURNS), **row} for row in about]
    sizes = []
    for folder, rows, schema in ((TURNS_FOLDER, turns, TURN_LOG), (OUTCOMES_FOLDER, outcomes, OUTCOME_LOG)):
        data = parquet_bytes(pa.Table.from_pylist(rows, schema=schema))
        (place / f"{folder}/{run_id}-w-{number:06}.parquet").write_bytes(data)
        sizes.append(len(data))
    return (sizes[0], sizes[1])


def scan_nights(place: Location, num_files: int) -> dict[str, Any]:
    timer = Timer()
    index = scan_log(place, reader_fingerprint=FINGERPRINT)
    if len(index.outcomes) != num_files // 2 * NIGHT_READINGS:
        raise RuntimeError(
            f"{num_files // 2 * NIGHT_READINGS} readings were logged, the scan found {len(index.outcomes)}"
        )
    figures = timer.figures("scan_nights")
    return {**figures, "files_per_second": round(num_files / figures["scan_nights_seconds"])}

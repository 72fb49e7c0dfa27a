"""A rollouts table of any size, written and read by the project's own writer and reader: MB/s, and peak memory of each.

Prompts and responses have the lengths that are asked for on average. Token ids are random, so that they compress as
badly as they can. Write and read each run in a process of their own, whose peak resident memory the kernel tells.
"""

import argparse
import json
import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.peak_memory import peak_mib
from memagent_batch.files.location import Location
from memagent_batch.training.rollouts.reader import read_groups
from memagent_batch.training.rollouts.table import ROLLOUTS, write_rollouts

SAMPLES, TURNS = 16, 8
"""Of a group: 128 rows."""
VOCABULARY = 150_000
READ_COLUMNS = ("prompt_token_ids", "response_token_ids", "response_logprobs", "response_mask", "advantage", "reward")
"""What a learner reads."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=1_000_000, help="rows (default: 1,000,000)")
    options.add_argument("--prompt-tokens", type=int, default=500, help="tokens of a prompt (default: 500)")
    options.add_argument("--response-tokens", type=int, default=64, help="tokens of a response (default: 64)")
    options.add_argument("--json", action="store_true", help="JSON lines only")
    known = options.parse_args()
    sizes = {"prompt_tokens": known.prompt_tokens, "response_tokens": known.response_tokens}
    with tempfile.TemporaryDirectory() as folder:
        written = _in_child(_write, folder, rows=known.rows, **sizes)
        read = _in_child(_read, folder)
    if read["rows"] != written["rows"]:
        raise RuntimeError(f"{written['rows']} rows were written, {read['rows']} read")
    for figures in (written, read):
        print(json.dumps({"benchmark": "rollouts_table", **sizes, **figures}))
    if not known.json:
        for figures in (written, read):
            speed, peak = figures["mb_per_second"], figures["peak_rss_mib"]
            print(f"{figures['what']}: {speed} MB/s of Arrow, {peak} MiB at its peak")


def _in_child(work: Any, folder: str, **sizes: int) -> dict[str, Any]:
    """What the work says, from a process of its own, with that process's peak memory."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    child = context.Process(target=_child, args=(answers, work, folder, sizes))
    child.start()
    figures: dict[str, Any] = answers.get()
    child.join()
    return figures


def _child(answers: Any, work: Any, folder: str, sizes: dict[str, int]) -> None:
    before = round(peak_mib())
    began = time.monotonic()
    figures = work(Path(folder), **sizes)
    seconds = time.monotonic() - began
    peak = {"rss_before_mib": before, "peak_rss_mib": round(peak_mib()), "seconds": round(seconds, 1)}
    answers.put({**figures, "mb_per_second": round(figures["arrow_mb"] / seconds, 1), **peak})


def _write(folder: Path, *, rows: int, prompt_tokens: int, response_tokens: int) -> dict[str, Any]:
    sizes = {"num_rows": 0, "num_bytes": 0}
    made = _counted(_groups(rows, prompt_tokens=prompt_tokens, response_tokens=response_tokens), sizes)
    files = list(write_rollouts(Location(uri=str(folder)), made, part=0, run_id="benchmark"))
    on_disk = sum((folder / name).stat().st_size for name in files)
    return {
        "what": "write",
        "rows": sizes["num_rows"],
        "files": len(files),
        "arrow_mb": round(sizes["num_bytes"] / 1e6),
        "disk_mb": round(on_disk / 1e6),
    }


def _read(folder: Path) -> dict[str, Any]:
    files = [f"rollouts/{path.name}" for path in sorted((folder / "rollouts").iterdir())]
    num_rows = num_bytes = num_groups = 0
    for group in read_groups(Location(uri=str(folder)), files=files, columns=READ_COLUMNS):
        num_rows += group.num_rows
        num_bytes += group.nbytes
        num_groups += 1
    return {"what": "read", "rows": num_rows, "groups": num_groups, "arrow_mb": round(num_bytes / 1e6)}


def _counted(groups: Iterator[pa.Table], sizes: dict[str, int]) -> Iterator[pa.Table]:
    for group in groups:
        sizes["num_rows"] += group.num_rows
        sizes["num_bytes"] += group.nbytes
        yield group


def _groups(num_rows: int, *, prompt_tokens: int, response_tokens: int) -> Iterator[pa.Table]:
    """Whole groups, at least `num_rows` rows in all; lengths spread by a quarter to either side."""
    rng = np.random.default_rng(0)
    size = SAMPLES * TURNS
    for number in range(-(-num_rows // size)):
        prompts = _lists(rng, size, prompt_tokens)
        responses = _lists(rng, size, response_tokens)
        num_tokens = len(responses.values)
        values = {
            "group_id": [f"{number:016x}"] * size,
            "sample": np.repeat(np.arange(SAMPLES, dtype=np.int32), TURNS),
            "turn": np.tile(np.arange(TURNS, dtype=np.int32), SAMPLES),
            "prompt_token_ids": prompts,
            "response_token_ids": responses,
            "response_logprobs": _like(responses, -rng.exponential(size=num_tokens).astype(np.float32)),
            "response_mask": _like(responses, np.ones(num_tokens, np.int8)),
            "advantage": rng.normal(size=size),
            "reward": rng.random(size),
        }
        yield pa.table([_column(field, values, size) for field in ROLLOUTS], schema=ROLLOUTS)


def _column(field: pa.Field, values: dict[str, Any], size: int) -> pa.Array:
    if field.name in values:
        return pa.array(values[field.name], field.type)
    if field.nullable:
        return pa.nulls(size, field.type)
    fill: Any = "0123456789abcdef" if pa.types.is_string(field.type) else 1
    return pa.array([fill] * size, field.type) if not pa.types.is_boolean(field.type) else pa.array([False] * size)


def _lists(rng: np.random.Generator, size: int, mean_tokens: int) -> pa.ListArray:
    lengths = rng.integers(mean_tokens * 3 // 4, mean_tokens * 5 // 4 + 1, size)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, rng.integers(0, VOCABULARY, offsets[-1], dtype=np.int32))


def _like(lists: pa.ListArray, values: Any) -> pa.ListArray:
    return pa.ListArray.from_arrays(lists.offsets, values)


if __name__ == "__main__":
    main()

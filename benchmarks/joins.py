"""What the join of a plan costs in DuckDB on the driver, and as Ray Data's join of the same files on the same CPUs.

Documents on one side, by the hash of their text; on the other, the half of them that a log has answers of. Counted are
the documents of both sides, so that neither way has more to write than a number. Ray Data's join needs the package
polars.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import ray

from memagent_batch.domain.addresses import text_hash
from memagent_batch.executors.ray.session import ray_session
from memagent_batch.store.database import open_database

FILE_ROWS = 100_000
PARTITIONS = 16
"""Parts that Ray Data hashes the rows into."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--documents", type=int, default=1_000_000, help="rows of the larger side (default: 1000000)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Seconds of each way, from the files to the number; Ray's own start is not counted."""
    with tempfile.TemporaryDirectory(prefix="joins-") as folder, ray_session():
        documents, done = Path(folder) / "documents", Path(folder) / "done"
        for side, step in ((documents, 1), (done, 2)):
            side.mkdir()
            _write(side, range(0, arguments.documents, step))
        for way, count in (("duckdb", _counted_by_duckdb), ("ray", _counted_by_ray)):
            began = time.monotonic()
            rows = count(documents, done)
            seconds = round(time.monotonic() - began, 1)
            yield {"way": way, "documents": arguments.documents, "rows": rows, "seconds": seconds}


def _write(folder: Path, numbers: range) -> None:
    for start in range(0, len(numbers), FILE_ROWS):
        rows = [{"document_hash": text_hash(str(number)), "number": number} for number in numbers[start:][:FILE_ROWS]]
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{start:09d}.parquet")


def _counted_by_duckdb(documents: Path, done: Path) -> int:
    with open_database({"documents": ds.dataset(documents), "done": ds.dataset(done)}) as database:
        (count,) = database.sql("select count(*) from documents join done using (document_hash)").fetchall()[0]
    return int(count)


def _counted_by_ray(documents: Path, done: Path) -> int:
    left, right = (ray.data.read_parquet(str(side)) for side in (documents, done))
    joined = left.join(
        right, join_type="inner", num_partitions=PARTITIONS, on=("document_hash",), right_suffix="_of_log"
    )
    return int(joined.count())

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

TABLE = pa.table(
    {"a": pa.array(range(1000)), "b": pa.array(["text"] * 1000), "c": pa.array([None] * 1000, pa.string())}
)
COUNTED = """
import os, sys
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.parquet import read_parquet
before = len(os.listdir("/proc/self/task"))
table = read_parquet(Location(uri=sys.argv[1]))
print(len(os.listdir("/proc/self/task")) - before, table.num_rows)
"""


def test_read_parquet_leaves_no_thread_that_the_end_of_the_process_could_meet(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet")
    command = [sys.executable, "-c", COUNTED, str(tmp_path / "a.parquet")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "0 1000\n"

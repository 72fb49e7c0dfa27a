"""Documents of many rows: seconds and driver memory of an index of pages, against one row a document.

The same texts in two forms: each page a row, in any order and spread over all files; and each document a row. Each
index is made by a process of its own, whose peak is the driver's. Ten million pages: `--documents 1000000`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memagent_batch.cli.settings import job_of
from memagent_batch.flows.plan import index_documents
from memagent_batch.inputs.shards import find_shards
from memagent_batch.ray_data.session import ray_session
from memagent_batch.wiring import make_documents
from tests.faults.peak_memory import peak_mib

FILE_ROWS = 250_000
"""Rows of a file: about a shard."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--documents", type=int, default=100_000, help="documents (default: 100,000)")
    parser.add_argument("--pages", type=int, default=10, help="pages of each (default: 10)")
    parser.add_argument("--characters", type=int, default=200, help="characters of a page (default: 200)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        _corpus(Path(folder), documents=arguments.documents, pages=arguments.pages, characters=arguments.characters)
        for form in ("documents", "pages"):
            command = [sys.executable, "-m", "benchmarks.planning.rows", f"{folder}/{form}", form]
            figures = json.loads(subprocess.run(command, check=True, capture_output=True).stdout.splitlines()[-1])
            yield {"form": form, "pages_each": arguments.pages, "characters_each": arguments.characters, **figures}


def _corpus(folder: Path, *, documents: int, pages: int, characters: int) -> None:
    """Pages in random order, and the documents that they are joined to."""
    for form in ("pages", "documents"):
        (folder / form).mkdir()
    order = np.random.default_rng(0).permutation(documents * pages)
    for number, start in enumerate(range(0, len(order), FILE_ROWS)):
        rows = order[start : start + FILE_ROWS]
        owners, numbers = rows // pages, rows % pages
        texts = [_text(owner, page, characters) for owner, page in zip(owners.tolist(), numbers.tolist(), strict=True)]
        ids = [f"document-{owner:08}" for owner in owners.tolist()]
        table = pa.table({"document_id": ids, "page": numbers, "text": texts})
        pq.write_table(table, folder / f"pages/{number}.parquet", row_group_size=25_000)
    each = max(1, FILE_ROWS // pages)
    for number, start in enumerate(range(0, documents, each)):
        names = range(start, min(start + each, documents))
        texts = ["\n\n".join(_text(name, page, characters) for page in range(pages)) for name in names]
        table = pa.table({"document_id": [f"document-{name:08}" for name in names], "text": texts})
        pq.write_table(table, folder / f"documents/{number}.parquet", row_group_size=2_500)


def _text(document: int, page: int, characters: int) -> str:
    return f"{document} {page} ".ljust(characters, "x")


def _index(folder: str, form: str) -> dict[str, Any]:
    """Makes an index in this process; its own memory, without that of Ray's tasks."""
    knobs = {"input": {"order_columns": "page", "locator": "page {page}"}} if form == "pages" else {}
    job = job_of(documents=folder, ask="Who?", output=f"{folder}-out", **knobs)
    with ray_session():
        before = peak_mib()
        began = time.monotonic()
        index = index_documents(find_shards(*make_documents(job), settings=job.input).shards, sources=job)
        seconds = time.monotonic() - began
    peak = peak_mib()
    return {
        "documents": index.num_rows,
        "rows": pc.sum(pc.list_value_length(pc.struct_field(index["rows"], "files"))).as_py() or index.num_rows,
        "seconds": round(seconds, 1),
        "index_mib": round(index.nbytes / 2**20, 1),
        "driver_before_mib": round(before, 1),
        "driver_peak_mib": round(peak, 1),
    }


if __name__ == "__main__":
    print(json.dumps(_index(*sys.argv[1:])))

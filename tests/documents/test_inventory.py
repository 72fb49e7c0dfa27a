"""An inventory in place of a listing: the same files in the same versions, without a look at the folder."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.config.job import JobConfig
from memagent_batch.config.sources import InputConfig
from memagent_batch.data.documents.listing import list_files
from memagent_batch.data.documents.source_listing import list_sources
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.parquet import parquet_bytes
from memagent_batch.errors import InputError
from memagent_batch.run.flows.answer import answer
from tests.jobs import put_texts, small_job
from tests.tables import table_rows


@pytest.mark.s3
def test_s3_inventory_lists_what_the_store_lists(s3_bucket: Location) -> None:
    folder = s3_bucket / "in"
    for name in ("a.txt", "b/c.txt", "b/_hidden.txt"):
        (folder / name).write_bytes(name.encode())
    listed = list_files(folder)
    rows: list[dict[str, Any]] = [
        {"key": path.partition("/")[2], "size": info["size"], "e_tag": info["ETag"].strip('"'), "is_latest": True}
        for path, info in folder.fs.find(folder.path, detail=True).items()
    ]
    old = {"key": "in/old.txt", "size": 1, "e_tag": "x", "is_latest": False}
    others = [old, {**old, "key": "in/gone.txt", "is_latest": True, "is_delete_marker": True}, {**old, "key": "out/x"}]
    rows = [{"is_delete_marker": False, **row, "bucket": s3_bucket.path} for row in [*rows, *others]]
    (s3_bucket / "inventory/data/1.parquet").write_bytes(parquet_bytes(pa.Table.from_pylist(rows)))
    manifest = {"fileFormat": "Parquet", "destinationBucket": f"arn:aws:s3:::{s3_bucket.path}"}
    files = [{"key": "inventory/data/1.parquet"}]
    (s3_bucket / "inventory/manifest.json").write_bytes(json.dumps({**manifest, "files": files}).encode())
    for inventory in ("inventory/manifest.json", "inventory/data"):
        found = list_sources([folder], settings=InputConfig(inventory=(s3_bucket / inventory).uri))
        assert found.sources.select(["path", "version"]).to_pylist() == [
            {"path": file.path, "version": file.version} for file in listed
        ]


@pytest.fixture
def job(tmp_path: Path, text_model: str) -> JobConfig:
    put_texts(tmp_path / "in", {f"{name}.txt": f"text of {name}" for name in "abc"})
    return small_job(tmp_path, text_model, ask=["Who?"], input={"inventory": f"{tmp_path}/inventory.parquet"})


def write_inventory(folder: Path, **versions: str) -> None:
    rows = [{"path": f"{name}.txt", "size": 9, "etag": etag} for name, etag in versions.items()]
    pq.write_table(pa.Table.from_pylist(rows), folder / "inventory.parquet")


def test_files_are_those_of_the_inventory_and_are_opened_if_it_names_another_version(
    job: JobConfig, tmp_path: Path
) -> None:
    write_inventory(tmp_path, a="1", b="1")
    assert answer(job)["changes"]["documents"]["added"] == 2
    put_texts(tmp_path / "in", {f"{name}.txt": f"TEXT OF {name}" for name in "abc"})
    write_inventory(tmp_path, a="1", b="2")
    changes = answer(job)["changes"]["documents"]
    assert changes == {"added": 0, "changed": 1, "removed": 0, "unchanged": 1}


def test_file_that_is_gone_since_the_inventory_is_not_read(job: JobConfig, tmp_path: Path) -> None:
    write_inventory(tmp_path, a="1", gone="1")
    assert answer(job)["counts"]["asked"] == 1
    losses = {row["source"]: row["losses"] for row in table_rows(job.output, "sources")}
    assert losses["a.txt"] == []
    assert [loss["kind"] for loss in losses["gone.txt"]] == ["not_read"]


@pytest.mark.parametrize(
    ("columns", "message"), [(["name", "size"], "has no column path or key"), (["path", "size"], "lists no file below")]
)
def test_inventory_that_lists_nothing_of_the_documents_is_refused(
    job: JobConfig, tmp_path: Path, columns: list[str], message: str
) -> None:
    pq.write_table(pa.table([["https://other/x"], [1]], columns), tmp_path / "inventory.parquet")
    with pytest.raises(InputError, match=message):
        answer(job)

"""Other places than a disk of this machine, and another executor: the tables are the same."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from memagent_batch.config.job import ExecutorKind
from memagent_batch.config.sources import SourceConfig
from memagent_batch.data.store.location import Location
from memagent_batch.run.executors.local import LocalExecutor
from memagent_batch.run.flows.ingest import next_run
from memagent_batch.run.ingest import ingest
from memagent_batch.run.sources import find_sources
from tests.convert.corpus import write_corpus
from tests.ingest.nights import changes, content, night, put_jsonl, put_parquet, rows, texts


@pytest.mark.s3
def test_bucket_is_read_into_a_bucket_with_one_request_an_object(
    s3_bucket: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        (s3_bucket / f"in/{number}.txt").write_bytes(f"text {number}".encode())
    places = {"documents": f"{s3_bucket.uri}/in/", "output": f"{s3_bucket.uri}/out"}
    options: dict[str, Any] = {"storage_options": s3_bucket.storage_options, "format": "text"}
    opened = Counter[str]()
    read_bytes = Location.read_bytes

    def counted(place: Location) -> bytes:
        opened[place.path.rpartition("/")[2]] += 1
        return read_bytes(place)

    monkeypatch.setattr(Location, "read_bytes", counted)
    assert changes(night(**places, **options)) == (6, 0, 0)
    assert {name: num for name, num in opened.items() if name.endswith(".txt")} == {f"{n}.txt": 1 for n in range(6)}
    opened.clear()
    assert changes(night(**places, **options)) == (0, 0, 0)
    (s3_bucket / "in/3.txt").write_bytes(b"text 3!")
    assert changes(night(**places, **options)) == (0, 1, 0)
    assert {name: num for name, num in opened.items() if name.endswith(".txt")} == {"3.txt": 1}
    assert texts(s3_bucket / "out")["3.txt"] == "text 3!"


@pytest.mark.s3
def test_pages_in_a_bucket_are_joined(s3_bucket: Location, tmp_path: Path) -> None:
    put_parquet(tmp_path / "a.parquet", document_id=["x", "x"], page=[2, 1], text=["two", "one"])
    (s3_bucket / "in/a.parquet").write_bytes((tmp_path / "a.parquet").read_bytes())
    options: dict[str, Any] = {"storage_options": s3_bucket.storage_options, "order_columns": ("page",)}
    night(f"{s3_bucket.uri}/in", f"{s3_bucket.uri}/out", **options)
    assert texts(s3_bucket / "out") == {"x": "one\n\ntwo"}
    assert not (s3_bucket / "out/_ingest").files()


@pytest.mark.s3
def test_document_files_in_a_bucket(tmp_path: Path, s3_bucket: Location) -> None:
    expected = write_corpus(tmp_path / "in", healthy=6, hostile=2)
    for name in expected:
        (s3_bucket / f"in/{name}").write_bytes((tmp_path / "in" / name).read_bytes())
    options: dict[str, Any] = {"storage_options": s3_bucket.storage_options, "format": "files"}
    night(f"{s3_bucket.uri}/in/", f"{s3_bucket.uri}/out", **options)
    (s3_bucket / "in/new.md").write_bytes(b"# New")
    report = night(f"{s3_bucket.uri}/in/", f"{s3_bucket.uri}/out", **options)
    assert report["counts"]["sources_read"] == 1
    assert {row["source"] for row in rows(s3_bucket / "out", "sources")} == {*expected, "new.md"}


def test_versions_of_a_lake_table(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    first = pa.table({"document_id": ["a", "b"], "text": ["one", "two"], "year": [2025, 2026]})
    write_deltalake(lake, first, partition_by=["year"])
    night(f"delta://{lake}", tmp_path / "out", carry_columns=("year",))
    more = pa.table({"document_id": ["c"], "text": ["three"], "year": [2026]})
    write_deltalake(lake, more, mode="append")
    report = night(f"delta://{lake}", tmp_path / "out", carry_columns=("year",))
    assert (report["counts"]["sources_read"], changes(report)) == (1, (1, 0, 0))
    assert [(row["document_id"], row["year"]) for row in rows(tmp_path / "out")] == [
        ("a", 2025),
        ("b", 2026),
        ("c", 2026),
    ]
    assert changes(night(f"delta://{lake}@0", tmp_path / "out", carry_columns=("year",))) == (0, 0, 1)


def test_output_with_documents_is_used_in_place(tmp_path: Path) -> None:
    put_jsonl(tmp_path / "in/a.jsonl", [{"document_id": "a", "text": "one"}])
    night(tmp_path / "in", tmp_path / "texts")
    config = SourceConfig(documents=(str(tmp_path / "texts"),), ask=("-",))
    output, executor = Location(uri=str(tmp_path / "out")), LocalExecutor()
    found = find_sources(config, output)
    with executor.session():
        ingested = ingest(found, executor=executor, run=next_run(output))
    assert (found.is_in_place, ingested.output.path, ingested.documents_version) == (True, str(tmp_path / "texts"), 1)
    assert not (tmp_path / "out").exists()


@pytest.mark.ray
@pytest.mark.parametrize("settings", [{}, {"order_columns": ("page",), "locator": "page {page}"}, {"format": "files"}])
def test_ray_writes_the_rows_that_one_process_writes(ray_here: None, tmp_path: Path, settings: dict[str, Any]) -> None:
    if settings.get("format") == "files":
        write_corpus(tmp_path / "in", healthy=12, hostile=0)
    for number in range(0 if settings.get("format") else 5):
        ids = [f"d{row}" if "order_columns" in settings else f"{number}-{row}" for row in range(20)]
        texts_of = [f"text {number} of {name}" for name in ids]
        put_parquet(tmp_path / f"in/{number}.parquet", document_id=ids, text=texts_of, page=[number] * 20)
    night(tmp_path / "in", tmp_path / "local", **settings)
    night(tmp_path / "in", tmp_path / "ray", executor=ExecutorKind.RAY, **settings)
    assert content(tmp_path / "ray") == content(tmp_path / "local")
    next((tmp_path / "in").rglob("*.*")).unlink()
    night(tmp_path / "in", tmp_path / "local", **settings)
    night(tmp_path / "in", tmp_path / "ray", executor=ExecutorKind.RAY, **settings)
    assert content(tmp_path / "ray") == content(tmp_path / "local")

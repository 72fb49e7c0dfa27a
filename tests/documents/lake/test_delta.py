"""Versions, partitions, deletion vectors and renamed columns of Delta tables."""

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.config.sources import InputConfig
from memagent_batch.data.documents.lake.tables import documents_place
from memagent_batch.data.documents.source_listing import list_sources
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError
from tests.documents.lake.forms import DAYS, FORMS, SETTINGS, TEXTS, indexed, read, rows_table, write_delta

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
"""Digits of Z85, in which a log holds small deletion vectors."""


def _z85(data: bytes) -> str:
    data += bytes(-len(data) % 4)
    numbers = [int.from_bytes(data[start : start + 4], "big") for start in range(0, len(data), 4)]
    return "".join(_DIGITS[number // 85**power % 85] for number in numbers for power in (4, 3, 2, 1, 0))


def _vector(rows: Sequence[int]) -> dict[str, Any]:
    """A deletion vector as the Delta protocol has it inside the log."""
    from pyroaring import BitMap

    payload = struct.pack("<Iq", 1681511377, 1) + struct.pack("<I", 0) + BitMap(rows).serialize()
    size = {"sizeInBytes": len(payload), "cardinality": len(rows)}
    return {"storageType": "i", "pathOrInlineDv": _z85(payload), **size}


def _write_table(folder: Path, *, names: Sequence[str], features: Sequence[str], deleted: Sequence[int] = ()) -> str:
    """A table of one file, whose log is written by hand: what writes such tables is not at hand here."""
    rows = pa.table({"document_id": list("abcdef"), "text": [f"text {name}" for name in "abcdef"]})
    (folder / "_delta_log").mkdir(parents=True)
    pq.write_table(rows.rename_columns(names), folder / "f.parquet", row_group_size=2)
    fields = [{"name": name, "type": "string", "nullable": True, "metadata": {}} for name in rows.column_names]
    configuration = {}
    if "columnMapping" in features:
        configuration = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}
        for number, (field, stored) in enumerate(zip(fields, names, strict=True), start=1):
            field["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": stored}
    size = (folder / "f.parquet").stat().st_size
    add: dict[str, Any] = {"path": "f.parquet", "partitionValues": {}, "size": size, "modificationTime": 1}
    add |= {"dataChange": True, "stats": json.dumps({"numRecords": 6})}
    add |= {"deletionVector": _vector(deleted)} if deleted else {}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    schema = {"schemaString": json.dumps({"type": "struct", "fields": fields}), "partitionColumns": []}
    about = {"id": "table", "format": {"provider": "parquet", "options": {}}, "createdTime": 1}
    lines = [{"protocol": protocol}, {"metaData": {**about, **schema, "configuration": configuration}}, {"add": add}]
    (folder / "_delta_log/00000000000000000000.json").write_text("\n".join(map(json.dumps, lines)))
    return f"delta://{folder}"


PLAIN = ("document_id", "text")


def test_read_rows_of_a_deletion_vector_are_gone(tmp_path: Path) -> None:
    uri = _write_table(tmp_path / "t", names=PLAIN, features=["deletionVectors"], deleted=[0, 3, 5])
    assert read(uri) == {name: f"text {name}" for name in "bce"}
    assert list(read(uri, InputConfig(where="document_id > 'b'"))) == ["c", "e"]


def test_read_columns_that_files_have_under_other_names_are_found(tmp_path: Path) -> None:
    uri = _write_table(tmp_path / "t", names=("col-1", "col-2"), features=["columnMapping"])
    assert read(uri) == {name: f"text {name}" for name in "abcdef"}
    assert list(read(uri, InputConfig(where="text >= 'text e'"))) == ["e", "f"]


def test_list_table_with_a_feature_that_nobody_knows_is_refused_by_name(tmp_path: Path) -> None:
    uri = _write_table(tmp_path / "t", names=PLAIN, features=["rowsThatLie"])
    with pytest.raises(InputError, match=r"can't be read as a Delta table.*rowsThatLie"):
        read(uri)


def test_read_table_at_a_version_or_a_time_is_as_it_was_then(tmp_path: Path) -> None:
    uri = write_delta(tmp_path)
    assert read(f"{uri}@0") == TEXTS | {"b": "old", "gone": "gone"}
    assert read(f"{uri}@1").keys() == TEXTS.keys() - {"b"}
    assert read(f"{uri}@2099-01-01T00:00:00Z") == TEXTS
    assert read(f"{uri}@2099-01-01") == TEXTS


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("9", r"/in@9: the table has no such version; it has 0 \(20.*Z\), 1 \(.*, 2 \(.*; name one of these"),
        ("2020-01-01T00:00:00Z", r"/in@2020-.*: the table has no version of that time; it has 0 \(20"),
        ("2020-01-01", r"/in@2020-01-01: the table has no version of that time; it has 0 \(20"),
        ("2026-13-45", r"@2026-13-45: month must be in 1..12; write a time as 2026-01-31T00:00:00Z"),
        ("0", r"/in@0: .*parquet is not there; a vacuum removes files of old versions: name a newer version"),
    ],
)
def test_read_version_that_is_not_there_is_refused_with_those_that_are(
    version: str, message: str, tmp_path: Path
) -> None:
    from deltalake import DeltaTable

    uri = write_delta(tmp_path)
    table = DeltaTable(uri.removeprefix("delta://"))
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(InputError, match=message):
        read(f"{uri}@{version}")


@pytest.mark.parametrize(
    ("folder", "in_log"), [("party=ACME Ltd", "party=ACME Ltd"), ("party=ACME Ltd", "party=ACME%20Ltd")]
)
def test_read_partition_with_a_space_is_found_however_the_log_writes_it(
    folder: str, in_log: str, tmp_path: Path
) -> None:
    from deltalake import write_deltalake

    write_deltalake(f"{tmp_path}/t", rows_table({"a": "A"}).append_column("party", [["X"]]), partition_by=["party"])
    (log,) = (tmp_path / "t/_delta_log").glob("*.json")
    log.write_text(log.read_text().replace("party=X", in_log).replace('"party":"X"', '"party":"ACME Ltd"'))
    (tmp_path / "t/party=X").rename(tmp_path / "t" / folder)
    assert read(f"delta://{tmp_path}/t", InputConfig(where="party = 'ACME Ltd'")) == {"a": "A"}


def test_read_partition_keys_are_columns_that_can_be_carried_and_filtered(tmp_path: Path) -> None:
    uri = write_delta(tmp_path)
    settings = InputConfig(carry_columns=("day",), where="day in ('2026-01-02', 'x/y=z %41')")
    place = documents_place(uri, {})
    index = indexed(place, settings=settings)
    carried = dict(zip(index["document_id"].to_pylist(), index["carry:day"].to_pylist(), strict=True))
    assert carried == {name: DAYS[name] for name in "cd"}
    found = list_sources([place], settings=settings)
    assert {path.split("/day=")[1][:6] for path in found.sources["path"].to_pylist()} == {"2026-0", "x%2Fy%"}
    assert found.versions == {uri: "2"}


def test_read_column_that_the_table_lacks_is_refused_though_a_file_has_it(tmp_path: Path) -> None:
    uri = write_delta(tmp_path)
    with pytest.raises(InputError, match="no column 'body'; its columns: 'document_id', 'text', 'day'"):
        read(uri, InputConfig(text_column="body"))


@pytest.mark.s3
def test_read_table_in_a_bucket_has_its_texts(s3_bucket: Location) -> None:
    from deltalake import write_deltalake

    endpoint = s3_bucket.storage_options["client_kwargs"]["endpoint_url"]
    options = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_ENDPOINT_URL": endpoint}
    options |= {"AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1", "conditional_put": "etag"}
    write_deltalake(f"{s3_bucket.uri}/t", rows_table(), partition_by=["day"], storage_options=options)
    for uri in (f"delta://{s3_bucket.uri}/t", f"{s3_bucket.uri}/t"):
        assert read(uri, None, **s3_bucket.storage_options) == TEXTS


@pytest.mark.parametrize("form", FORMS)
def test_index_and_fetch_every_form_has_the_same_texts(form: str, tmp_path: Path) -> None:
    uri = FORMS[form](tmp_path / form)
    assert read(uri, SETTINGS.get(form, InputConfig())) == TEXTS

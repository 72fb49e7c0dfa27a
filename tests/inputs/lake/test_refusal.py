"""Parts of tables of a lake are refused as files: they also hold rows that are deleted."""

from pathlib import Path

import pytest

from memagent_batch.config.sources import InputConfig
from memagent_batch.errors import InputError
from memagent_batch.files.location import Location
from memagent_batch.inputs.lake.tables import documents_place
from memagent_batch.inputs.shards import list_shards

DELTA = ("_delta_log/00000000000000000000.json", "part-00000.parquet", "day=1/part-00001.parquet")
ICEBERG = ("metadata/v1.metadata.json", "metadata/snap-1.avro", "data/00000-0.parquet")
ASKED = [
    ("", "delta", DELTA),
    ("/", "delta", DELTA),
    ("/delta/*.parquet", "delta", DELTA),
    ("/*/day=*/*.parquet", "delta", DELTA),
    ("/delta/day=1", "delta", DELTA),
    ("/delta/part-00000.parquet", "delta", DELTA),
    ("/delta/_delta_log", "delta", DELTA),
    ("", "deep/delta", DELTA),
    ("", "iceberg", ICEBERG),
    ("/iceberg/data", "iceberg", ICEBERG),
    ("/**/*.parquet", "iceberg", ICEBERG),
    ("/iceberg/data/00000-0.parquet", "iceberg", ICEBERG),
]


def _lake(root: Location, table: str, names: tuple[str, ...]) -> None:
    (root / "plain/a.txt").write_bytes(b"a")
    for name in names:
        (root / f"{table}/{name}").write_bytes(b"x")


def _refusal(root: Location, asked: str) -> str:
    place = Location(uri=f"{root.uri}{asked}", storage_options=root.storage_options)
    with pytest.raises(InputError) as refused:
        list_shards(place, settings=InputConfig(format="text"))
    return str(refused.value)


@pytest.mark.parametrize(("asked", "table", "names"), ASKED)
def test_list_shards_table_among_above_or_below_is_refused_by_name(
    asked: str, table: str, names: tuple[str, ...], tmp_path: Path
) -> None:
    _lake(Location(uri=str(tmp_path)), table, names)
    message = _refusal(Location(uri=str(tmp_path)), asked)
    kind, named = ("Delta", "delta://") if "delta" in table else ("Iceberg", "iceberg://CATALOG/")
    assert f"{tmp_path}/{table} is a table of {kind}" in message
    assert f"--documents {named}" in message


@pytest.mark.parametrize(("asked", "table", "names"), [case for case in ASKED if case[0] != "/"])
def test_list_shards_table_in_a_bucket_is_refused_by_name(
    asked: str, table: str, names: tuple[str, ...], s3_bucket: Location
) -> None:
    _lake(s3_bucket, table, names)
    assert f"{s3_bucket.uri}/{table} is a table of " in _refusal(s3_bucket, asked)


def test_list_shards_table_that_is_damaged_is_refused_by_name(tmp_path: Path) -> None:
    _lake(Location(uri=str(tmp_path)), "delta", DELTA[:1])
    message = _refusal(Location(uri=str(tmp_path)), "/delta")
    assert f"delta://{tmp_path}/delta can't be read as a Delta table" in message
    assert "\n" not in message


def test_list_shards_table_beside_other_places_is_refused_by_name(tmp_path: Path) -> None:
    places = [Location(uri=f"{tmp_path}/a"), documents_place(f"delta://{tmp_path}/t", {})]
    with pytest.raises(InputError, match=r"/t is a table among several places"):
        list_shards(*places, settings=InputConfig())


@pytest.mark.parametrize("name", ["metadata/about.json", "metadata.txt", "delta_log/1.json", "metadata/a/b.txt"])
def test_list_shards_folder_that_only_looks_like_a_table_is_read(name: str, tmp_path: Path) -> None:
    _lake(Location(uri=str(tmp_path)), "lake", (name, "b.txt"))
    (shard,) = list_shards(Location(uri=str(tmp_path)), settings=InputConfig(format="text"))
    assert shard.names == tuple(sorted(("plain/a.txt", "lake/b.txt", f"lake/{name}")))


def test_list_shards_beside_a_table_is_read(tmp_path: Path) -> None:
    _lake(Location(uri=str(tmp_path)), "delta", DELTA)
    (shard,) = list_shards(Location(uri=f"{tmp_path}/plain"), settings=InputConfig())
    assert shard.names == ("a.txt",)


def test_list_shards_closed_folder_above_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _lake(Location(uri=str(tmp_path)), "lake", ("b.txt",))
    place = Location(uri=f"{tmp_path}/lake")
    info = type(place.fs).info

    def closed(self: object, path: str, **options: object) -> object:
        if path.startswith((f"{tmp_path}/_", f"{tmp_path}/metadata")):
            raise PermissionError(path)
        return info(self, path, **options)

    monkeypatch.setattr(type(place.fs), "info", closed)
    assert [shard.names for shard in list_shards(place, settings=InputConfig())] == [("b.txt",)]

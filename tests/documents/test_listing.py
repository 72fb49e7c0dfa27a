"""Files of an input, by folder or pattern."""

import os
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.config.sources import InputConfig
from memagent_batch.data.documents.lake.tables import documents_place
from memagent_batch.data.documents.listing import HIDDEN_NAME, list_files, list_places, sources_root
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError
from tests.documents.lake.forms import source_names


@pytest.mark.parametrize("pattern", ["", "/**", "/**/*", "/*"])
def test_listing_that_keeps_what_it_leaves_out_says_why(tmp_path: Path, pattern: str) -> None:
    docs = tmp_path / "docs"
    (docs / ".git" / "objects").mkdir(parents=True)
    (tmp_path / "elsewhere.txt").write_text("x")
    for name in ("a.txt", "_final.pdf", ".git/x", ".git/objects/y"):
        (docs / name).write_text("x")
    (docs / "link.txt").symlink_to(tmp_path / "elsewhere.txt")
    (docs / "gone.txt").symlink_to(tmp_path / "gone.txt")
    reasons = {file.name: file.left_out for file in list_files(Location(uri=f"{docs}{pattern}"), keep_left_out=True)}
    assert (reasons["a.txt"], reasons[".git"], reasons["_final.pdf"]) == (None, HIDDEN_NAME, HIDDEN_NAME)
    assert "copy the file here" in (reasons["link.txt"] or "")
    assert "not there" in (reasons["gone.txt"] or "")
    assert len(reasons) == 5
    with pytest.raises(InputError, match="is a link to"):
        list_files(Location(uri=f"{docs}{pattern}"))


DELTA = ("_delta_log/00000000000000000000.json", "part-00000.parquet", "day=1/part-00001.parquet")
ICEBERG = ("metadata/v1.metadata.json", "metadata/snap-1.avro", "data/00000-0.parquet")
ASKED = [
    ("", "delta", DELTA),
    ("/delta/*.parquet", "delta", DELTA),
    ("/*/day=*/*.parquet", "delta", DELTA),
    ("/delta/day=1", "delta", DELTA),
    ("/delta/part-00000.parquet", "delta", DELTA),
    ("/delta/_delta_log", "delta", DELTA),
    ("", "deep/delta", DELTA),
    ("", "iceberg", ICEBERG),
    ("/**/*.parquet", "iceberg", ICEBERG),
]


def _lake(root: Location, table: str, names: tuple[str, ...]) -> None:
    (root / "plain/a.txt").write_bytes(b"a")
    for name in names:
        (root / f"{table}/{name}").write_bytes(b"x")


def _refusal(root: Location, asked: str) -> str:
    place = Location(uri=f"{root.uri}{asked}", storage_options=root.storage_options)
    with pytest.raises(InputError) as refused:
        source_names(place, settings=InputConfig(format="text"))
    return str(refused.value)


@pytest.mark.parametrize(("asked", "table", "names"), ASKED)
def test_list_sources_table_among_above_or_below_is_refused_by_name(
    asked: str, table: str, names: tuple[str, ...], tmp_path: Path
) -> None:
    _lake(Location(uri=str(tmp_path)), table, names)
    message = _refusal(Location(uri=str(tmp_path)), asked)
    kind, named = ("Delta", "delta://") if "delta" in table else ("Iceberg", "iceberg://CATALOG/")
    assert f"{tmp_path}/{table} is a table of {kind}" in message
    assert f"documents: {named}" in message


@pytest.mark.parametrize(("asked", "table", "names"), ASKED[1::4])
def test_list_sources_table_in_a_bucket_is_refused_by_name(
    asked: str, table: str, names: tuple[str, ...], s3_bucket: Location
) -> None:
    _lake(s3_bucket, table, names)
    assert f"{s3_bucket.uri}/{table} is a table of " in _refusal(s3_bucket, asked)


def test_list_sources_table_beside_other_places_is_refused_by_name(tmp_path: Path) -> None:
    places = [Location(uri=f"{tmp_path}/a"), documents_place(f"delta://{tmp_path}/t", {})]
    with pytest.raises(InputError, match=r"/t is a table among several places"):
        source_names(*places, settings=InputConfig())


@pytest.mark.parametrize("name", ["metadata/about.json", "metadata.txt", "delta_log/1.json", "metadata/a/b.txt"])
def test_list_sources_folder_that_only_looks_like_a_table_is_read(name: str, tmp_path: Path) -> None:
    _lake(Location(uri=str(tmp_path)), "lake", (name, "b.txt"))
    names = source_names(Location(uri=str(tmp_path)), settings=InputConfig(format="text"))
    assert names == sorted(("plain/a.txt", "lake/b.txt", f"lake/{name}"))


def test_list_sources_closed_folder_above_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _lake(Location(uri=str(tmp_path)), "lake", ("b.txt",))
    place = Location(uri=f"{tmp_path}/lake")
    info = type(place.fs).info

    def closed(self: object, path: str, **options: object) -> object:
        if path.startswith((f"{tmp_path}/_", f"{tmp_path}/metadata")):
            raise PermissionError(path)
        return info(self, path, **options)

    monkeypatch.setattr(type(place.fs), "info", closed)
    assert source_names(place, settings=InputConfig()) == ["b.txt"]


def test_what_is_removed_while_a_folder_is_listed_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("a.txt", "b.txt.tmp"):
        (tmp_path / name).write_text("x")
    look_at, open_folder = os.lstat, os.scandir

    def removed(path: str) -> os.stat_result:
        if path.endswith(".tmp"):
            Path(path).unlink()
        return look_at(path)

    def emptied(path: str) -> Any:
        if path.endswith("sub"):
            Path(path).rmdir()
        return open_folder(path)

    monkeypatch.setattr(os, "lstat", removed)
    monkeypatch.setattr(os, "scandir", emptied)
    assert [file.name for file in list_files(Location(uri=str(tmp_path)))] == ["a.txt"]


@pytest.mark.parametrize("pattern", ["*/*.txt", "**/*.txt", "**", "clo*", "*", "c*/**"])
def test_folder_that_a_glob_may_not_list_is_refused_by_name(
    pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("open", "closed", ".hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text("x")
    open_folder = os.scandir

    def closed(path: str) -> Any:
        if path.endswith(("closed", ".hidden")):
            raise PermissionError(13, "Permission denied", path)
        return open_folder(path)

    monkeypatch.setattr(os, "scandir", closed)
    with pytest.raises(InputError, match=r"not allowed to read it .*closed"):
        list_files(Location(uri=f"{tmp_path}/{pattern}"))
    for elsewhere in ("op*/*.txt", "op*/**", "[!c]*/a*"):  # names that begin with a dot are left out
        assert [file.name for file in list_files(Location(uri=f"{tmp_path}/{elsewhere}"))] == ["open/a.txt"]


@pytest.mark.parametrize("place", ["[2026] offers*", "[2026] offers*/[2026] offer*.txt", "[[]2026] offers*/*.txt"])
def test_names_with_brackets_and_stars_are_found_as_they_are_written(place: str, tmp_path: Path) -> None:
    (tmp_path / "[2026] offers*").mkdir()
    (tmp_path / "[2026] offers*/[2026] offer*.txt").write_text("x")
    assert [Path(file.path).name for file in list_files(Location(uri=f"{tmp_path}/{place}"))] == ["[2026] offer*.txt"]
    with pytest.raises(InputError, match=r"holds no files .*write \[\[\] for the character itself"):
        list_files(Location(uri=f"{tmp_path}/[2026] offers*/*.txt"))


@pytest.mark.parametrize(
    "places", [["a"], ["a/b/1.txt"], ["a/*/1.txt"], ["a/b", "a/c"], ["a/b/1.txt", "a/c/1.txt"], ["a/b/*.txt", "a/c"]]
)
def test_root_of_the_sources_is_that_of_their_listing(places: list[str], tmp_path: Path) -> None:
    for folder in ("a/b", "a/c"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "1.txt").write_text("x")
    found = [Location(uri=f"{tmp_path}/{place}") for place in places]
    assert sources_root(found) == list_places(found).root
    with pytest.raises(InputError, match="no such file or folder"):
        sources_root([Location(uri=f"{tmp_path}/gone")])

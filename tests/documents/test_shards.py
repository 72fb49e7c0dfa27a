import os
import socket
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.config.sources import InputConfig
from memagent_batch.data.documents import shards
from memagent_batch.data.documents.formats.formats import Format
from memagent_batch.data.documents.listing import InputFile, list_files
from memagent_batch.data.documents.shards import Shard
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError
from tests.documents.lake.forms import list_shards

AUTO = InputConfig()


def _touch(folder: Path, *names: str, size_bytes: int = 1) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x" * size_bytes)


def _ids(location: Location) -> list[str]:
    return [file.name for file in list_files(location)]


def _list(uri: object, settings: InputConfig = AUTO) -> list[Shard]:
    return list_shards(Location(uri=str(uri)), settings=settings)


def test_list_files_folder_is_read_with_all_below_it_but_hidden_names(tmp_path: Path) -> None:
    _touch(tmp_path, "b.txt", "a/c.txt", "a/d e#%20.txt", ".hidden", "_SUCCESS", "_tmp/x.txt", "a/.git/x", "z", "~$z")
    assert _ids(Location(uri=str(tmp_path))) == ["a/c.txt", "a/d e#%20.txt", "b.txt", "z"]
    assert _ids(Location(uri=f"file://{tmp_path}/")) == ["a/c.txt", "a/d e#%20.txt", "b.txt", "z"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.txt", ["b.txt"]),
        ("*/*.txt", ["a/c.txt"]),
        ("**/*.txt", ["a/c.txt", "a/e/f.txt", "b.txt"]),
        ("a/*", ["c.txt", "e/f.txt"]),
        ("a/[cd].txt", ["c.txt"]),
    ],
)
def test_list_files_glob_is_relative_to_the_folder_before_its_wildcard(
    pattern: str, expected: list[str], tmp_path: Path
) -> None:
    _touch(tmp_path, "b.txt", "a/c.txt", "a/e/f.txt", "_no.txt")
    assert _ids(Location(uri=f"{tmp_path}/{pattern}")) == expected


def test_list_files_one_file_is_taken_whatever_its_name(tmp_path: Path) -> None:
    _touch(tmp_path, "_a[1].txt", size_bytes=7)
    (file,) = list_files(Location(uri=str(tmp_path / "_a[1].txt")))
    assert file == InputFile(path=f"{tmp_path}/_a[1].txt", root=f"{tmp_path}/", size_bytes=7)
    assert file.name == "_a[1].txt"


def test_list_files_relative_path_becomes_one_that_any_process_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _touch(tmp_path, "docs/a.txt")
    monkeypatch.chdir(tmp_path)
    for uri in ("docs", "docs/a.txt", "docs/*.txt"):
        (file,) = list_files(Location(uri=uri))
        assert file.path == f"{tmp_path}/docs/a.txt"


def test_list_files_link_to_a_file_of_the_folder_or_that_the_user_names_is_followed(tmp_path: Path) -> None:
    _touch(tmp_path, "docs/.data/a.txt", "elsewhere.txt", size_bytes=5)
    (tmp_path / "docs" / "link.txt").symlink_to(".data/a.txt")
    (tmp_path / "named.txt").symlink_to(tmp_path / "elsewhere.txt")
    for place in ("docs", "named.txt"):
        (file,) = list_files(Location(uri=f"{tmp_path}/{place}"))
        assert (file.name, file.size_bytes) == ("link.txt" if place == "docs" else "named.txt", 5)


def _bind_socket(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(folder / "x.txt"))  # a socket's path may be no longer than 107 bytes


@pytest.mark.parametrize("place", ["docs", "docs/*.txt"])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda docs: (docs / "x.txt").symlink_to("../secret.txt"), r"x\.txt' is a link to '.*, which is not in"),
        (lambda docs: (docs / "x.txt").symlink_to("gone.txt"), r"x\.txt' is a link to '.*gone.*', which is not there"),
        (lambda docs: (docs / "x.txt").symlink_to(docs.parent), r"docs/x\.txt' is a link to a folder"),
        (lambda docs: os.mkfifo(docs / "x.txt"), r"docs/x\.txt' is a FIFO, not a file"),
        (_bind_socket, r"x\.txt' is a socket, not a file"),
        (lambda docs: Path(os.fsdecode(os.fsencode(docs / "x") + b"\xff.txt")).touch(), r"x\\udcff\.txt' is not valid"),
    ],
)
def test_list_files_what_is_no_file_of_the_folder_is_refused_by_name(
    make: Callable[[Path], object], message: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _touch(tmp_path, "docs/a.txt", "secret.txt")
    make(tmp_path / "docs")
    with pytest.raises(InputError, match=message):
        list_files(Location(uri=f"{tmp_path}/{place}"))


@pytest.mark.parametrize("uri", ["zip://::{}", "zip://in::{}", "zip://in/*.txt::{}", "zip://in/a.txt::{}"])
def test_list_files_in_an_archive_are_found_and_can_be_read(uri: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("in/a.txt", "text")
    (file,) = list_files(Location(uri=uri.format(tmp_path / "x.zip")))
    assert Path(file.name).name == "a.txt"
    assert Location(uri=uri.format(tmp_path / "x.zip")).at(file.path).read_bytes() == b"text"


@pytest.mark.parametrize("uri", ["simplecache::memory://in", "memory://in/*.txt", "memory:///in/a.txt"])
def test_list_files_behind_a_cache_or_other_protocol_can_be_read(uri: str) -> None:
    (Location(uri="memory://in") / "a.txt").write_bytes(b"text")
    (file,) = list_files(Location(uri=uri))
    assert file.name == "a.txt"
    assert Location(uri=uri).at(file.path).read_bytes() == b"text"


def test_list_files_of_a_store_with_an_option_that_it_lacks_is_refused() -> None:
    with pytest.raises(InputError, match="s3://b/k"):
        list_files(Location(uri="s3://b/k", storage_options={"nosuch": 1}))


def test_list_shards_mixed_folder_has_shards_of_one_format_each(tmp_path: Path) -> None:
    _touch(tmp_path, "a.txt", "b.jsonl", "c.txt", "d.parquet", "e.csv", "f.arrow")
    found = {shard.format: [path.rsplit("/")[-1] for path in shard.paths] for shard in _list(tmp_path)}
    assert found == {
        Format.ARROW: ["f.arrow"],
        Format.CSV: ["e.csv"],
        Format.JSONL: ["b.jsonl"],
        Format.PARQUET: ["d.parquet"],
    }


def test_list_shards_format_setting_goes_before_the_endings(tmp_path: Path) -> None:
    _touch(tmp_path, "a.log", "b.parquet")
    (shard,) = _list(tmp_path, InputConfig(format="text"))
    assert shard.format is Format.TEXT
    assert len(shard.paths) == 2


def test_list_shards_many_small_files_share_shards(tmp_path: Path) -> None:
    _touch(tmp_path, *(f"{index:04}.txt" for index in range(600)))
    found = _list(tmp_path)
    assert len(found) == 3
    assert [path for shard in found for path in shard.paths] == [f"{tmp_path}/{index:04}.txt" for index in range(600)]
    assert sum(shard.size_bytes for shard in found) == 600


def test_list_shards_files_together_stay_under_the_aim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "SHARD_BYTES", 10)
    _touch(tmp_path, "a.txt", "b.txt", "c.txt", size_bytes=4)
    _touch(tmp_path, "d.txt", size_bytes=50)
    assert [len(shard.paths) for shard in _list(tmp_path)] == [2, 1, 1]


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_list_shards_large_file_is_cut_between_row_groups(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "SHARD_BYTES", 2500)
    table = pa.table({"text": [f"{index:04}" * 250 for index in range(10)]})
    if ending == "parquet":
        pq.write_table(table, tmp_path / "a.parquet", row_group_size=1, compression="none")
    else:
        with pa.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as writer:
            writer.write_table(table, max_chunksize=1)
    _touch(tmp_path, f"b.{ending}")
    found = _list(tmp_path)
    groups = [shard.groups for shard in found if shard.groups]
    assert len(groups) > 2
    assert [group for pair in groups for group in range(*pair)] == list(range(10))
    assert [shard.paths for shard in found if not shard.groups] == [(f"{tmp_path}/b.{ending}",)]


def test_list_shards_several_places_have_the_names_of_their_glob_and_no_file_twice(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt", "more/a.txt"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text(name)

    def names(*places: str) -> list[str]:
        (shard,) = list_shards(*(Location(uri=str(tmp_path / place)) for place in places), settings=InputConfig())
        return list(shard.names)

    assert names("in/a.txt", "in/b.txt", "in/more") == names("in/*") == names("in") == ["a.txt", "b.txt", "more/a.txt"]
    assert names("in", "in/more", "in/a.txt") == names("in")
    assert names("in/a.txt", "in/more/a.txt") == ["a.txt", "more/a.txt"]
    assert names("in/more/a.txt") == ["a.txt"]


def test_list_shards_places_on_two_file_systems_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("disk")
    kept = Location(uri="memory://lake/a.txt")
    kept.write_bytes(b"memory")
    with pytest.raises(InputError, match=r"a\.txt and memory://lake/a\.txt are on two file systems; copy them to one"):
        list_shards(Location(uri=str(tmp_path / "a.txt")), kept, settings=InputConfig())


@pytest.mark.s3
def test_list_shards_bucket_prefix_and_glob_find_the_same_files(s3_bucket: Location) -> None:
    for key in ("in/a.txt", "in/b/c.txt", "in/_x.txt"):
        (s3_bucket / key).write_bytes(b"text")
    s3_bucket.fs.pipe_file(f"{s3_bucket.path}/in/folder/", b"")
    (shard,) = list_shards(s3_bucket / "in", settings=AUTO)
    assert shard.paths == (f"{s3_bucket.path}/in/a.txt", f"{s3_bucket.path}/in/b/c.txt")
    assert shard.names == ("a.txt", "b/c.txt")
    (globbed,) = list_shards(s3_bucket / "in/**/*.txt", settings=AUTO)
    assert (globbed.paths, globbed.names) == (shard.paths, shard.names)


@pytest.mark.s3
def test_list_files_finds_in_the_same_process_what_was_written_since_the_last_listing(s3_bucket: Location) -> None:
    places = [s3_bucket / "in", s3_bucket / "in/*.txt", s3_bucket / "in/**/*.txt", s3_bucket / "in/new*"]
    for number, names in enumerate((["new0.txt"], ["new0.txt", "new1.txt"], ["new1.txt", "new2.txt"])):
        other = Location(uri=s3_bucket.uri, storage_options=s3_bucket.storage_options)
        (other / f"in/new{number}.txt").write_bytes(b"x")
        if number == 2:
            (other / "in/new0.txt").delete()
        for place in places:
            assert [file.name for file in list_files(place)] == names


@pytest.mark.s3
def test_list_files_key_that_a_client_reads_as_a_version_of_another_is_refused(s3_bucket: Location) -> None:
    s3_bucket.fs.pipe_file(f"{s3_bucket.path}/in/a.txt", b"text")
    s3_bucket.fs.call_s3("put_object", Bucket=s3_bucket.path, Key="in/a.txt?versionId=b.txt", Body=b"other")
    with pytest.raises(InputError, match=r"a\.txt\?versionId=b\.txt'.*rename it"):
        list_files(s3_bucket / "in")


@pytest.mark.s3
def test_list_shards_nothing_in_the_bucket_and_no_bucket_are_refused_by_name(s3_bucket: Location) -> None:
    no_bucket = Location(uri="s3://no-such-bucket/in", storage_options=s3_bucket.storage_options)
    for place, named in ((s3_bucket / "gone/*.txt", s3_bucket.uri), (no_bucket, no_bucket.uri)):
        with pytest.raises(InputError, match=named):
            list_shards(place, settings=AUTO)


def test_list_files_place_with_parents_is_the_place_that_the_disk_means(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _touch(tmp_path, "lake/deep/a.txt", "lake/b.txt", "bad/c.txt")
    (tmp_path / "bad" / "link").symlink_to(tmp_path / "lake" / "deep")
    monkeypatch.chdir(tmp_path / "bad")
    for uri in ("../lake/*.txt", "../bad/../lake/b.txt", "link/../b.txt", f"file://{tmp_path}/bad/../lake/b.txt"):
        location = Location(uri=uri)
        (file,) = list_files(location)
        assert (file.path, location.at(file.path).uri) == (f"{tmp_path}/lake/b.txt", f"file://{tmp_path}/lake/b.txt")
    assert Location(uri=f"{tmp_path}/a..b/..c").path == f"{tmp_path}/a..b/..c"
    assert Location(uri="/..").path == Location(uri="/tmp/../..").path == "/"

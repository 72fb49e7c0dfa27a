import os
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.config.sources import InputConfig
from memagent_batch.data.documents.listing import list_files
from memagent_batch.data.documents.source_listing import list_sources
from memagent_batch.data.ingest import row_tasks
from memagent_batch.data.ingest.report import unpack_rows
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError
from tests.documents.lake.forms import source_names

AUTO = InputConfig()


def _touch(folder: Path, *names: str, size_bytes: int = 1) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x" * size_bytes)


def _ids(location: Location) -> list[str]:
    return [file.name for file in list_files(location)]


def _tasks(folder: Path, settings: InputConfig = AUTO) -> list[tuple[list[str], tuple[int, int] | None]]:
    """The names and row groups of the tasks for all sources of a folder."""
    listing = list_sources([Location(uri=str(folder))], settings=settings)
    is_read = np.ones(listing.sources.num_rows, bool)
    tasks = row_tasks.plan_row_tasks(listing, is_read, settings=settings, storage_options={}, num_cpus=1)
    return [(unpack_rows(task.sources)["source"].to_pylist(), task.groups) for task in tasks]


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


def test_list_files_of_a_store_with_an_option_that_it_lacks_is_refused() -> None:
    with pytest.raises(InputError, match="s3://b/k"):
        list_files(Location(uri="s3://b/k", storage_options={"nosuch": 1}))


def test_sources_of_a_mixed_folder_have_their_formats_and_texts_are_left_out(tmp_path: Path) -> None:
    _touch(tmp_path, "a.txt", "b.jsonl", "c.txt", "d.parquet", "e.csv", "f.arrow")
    sources = list_sources([Location(uri=str(tmp_path))], settings=AUTO).sources
    assert dict(zip(sources["source"].to_pylist(), sources["format"].to_pylist(), strict=True)) == {
        "f.arrow": "arrow",
        "e.csv": "csv",
        "b.jsonl": "jsonl",
        "d.parquet": "parquet",
    }
    sources = list_sources([Location(uri=str(tmp_path))], settings=InputConfig(format="text")).sources
    assert sources["format"].to_pylist() == ["text"] * 6


def test_tasks_have_many_small_files_and_large_ones_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_tasks, "TASK_BYTES", 400)
    _touch(tmp_path, *(f"{index:04}.txt" for index in range(600)))
    _touch(tmp_path, "0300.txt", size_bytes=1000)
    names = [f"{index:04}.txt" for index in range(600)]
    expected = [names[:256], names[256:300], ["0300.txt"], names[301:557], names[557:]]
    assert _tasks(tmp_path) == [(part, None) for part in expected]


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_tasks_of_a_large_file_have_some_row_groups_each(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_tasks, "TASK_BYTES", 2500)
    table = pa.table({"text": [f"{index:04}" * 250 for index in range(10)]})
    if ending == "parquet":
        pq.write_table(table, tmp_path / "a.parquet", row_group_size=1, compression="none")
    else:
        with pa.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as writer:
            writer.write_table(table, max_chunksize=1)
    _touch(tmp_path, f"b.{ending}")
    *parts, last = _tasks(tmp_path)
    groups = [groups for _, groups in parts if groups is not None]
    assert len(groups) == len(parts) > 2
    assert [group for pair in groups for group in range(*pair)] == list(range(10))
    assert last == ([f"b.{ending}"], None)


def test_list_sources_several_places_have_the_names_of_their_glob_and_no_file_twice(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt", "more/a.txt"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text(name)

    def names(*places: str) -> list[str]:
        return source_names(*(Location(uri=str(tmp_path / place)) for place in places), settings=AUTO)

    assert names("in/a.txt", "in/b.txt", "in/more") == names("in/*") == names("in") == ["a.txt", "b.txt", "more/a.txt"]
    assert names("in", "in/more", "in/a.txt") == names("in")
    assert names("in/a.txt", "in/more/a.txt") == ["a.txt", "more/a.txt"]
    assert names("in/more/a.txt") == ["a.txt"]


def test_list_sources_places_on_two_file_systems_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("disk")
    kept = Location(uri="memory://lake/a.txt")
    kept.write_bytes(b"memory")
    with pytest.raises(InputError, match=r"a\.txt and memory://lake/a\.txt are on two file systems; copy them to one"):
        source_names(Location(uri=str(tmp_path / "a.txt")), kept, settings=AUTO)


@pytest.mark.s3
def test_list_sources_bucket_prefix_and_glob_find_the_same_files(s3_bucket: Location) -> None:
    for key in ("in/a.txt", "in/b/c.txt", "in/_x.txt"):
        (s3_bucket / key).write_bytes(b"text")
    s3_bucket.fs.pipe_file(f"{s3_bucket.path}/in/folder/", b"")
    for place in (s3_bucket / "in", s3_bucket / "in/**/*.txt"):
        sources = list_sources([place], settings=AUTO).sources
        assert sources["path"].to_pylist() == [f"{s3_bucket.path}/in/a.txt", f"{s3_bucket.path}/in/b/c.txt"]
        assert sources["source"].to_pylist() == ["a.txt", "b/c.txt"]


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
def test_list_sources_nothing_in_the_bucket_and_no_bucket_are_refused_by_name(s3_bucket: Location) -> None:
    no_bucket = Location(uri="s3://no-such-bucket/in", storage_options=s3_bucket.storage_options)
    for place, named in ((s3_bucket / "gone/*.txt", s3_bucket.uri), (no_bucket, no_bucket.uri)):
        with pytest.raises(InputError, match=named):
            source_names(place, settings=AUTO)


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

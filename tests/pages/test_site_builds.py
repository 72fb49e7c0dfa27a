"""Builds of one site: what they share is written once, and whichever ends last is shown, and whole."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from threading import Barrier

import pytest

from memagent_batch.apps.pages.site import BUILDS_FOLDER, SiteFiles, open_site, publish_site, read_builds, vacuum_site
from memagent_batch.data.store.location import Location

NUM_FILES = 5
LONG_AGO, LONGER_AGO = "20200102T000000-abcdef", "20200101T000000-abcdef"


def _publish(files: SiteFiles, pages: list[str]) -> None:
    """Writes the pages; the index names their files."""
    paths = [files.write("rows", page.encode()) for page in pages]
    publish_site(files, "\n".join(paths).encode())


def _build(target: Location, both: Barrier, own: str, num_builds: int) -> None:
    """Builds a site again and again, each time while another process does; some of the pages are the same in both."""
    for build in range(num_builds):
        with open_site(target) as files:
            both.wait()
            _publish(files, [f"{number} of {own if number % 2 else build}" for number in range(NUM_FILES)])
        both.wait()
        for path in (target / "index.html").read_bytes().decode().split():
            assert (target / path).read_bytes()
        both.wait()


def _pages(folder: Path) -> set[str]:
    return {path.read_text() for path in folder.glob("rows/*/*.html")}


def _make_old(folder: Path, build: str, *, name: str) -> None:
    """Has a build begin on the day that the name says."""
    (folder / BUILDS_FOLDER / build).rename(folder / BUILDS_FOLDER / name)


@pytest.mark.parametrize("place", ["disk", pytest.param("s3", marks=pytest.mark.s3)])
def test_publish_two_builds_at_once_leave_a_whole_site(
    place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    target = Location(uri=str(tmp_path / "site")) if place == "disk" else request.getfixturevalue("s3_bucket") / "site"
    context = get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(2, mp_context=context) as processes:
        both = manager.Barrier(2, timeout=60)
        for build in [processes.submit(_build, target, both, own, 5) for own in ("one", "the other")]:
            build.result()


def test_write_leaves_files_alone_that_the_site_has_and_mends_those_that_are_gone(tmp_path: Path) -> None:
    target = Location(uri=str(tmp_path))
    with open_site(target) as files:
        _publish(files, ["same", "gone", "old"])
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("rows/*/*.html")}
    next(path for path in before if path.read_text() == "gone").unlink()
    with open_site(target) as files:
        _publish(files, ["same", "gone", "new", "new"])
    assert files.num_new == 2
    assert len(files.paths) == 3
    assert _pages(tmp_path) == {"same", "gone", "old", "new"}
    assert [path.stat().st_mtime_ns == time for path, time in before.items() if path.read_text() == "same"] == [True]


def test_publish_removes_files_of_builds_that_a_later_one_replaced_a_day_ago(tmp_path: Path) -> None:
    target = Location(uri=str(tmp_path))
    (target / "build-20200101T000000-abcdef/rows/0.html").write_bytes(b"by an earlier version")
    (target / "images/logo.png").write_bytes(b"somebody's own")
    (target / "rows/00/.tmp-0123").write_bytes(b"half written")
    for name, pages in ((LONGER_AGO, ["same", "older"]), (LONG_AGO, ["same", "old"])):
        with open_site(target) as files:
            _publish(files, pages)
        _make_old(tmp_path, files.build, name=name)
    with open_site(target) as files:
        _publish(files, ["same", "new"])
    assert [*read_builds(target)] == [LONG_AGO, files.build]
    assert _pages(tmp_path) == {"same", "old", "new"}
    assert not [*tmp_path.glob("build-*/rows/*"), *tmp_path.glob("rows/00/.tmp-*")]
    assert (target / "images/logo.png").exists()


def test_publish_keeps_files_of_a_build_that_is_being_written_and_removes_those_of_one_that_was_killed(
    tmp_path: Path,
) -> None:
    target = Location(uri=str(tmp_path))
    with open_site(target) as killed:
        killed.write("rows", b"of the killed one")
        killed.finish()
        (target / f"{BUILDS_FOLDER}/{killed.build}").write_bytes(b"")
        with open_site(target) as files:
            _publish(files, ["shown"])
        assert _pages(tmp_path) == {"of the killed one", "shown"}
        _make_old(tmp_path, killed.build, name=LONG_AGO)
        with open_site(target) as files:
            _publish(files, ["shown"])
        assert _pages(tmp_path) == {"shown"}


def test_vacuum_leaves_what_the_newest_build_shows_and_nothing_that_another_one_is_writing(tmp_path: Path) -> None:
    target = Location(uri=str(tmp_path / "site"))
    assert vacuum_site(target) == 0
    for pages in (["same", "old"], ["same", "new"]):
        with open_site(target) as files:
            _publish(files, pages)
    with open_site(target) as begun:
        begun.write("rows", b"of a build that is being written")
        begun.finish()
        begun.record.write_bytes(b"")
        vacuum_site(target)
        assert _pages(tmp_path / "site") == {"same", "old", "new", "of a build that is being written"}
        begun.record.delete()
    assert vacuum_site(target) == 2
    assert _pages(tmp_path / "site") == {"same", "new"}
    assert [*read_builds(target)] == [files.build]


def test_build_that_fails_leaves_the_site_as_it_was_and_its_files_to_the_next_one(tmp_path: Path) -> None:
    target = Location(uri=str(tmp_path))
    with open_site(target) as files:
        _publish(files, ["shown"])
    before = (tmp_path / "index.html").read_bytes()
    with pytest.raises(RuntimeError, match="half way"):
        _fail_half_way(target)
    assert (tmp_path / "index.html").read_bytes() == before
    assert [*read_builds(target)] == [files.build]
    assert _pages(tmp_path) == {"shown", "of the failed one"}
    with open_site(target) as files:
        _publish(files, ["shown", "too"])
    assert _pages(tmp_path) == {"shown", "too"}


def _fail_half_way(target: Location) -> None:
    with open_site(target) as files:
        files.write("rows", b"of the failed one")
        raise RuntimeError("half way")

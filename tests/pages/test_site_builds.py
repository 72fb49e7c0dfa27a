"""Builds of one site at the same time: whichever ends last is shown, and whole."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from threading import Barrier

import pytest

from memagent_batch.apps.pages.site import open_site, publish_site
from memagent_batch.data.store.location import Location

NUM_FILES = 5


def _build(target: Location, both: Barrier, num_builds: int) -> None:
    """Builds a site again and again, each time while another process does."""
    for _ in range(num_builds):
        with open_site(target) as files:
            for number in range(NUM_FILES):
                files.write(f"rows/{number}.html", b"rows")
            files.finish()
            both.wait()
            publish_site(target, files, files.build.encode())
        both.wait()
        shown = (target / "index.html").read_bytes().decode()
        assert len((target / shown).files()) == NUM_FILES
        both.wait()


@pytest.mark.parametrize("place", ["disk", pytest.param("s3", marks=pytest.mark.s3)])
def test_publish_two_builds_at_once_leave_a_whole_site(
    place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    target = Location(uri=str(tmp_path / "site")) if place == "disk" else request.getfixturevalue("s3_bucket") / "site"
    context = get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(2, mp_context=context) as processes:
        both = manager.Barrier(2, timeout=60)
        for build in [processes.submit(_build, target, both, 5) for _ in range(2)]:
            build.result()


def test_publish_removes_the_build_before_and_one_that_was_stopped_long_ago_and_no_other(tmp_path: Path) -> None:
    target = Location(uri=str(tmp_path))
    stopped = "build-20200101T000000-abcdef"
    (target / f"{stopped}/rows/0.html").write_bytes(b"half a site")
    with open_site(target) as first:
        publish_site(target, first, first.build.encode())
    with open_site(target) as begun, open_site(target) as second:
        begun.write("rows/0.html", b"rows")
        begun.finish()
        second.write("rows/0.html", b"rows")
        publish_site(target, second, second.build.encode())
        builds = {Path(path).relative_to(tmp_path).parts[0] for path in target.files() if "/rows/" in path}
        assert builds == {begun.build, second.build}

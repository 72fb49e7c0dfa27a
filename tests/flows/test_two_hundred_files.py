"""Three nights of `memagent scan` over 200 files, as cron runs them: seconds, what Ray did, and what the summary says.

`python -m tests.flows.test_two_hundred_files FOLDER MODEL` runs them in a folder, prints the seconds of each night, and
makes the picture in the docs, of the second summary, with chromium.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.convert.files import pdf, written
from tests.flows import fee_engine
from tests.flows.test_unread_sources import FEE, SCAN
from tests.jobs import small_settings

NUM_FILES = 200
FILLER = "Notices under this clause are given in writing and take effect on receipt. " * 12
MAKERS: dict[str, Callable[[str], bytes]] = {
    ".txt": str.encode,
    ".html": lambda text: f"<html><body><h1>Contract</h1><p>{text}</p></body></html>".encode(),
    ".pdf": lambda text: pdf(written(text)),
}


class Night(NamedTuple):
    """What a night took and said."""

    seconds: float
    exit_code: int
    started_ray: bool
    said: dict[str, Any]
    """`summary.json`."""


def write_contract(folder: Path, number: int, *, fee: int) -> None:
    ending, make = [*MAKERS.items()][number % len(MAKERS)]
    (folder / f"contract-{number:03d}{ending}").write_bytes(make(f"The fee is {fee} euros. {FILLER}"))


def change_files(folder: Path) -> None:
    """Five files changed, five are new, three gone, one is a scan, one broken."""
    for number in range(5):
        write_contract(folder, number, fee=900 + number)
        write_contract(folder, NUM_FILES + number, fee=500)
    for path in sorted(folder.glob("contract-19[0-2].*")):
        path.unlink()
    (folder / "scanned.pdf").write_bytes(pdf(SCAN))
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 torn")


def run_night(folder: Path) -> Night:
    """The command as cron runs it, in a process of its own."""
    began = time.monotonic()
    command = [sys.executable, "-m", "memagent_batch", "scan", "--config", str(folder / "job.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    assert done.returncode in {0, 7}, done.stderr
    said = json.loads((folder / "scan/pages/summary.json").read_text())
    assert done.stdout == (folder / "scan/pages/summary.txt").read_text()
    return Night(seconds, done.returncode, "starting Ray" in done.stderr, said)


def three_nights(folder: Path, model: str) -> Iterator[Night]:
    """The first night, one with changes, one without; each with its pages, until the next one."""
    files = folder / "in"
    files.mkdir()
    for number in range(NUM_FILES):
        write_contract(files, number, fee=100 + number)
    settings = small_settings(
        folder,
        model,
        executor="auto",
        engine=fee_engine.KIND,
        allow_code=True,
        ask=[FEE],
        follow_ups={"evidence": True},
        output=f"{folder}/scan",
    )
    (folder / "job.yaml").write_text(yaml.safe_dump(settings))
    yield run_night(folder)
    change_files(files)
    yield run_night(folder)
    yield run_night(folder)


def save_picture(page: Path, file: Path) -> None:
    """What a browser shows of a page."""
    flags = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1000,1200", f"--screenshot={file}"]
    subprocess.run(["chromium", *flags, page.as_uri()], check=True, capture_output=True)


@pytest.mark.slow
@pytest.mark.ray
def test_nights_over_200_files_read_what_changed_and_say_what_needs_a_look(text_model: str, tmp_path: Path) -> None:
    first, second, third = three_nights(tmp_path, text_model)
    assert (first.exit_code, first.said["readings"]["ok"], first.said["num_needs"]) == (0, NUM_FILES, 0)
    assert (second.exit_code, second.started_ray) == (7, False)
    assert second.said["documents"] == {"added": 7, "changed": 5, "removed": 3, "unchanged": 192}
    assert second.said["removed"] == ["contract-190.html", "contract-191.pdf", "contract-192.txt"]
    assert second.said["read"] == 10
    assert second.said["needs"] == {"not all of its source was read": 2, "another answer than before": 5}
    changed = {item["document_id"]: (item["before"], item["value"]) for item in second.said["items"][2:]}
    assert changed["contract-000.txt"] == ("100", "900")
    assert second.said["unread"].keys() == {"scanned.pdf", "broken.pdf"}
    assert (third.exit_code, third.started_ray, third.said["read"]) == (7, False, 0)
    assert third.said["needs"] == {"not all of its source was read": 2}


if __name__ == "__main__":
    for name, night in zip(("first", "changed", "same"), three_nights(Path(sys.argv[1]), sys.argv[2]), strict=True):
        print(f"{name}: {night.seconds:.1f} s, exit code {night.exit_code}, Ray: {night.started_ray}")
        if name == "changed":
            save_picture(Path(sys.argv[1]) / "scan/pages/summary.html", Path("docs/pictures/night.png").absolute())

"""An archive for someone outside: what is in it, that it is checked without this software, and what is not packed."""

import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from memagent_batch.errors import OutputError
from memagent_batch.flows.audit import bundle
from memagent_batch.flows.review import ReviewRequest, make_estimate
from memagent_batch.store.location import Location
from tests.audit.scan import Copy, verify_here
from tests.review.test_review import label_all

CLAUSE = ReviewRequest(question_id="signed", flagged="value_bool = true", labels="4", with_page=False)


def unpacked(copy: Copy, folder: Path, *, with_tables: bool = True) -> Path:
    target = folder / "scan.zip"
    bundle(Location(uri=str(copy.folder)), Location(uri=str(target)), with_tables=with_tables, with_text=False)
    with zipfile.ZipFile(target) as archive:
        archive.extractall(folder / "bundle")
    return folder / "bundle"


def names_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def reviewed(copy: Copy) -> Copy:
    """With a review whose labels and estimate are there."""
    label_all(copy.folder, {"a": True, "c": False, "d": True, "none": False}, asked=CLAUSE)
    make_estimate([Location(uri=str(copy.folder))], None, so_far=False)
    return copy


def test_bundle_holds_one_run_its_tables_and_its_reviews(copied: Callable[[], Copy], tmp_path: Path) -> None:
    copy = reviewed(copied())
    folder = unpacked(copy, tmp_path)
    names, last = names_of(folder), copy.runs[-1]
    assert {name for name in names if "/" not in name} == {"README.md", "SHA256SUMS"}
    record = {"SHA256SUMS", "manifest.json", "plan.parquet", "removed.parquet", "projection.json"}
    assert {name for name in names if name.startswith("runs/")} == {f"runs/{last}/{name}" for name in record}
    tables = {name for table in ("answers", "evidence") for name in copy.manifest["files"][table]}
    assert {name for name in names if name.startswith(("answers/", "evidence/", "memories/", "results/"))} == tables
    assert {name for name in names if name.startswith("log/")} == {f"log/questions/{last}.parquet"}
    labels = "review/labels/"
    of_review = {Path(name).name for name in names if name.startswith("review/") and not name.startswith(labels)}
    assert of_review == {"review.json", "sample.parquet", "estimate.json", "estimate.md"}
    assert any(name.startswith("review/labels/") for name in names)


def test_bundle_is_checked_without_this_software(copied: Callable[[], Copy], tmp_path: Path) -> None:
    folder = unpacked(reviewed(copied()), tmp_path)
    (recorded,) = folder.glob("runs/*/SHA256SUMS")
    own = ["sha256sum", "-c", "--quiet", "SHA256SUMS"]
    of_run = ["sha256sum", "-c", "--quiet", "--ignore-missing", str(recorded.relative_to(folder))]
    assert names_of(folder) == {"SHA256SUMS", *(line[66:] for line in (folder / "SHA256SUMS").read_text().splitlines())}
    for command in (own, of_run):
        assert subprocess.run(command, cwd=folder, check=False).returncode == 0
    place = next(iter(folder.glob("answers/*")))
    place.write_bytes(place.read_bytes() + b" ")
    for command in (own, of_run):
        assert subprocess.run(command, cwd=folder, check=False, capture_output=True).returncode == 1
    with pytest.raises(OutputError, match="is an unpacked bundle"):
        verify_here(Location(uri=str(folder)))


def test_bundle_without_tables_quotes_no_document(copied: Callable[[], Copy], tmp_path: Path) -> None:
    names = names_of(unpacked(copied(), tmp_path, with_tables=False))
    assert not any(name.startswith(("answers/", "evidence/")) for name in names)

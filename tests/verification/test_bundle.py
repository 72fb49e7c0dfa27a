"""An archive for someone outside: what is in it, and what `verify` says of it."""

import zipfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from memagent_batch.cli.bundle import Bundle
from memagent_batch.cli.main import read_command
from memagent_batch.errors import SettingsError
from memagent_batch.files.json_files import write_json
from memagent_batch.files.location import Location
from memagent_batch.flows.review import Asked, estimate
from memagent_batch.review.sample.record import rule_of
from memagent_batch.runs.escalation.thresholds import THRESHOLDS_FOLDER
from memagent_batch.runs.manifest import require_manifest
from memagent_batch.runs.record.evaluations import EVALUATIONS_FOLDER, readers_of
from memagent_batch.verification.bundle import write_bundle
from tests.review.test_review import label_all
from tests.runs.record.test_evaluations import evaluation_of
from tests.verification.scan import Copy, found, verify_here

CLAUSE = Asked(
    question_id="signed", rule=rule_of("value_bool = true", by=None, unsure_below=None), labels="4", with_page=False
)


def unpacked(copy: Copy, folder: Path, *, with_tables: bool = False) -> Path:
    target = folder / "scan.zip"
    write_bundle(Location(uri=str(copy.folder)), Location(uri=str(target)), with_tables=with_tables)
    with zipfile.ZipFile(target) as archive:
        archive.extractall(folder / "bundle")
    return folder / "bundle"


def reviewed(copy: Copy) -> Copy:
    """With a review whose labels and estimate are there."""
    label_all(copy.folder, {"a": True, "c": False, "d": True, "none": False}, asked=CLAUSE)
    estimate(Location(uri=str(copy.folder)), None, so_far=False, with_seen=False)
    return copy


def test_bundle_holds_record_and_reviews_without_texts(copied: Callable[[], Copy], tmp_path: Path) -> None:
    copy = reviewed(copied())
    write_json(Location(uri=str(copy.folder)) / THRESHOLDS_FOLDER / "hash.json", {"up_to": 0.7})
    folder = unpacked(copy, tmp_path)
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    roots = {name.split("/")[0] for name in names}
    assert roots == {"bundle.json", "card.md", "manifest.json", "run.json", "runs", "review", "log"}
    assert not any(name.startswith(("log/turns", "log/outcomes", "log/closings")) for name in names)
    assert f"{THRESHOLDS_FOLDER}/hash.json" in names
    learnt = ("review/labels/", "review/thresholds/")
    of_review = {Path(name).name for name in names if name.startswith("review/") and not name.startswith(learnt)}
    assert of_review == {"review.json", "sample.parquet", "estimate.json", "estimate.md"}
    assert any(name.startswith("review/labels/") for name in names)
    assert "recall" in (folder / "card.md").read_text()
    result = verify_here(Location(uri=str(folder)))
    assert result.findings == []
    assert {each.what for each in result.unchecked} == {
        "the turn log",
        "the tables",
        "the index of a table that was read",
    }


def test_bundle_holds_attached_evaluations_and_its_card_shows_them(copied: Callable[[], Copy], tmp_path: Path) -> None:
    copy = copied()
    output = Location(uri=str(copy.folder))
    evaluation = evaluation_of(readers_of(require_manifest(output)))
    assert set(evaluation.readers.closing) == {"value", "evidence", "support"}, "the scan asks all of them"
    write_json(output / f"{EVALUATIONS_FOLDER}/{evaluation.run_id}.json", asdict(evaluation))
    assert verify_here(output).findings == []
    folder = unpacked(copy, tmp_path)
    assert "by this reader:\n  - 40 readings" in (folder / "card.md").read_text()
    assert verify_here(Location(uri=str(folder))).findings == []
    (file,) = (folder / EVALUATIONS_FOLDER).iterdir()
    file.write_bytes(file.read_bytes().replace(b"0.93", b"0.99"))
    assert found(verify_here(Location(uri=str(folder)))) == {("changed", f"{EVALUATIONS_FOLDER}/{file.name}")}


def test_bundle_leaves_out_what_lies_beside_attached_evaluations(copied: Callable[[], Copy], tmp_path: Path) -> None:
    copy = copied()
    output = Location(uri=str(copy.folder))
    evaluation = evaluation_of(readers_of(require_manifest(output)))
    name = f"{EVALUATIONS_FOLDER}/{evaluation.run_id}.json"
    write_json(output / name, asdict(evaluation))
    own = f"{EVALUATIONS_FOLDER}/runs/base"
    write_json(output / f"{own}/{evaluation.run_id}.json", asdict(evaluation))
    write_json(output / f"{EVALUATIONS_FOLDER}/evaluation.json", {"format": "memagent-evaluation/1", "variants": []})
    for private in (f"{own}/answers/a.parquet", f"{own}/log/turns/a.arrow", f"{EVALUATIONS_FOLDER}/scores.parquet"):
        (output / private).write_bytes(b"private")
    folder = unpacked(copy, tmp_path)
    packed = [path for path in (folder / EVALUATIONS_FOLDER).rglob("*") if path.is_file()]
    assert packed == [folder / name]
    assert (folder / "card.md").read_text().count("by this reader") == 1


def test_bundle_with_tables_is_checked_by_hashes_and_counts(copied: Callable[[], Copy], tmp_path: Path) -> None:
    copy = copied()
    folder = unpacked(copy, tmp_path, with_tables=True)
    assert verify_here(Location(uri=str(folder))).findings == []
    name = copy.manifest["files"]["answers"][0]
    (folder / name).unlink()
    assert found(verify_here(Location(uri=str(folder)))) == {("gone", name)}


def test_flipped_byte_is_found_in_every_file_of_a_bundle(copied: Callable[[], Copy], tmp_path: Path) -> None:
    folder = unpacked(reviewed(copied()), tmp_path)
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in ("bundle.json", "manifest.json")]
    for path in files:
        data = path.read_bytes()
        path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    places = {where for _, where in found(verify_here(Location(uri=str(folder))))}
    assert places >= {str(path.relative_to(folder)) for path in files}


def test_bundle_of_another_ending_is_refused(copied: Callable[[], Copy], tmp_path: Path) -> None:
    command = read_command(Bundle, [str(copied().folder), "--to", str(tmp_path / "scan.tar")])
    with pytest.raises(SettingsError, match=r"does not end in \.zip"):
        command.run()

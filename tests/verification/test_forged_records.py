"""Records that were forged or damaged: none switches a check off, ends it with an error, or leads out of the output."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.errors import OutputError
from memagent_batch.files.location import Location
from memagent_batch.verification.bundle import write_bundle
from memagent_batch.verification.contents import BUNDLE_FORMAT
from memagent_batch.verification.findings import Kind
from tests.verification.scan import Copy, found

FLIPPED = 24
"""Places of a manifest in which a bit is flipped, one after another."""


def forge_answer(copy: Copy, *, seals: bool = False) -> str:
    """Changes an answer of the last run; returns the file."""
    name: str = copy.manifest["files"]["answers"][0]
    table = pq.read_table(copy.folder / name)
    answers = ["another" if status == "ok" else None for status in table["status"].to_pylist()]
    column = table.schema.get_field_index("answer")
    changed = table.set_column(column, table.schema.field(column), pa.array(answers, pa.string()))
    pq.write_table(changed, copy.folder / name)
    if seals:
        copy.rewrite(lambda manifest: None)
    return name


@pytest.mark.parametrize("left_out", [["the turn log", "the tables"], ["x"], {"x": ["*"]}])
def test_bundle_file_in_an_output_switches_no_check_off(copied: Callable[[], Copy], left_out: Any) -> None:
    copy = copied()
    name = forge_answer(copy)
    record = {"format": BUNDLE_FORMAT, "left_out": left_out, "files": {}}
    (copy.folder / "bundle.json").write_text(json.dumps(record))
    if isinstance(left_out, dict):
        with pytest.raises(OutputError, match="is damaged"):
            copy.verify()
        return
    assert {("chain", "bundle.json"), ("changed", name), ("rows", name)} <= found(copy.verify())


def test_tables_that_lie_beside_a_bundle_without_tables_are_checked(copied: Callable[[], Copy], tmp_path: Path) -> None:
    copy = copied()
    write_bundle(Location(uri=str(copy.folder)), Location(uri=str(tmp_path / "scan.zip")), with_tables=False)
    name = forge_answer(copy)
    with zipfile.ZipFile(tmp_path / "scan.zip") as archive:
        archive.extractall(copy.folder, members=["bundle.json", "card.md"])
    for folder in ("turns", "outcomes", "closings"):
        for place in (copy.folder / "log" / folder).iterdir():
            place.unlink()
    assert found(copy.verify()) == {("changed", name)}


def test_last_run_without_hashes_behind_one_with_hashes_is_found(copied: Callable[[], Copy]) -> None:
    copy = copied()
    forge_answer(copy)
    copy.strip(copy.runs[-1])
    result = copy.verify()
    name = f"runs/{copy.runs[-1]}/manifest.json"
    assert ("chain", name) in found(result)
    assert ["projection.json" in each.why for each in result.unchecked if "rows follow" in each.what] == [True]
    for run_id in copy.runs[:-1]:
        copy.rewrite(lambda manifest: manifest.pop("record"), run_id=run_id, seals=False)
    assert ("chain", name) in found(copy.verify())


@pytest.mark.parametrize("is_shown", [True, False])
def test_flipped_bit_anywhere_in_a_last_manifest_is_a_finding(copied: Callable[[], Copy], is_shown: bool) -> None:
    copy = copied()
    place = copy.folder / ("manifest.json" if is_shown else f"runs/{copy.runs[-1]}/manifest.json")
    data = place.read_bytes()
    for number in range(FLIPPED):
        at = number * (len(data) - 1) // (FLIPPED - 1)
        place.write_bytes(data[:at] + bytes([data[at] ^ (1 << number % 8)]) + data[at + 1 :])
        assert any(str(place.relative_to(copy.folder)) in where for _, where in found(copy.verify(with_text=False)))


def test_manifest_that_is_nested_too_deeply_is_a_finding(copied: Callable[[], Copy]) -> None:
    copy = copied()
    name = f"runs/{copy.runs[0]}/manifest.json"
    (copy.folder / name).write_text("[" * 100_000)
    assert ("changed", name) in found(copy.verify(with_text=False))


@pytest.mark.parametrize(
    "forge",
    [
        lambda manifest: manifest["counts"].pop("ok"),
        lambda manifest: manifest.update(parts=[{"answers_file": "answers/x.parquet"}]),
        lambda manifest: manifest["settings"].update(input=3),
        lambda manifest: manifest["totals"].update(num_turns="many"),
    ],
)
def test_manifest_whose_fields_can_not_be_followed_is_a_finding(copied: Callable[[], Copy], forge: Any) -> None:
    copy = copied()
    copy.rewrite(forge, seals=False)
    assert ("counts", f"runs/{copy.runs[-1]}/manifest.json") in found(copy.verify())


@pytest.mark.parametrize("name", ["../secret.txt", "/etc/hosts", "answers/../../secret.txt"])
def test_names_outside_of_the_output_are_neither_read_nor_packed(
    copied: Callable[[], Copy], tmp_path: Path, name: str
) -> None:
    copy = copied()
    (copy.folder.parent / "secret.txt").write_text("secret")
    copy.rewrite(lambda manifest: manifest["files"]["answers"].append(name), seals=False)
    target = tmp_path / "scan.zip"
    with pytest.raises(OutputError, match="as a file of a table"):
        write_bundle(Location(uri=str(copy.folder)), Location(uri=str(target)), with_tables=True)
    assert not target.exists()
    assert ("changed", "manifest.json") in found(copy.verify())


def test_bundle_packs_no_other_file_of_the_output_as_a_table(copied: Callable[[], Copy], tmp_path: Path) -> None:
    copy = copied()
    copy.rewrite(lambda manifest: manifest["files"]["answers"].append("input/documents.parquet"), seals=False)
    with pytest.raises(OutputError, match="as a file of a table"):
        write_bundle(Location(uri=str(copy.folder)), Location(uri=str(tmp_path / "scan.zip")), with_tables=True)


@pytest.mark.parametrize("field", ["before", "files"])
def test_hashes_of_places_outside_of_the_output_are_not_followed(copied: Callable[[], Copy], field: str) -> None:
    copy = copied()

    def forge(manifest: dict[str, Any]) -> None:
        value = {"run_id": "../../x", "sha256": "0"} if field == "before" else {"../../x": "0"}
        manifest["record"][field] = value

    copy.rewrite(forge, seals=False)
    assert ("changed", "manifest.json") in found(copy.verify())


@pytest.mark.parametrize("table", ["evidence", "results"])
def test_table_that_was_taken_out_of_the_record_is_missed(copied: Callable[[], Copy], table: str) -> None:
    copy = copied()
    names: list[str] = copy.manifest["files"][table]

    def forge(manifest: dict[str, Any]) -> None:
        del manifest["files"][table]
        for part in manifest["parts"]:
            part.update({f"{table}_file": None, f"num_{table}": 0})
        for name in names:
            del manifest["record"]["files"][name]

    copy.rewrite(forge)
    findings = copy.verify().findings
    assert {each.kind for each in findings} == {Kind.ROWS}
    assert all(f"{table}_file" in each.what for each in findings)


def test_file_of_which_the_hash_was_taken_out_is_named(copied: Callable[[], Copy]) -> None:
    copy = copied()
    names = [forge_answer(copy), f"runs/{copy.runs[-1]}/card.md"]

    def forge(manifest: dict[str, Any]) -> None:
        for name in names:
            del manifest["record"]["files"][name]

    copy.rewrite(forge)
    lines = [each.what for each in copy.verify().findings if each.kind is Kind.CHANGED]
    assert sorted(lines) == sorted(f"it has no hash of {name}" for name in names)


def test_hole_in_the_chain_leaves_the_older_nights_checked(copied: Callable[[], Copy]) -> None:
    copy = copied()
    first, second, last = copy.runs
    kept = copy.verify().sha256
    for place in (copy.folder / "runs" / second).iterdir():
        place.unlink()
    result = copy.verify(expected=kept)
    assert (result.findings, result.since, result.run_id, result.num_runs) == ([], last, last, 2)
    (copy.folder / f"runs/{first}/card.md").write_text("Forged")
    assert found(copy.verify()) == {("changed", f"runs/{first}/card.md")}


def test_kept_hash_of_a_run_whose_folder_was_deleted_is_still_on_the_chain(copied: Callable[[], Copy]) -> None:
    copy = copied()
    named = json.loads((copy.folder / f"runs/{copy.runs[1]}/manifest.json").read_text())["record"]["before"]
    for place in (copy.folder / "runs" / copy.runs[0]).iterdir():
        place.unlink()
    assert copy.verify(expected=named["sha256"]).findings == []

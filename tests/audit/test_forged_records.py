"""Records that were forged or damaged: none switches a check off, ends it with an error, or leads out of the output."""

from typing import Any

import pytest

from memagent_batch.audit.files import FindingKind
from tests.audit.scan import Copy, found

FLIPPED = 12
"""Places of a manifest in which a bit is flipped, one after another."""


@pytest.mark.parametrize("is_shown", [True, False])
def test_flipped_bit_anywhere_in_a_last_manifest_is_a_finding(copy: Copy, is_shown: bool) -> None:
    place = copy.folder / ("manifest.json" if is_shown else f"runs/{copy.runs[-1]}/manifest.json")
    data = place.read_bytes()
    for number in range(FLIPPED):
        at = number * (len(data) - 1) // (FLIPPED - 1)
        place.write_bytes(data[:at] + bytes([data[at] ^ (1 << number % 8)]) + data[at + 1 :])
        assert any(str(place.relative_to(copy.folder)) in where for _, where in found(copy.verify(with_text=False)))


def test_manifest_that_is_nested_too_deeply_is_a_finding(copy: Copy) -> None:
    (copy.folder / "manifest.json").write_text("[" * 100_000)
    assert found(copy.verify(with_text=False)) == {("changed", "manifest.json")}


@pytest.mark.parametrize(
    "forge",
    [
        lambda manifest: manifest["counts"].pop("ok"),
        lambda manifest: manifest.update(parts=[{"answers_file": "answers/x.parquet"}]),
        lambda manifest: manifest["settings"].update(input=3),
    ],
)
def test_manifest_whose_fields_can_not_be_followed_is_a_finding(copy: Copy, forge: Any) -> None:
    copy.rewrite(forge)
    assert ("counts", f"runs/{copy.runs[-1]}/manifest.json") in found(copy.verify())


@pytest.mark.parametrize("name", ["../secret.txt", "/etc/hosts", "answers/../../secret.txt"])
def test_names_outside_of_the_output_are_not_read(copy: Copy, name: str) -> None:
    (copy.folder.parent / "secret.txt").write_text("secret")
    copy.rewrite(lambda manifest: manifest["files"]["answers"].append(name))
    assert found(copy.verify()) == {("changed", "manifest.json")}
    place = copy.folder / f"runs/{copy.runs[-1]}/SHA256SUMS"
    place.write_text(f"{place.read_text()}{'0' * 64}  {name}\n")
    assert ("changed", f"runs/{copy.runs[-1]}/SHA256SUMS") in found(copy.verify())


@pytest.mark.parametrize("table", ["evidence", "results"])
def test_table_that_was_taken_out_of_the_record_is_missed(copy: Copy, table: str) -> None:
    names: list[str] = copy.manifest["files"][table]

    def forge(manifest: dict[str, Any]) -> None:
        del manifest["files"][table]
        for part in manifest["parts"]:
            part.update({f"{table}_file": None, f"num_{table}": 0})

    copy.rewrite(forge)
    copy.reseal(without=names)
    findings = copy.verify().findings
    assert {each.kind for each in findings} == {FindingKind.ROWS}
    assert all(f"{table}_file" in each.what for each in findings)


def test_file_that_was_taken_out_of_the_list_is_named(copy: Copy) -> None:
    names = [copy.forge_answer(), f"runs/{copy.runs[-1]}/removed.parquet"]
    copy.reseal(without=names)
    (finding,) = [each for each in copy.verify().findings if each.kind is FindingKind.CHANGED]
    assert finding.where == f"runs/{copy.runs[-1]}/SHA256SUMS"
    assert all(f"it does not list {name}" in finding.what for name in names)

"""`verify` on copies of a finished scan: a whole one holds, and each kind of damage is found."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.audit import rows
from memagent_batch.audit.files import FindingKind
from memagent_batch.runs.reading_state import with_log_files
from memagent_batch.runs.record import signature
from memagent_batch.store.json_files import json_bytes
from memagent_batch.store.location import Location
from tests.audit.scan import ASK, NIGHTS, Copy, found, verify_here
from tests.flows.grown import Stream
from tests.runs.recorded_nights import Nights


def flip(place: Path) -> None:
    data = place.read_bytes()
    middle = len(data) // 2
    place.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])


def places(copy: Copy, *, all_runs: bool = False) -> set[str]:
    return {where for _, where in found(copy.verify(with_text=False, all_runs=all_runs))}


def tables_of(copy: Copy, table: str) -> list[Path]:
    return [copy.folder / name for name in copy.manifest["files"][table]]


def test_whole_output_holds_and_every_row_is_compared(copy: Copy) -> None:
    result = copy.verify()
    assert (result.findings, result.unchecked) == ([], [])
    assert (result.run_id, result.num_runs) == (copy.runs[-1], 1)
    every = copy.verify(all_runs=True)
    assert (every.findings, every.unchecked, every.num_runs) == ([], [], 3)
    assert every.num_files > result.num_files
    manifest = copy.manifest
    counts = manifest["counts"]
    rows = counts["answers_rows"] + counts["memories_rows"] + sum(part["num_evidence"] for part in manifest["parts"])
    assert result.num_rows == rows + sum(part["num_results"] for part in manifest["parts"]) > 20
    assert sum(part["num_evidence"] for part in manifest["parts"])


def test_plan_with_more_text_than_one_array_holds_is_followed(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of ten million documents."""

    def grown(*of_run: Any) -> pa.Table:
        plan = with_log_files(*of_run)
        other = plan.slice(0, 1).set_column(0, "document_id", pa.array(["x" * 2**20]))
        return pa.concat_tables([plan, *[other.cast(plan.schema)] * 2100])

    monkeypatch.setattr(rows, "with_log_files", grown)
    result = copy.verify()
    assert (result.findings, result.unchecked) == ([], [])


def test_flipped_byte_is_found_in_every_table_file_and_log_file(copy: Copy) -> None:
    flipped = [
        name for name in copy.files() if not name.startswith("runs/") and name not in ("manifest.json", "run.json")
    ]
    flipped = [name for name in flipped if not name.startswith("log/questions/") or copy.runs[-1] in name]
    replaced = {file for run in copy.manifest["replaced"] for file in run["files"]}
    flipped = [name for name in flipped if not name.startswith("log/keys/")]  # no table rests on them
    flipped = [name for name in flipped if name not in replaced]  # of the runs before
    assert {name.split("/")[0] for name in flipped} >= {"answers", "memories", "evidence", "results", "log"}
    for name in flipped:
        flip(copy.folder / name)
    assert places(copy) >= set(flipped)


def test_flipped_byte_is_found_in_every_file_of_a_record(copy: Copy) -> None:
    unhashed = ("/manifest.json", "/progress.json")  # the one is written last, the other while a run reads
    flipped = [name for name in copy.files() if name.startswith("runs/") and not name.endswith(unhashed)]
    assert {Path(name).name for name in flipped} >= {"plan.parquet", "projection.json", "SHA256SUMS"}
    for name in flipped:
        whole = (copy.folder / name).read_bytes()
        flip(copy.folder / name)
        assert places(copy, all_runs=True), name
        (copy.folder / name).write_bytes(whole)


def test_removed_row_is_one_finding_that_names_the_row(copy: Copy) -> None:
    place = tables_of(copy, "answers")[0]
    name, table = str(place.relative_to(copy.folder)), pq.read_table(place)
    pq.write_table(table.slice(1), place)
    (finding,) = copy.verify().findings
    row = table.slice(0, 1).to_pylist()[0]
    gone = f"document_id {row['document_id']!r}, question_id {row['question_id']!r}, sample 0: its row is not there"
    assert (finding.kind, finding.where) == (FindingKind.CHANGED, name)
    assert gone in finding.what


def test_removed_row_is_found_where_hashes_and_counts_were_made_to_fit(copy: Copy) -> None:
    place = tables_of(copy, "answers")[0]
    table = pq.read_table(place)
    is_ok = table["status"][-1].as_py() == "ok"
    pq.write_table(table.slice(0, table.num_rows - 1), place)

    def forge(manifest: dict[str, object]) -> None:
        counts, part = manifest["counts"], manifest["parts"][0]  # type: ignore[index]
        for names in (("asked", "answers_rows"), ("ok",) if is_ok else ("failed",)):
            for name in names:
                counts[name] -= 1  # type: ignore[index]
        part["num_answers"] -= 1
        part["num_ok"] -= is_ok

    copy.rewrite(forge)
    kinds = {each.kind for each in copy.verify().findings}
    assert kinds == {FindingKind.COUNTS, FindingKind.ROWS}


def test_changed_answer_is_found_where_the_hash_was_made_to_fit(copy: Copy) -> None:
    name = copy.forge_answer()
    copy.reseal()
    (finding,) = copy.verify().findings
    assert (finding.kind, finding.where) == (FindingKind.ROWS, name)
    assert finding.what.endswith("answer is not what the log says")


@pytest.mark.parametrize("table", ["memories", "evidence", "results"])
def test_removed_row_of_another_table_is_found_where_the_hash_was_made_to_fit(copy: Copy, table: str) -> None:
    place = next(place for place in tables_of(copy, table) if pq.read_metadata(place).num_rows)
    pq.write_table(pq.read_table(place).slice(1), place)
    copy.reseal()
    (finding,) = copy.verify().findings
    assert finding.where == str(place.relative_to(copy.folder))
    assert "its row is not there" in finding.what


def test_log_file_that_is_gone_is_one_finding(copy: Copy) -> None:
    gone = sorted((copy.folder / "log/turns").iterdir())[0]
    gone.unlink()
    result = copy.verify()
    assert found(result) == {(FindingKind.GONE.value, f"log/turns/{gone.name}")}
    assert [each.what for each in result.unchecked] == ["whether the rows follow from the log"]


def test_log_file_that_was_gone_when_a_later_run_closed_is_found_in_the_lists_before(copy: Copy) -> None:
    for folder in ("turns", "outcomes", "follow_ups"):
        sorted((copy.folder / "log" / folder).iterdir())[-1].unlink()
    nights = Nights(Location(uri=str(copy.folder)))
    nights.run({"x": "one"}, {"q": "Why?"}, adopt_output=True)
    assert copy.verify().findings == []
    dropped = {where.rpartition("/")[0] for kind, where in found(copy.verify(all_runs=True)) if kind == "gone"}
    assert dropped == {"log/turns", "log/outcomes", "log/follow_ups"}


def test_record_of_an_older_run_is_checked_with_all(copy: Copy) -> None:
    first = copy.runs[0]
    copy.rewrite(lambda manifest: manifest["counts"].update(failed=0), run_id=first, seals=False)
    assert copy.verify().findings == []
    assert found(copy.verify(all_runs=True)) == {(FindingKind.CHANGED.value, f"runs/{first}/manifest.json")}
    copy.reseal(first)
    assert found(copy.verify(all_runs=True)) == {(FindingKind.CHANGED.value, f"runs/{first}/SHA256SUMS")}


def test_manifest_of_an_earlier_run_in_the_place_of_the_last_one_is_found(copy: Copy) -> None:
    record = copy.folder / "runs" / copy.runs[0] / "manifest.json"
    (copy.folder / "manifest.json").write_bytes(record.read_bytes())
    assert (FindingKind.CHAIN.value, "manifest.json") in found(copy.verify())


def test_record_of_a_run_that_no_later_run_names_is_found(copy: Copy) -> None:
    first, second, _ = copy.runs
    copy.reseal(without=[f"runs/{second}/SHA256SUMS"], more=[f"runs/{first}/SHA256SUMS"])
    assert found(copy.verify(all_runs=True)) == {(FindingKind.CHAIN.value, f"runs/{second}/SHA256SUMS")}


def test_signed_record_holds_until_its_list_is_made_anew(copy: Copy, tmp_path: Path) -> None:
    allowed = signers(tmp_path)
    place = copy.folder / "runs" / copy.runs[-1] / "SHA256SUMS"
    unsigned = {(FindingKind.SIGNATURE.value, str(place.relative_to(copy.folder)))}
    assert found(copy.verify(allowed_signers=allowed)) == unsigned
    place.with_name("SHA256SUMS.sig").write_bytes(signature(place.read_bytes(), key=str(tmp_path / "key")))
    result = copy.verify(allowed_signers=allowed)
    assert (result.findings, result.signer) == ([], "scans@example.org")
    assert [each.why for each in copy.verify().unchecked] == ["it needs --allowed-signers"]
    copy.rewrite(lambda manifest: manifest["settings"].update(model="another"))
    assert copy.verify().findings == []
    assert found(copy.verify(allowed_signers=allowed)) == unsigned
    stranger = signers(tmp_path / "stranger")
    assert found(copy.verify(allowed_signers=stranger))
    for run_id in copy.runs:
        copy.strip(run_id)
        (copy.folder / f"runs/{run_id}/SHA256SUMS.sig").unlink(missing_ok=True)
    assert {kind for kind, _ in found(copy.verify(allowed_signers=allowed))} == {FindingKind.GONE.value}


def signers(folder: Path) -> Path:
    """A key without a passphrase, and the file that allows it."""
    folder.mkdir(exist_ok=True)
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    allowed = folder / "allowed_signers"
    allowed.write_text(f"scans@example.org {key.with_suffix('.pub').read_text()}")
    return allowed


def test_files_of_a_run_are_handed_on_by_the_page_and_checked_without_this_software(copy: Copy, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/record.md").read_text()
    (copy.folder / "review").mkdir()
    block = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)[-1].replace("RUN_ID", copy.runs[-1])
    packing = block.replace("cd out/", f"cd {copy.folder}").replace("../scan.tgz", str(tmp_path / "scan.tgz"))
    subprocess.run(["bash", "-euo", "pipefail", "-c", packing], check=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    subprocess.run(["tar", "-xzf", tmp_path / "scan.tgz"], cwd=outside, check=True)
    assert {path.name for path in outside.iterdir()} == {"runs", "log", "answers", "evidence", "review"}
    assert [path.name for path in (outside / "log").iterdir()] == ["questions"]
    command = ["sha256sum", "-c", "--quiet", "--ignore-missing", f"runs/{copy.runs[-1]}/SHA256SUMS"]
    assert subprocess.run(command, cwd=outside, check=False).returncode == 0
    flip(next((outside / "answers").iterdir()))
    assert subprocess.run(command, cwd=outside, check=False, capture_output=True).returncode == 1


def test_deleted_folder_of_an_old_run_is_no_fault(copy: Copy) -> None:
    first, second, _ = copy.runs
    for place in (copy.folder / "runs" / second).iterdir():
        place.unlink()
    result = copy.verify(all_runs=True)
    assert (result.findings, result.num_runs) == ([], 2)
    assert [each.what for each in result.unchecked] == [f"run {second}"]
    (copy.folder / f"runs/{first}/projection.json").write_text("Forged")
    assert found(copy.verify(all_runs=True)) == {("changed", f"runs/{first}/projection.json")}


@pytest.mark.parametrize(
    "settings",
    [
        {"table_format": "arrow", "limit": 2, "follow_ups": {"evidence": False}},
        {"sampling": {"samples": 2, "temperature": 0.7}, "policy": {"kind": "parallel"}},
    ],
    ids=["arrow", "samples"],
)
def test_rows_of_other_policies_and_formats_follow_from_the_log(
    settings: dict[str, Any], text_model: str, tmp_path: Path
) -> None:
    stream = Stream(tmp_path, text_model, ask=ASK, **settings)
    manifest = stream.night(NIGHTS[1])
    result = verify_here(Location(uri=str(stream.output)))
    assert (result.findings, result.unchecked) == ([], [])
    assert result.num_rows > manifest["counts"]["answers_rows"]


def test_output_between_two_runs_holds(copy: Copy) -> None:
    """A later attempt has begun: it has marked the manifest, written `run.json` and log files, and no table."""
    later = "29990101T000000.000Z.ffff"
    manifest = {**copy.manifest, "claimed_by": later}
    (copy.folder / "manifest.json").write_bytes(json_bytes(manifest))
    record = json.loads((copy.folder / "run.json").read_text())
    (copy.folder / "run.json").write_bytes(json_bytes({**record, "run_id": later}))
    logged = sorted((copy.folder / "log/turns").iterdir())[0]
    logged.with_name(f"{later}-w-000001.parquet").write_bytes(logged.read_bytes())
    result = copy.verify()
    assert result.findings == []
    assert [each.what for each in result.unchecked] == ["1 files of the log"]


def test_documents_that_are_gone_or_have_changed_leave_only_evidence_unchecked(copy: Copy) -> None:
    result = copy.verify(with_text=False)
    assert (result.findings, [each.what for each in result.unchecked]) == ([], ["the table 'evidence'"])
    record = json.loads((copy.folder / "run.json").read_text())
    moved = Path(record["documents"]).with_name("changed.parquet")
    table = pq.read_table(record["documents"])
    rows = [
        row | {"text": f"{row['text']} And more."} if row["document_id"] == "a" else row for row in table.to_pylist()
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), moved)
    (copy.folder / "run.json").write_bytes(json_bytes({**record, "documents": str(moved)}))
    copy.reseal()
    result = copy.verify()
    assert (result.findings, [each.what for each in result.unchecked]) == ([], ["evidence and locators of 1 documents"])

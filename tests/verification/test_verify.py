"""`verify` on copies of a finished scan: a whole one holds, and each kind of damage is found."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.files.json_files import json_bytes
from memagent_batch.files.location import Location
from memagent_batch.log import writer as turn_log
from memagent_batch.runs import finalise
from memagent_batch.verification.findings import Kind
from tests.flows.grown import Stream
from tests.runs.recorded_nights import Nights
from tests.verification.scan import ASK, NIGHTS, Copy, found, verify_here


def flip(place: Path) -> None:
    data = place.read_bytes()
    middle = len(data) // 2
    place.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])


def places(copy: Copy) -> set[str]:
    """Files that a check names."""
    return {name for _, where in found(copy.verify(with_text=False)) for name in where.split(", ")}


def tables_of(copy: Copy, table: str) -> list[Path]:
    return [copy.folder / name for name in copy.manifest["files"][table]]


def test_whole_output_holds_and_every_row_is_compared(copied: Callable[[], Copy]) -> None:
    copy = copied()
    result = copy.verify()
    assert (result.findings, result.unchecked) == ([], [])
    assert (result.since, result.run_id, result.num_runs) == (copy.runs[0], copy.runs[-1], 3)
    manifest = copy.manifest
    counts = manifest["counts"]
    rows = counts["answers_rows"] + counts["memories_rows"] + sum(part["num_evidence"] for part in manifest["parts"])
    assert result.num_rows == rows + sum(part["num_results"] for part in manifest["parts"]) > 20
    assert sum(part["num_evidence"] for part in manifest["parts"])


def test_flipped_byte_is_found_in_every_table_file_and_log_file(copied: Callable[[], Copy]) -> None:
    copy = copied()
    flipped = [name for name in copy.files() if not name.startswith("runs/") and name != "manifest.json"]
    assert {name.split("/")[0] for name in flipped} >= {"answers", "memories", "evidence", "results", "log", "run.json"}
    for name in flipped:
        flip(copy.folder / name)
    assert places(copy) >= set(flipped)


def test_flipped_byte_is_found_in_every_file_of_a_record(copied: Callable[[], Copy]) -> None:
    copy = copied()
    flipped = [name for name in copy.files() if name.startswith("runs/") and not name.endswith("/manifest.json")]
    assert {Path(name).name for name in flipped} >= {"plan.parquet", "log.parquet", "card.md", "projection.json"}
    for name in flipped:
        flip(copy.folder / name)
    assert places(copy) >= set(flipped)


def test_flipped_byte_is_found_in_every_manifest(copied: Callable[[], Copy]) -> None:
    copy = copied()
    for name in ("manifest.json", *(f"runs/{run_id}/manifest.json" for run_id in copy.runs)):
        whole = (copy.folder / name).read_bytes()
        flip(copy.folder / name)
        assert name in places(copy)
        (copy.folder / name).write_bytes(whole)
    assert places(copy) == set()


def test_table_file_that_is_damaged_is_one_finding_and_not_one_more_for_the_rows_it_had(
    copied: Callable[[], Copy],
) -> None:
    copy = copied()
    place = tables_of(copy, "answers")[0]
    place.write_bytes(place.read_bytes()[:100])
    assert found(copy.verify()) == {(Kind.CHANGED.value, str(place.relative_to(copy.folder)))}


def test_removed_row_is_found_by_its_hash_its_count_and_its_reading(copied: Callable[[], Copy]) -> None:
    copy = copied()
    place = tables_of(copy, "answers")[0]
    name, table = str(place.relative_to(copy.folder)), pq.read_table(place)
    pq.write_table(table.slice(1), place)
    result = copy.verify()
    assert {(kind.value, name) for kind in (Kind.CHANGED, Kind.COUNTS, Kind.ROWS)} <= found(result)
    (gone,) = [each.what for each in result.findings if each.kind is Kind.ROWS]
    row = table.slice(0, 1).to_pylist()[0]
    assert (
        gone
        == f"document_id {row['document_id']!r}, question_id {row['question_id']!r}, sample 0: its row is not there"
    )


def test_removed_row_is_found_where_hashes_and_counts_were_made_to_fit(copied: Callable[[], Copy]) -> None:
    copy = copied()
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
    assert {Kind.COUNTS, Kind.ROWS} <= kinds
    assert Kind.CHANGED not in kinds


def test_changed_answer_is_found_where_the_hash_was_made_to_fit(copied: Callable[[], Copy]) -> None:
    copy = copied()
    place = tables_of(copy, "answers")[0]
    table = pq.read_table(place)
    row = table["status"].to_pylist().index("ok")
    answers = table["answer"].to_pylist()
    answers[row] = "another"
    column = table.schema.get_field_index("answer")
    pq.write_table(table.set_column(column, table.schema.field(column), pa.array(answers, pa.string())), place)
    copy.rewrite(lambda manifest: None)
    (finding,) = copy.verify().findings
    assert (finding.kind, finding.where) == (Kind.ROWS, str(place.relative_to(copy.folder)))
    assert finding.what.endswith("answer is not what the log says")


@pytest.mark.parametrize("table", ["memories", "evidence", "results", "removed"])
def test_removed_row_of_another_table_is_found_where_the_hash_was_made_to_fit(
    copied: Callable[[], Copy], table: str
) -> None:
    copy = copied()
    place = next(place for place in tables_of(copy, table) if pq.read_metadata(place).num_rows)
    pq.write_table(pq.read_table(place).slice(1), place)
    copy.rewrite(lambda manifest: None)
    assert (Kind.ROWS.value, str(place.relative_to(copy.folder))) in found(copy.verify())


def test_swapped_table_is_found(copied: Callable[[], Copy]) -> None:
    copy = copied()
    places_ = tables_of(copy, "memories")[0], tables_of(copy, "answers")[0]
    names = [str(place.relative_to(copy.folder)) for place in places_]
    both = [place.read_bytes() for place in places_]
    for place, data in zip(places_, reversed(both), strict=True):
        place.write_bytes(data)
    assert {(Kind.CHANGED.value, name) for name in names} <= found(copy.verify())


def test_log_file_that_is_gone_is_found_with_the_run_that_wrote_it(copied: Callable[[], Copy]) -> None:
    copy = copied()
    gone = sorted((copy.folder / "log/turns").iterdir())[0]
    gone.unlink()
    result = copy.verify()
    (finding,) = [each for each in result.findings if each.kind is Kind.GONE]
    assert (finding.where, finding.since) == (f"log/turns/{gone.name}", copy.runs[0])
    assert any(each.kind is Kind.ROWS for each in result.findings)


def test_log_file_that_was_gone_when_a_later_run_closed_is_found(copied: Callable[[], Copy]) -> None:
    copy = copied()
    for folder in ("turns", "outcomes", "closings"):
        sorted((copy.folder / "log" / folder).iterdir())[-1].unlink()
    nights = Nights(Location(uri=str(copy.folder)))
    run_id = nights.run({"x": "one"}, {"q": "Why?"}, adopt_output=True)["run_id"]
    dropped = {each.where.rpartition("/")[0]: each.since for each in copy.verify().findings if each.kind is Kind.GONE}
    assert dropped == dict.fromkeys(("log/turns", "log/outcomes", "log/closings"), run_id)


def test_manifest_that_was_replaced_is_found_by_the_run_behind_it(copied: Callable[[], Copy]) -> None:
    copy = copied()
    first, second, _ = copy.runs
    copy.rewrite(lambda manifest: manifest["counts"].update(failed=0), run_id=first)
    (finding,) = copy.verify().findings
    name = f"runs/{first}/manifest.json"
    assert (finding.kind, finding.where, finding.since) == (Kind.CHANGED, name, second)


def test_manifest_of_an_earlier_run_in_the_place_of_the_last_one_is_found(copied: Callable[[], Copy]) -> None:
    copy = copied()
    record = copy.folder / "runs" / copy.runs[0] / "manifest.json"
    (copy.folder / "manifest.json").write_bytes(record.read_bytes())
    assert (Kind.CHAIN.value, "manifest.json") in found(copy.verify())


def test_record_of_a_run_that_no_later_run_names_is_found(copied: Callable[[], Copy]) -> None:
    copy = copied()
    before, last = copy.runs[0], copy.runs[-1]
    link = {"run_id": before, "sha256": sha256((copy.folder / f"runs/{before}/manifest.json").read_bytes()).hexdigest()}
    copy.rewrite(lambda manifest: manifest["record"].update(before=link), run_id=last)
    assert (Kind.CHAIN.value, f"runs/{copy.runs[1]}/manifest.json") in found(copy.verify())


def test_replaced_last_manifest_is_found_by_who_kept_its_hash(copied: Callable[[], Copy]) -> None:
    copy = copied()
    kept = copy.verify().sha256
    assert copy.verify(expected=kept).findings == []
    copy.rewrite(lambda manifest: manifest["settings"].update(model="another"))
    assert copy.verify().findings == []
    assert found(copy.verify(expected=kept)) == {(Kind.CHAIN.value, "runs")}


def test_clock_that_went_back_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class EarlyClock(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) - timedelta(hours=1)  # type: ignore[arg-type]

    nights = Nights(Location(uri=str(tmp_path / "run")))
    nights.run({"a": "one"}, {"q": "Why?"})
    for module in (finalise, turn_log):
        monkeypatch.setattr(module, "datetime", EarlyClock)
    second = nights.run({"a": "one"}, {"q": "Why?"})["run_id"]
    (finding,) = verify_here(nights.output).findings
    assert (finding.kind, finding.where) == (Kind.CLOCK, f"runs/{second}/manifest.json")


def test_deleted_folder_of_an_old_night_shortens_the_chain_and_is_no_fault(copied: Callable[[], Copy]) -> None:
    copy = copied()
    first, second, _ = copy.runs
    for place in (copy.folder / "runs" / first).iterdir():
        place.unlink()
    result = copy.verify()
    assert (result.findings, result.since, result.num_runs) == ([], second, 2)
    assert [each.what for each in result.unchecked] == [f"run {first}"]


def test_output_of_a_version_without_hashes_holds_from_the_first_run_with_them(copied: Callable[[], Copy]) -> None:
    copy = copied()
    first, second, last = copy.runs
    copy.strip(first)
    old = copy.folder / f"runs/{first}/manifest.json"
    link = {"run_id": first, "sha256": sha256(old.read_bytes()).hexdigest()}
    copy.rewrite(lambda manifest: manifest["record"].update(before=link), run_id=second)
    again = (copy.folder / f"runs/{second}/manifest.json").read_bytes()
    link = {"run_id": second, "sha256": sha256(again).hexdigest()}
    copy.rewrite(lambda manifest: manifest["record"].update(before=link), run_id=last)
    result = copy.verify()
    assert result.findings == []
    assert result.since == first
    assert any(f"files of run {first}" in each.what for each in result.unchecked)


@pytest.mark.parametrize(
    "knobs",
    [
        {"policy": {"kind": "shared", "question_tokens": 200}},
        {"table_format": "arrow", "limit": 2, "closing": {"evidence": False}},
        {"sampling": {"samples": 2, "temperature": 0.7}, "policy": {"kind": "parallel"}},
        {"policy": {"kind": "reread"}},
    ],
    ids=["shared", "arrow", "samples", "reread"],
)
def test_rows_of_other_policies_and_formats_follow_from_the_log(
    knobs: dict[str, Any], text_model: str, tmp_path: Path
) -> None:
    stream = Stream(tmp_path, text_model, ask=ASK, **knobs)
    manifest = stream.night(NIGHTS[1])
    result = verify_here(Location(uri=str(stream.output)))
    assert (result.findings, result.unchecked) == ([], [])
    assert result.num_rows > manifest["counts"]["answers_rows"]


def test_output_between_two_runs_holds(copied: Callable[[], Copy]) -> None:
    """A later attempt has begun: it has marked the manifest, written `run.json` and log files, and no table."""
    copy = copied()
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


def test_documents_that_are_gone_or_have_changed_leave_only_evidence_unchecked(
    copied: Callable[[], Copy],
) -> None:
    copy = copied()
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
    copy.rewrite(lambda manifest: None)
    result = copy.verify()
    assert (result.findings, [each.what for each in result.unchecked]) == ([], ["evidence and locators of 1 documents"])

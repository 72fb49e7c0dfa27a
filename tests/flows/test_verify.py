"""`verify`: what it finds in damaged tables, and that whole ones pass."""

import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from memagent_batch.cli.main import main
from memagent_batch.config.sources import InputConfig
from memagent_batch.data.store.json_files import json_bytes
from memagent_batch.data.store.location import Location
from memagent_batch.run.flows.answer import answer
from memagent_batch.run.flows.verify import check_tables, verify
from tests.flows.grown import Stream
from tests.flows.scans import make_scan
from tests.jobs import small_job
from tests.runs.recorded_nights import Nights


@pytest.fixture(scope="session")
def scan(tmp_path_factory: pytest.TempPathFactory, text_model: str) -> Stream:
    """Three nights, made once; nothing may change it."""
    return make_scan(tmp_path_factory.mktemp("scan"), text_model)


@pytest.fixture
def copy(scan: Stream, tmp_path: Path) -> Path:
    """A copy of the scan's output, to be damaged."""
    return Path(shutil.copytree(scan.output, tmp_path / "copy"))


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    """Nights over documents in memory."""
    return Nights(Location(uri=str(tmp_path / "nights")))


def manifest_of(output: Path) -> dict[str, Any]:
    return dict(json.loads((output / "manifest.json").read_text()))


def problems(output: Path) -> dict[str, str]:
    return {each.where: each.what for each in verify(Location(uri=str(output))).problems}


def flip(place: Path) -> None:
    data = place.read_bytes()
    middle = len(data) // 2
    place.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])


def test_whole_output_has_no_problem_and_its_digest_is_that_of_the_manifest(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_id = manifest_of(copy)["run_id"]
    assert main(["verify", str(copy)]) == 0
    digest = sha256((copy / "runs" / run_id / "manifest.json").read_bytes()).hexdigest()
    assert f"run {run_id}, " in (said := capsys.readouterr().out)
    assert f"digest: {digest}" in said
    (copy / "manifest.json").write_bytes(json_bytes({**manifest_of(copy), "claimed_by": "a later run"}))
    assert verify(Location(uri=str(copy))).digest == digest


@pytest.mark.parametrize("settings", [{"table_format": "arrow"}, {"sampling": {"samples": 2, "temperature": 0.7}}])
def test_outputs_of_other_settings_have_no_problem(settings: dict[str, Any], text_model: str, tmp_path: Path) -> None:
    assert problems(make_scan(tmp_path, text_model, **settings).output) == {}


def test_damaged_and_missing_files_of_every_table_are_named(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {name for table, names in manifest_of(copy)["files"].items() for name in names if table != "removed"}
    assert {name.partition("/")[0] for name in files} == {"answers", "memories", "evidence", "results"}
    missing = min(files)
    (copy / missing).unlink()
    for name in files - {missing}:
        flip(copy / name)
    found = problems(copy)
    assert found.keys() == files
    assert found[missing] == "the file is missing"
    assert main(["verify", str(copy), "--json"]) == 1
    assert {each["where"] for each in json.loads(capsys.readouterr().out)["problems"]} == files


def test_removed_row_is_found_by_the_counts_if_the_hash_was_replaced(copy: Path) -> None:
    name = manifest_of(copy)["files"]["answers"][0]
    pq.write_table(pq.read_table(copy / name).slice(1), copy / name)
    manifest = manifest_of(copy)
    (recorded,) = [each for part in manifest["parts"] for each in part["hashes"] if each["file"] == name]
    recorded["sha256"] = sha256((copy / name).read_bytes()).hexdigest()
    (copy / "manifest.json").write_bytes(json_bytes(manifest))
    assert "rows, and the run recorded" in problems(copy)[name]
    for part in manifest["parts"]:
        part["num_answers"] -= part["answers_file"] == name
    (copy / "manifest.json").write_bytes(json_bytes(manifest))
    assert "its rows by status are" in problems(copy)["answers"]


def test_kept_file_that_was_damaged_between_two_nights_is_found(nights: Nights) -> None:
    before = nights.run({"a": "one", "b": "two"}, {"q": "Why?"})
    name = before["files"]["memories"][0]
    place = nights.output / name
    place.write_bytes(place.read_bytes().replace(b"document_id", b"document_ix"))
    assert nights.run({"a": "one", "b": "two"}, {"q": "Why?"})["files"]["memories"] == [name]
    assert [each.where for each in verify(nights.output).problems] == [name]


def test_run_that_could_not_read_everything_has_no_problem(nights: Nights) -> None:
    nights.run({"a": "1 away", "b": "two", "broken": None}, {"q": "Why?"}, away=True)
    assert verify(nights.output).problems == []


@pytest.mark.s3
def test_run_over_a_part_of_the_documents_has_no_problem(text_model: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = [{"document_id": f"d{number}", "text": f"Line {number}. " * 20} for number in range(6)]
    (tmp_path / "in/all.jsonl").write_text("\n".join(map(json.dumps, rows)))
    job = small_job(tmp_path, text_model, ask=["Who?"])
    for part in ("1/2", "2/2"):
        manifest = answer(job.model_copy(update={"input": InputConfig(slice=part)}))
        assert manifest["counts"]["asked"] < len(rows)
    assert problems(Path(job.output)) == {}


def test_output_in_a_bucket_is_verified_file_by_file(s3_bucket: Location) -> None:
    nights = Nights(s3_bucket / "scan")
    name = nights.run({"a": "one", "b": "two"}, {"q": "Why?"})["files"]["answers"][0]
    assert verify(nights.output).problems == []
    (nights.output / name).write_bytes(b"other")
    assert [each.where for each in verify(nights.output).problems] == [name]


TEXT = "Né à Köln 🦊. Ann signed."
READING = {"document_id": "a", "question_id": "q", "sample": 0}
SPAN = {**READING, "document_hash": "h", "char_start": 13, "char_end": 24, "text": "Ann signed."}
WHOLE: dict[str, list[dict[str, Any]]] = {
    "answers": [{**READING, "status": "ok"}, {**READING, "sample": 1, "status": "failed"}],
    "memories": [READING, READING],
    "evidence": [SPAN, {**SPAN, "char_start": None, "char_end": None, "text": None}],
    "documents": [{"document_id": "a", "text_hash": "h", "text": TEXT}],
}


@pytest.mark.parametrize(
    ("changed", "where", "what"),
    [
        ({}, [], ""),
        ({"answers": [WHOLE["answers"][0]]}, ["answers"], "its rows by status are {'ok': 1}"),
        ({"answers": [WHOLE["answers"][0]] * 2}, ["answers", "answers"], "has several rows"),
        ({"memories": [{**READING, "sample": 2}]}, ["memories"], "sample 2: has no row in answers"),
        ({"memories": [{**READING, "document_id": str(row)} for row in range(9)]}, ["memories"] * 6, "4 further rows"),
        ({"evidence": [{**SPAN, "question_id": "r"}]}, ["evidence"], "has no row in answers"),
        ({"evidence": [{**SPAN, "char_start": 12}]}, ["evidence"], "the document has another text there"),
        ({"evidence": [{**SPAN, "text": None}]}, ["evidence"], "the document has another text there"),
        ({"documents": [{"document_id": "a", "document_hash": "other", "text": "other"}]}, [], ""),
    ],
)
def test_tables_that_do_not_fit_one_another_are_named(changed: dict[str, Any], where: list[str], what: str) -> None:
    schemas = {name: pa.Table.from_pylist(rows).schema for name, rows in WHOLE.items()}
    tables = {
        name: ds.dataset(pa.Table.from_pylist(rows, schema=schemas[name])) for name, rows in (WHOLE | changed).items()
    }
    found = [*check_tables(tables, counts={"ok": 1, "failed": 1, "not_read": 0})]
    assert [each.where for each in found] == where
    assert not found or what in found[-1].what

"""`verify`: what it finds in damaged tables, and that whole ones pass."""

import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from memagent_batch.cli.main import main
from memagent_batch.config.sources import InputConfig
from memagent_batch.data.store.delta import OutputTable, RunNumber
from memagent_batch.data.store.location import Location
from memagent_batch.run.flows import verify as verify_flow
from memagent_batch.run.flows.answer import answer
from memagent_batch.run.flows.verify import check_tables, verify
from memagent_batch.run.history import find_run, finish
from tests.flows.grown import Stream
from tests.flows.scans import make_scan
from tests.jobs import small_job
from tests.runs.recorded_nights import Nights, tables_without_documents
from tests.runs.written_runs import record_of


@pytest.fixture(scope="session")
def scan(tmp_path_factory: pytest.TempPathFactory, text_model: str) -> Stream:
    """Three nights, made once; nothing may change it."""
    return make_scan(tmp_path_factory.mktemp("scan"), text_model)


@pytest.fixture
def copy(scan: Stream, tmp_path: Path) -> Path:
    """A copy of the scan's output, to be damaged."""
    return Path(shutil.copytree(scan.output, tmp_path / "copy"))


@pytest.fixture
def without_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out the table of documents, which nights over documents in memory do not have."""
    monkeypatch.setattr(verify_flow, "open_tables", tables_without_documents)


@pytest.fixture
def nights(tmp_path: Path, without_documents: None) -> Nights:
    """Nights over documents in memory."""
    return Nights(Location(uri=str(tmp_path / "nights")))


def problems(output: Location | Path) -> dict[str, str]:
    """What is wrong, by file below the output or by table."""
    found = verify(Location(uri=str(output)) if isinstance(output, Path) else output).problems
    return {each.where.partition(f"{output}/")[2] or each.where: each.what for each in found}


def files_of(output: Location | Path, *names: str) -> list[str]:
    """The files of tables as the last run left them, below the output; by default of all its tables."""
    run = find_run(Location(uri=str(output)) if isinstance(output, Path) else output)
    versions = {name: run.version(name) for name in names or run.manifest["table_versions"]}
    return [f"{name}/{path}" for name, version in versions.items() for path in run.table(name).files(version)]


def flip(place: Path) -> None:
    data = place.read_bytes()
    middle = len(data) // 2
    place.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])


def test_whole_output_has_no_problem_and_its_digest_is_that_of_the_run(
    scan: Stream, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = scan.manifest()
    assert main(["verify", str(scan.output)]) == 0
    assert f"run {manifest['run_id']}, " in (said := capsys.readouterr().out)
    assert f"digest: {manifest['digest']}" in said


def test_output_with_several_samples_has_no_problem(text_model: str, tmp_path: Path) -> None:
    assert problems(make_scan(tmp_path, text_model, sampling={"samples": 2, "temperature": 0.7}).output) == {}


def test_damaged_and_missing_files_of_every_table_are_named(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = set(files_of(copy))
    assert {name.partition("/")[0] for name in files} == {"answers", "memories", "evidence", "results"}
    missing = min(files)
    (copy / missing).unlink()
    for name in files - {missing}:
        flip(copy / name)
    found = problems(copy)
    assert found.keys() == files
    assert found[missing] == "the file is missing"
    assert main(["verify", str(copy), "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["problems"]) == len(files)


def test_file_that_was_committed_after_the_run_is_found_by_the_digest(copy: Path) -> None:
    output = Location(uri=str(copy))
    manifest = find_run(output).manifest
    answers = OutputTable(output=output, name="answers")
    (file, *_) = answers.files().values()
    run = RunNumber(number=99, run_id="other")
    version = answers.commit(run=run, schema=answers.schema(), remove=[file])
    versions = {**manifest["table_versions"], "answers": version}
    finish(
        output, run, record_of(manifest), {**manifest, "run_id": "other", "table_versions": versions}, has_begun=False
    )
    assert "not the recorded one" in problems(copy)["runs"]


def test_kept_file_that_was_damaged_between_two_nights_is_found(nights: Nights) -> None:
    documents, questions = {"a": "one", "b": "two"}, {"q": "Why?"}
    nights.run(documents, questions)
    (name,) = files_of(nights.output, "memories")
    place = nights.output / name
    place.write_bytes(place.read_bytes().replace(b"document_id", b"document_ix"))
    nights.run({**documents, "c": "three"}, questions)
    assert name in files_of(nights.output, "memories")
    assert [*problems(nights.output)] == [name]


def test_run_that_could_not_read_everything_has_no_problem(nights: Nights) -> None:
    nights.run({"a": "1 away", "b": "two", "broken": None}, {"q": "Why?"}, away=True)
    assert verify(nights.output).problems == []


def test_run_over_a_part_of_the_documents_has_no_problem(text_model: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = [{"document_id": f"d{number}", "text": f"Line {number}. " * 20} for number in range(6)]
    (tmp_path / "in/all.jsonl").write_text("\n".join(map(json.dumps, rows)))
    job = small_job(tmp_path, text_model, ask=["Who?"])
    for part in ("1/2", "2/2"):
        manifest = answer(job.model_copy(update={"input": InputConfig(slice=part)}))
        assert manifest["counts"]["asked"] < len(rows)
    assert problems(Path(job.output)) == {}


@pytest.mark.s3
@pytest.mark.usefixtures("without_documents")
def test_output_in_a_bucket_is_verified_file_by_file(s3_bucket: Location) -> None:
    nights = Nights(s3_bucket / "scan")
    nights.run({"a": "one", "b": "two"}, {"q": "Why?"}, storage_options={**s3_bucket.storage_options})
    assert verify(nights.output).problems == []
    (name,) = files_of(nights.output, "answers")
    (nights.output / name).write_bytes(b"other")
    assert [*problems(nights.output)] == [name]


TEXT = "Né à Köln 🦊. Ann signed."
READING = {"document_id": "a", "question_id": "q", "sample": 0}
HASH = sha256(TEXT.encode()).hexdigest()
SPAN = {**READING, "document_hash": HASH, "char_start": 13, "char_end": 24, "text": "Ann signed."}
WHOLE: dict[str, list[dict[str, Any]]] = {
    "answers": [{**READING, "status": "ok"}, {**READING, "sample": 1, "status": "failed"}],
    "memories": [READING, READING],
    "evidence": [SPAN, {**SPAN, "char_start": None, "char_end": None, "text": None}],
    "documents": [{"document_id": "a", "text_hash": HASH, "text": TEXT}],
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
        ({"documents": [{"document_id": "a", "text_hash": sha256(b"other").hexdigest(), "text": "other"}]}, [], ""),
        (
            {"documents": [{"document_id": "a", "text_hash": HASH, "text": f"{TEXT} Not."}]},
            ["documents"],
            "its text is not",
        ),
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

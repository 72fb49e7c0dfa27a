"""Whole runs of `memagent convert`: rows close, limits hold, nothing is converted twice."""

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from memagent_batch.config.convert import ConvertJob
from memagent_batch.convert.batches import plan_batches
from memagent_batch.convert.record import ConvertManifest, begin_convert, close_convert
from memagent_batch.convert.table import CONVERTED
from memagent_batch.flows.convert import choose_converters, convert

from memagent_batch.config.job import ExecutorKind
from memagent_batch.config.sources import Trust
from memagent_batch.documents import listing
from memagent_batch.errors import InputError, NotReadError, OutputError, SupersededError, TooManyFailedError
from memagent_batch.flows import convert as pipeline
from memagent_batch.runs.tables import table_files
from memagent_batch.store.location import Location
from memagent_batch.store.parquet import read_parquet
from tests.convert import files
from tests.convert.corpus import CONVERTERS, write_corpus
from tests.jobs import put_texts

ROOT = Path(__file__).parents[2]


def job_of(folder: Path, **settings: Any) -> ConvertJob:
    own: dict[str, Any] = {"converter": pairs(CONVERTERS), "allow_code": True, "executor": ExecutorKind.LOCAL}
    bounds: dict[str, Any] = {"seconds": 5, "memory_mib": 512, "output_mib": 4, "file_mib": 8}
    job = ConvertJob(documents=(str(folder / "in"),), output=str(folder / "out"), **own, **bounds)
    return job.model_copy(update=settings)


def pairs(converters: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"{kind}={name}" for kind, name in converters.items())


def table_of(job: ConvertJob) -> pa.Table:
    names = table_files(job.output, "documents", storage_options=job.storage_options)
    places = [Location(uri=name, storage_options=job.storage_options) for name in names]
    return pa.concat_tables([read_parquet(place) for place in places])


def endings(manifest: ConvertManifest) -> dict[str, int]:
    counts = manifest["counts"]
    return {name.removeprefix("files_"): counts[name] for name in counts if name.startswith("files_") and counts[name]}


def require_closed(table: pa.Table, expected: Mapping[str, str]) -> None:
    """Every file has rows; every row says how its part ended; ids and parts are unique and in order."""
    rows = table.to_pylist()
    assert table.schema.equals(CONVERTED)
    assert {row["source"] for row in rows} == expected.keys()
    keys = [(row["document_id"], row["part"]) for row in rows]
    assert len(set(keys)) == len(keys)
    for document_id in {row["document_id"] for row in rows}:
        parts = [row["part"] for row in rows if row["document_id"] == document_id]
        assert parts == list(range(1, len(parts) + 1))
    for source, ending in expected.items():
        assert ending in {row["status"] for row in rows if row["source"] == source}, source
    for row in rows:
        assert row["text"] is not None or row["status"] in ("failed", "skipped", "not_read")
        assert row["reason"] or row["status"] in ("ok", "empty")


def test_mixed_files_have_rows_whatever_they_hold(tmp_path: Path) -> None:
    expected = write_corpus(tmp_path / "in", healthy=12, hostile=7)
    job = job_of(tmp_path)
    manifest = convert(job)
    require_closed(table_of(job), expected)
    assert endings(manifest) == {"converted": 19, **Counter(expected.values())}


def test_files_that_are_not_read_are_named_with_the_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    contents = {"a.txt": "some text", "blank.txt": " ", "none.txt": "", "torn.pdf": "%PDF-1.4 torn"}
    put_texts(tmp_path / "in", contents)
    convert(job_of(tmp_path))
    lines = "\n".join(record.message for record in caplog.records if record.levelname == "WARNING")
    assert "failed: torn.pdf: it can't be opened as a PDF" in lines
    assert "empty: blank.txt: nothing is in it" in lines
    assert "empty: none.txt: the file has 0 bytes" in lines
    assert "a.txt" not in lines


def test_second_run_converts_what_is_new_or_changed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "UNSURE_SECONDS", 0)
    expected = write_corpus(tmp_path / "in", healthy=6, hostile=2)
    job = job_of(tmp_path)
    first = convert(job)
    same = convert(job)
    assert same["counts"]["files_reused"] == 8
    assert same["files"] == first["files"]

    changed, removed = list(expected)[:2]
    (tmp_path / "in" / changed).write_bytes(files.pdf(files.written("Quite another text")))
    (tmp_path / "in" / removed).unlink()
    (tmp_path / "in" / "new.txt").write_text("a new note")
    third = convert(job)
    assert (third["counts"]["files_reused"], third["counts"]["files_converted"]) == (6, 2)
    table = table_of(job)
    require_closed(table, {**{name: end for name, end in expected.items() if name != removed}, "new.txt": "ok"})
    texts = {row["source"]: row["text"] for row in table.to_pylist() if row["part"] == 1}
    assert texts[changed] == "Quite another text"
    assert {path.name for path in (tmp_path / "out" / "documents").iterdir()} == {
        Path(name).name for name in third["files"]["documents"]
    }


def test_failed_files_stay_until_they_are_asked_for_again(tmp_path: Path) -> None:
    put_texts(tmp_path / "in", {"a.loop": "x", "b.txt": "fine"})
    job = job_of(tmp_path, seconds=3)
    assert endings(convert(job)) == {"converted": 2, "failed": 1, "ok": 1}
    assert endings(convert(job)) == {"reused": 2, "failed": 1, "ok": 1}
    retried = job.model_copy(update={"converter": (".loop=tests.convert.hostile:Quiet",), "retry_failed": True})
    assert endings(convert(retried)) == {"reused": 1, "converted": 1, "ok": 2}
    with pytest.raises(TooManyFailedError, match="1 of 2 files failed"):
        convert(job.model_copy(update={"max_failed_share": 0.1}))


def test_new_version_of_a_converter_converts_its_files_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_corpus(tmp_path / "in", healthy=6, hostile=0)
    job = job_of(tmp_path)
    convert(job)
    choose = choose_converters

    def upgraded(*own: Any, **settings: Any) -> Any:
        chosen = choose(*own, **settings)
        return {**chosen, "pdf": replace(chosen["pdf"], version="2")}

    monkeypatch.setattr(pipeline, "choose_converters", upgraded)
    manifest = convert(job)
    assert (manifest["counts"]["files_reused"], manifest["counts"]["files_converted"]) == (5, 1)
    versions = {row["source"]: row["converter_version"] for row in table_of(job).to_pylist()}
    assert versions["0/000.pdf"] == "2"


def test_converter_named_for_an_ending_converts_the_files_that_it_now_concerns_and_no_other(tmp_path: Path) -> None:
    mail = files.mail("s", "see below", files=[("b.dat", b"attached")])
    contents = {"a.dat": b"none", "a.log": b"text", "a.png": b"BM picture", "a.eml": mail.as_bytes(), "a.txt": b"note"}
    (tmp_path / "in").mkdir()
    for name, data in contents.items():
        (tmp_path / "in" / name).write_bytes(data)
    plain = job_of(tmp_path)
    assert endings(convert(plain)) == {"converted": 5, "skipped": 2, "needs_ocr": 1, "ok": 2}

    quiet = pairs(dict.fromkeys((".dat", ".log", ".png"), "tests.convert.hostile:Quiet"))
    own = plain.model_copy(update={"converter": quiet})
    assert endings(convert(own)) == {"reused": 1, "converted": 4, "ok": 5}
    texts = {row["document_id"]: row["text"] for row in table_of(own).to_pylist()}
    assert (texts["a.dat"], texts["a.log"], texts["a.png"]) == ("NONE", "TEXT", "BM PICTURE")
    assert (texts["a.eml/1-b.dat"], texts["a.txt"]) == ("ATTACHED", "note")
    assert endings(convert(own)) == {"reused": 5, "ok": 5}
    assert endings(convert(plain)) == {"reused": 1, "converted": 4, "skipped": 2, "needs_ocr": 1, "ok": 2}


def test_lines_of_ocr_are_in_the_table_and_another_least_confidence_reads_them_again(tmp_path: Path) -> None:
    put_texts(tmp_path / "in", {"a.scan": "It begins.", "b.txt": "It ends."})
    job = job_of(tmp_path, converter=(".scan=tests.convert.hostile:Unsure",))
    assert endings(convert(job)) == {"converted": 2, "needs_review": 1, "ok": 1}
    scan, text = table_of(job).to_pylist()
    assert (scan["ocr_lowest"], scan["ocr_mean"]) == (0.5, 0.5)
    assert scan["ocr_lines"] == [{"confidence": 0.5, "left": 0.1, "top": 0.2, "right": 0.9, "bottom": 0.25}]
    assert (text["ocr_lowest"], text["ocr_mean"], text["ocr_lines"]) == (None, None, None)
    lenient = job.model_copy(update={"ocr_min_confidence": 0.4})
    assert endings(convert(lenient)) == {"reused": 1, "converted": 1, "ok": 2}


def test_run_killed_midway_goes_on_where_it_stopped(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(24):
        name = f"{number:02d}.sleep" if number % 8 == 7 else f"{number:02d}.txt"
        (tmp_path / "in" / name).write_text("0.1" if number < 16 else "600")
    arguments = ["--documents", str(tmp_path / "in"), "--output", str(tmp_path / "out"), "--seconds", "600"]
    arguments += ["--converter", ".sleep=tests.convert.hostile:Sleeping", "--allow-code", "--executor", "local"]
    run = subprocess.Popen([sys.executable, "-m", "memagent_batch", "convert", *arguments], cwd=ROOT)
    deadline = time.monotonic() + 120
    while len(list(tmp_path.glob("out/documents/part-*"))) < 2 and time.monotonic() < deadline:
        assert run.poll() is None
        time.sleep(0.05)
    run.send_signal(signal.SIGKILL)
    run.wait()
    assert not (tmp_path / "out" / "manifest.json").exists()
    (tmp_path / "in" / "23.sleep").write_text("0.1")
    job = job_of(tmp_path, converter=(".sleep=tests.convert.hostile:Sleeping",))
    manifest = convert(job)
    assert (manifest["counts"]["files_reused"], manifest["counts"]["files_converted"]) == (16, 8)
    require_closed(table_of(job), {path.name: "ok" for path in (tmp_path / "in").iterdir()})


def test_hidden_files_are_named_and_a_link_out_of_the_folder_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "in" / ".git").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("not asked for")
    for name in ("a.txt", "_final.txt", ".git/x"):
        (tmp_path / "in" / name).write_text("fine")
    (tmp_path / "in" / "link.txt").symlink_to(tmp_path / "secret.txt")
    job = job_of(tmp_path)
    manifest = convert(job)
    assert (manifest["counts"]["left_out"], manifest["left_out"]) == (2, [".git", "_final.txt"])
    require_closed(table_of(job), {"a.txt": "ok", "link.txt": "skipped"})
    assert "not asked for" not in str(table_of(job).to_pylist())
    again = convert(job)
    assert (again["counts"]["files_reused"], again["files"]) == (2, manifest["files"])
    (tmp_path / "in" / "a.txt").unlink()
    (tmp_path / "in" / "link.txt").unlink()
    with pytest.raises(InputError, match="all 2 names start with"):
        convert(job)


def test_run_superseded_while_it_converts_shows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_texts(tmp_path / "in", {"a.txt": "fine"})
    job, close = job_of(tmp_path), close_convert

    def superseded(run: Any, *reports: Any, **settings: Any) -> Any:
        begin_convert(run.output, documents=run.documents)
        return close(run, *reports, **settings)

    monkeypatch.setattr(pipeline, "close_convert", superseded)
    with pytest.raises(SupersededError):
        convert(job)
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_file_that_the_listing_shows_unchanged_is_not_opened_and_one_with_new_times_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "UNSURE_SECONDS", 0)
    folder = put_texts(tmp_path / "in", {"a.txt": "fine", "b.txt": "fine"})
    job = job_of(tmp_path)
    convert(job)
    (folder / "a.txt").touch()
    assert endings(convert(job)) == {"reused": 2, "ok": 2}
    with vanishing(folder / "a.txt", monkeypatch):
        assert endings(convert(job)) == {"reused": 2, "ok": 2}
    with vanishing(folder / "b.txt", monkeypatch), pytest.raises(NotReadError):
        convert(job.model_copy(update={"trust": Trust.CONTENT}))
    (folder / "b.txt").write_text("fine")
    convert(job)
    (folder / "a.txt").write_text("changed")
    assert endings(convert(job)) == {"reused": 1, "converted": 1, "ok": 2}


@contextmanager
def vanishing(file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The file goes when it has been listed."""
    plan = plan_batches

    def planned(*found: Any, **settings: Any) -> Any:
        file.unlink(missing_ok=True)
        return plan(*found, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "plan_batches", planned)
        yield


def test_output_of_other_files_is_refused(tmp_path: Path) -> None:
    for name in ("in", "other"):
        put_texts(tmp_path / name, {"a.txt": "fine"})
    job = job_of(tmp_path)
    convert(job)
    with pytest.raises(OutputError, match="choose another output"):
        convert(job.model_copy(update={"documents": (str(tmp_path / "other"),)}))
    with pytest.raises(OutputError, match="inside the documents"):
        convert(job.model_copy(update={"output": str(tmp_path / "in" / "out")}))
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["counts"]["files"] == 1


@pytest.mark.s3
def test_bucket_is_converted_into_a_bucket(tmp_path: Path, s3_bucket: Location) -> None:
    expected = write_corpus(tmp_path / "in", healthy=6, hostile=2)
    for name in expected:
        (s3_bucket / f"in/{name}").write_bytes((tmp_path / "in" / name).read_bytes())
    places = {"documents": (f"{s3_bucket.uri}/in/",), "output": f"{s3_bucket.uri}/out"}
    job = job_of(tmp_path, **places, storage_options=s3_bucket.storage_options)
    convert(job)
    require_closed(table_of(job), expected)
    (s3_bucket / "in/new.md").write_bytes(b"# New")
    assert convert(job)["counts"]["files_reused"] == 8
    require_closed(table_of(job), {**expected, "new.md": "ok"})

"""Erasure and retention: what is forgotten is in no file of an output, and all else stays as it was."""

import io
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import memagent_batch as ma
from memagent_batch.apps import forget as forget_flow
from memagent_batch.apps.forget import find_documents, forget, read_hashes
from memagent_batch.apps.pages.site import write_site
from memagent_batch.apps.pages.spreadsheets import export_answers
from memagent_batch.apps.review.labels import LABELS, append_labels, read_label_rows
from memagent_batch.apps.review.record import find_reviews, read_review
from memagent_batch.apps.review.review import import_labels
from memagent_batch.apps.review.sign_offs import SIGN_OFFS, SignOffs, append_sign_offs, read_sign_offs, reading_hash
from memagent_batch.cli.main import main
from memagent_batch.cli.settings import job_of
from memagent_batch.cli.status import status_lines
from memagent_batch.config.job import ExecutorKind, IngestJob, JobConfig
from memagent_batch.config.sources import InputConfig
from memagent_batch.data.ingest import report
from memagent_batch.data.ingest.document_files import DocumentWriter
from memagent_batch.data.store.delta import OutputTable, RunNumber, write_table_files
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log import merge
from memagent_batch.data.store.turn_log.merge import rewrite_log
from memagent_batch.errors import InputError, OutputError, SupersededError
from memagent_batch.loop.addresses import text_hash
from memagent_batch.run import commits
from memagent_batch.run.executors.local import LocalExecutor
from memagent_batch.run.flows import answer as answer_flow
from memagent_batch.run.flows.answer import answer
from memagent_batch.run.flows.ingest import ingest_documents, next_run
from memagent_batch.run.flows.verify import verify
from memagent_batch.run.history import find_run, finished_runs, has_pending_erasure, require_newest
from memagent_batch.run.ingest import ingest
from memagent_batch.run.retention import prune_log, vacuum, vacuum_tables
from memagent_batch.run.sources import find_sources
from memagent_batch.run.state import read_state
from memagent_batch.run.tables import READING_TABLES
from tests import prompt_dependent_engine
from tests.jobs import small_settings
from tests.runs import recorded_nights
from tests.runs.recorded_nights import dying_at

NAMES = ("Ann", "Bob", "Carla", "Dora")
GONE = "Bob"
ASK = [
    {"question_id": "who", "question": "Who is it?"},
    {"question_id": "signed", "question": "Is it signed?", "answer_type": "bool"},
]


def text_of(name: str, *, days: int = 3) -> str:
    return "".join(f"On day {day} of {name} the fox went over hill {day} and met {name}. " for day in range(days))


class Killed(BaseException):
    """Stands for `kill -9`."""


def die(*_: object, **__: object) -> None:
    raise Killed


class Nights:
    """A job whose documents are rows of a Parquet file."""

    def __init__(self, folder: Path, model: str, output: Location, **settings: Any) -> None:
        self.file, self.output = folder / "documents.parquet", output
        given = {
            "documents": str(self.file),
            "output": output.uri,
            "ask": ASK,
            "engine": prompt_dependent_engine.KIND,
            "follow_ups": {"evidence": True},
            "input": {"carry_columns": ["team"]},
            "record": {"partition_by": "team"},
            "storage_options": {**output.storage_options},
        }
        self.job: JobConfig = job_of(**small_settings(folder, model, **given | settings), allow_code=True)

    def run(self, texts: Mapping[str, str]) -> Any:
        teams = ["x" if name == GONE else "y" for name in texts]
        pq.write_table(pa.table({"document_id": [*texts], "text": [*texts.values()], "team": teams}), self.file)
        return answer(self.job)

    def killed_run(self, texts: Mapping[str, str], patch: pytest.MonkeyPatch) -> None:
        """A night that is killed when it has read and would write its tables."""
        with patch.context() as context:
            context.setattr(answer_flow, "write", die)
            with pytest.raises(Killed):
                self.run(texts)

    def rows(self, name: str, *, without: str = GONE) -> list[dict[str, Any]]:
        rows = ma.table(self.output.uri, name, storage_options=self.output.storage_options).to_pylist()
        return sorted((row for row in rows if row["document_id"] != without), key=str)


@pytest.fixture(params=["disk", "s3"])
def nights(request: pytest.FixtureRequest, tmp_path: Path, text_model: str, monkeypatch: pytest.MonkeyPatch) -> Nights:
    """Two nights: Bob's text changed between them, the log is merged, reviews and pages are there."""
    monkeypatch.setattr(merge, "MERGE_FROM", 2)
    is_local = request.param == "disk"
    output = Location(uri=str(tmp_path / "run")) if is_local else request.getfixturevalue("s3_bucket") / "run"
    nights = Nights(tmp_path, text_model, output)
    texts = {name: text_of(name) for name in NAMES}
    nights.run(texts)
    nights.run({**texts, GONE: text_of(GONE, days=4)})
    return nights


def strings_of(output: Location, document_id: str) -> set[str]:
    """Texts that the output holds of a document and of no other: sentences, memories, answers, of all versions."""
    texts: dict[bool, set[str]] = {True: set(), False: set()}
    for path in output.files():
        if not path.endswith(".parquet") or "/_delta_log/" in path or "/log/" in path:
            continue
        rows = pq.read_table(pa.BufferReader(output.at(path).read_bytes())).to_pylist()
        for row in rows:
            is_wanted = row.get("document_id") == document_id
            columns = ("text", "memory", "answer", "response", "quote", "comment", "correction")
            texts[is_wanted] |= {row[name] for name in columns if row.get(name)}
    return {text for text in texts[True] - texts[False] if len(text) > 3}


def contents_of(output: Location) -> dict[str, str]:
    """The decompressed content of every file; of Parquet all values and dictionaries, of archives all members."""
    contents = {}
    for path in output.files(temporary=True):
        data = output.at(path).read_bytes()
        if data.startswith(b"PAR1"):
            contents[path] = parquet_content(data)
        elif data.startswith(b"PK"):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                contents[path] = "".join(archive.read(name).decode("utf-8", "replace") for name in archive.namelist())
        else:
            contents[path] = data.decode("utf-8", "replace")
    return contents


def parquet_content(data: bytes) -> str:
    """All values, written plain; the values of dictionaries that no row may use any more; metadata."""
    file = pq.ParquetFile(pa.BufferReader(data))
    rows, sink = file.read(), pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="none", use_dictionary=False)
    texts = [field.name for field in rows.schema if pa.types.is_string(field.type)]
    encoded = pq.ParquetFile(pa.BufferReader(data), read_dictionary=texts).read(texts)
    chunks = [chunk for column in encoded.columns for chunk in column.chunks if pa.types.is_dictionary(chunk.type)]
    words = [str(value) for chunk in chunks for value in chunk.dictionary.to_pylist()]
    return "\n".join([sink.getvalue().to_pybytes().decode("utf-8", "replace"), *words, str(file.schema_arrow.metadata)])


def files_with(output: Location, texts: set[str]) -> set[str]:
    """Files that hold one of the texts."""
    assert texts
    return {path for path, content in contents_of(output).items() if any(text in content for text in texts)}


def write_reviews(nights: Nights) -> None:
    """A label, a sign-off and pages of each document, and input that a program passed."""
    now = datetime.now(UTC)
    labels, signed = list[Any](), list[Any]()
    for row in nights.rows("answers", without=""):
        if row["question_id"] != "who":
            continue
        about = {name: row[name] for name in ("document_id", "question_id", "document_hash", "question_hash")}
        person = {"value": "yes", "reviewer": "Ada", "labelled_at": now, "blind": True, "purpose": "validate"}
        text = f"{row['document_id']} said so himself"
        labels.append({**dict.fromkeys(LABELS.names), **about, **person, "comment": text, "decision": "it is",
                       "choices": ["yes", "no"], "review_id": "r"})  # fmt: skip
        signed.append({**dict.fromkeys(SIGN_OFFS.names), "document_id": row["document_id"], "question_id": "who",
                       "sample": 0, "reading_hash": reading_hash(row), "signed_by": "Ada", "signed_at": now,
                       "decision": "correct", "correction": f"{row['document_id']} Smith", "comment": text,
                       "withdrawn": False})  # fmt: skip
    append_labels(nights.output, labels)
    append_sign_offs(nights.output, signed)
    write_site([nights.output], nights.output / "pages", context_chars=100, is_large_allowed=True)
    export_answers(nights.output, nights.output / "export/answers.csv", to="csv")
    (nights.output / "review/r/documents/1.html").write_bytes(text_of(GONE).encode())
    (nights.output / "input/documents/x.parquet").write_bytes(nights.file.read_bytes())
    (nights.output / "answers/.tmp-0123").write_bytes(text_of(GONE).encode())
    (nights.output / "_ingest/killed/bucket-0.parquet").write_bytes(nights.file.read_bytes())
    (nights.output / f"scratch/{'0f' * 16}/part.parquet").write_bytes(nights.file.read_bytes())
    (nights.output / "scratch/own/notes.txt").write_bytes(b"what somebody keeps here")


def forget_gone(nights: Nights) -> Any:
    return forget(nights.output, find_documents(nights.output, document_ids=[GONE]))


def test_forgotten_document_is_in_no_file_and_all_other_rows_stay(nights: Nights) -> None:
    write_reviews(nights)
    others = {name: nights.rows(name) for name in ("answers", "memories", "evidence", "results")}
    texts = strings_of(nights.output, GONE) | {f"day 1 of {GONE}", f"{GONE} said so", f"{GONE} Smith"}
    places = {path.removeprefix(nights.output.path).split("/")[1] for path in files_with(nights.output, texts)}
    tables = {"answers", "memories", "evidence", "results", "documents"}
    assert places == tables | {"log", "pages", "export", "review", "input", "_ingest", "scratch"}
    before = find_run(nights.output)
    signed_before = [row for row in nights.rows("answers", without="") if row["question_id"] == "who"]
    hashes = {text_hash(text_of(GONE, days=days)) for days in (3, 4)}
    assert files_with(nights.output / "log", hashes)
    report = forget_gone(nights)
    assert files_with(nights.output, texts) == files_with(nights.output / "log", hashes) == set()
    assert (nights.output / "scratch/own/notes.txt").exists()
    assert {name: nights.rows(name, without="") for name in others} == others
    assert files_with(nights.output, {GONE}) == set(), "an id may be a file name with a person's name"
    assert report["documents"] == 1
    assert report["rows"]["answers"] == len(ASK)
    assert len(read_label_rows(nights.output)) == len(read_sign_offs(nights.output)) == len(NAMES)
    signed = {row["document_id"] for row in signed_before if SignOffs(nights.output).of(row)}
    assert signed == {row["document_id"] for row in signed_before} - {GONE}, "its correction is gone, so it is open"
    run = find_run(nights.output)
    assert finished_runs(nights.output) == [run.run_id]
    assert run.manifest["forgotten"] == {"documents": 1}
    assert run.manifest["digest_before"] == before.manifest["digest"]
    assert run.manifest["counts"]["asked"] == run.manifest["counts"]["ok"] == len(ASK) * (len(NAMES) - 1)
    assert verify(nights.output).problems == []
    write_site([nights.output], nights.output / "pages", context_chars=100, is_large_allowed=True)


def test_next_night_reads_a_forgotten_document_again_only_if_it_is_still_in_the_source(nights: Nights) -> None:
    texts = {name: text_of(name) for name in NAMES if name != GONE}
    forget_gone(nights)
    run_id = find_run(nights.output).run_id
    quiet = nights.run(texts)
    assert quiet["changes"]["since"] == run_id
    assert quiet["changes"]["turns"]["asked"] == 0
    assert "forgotten" not in quiet
    back = nights.run({**texts, GONE: text_of(GONE)})
    assert back["changes"]["documents"]["added"] == 1
    assert back["changes"]["turns"]["asked"] > 0
    assert back["changes"]["turns"]["reused"] == 0
    assert verify(nights.output).problems == []
    assert main_of(nights, "diff") == 0


def main_of(nights: Nights, *words: str) -> int:
    options = ["--storage-options", json.dumps({**nights.output.storage_options})]
    return main([words[0], nights.output.uri, *words[1:], *(options if nights.output.storage_options else ())])


@pytest.fixture
def disk_nights(tmp_path: Path, text_model: str) -> Nights:
    """One night on a disk."""
    nights = Nights(tmp_path, text_model, Location(uri=str(tmp_path / "run")))
    nights.run({name: text_of(name) for name in NAMES})
    return nights


def die_at_memories(
    erasure: forget_flow.Erasure, table: OutputTable, *, delete_rows: Any = forget_flow.Erasure.delete_rows
) -> Any:
    return die() if table.name == "memories" else delete_rows(erasure, table)


STEPS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "fence": (forget_flow, "end_commits", die),
    "log": (forget_flow.Erasure, "rewrite_reviews", die),
    "first tables": (forget_flow.Erasure, "delete_rows", die_at_memories),
    "documents": (forget_flow, "commit_run", die),
    "note of the commit": (commits, "_commit_once", die),
    "tables": (commits, "commit_row", die),
    "run": (forget_flow, "_remove_files", die),
    "files": (forget_flow, "vacuum_tables", die),
}
"""What is replaced by what, for a process that is killed after a step."""


WHERE = ("team = 'x'", f"text like '%of {GONE} %'", "answer is not null and team = 'x'")
"""Conditions over columns of both tables, of `documents` and of `answers`."""


@pytest.mark.parametrize(
    ("step", "where"),
    [*((step, None) for step in STEPS), *product(("documents", "tables"), WHERE)],
)
def test_erasure_that_was_killed_goes_on_with_the_same_command(
    disk_nights: Nights, step: str, where: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = disk_nights.output
    texts, others = strings_of(output, GONE), disk_nights.rows("answers")
    named: Any = {"document_ids": [GONE]} if where is None else {"where": where}

    with monkeypatch.context() as patch:
        patch.setattr(*STEPS[step])
        with pytest.raises(Killed):
            forget(output, find_documents(output, **named))
    assert has_pending_erasure(output)
    assert files_with(output, texts)
    forget(output, find_documents(output, **named))
    assert files_with(output, texts) == set()
    assert not has_pending_erasure(output)
    assert disk_nights.rows("answers", without="") == others
    assert verify(output).problems == []
    with pytest.raises(InputError, match=r"no document of .* matches"):
        find_documents(output, **named)


def test_condition_takes_no_other_document_for_one_that_a_killed_erasure_has_deleted(
    disk_nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = disk_nights.output
    later = {name: text_of(name) for name in NAMES} | {"Ann": "She left."}
    disk_nights.killed_run(later, monkeypatch)  # `documents` has the new text, the tables of the last run the old one
    where = "text like '%of Ann %' or text like '%of Bob %'"
    assert find_documents(output, where=where) == [GONE]
    with monkeypatch.context() as patch:
        patch.setattr(*STEPS["documents"])
        with pytest.raises(Killed):
            forget(output, find_documents(output, where=where))
    with pytest.raises(InputError, match="give its own condition again"):
        find_documents(output, where="team = 'z'")
    assert find_documents(output, where=where) == [GONE]


@pytest.mark.parametrize("writer", ["memagent", "memagent/slice-1-of-2"])
def test_run_or_ingest_that_was_going_on_commits_nothing_after_an_erasure(disk_nights: Nights, writer: str) -> None:
    """Also the first ingest of a slice, of which no table knows anything."""
    output, sources = disk_nights.output, disk_nights.job.model_copy(update={"input": InputConfig(slice="1/2")})
    old = next_run(output, writer=writer)
    found = find_sources(sources, output)
    forget_gone(disk_nights)
    for name in ("answers", "documents", "sources"):
        table = OutputTable(output=output, name=name)
        with pytest.raises(SupersededError):
            table.commit(run=old, schema=table.schema())
    executor = LocalExecutor()
    with executor.session(), pytest.raises(SupersededError):
        ingest(found, executor=executor, run=old)
    with pytest.raises(SupersededError):
        require_newest(output, old)


def test_run_ingest_or_slice_that_comes_while_an_erasure_is_at_work_is_refused_and_keeps_no_file(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, texts = nights.output, {name: text_of(name) for name in NAMES if name != GONE}
    gone, rewrite_log = strings_of(output, GONE), forget_flow.Erasure.rewrite_log
    slice_job = nights.job.model_copy(update={"input": nights.job.input.model_copy(update={"slice": "1/2"})})

    def rewrite_log_meanwhile(erasure: forget_flow.Erasure) -> int:
        for call in (lambda: nights.run(texts), lambda: answer(slice_job), lambda: next_run(output)):
            with pytest.raises(OutputError, match="`memagent forget` is at work at"):
                call()
        return rewrite_log(erasure)

    with monkeypatch.context() as patch:
        patch.setattr(forget_flow.Erasure, "rewrite_log", rewrite_log_meanwhile)
        forget_gone(nights)
    assert files_with(output, gone) == set()
    assert nights.run(texts)["counts"]["ok"] == len(ASK) * len(texts)


@pytest.mark.parametrize(
    "settings", [{}, {"carry_columns": ["team"], "order_columns": ["team"]}], ids=["rows", "parts"]
)
def test_ingest_that_an_erasure_has_overtaken_leaves_no_text_behind(
    tmp_path: Path, text_model: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights = Nights(tmp_path, text_model, Location(uri=str(tmp_path / "run")), record={}, input=settings)
    texts = {name: text_of(name) for name in NAMES}
    nights.run(texts)
    is_forgotten = list[bool]()

    def make_writer(*values: Any, **named: Any) -> DocumentWriter:
        if not is_forgotten:
            is_forgotten.append(True)
            forget_gone(nights)
        return DocumentWriter(*values, **named)

    with monkeypatch.context() as patch:
        patch.setattr(report, "DocumentWriter", make_writer)
        with pytest.raises(SupersededError):
            nights.run({**texts, GONE: text_of(GONE, days=9)})
    assert is_forgotten
    assert files_with(nights.output, {f"day 1 of {GONE}", f"day 8 of {GONE}"}) == set()
    assert verify(nights.output).problems == []
    assert nights.run({name: texts[name] for name in NAMES if name != GONE})["counts"]["failed"] == 0


def test_overtaken_ingest_deletes_no_file_that_it_has_committed(
    tmp_path: Path, text_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit may be made and its reply be lost, until a newer run has taken over."""
    nights = Nights(tmp_path, text_model, Location(uri=str(tmp_path / "run")), record={})
    commit = OutputTable.commit

    def commit_without_reply(table: OutputTable, **values: Any) -> int:
        version = commit(table, **values)
        if table.name == "documents":
            raise SupersededError("taken over")
        return version

    texts = {name: text_of(name) for name in NAMES}
    with monkeypatch.context() as patch:
        patch.setattr(OutputTable, "commit", commit_without_reply)
        with pytest.raises(SupersededError):
            nights.run(texts)
    stored = OutputTable(output=nights.output, name="documents").dataset().to_table(columns=["document_id", "text"])
    assert sorted(stored["document_id"].to_pylist()) == sorted(NAMES)
    assert nights.run(texts)["counts"]["ok"] == len(ASK) * len(NAMES)


def test_merge_of_the_log_that_an_erasure_has_overtaken_brings_no_turn_back(
    tmp_path: Path, text_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forget_flow, "LEAVE_SECONDS", 0.01)  # the merge takes longer than the erasure waits
    monkeypatch.setattr(merge, "MERGE_FROM", 2)
    settings = {"pool": {"readings_in_flight": 1}, "log": {"flush_seconds": 0.01}}
    nights = Nights(tmp_path, text_model, Location(uri=str(tmp_path / "run")), **settings)
    texts, new = {name: text_of(name) for name in NAMES}, text_of(GONE, days=9)
    nights.run(texts)
    is_forgotten, write_merged = list[bool](), merge._write_merged

    def write_merged_later(*values: Any) -> pa.Table:  # the small files are read
        if not is_forgotten:
            is_forgotten.append(True)
            forget_gone(nights)
        return write_merged(*values)

    with monkeypatch.context() as patch:
        patch.setattr(merge, "_write_merged", write_merged_later)
        with pytest.raises(SupersededError):
            nights.run({**texts, GONE: new, "Eve": text_of("Eve")})
    assert is_forgotten
    assert files_with(nights.output, {GONE, text_hash(texts[GONE]), text_hash(new)}) == set()
    left = {name: text for name, text in texts.items() if name != GONE} | {"Eve": text_of("Eve")}
    assert nights.run(left)["changes"]["turns"]["asked"] == 0, "turns of others are in the log"


def test_document_that_left_its_source_before_is_erased_from_the_log_and_earlier_versions(disk_nights: Nights) -> None:
    texts = strings_of(disk_nights.output, GONE)
    disk_nights.run({name: text_of(name) for name in NAMES if name != GONE})
    assert disk_nights.rows("answers") == disk_nights.rows("answers", without="")
    assert files_with(disk_nights.output, texts)
    report = forget_gone(disk_nights)
    assert report["rows"] == {}
    assert report["log_rows"] > 0
    assert files_with(disk_nights.output, texts) == set()


def test_document_of_which_vacuum_left_only_what_people_wrote_is_erased_from_that(
    disk_nights: Nights, capsys: pytest.CaptureFixture[str]
) -> None:
    output = disk_nights.output
    write_reviews(disk_nights)
    disk_nights.run({name: text_of(name) for name in NAMES if name != GONE})
    age_log(output, days=91)
    vacuum(output, keep_days=0)
    assert not read_hashes(output, [GONE]), "neither a version of a table nor the log has it"
    assert main_of(disk_nights, "forget", "--document", GONE, "--yes") == 0
    assert files_with(output, {GONE}) == set()
    assert len(read_label_rows(output)) == len(read_sign_offs(output)) == len(NAMES)
    write_site([output], output / "pages", context_chars=100, is_large_allowed=True)
    capsys.readouterr()
    assert main_of(disk_nights, "forget", "--document", GONE, "--yes") == 2
    message = capsys.readouterr().err
    assert "nothing of it is left in any version of the tables, the log or reviews; pages/ may show it" in message


def test_samples_and_sheets_of_reviews_lose_the_document_and_keep_the_labels_of_others(disk_nights: Nights) -> None:
    output = disk_nights.output
    assert main(["review", "make", output.uri, "--question", "signed", "--labels", str(len(NAMES))]) == 0
    (name,) = find_reviews(output)
    sheet = output / f"review/{name}/labels.csv"
    sheet.write_bytes(sheet.read_bytes().replace(b"Ann,,", b"Ann,yes,"))  # filled in, and not imported yet
    assert {sheet.path, (output / f"review/{name}/sample.parquet").path} <= files_with(output, {GONE})
    forget_gone(disk_nights)
    assert files_with(output, {GONE}) == set()
    ids = sorted(row["document_id"] for row in read_review(output / f"review/{name}").sample)
    assert ids == ["(forgotten)", "Ann", "Carla", "Dora"]
    assert import_labels(output, [sheet], reviewer="Ada")["added"] == 1


def test_status_and_diff_say_that_documents_were_erased(
    disk_nights: Nights, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output, before = disk_nights.output, find_run(disk_nights.output).run_id
    with monkeypatch.context() as patch:
        patch.setattr(*STEPS["files"])
        with pytest.raises(Killed):
            forget_gone(disk_nights)
    lines = [*status_lines(read_state(output), output="out")]
    assert lines[1].startswith("memagent forget is erasing 1 document: ")
    forget_gone(disk_nights)
    lines = [*status_lines(read_state(output), output="out")]
    assert lines[1] == "memagent forget has erased 1 document for good"
    for words in ([], ["--before", before]):
        assert main_of(disk_nights, "diff", *words) == 2
        assert "`memagent forget`: it erased 1 document and all earlier versions" in capsys.readouterr().err
    disk_nights.run({name: text_of(name) for name in NAMES if name != GONE})
    assert "documents_forgotten" not in read_state(output)
    assert main_of(disk_nights, "diff") == 0


def test_text_that_another_document_has_too_stays_with_it(disk_nights: Nights) -> None:
    texts = {name: text_of(name) for name in NAMES}
    disk_nights.run({**texts, "Bob's twin": texts[GONE]})
    forget_gone(disk_nights)
    night = disk_nights.run({**{name: texts[name] for name in NAMES if name != GONE}, "Bob's twin": texts[GONE]})
    assert night["changes"]["turns"]["asked"] == 0
    assert night["counts"]["ok"] == len(ASK) * len(NAMES)


def test_condition_names_documents_by_columns_of_answers(disk_nights: Nights) -> None:
    assert find_documents(disk_nights.output, where="team = 'x'") == [GONE]
    assert find_documents(disk_nights.output, where="document_id in ('Ann', 'Dora')") == ["Ann", "Dora"]
    for where, message in (("team = 'z'", "no document of"), ("colour = 1", "colour"), ("team = ", "--where")):
        with pytest.raises(InputError, match=message):
            find_documents(disk_nights.output, where=where)


def test_command_deletes_only_when_it_is_told_to(disk_nights: Nights, capsys: pytest.CaptureFixture[str]) -> None:
    assert main_of(disk_nights, "forget") == 2
    assert main_of(disk_nights, "forget", "--document", GONE, "--where", "true") == 2
    assert main_of(disk_nights, "forget", "--document", GONE) == 2
    assert "pass --yes" in capsys.readouterr().err
    assert len(disk_nights.rows("answers", without="")) == len(ASK) * len(NAMES)
    assert main_of(disk_nights, "forget", "--document", GONE, "no, such", "--yes") == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["documents"] == 1
    assert "not there: no, such" in shown.err
    assert len(disk_nights.rows("answers", without="")) == len(ASK) * (len(NAMES) - 1)
    assert main_of(disk_nights, "status") == main_of(disk_nights, "verify") == main_of(disk_nights, "page") == 0
    assert main_of(disk_nights, "diff") == 2


def files_of(nights: Nights, name: str = "answers") -> set[str]:
    """Parquet files in the folder of a table."""
    folder = Path(nights.output.path) / name
    return {path.name for path in folder.glob("*.parquet")}


def test_earlier_versions_go_after_their_days_and_not_in_an_unchanged_night(tmp_path: Path, text_model: str) -> None:
    output = Location(uri=str(tmp_path / "run"))
    texts = {name: text_of(name) for name in NAMES}
    nights = Nights(tmp_path, text_model, output, record={"keep_days": 0, "partition_by": "team"})
    nights.run(texts)
    first = files_of(nights)
    nights.run({**texts, GONE: "He left."})
    assert not first & files_of(nights)
    version = OutputTable(output=output, name="answers").version()
    nights.run({**texts, GONE: "He left."})
    assert OutputTable(output=output, name="answers").version() == version
    kept = Nights(tmp_path, text_model, output, record={"keep_days": 1, "partition_by": "team"})
    second = files_of(kept)
    kept.run(texts)
    assert second < files_of(kept)
    assert verify(output).problems == []


def test_files_that_a_killed_run_may_need_are_never_deleted(disk_nights: Nights) -> None:
    """It has committed one table, and has written the files of the others, which the next run commits."""
    output, later = disk_nights.output, {name: text_of(name, days=5) for name in NAMES}
    with dying_at("answers"), pytest.raises(recorded_nights.Killed):
        disk_nights.run(later)
    files = {name: files_of(disk_nights, name) for name in READING_TABLES}
    vacuum_tables(output, keep_days=0)
    assert {name: files_of(disk_nights, name) for name in READING_TABLES} == files
    with pytest.raises(OutputError, match="has not finished"):
        vacuum(output, keep_days=0)
    night = disk_nights.run(later)
    assert night["changes"]["answers"] == 0
    assert len(finished_runs(output)) == 3
    assert verify(output).problems == []


@pytest.mark.parametrize("folder", ["_ingest/killed", f"scratch/{'0f' * 16}"])
def test_leftovers_of_killed_ingests_and_plans_go_when_they_are_old(disk_nights: Nights, folder: str) -> None:
    old, young = (disk_nights.output / f"{folder}/{name}.parquet" for name in ("old", "young"))
    foreign = disk_nights.output / "scratch/own/notes.txt"
    for place in (old, young, foreign):
        place.write_bytes(b"")
    for place in (old, foreign):
        os.utime(place.path, (0, 0))
    disk_nights.run({name: text_of(name, days=2) for name in NAMES})
    assert [place.exists() for place in (old, young, foreign)] == [False, True, True]


def age_log(output: Location, *, days: float) -> None:
    """Makes the rows of the log older."""
    for folder in ("turns", "outcomes", "follow_ups"):
        for path in (output / "log" / folder).files():
            rows = pq.read_table(path)
            times = pa.array(
                [each - timedelta(days=days) for each in rows["finished_at"].to_pylist()], rows["finished_at"].type
            )
            number = rows.schema.get_field_index("finished_at")
            pq.write_table(rows.set_column(number, rows.schema.field(number), times), path)


def test_log_keeps_what_the_answers_rest_on_and_what_is_young(disk_nights: Nights) -> None:
    texts = {name: text_of(name) for name in NAMES}
    output = disk_nights.output
    disk_nights.run({name: texts[name] for name in NAMES if name != GONE})
    assert prune_log(output, keep_days=90) == 0
    age_log(output, days=91)
    assert vacuum(output)["log_rows"] > 0
    assert files_with(output / "log", {GONE}) == set()
    quiet = disk_nights.run({name: texts[name] for name in NAMES if name != GONE})
    assert quiet["changes"]["turns"] == {"asked": 0, "reused": 0}
    back = disk_nights.run(texts)
    assert back["changes"]["readings"]["read"] == len(ASK)
    grown = disk_nights.run({**texts, "Ann": text_of("Ann", days=6)})
    assert grown["changes"]["turns"]["reused"] > 0
    assert verify(output).problems == []


def test_turns_of_a_run_that_was_killed_are_kept_for_the_next_one(
    disk_nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {name: text_of(name) for name in NAMES} | {"Eve": text_of("Eve")}
    disk_nights.killed_run(texts, monkeypatch)
    assert prune_log(disk_nights.output, keep_days=1) == 0
    night = disk_nights.run(texts)
    assert night["spent"]["num_turns"] == 0
    assert night["counts"]["ok"] == len(ASK) * len(texts)


def test_log_that_was_rewritten_and_killed_before_its_keys_is_read_as_it_is(disk_nights: Nights) -> None:
    texts = {name: text_of(name) for name in NAMES}
    rewrite_log(disk_nights.output, lambda rows: pa.chunked_array([[number > 0 for number in range(rows.num_rows)]]))
    for path in (disk_nights.output / "log/keys").files():
        Path(path).unlink()
    night = disk_nights.run(texts)
    assert night["counts"]["ok"] == len(ASK) * len(texts)
    assert night["changes"]["readings"]["read"] > 0


def test_documents_that_were_ingested_more_often_than_read_are_forgotten_at_once(
    tmp_path: Path, text_model: str
) -> None:
    output, folder = Location(uri=str(tmp_path / "run")), tmp_path / "in"
    folder.mkdir()
    nights = Nights(tmp_path, text_model, output, documents=str(folder))
    nights.file = folder / "documents.parquet"
    for days in (1, 2, 3):
        rows = {"document_id": NAMES, "text": [text_of(name, days=days) for name in NAMES], "team": ["x"] * len(NAMES)}
        pq.write_table(pa.table(rows), nights.file)
        settings = nights.job.input.model_copy(update={"format": "auto"})
        ingest_documents(
            IngestJob(documents=(str(folder),), output=output.uri, input=settings, executor=ExecutorKind.LOCAL)
        )
    answer(nights.job)
    forget_gone(nights)
    assert not has_pending_erasure(output)
    assert GONE not in {row["document_id"] for row in nights.rows("documents", without="")}
    assert verify(output).problems == []
    assert answer(nights.job)["counts"]["ok"] == len(ASK) * len(NAMES)  # it is still in its source


def test_documents_sources_and_rollouts_lose_their_rows_too(tmp_path: Path, text_model: str) -> None:
    output, folder = Location(uri=str(tmp_path / "run")), tmp_path / "in"
    nights = Nights(tmp_path, text_model, output, documents=str(folder))
    folder.mkdir()
    for file, names in {"one": ("Ann", GONE), "two": ("Carla",), "three": ("Dora",)}.items():
        nights.file = folder / f"{file}.parquet"
        texts = {name: text_of(name) for name in names}
        pq.write_table(
            pa.table({"document_id": [*texts], "text": [*texts.values()], "team": [file] * len(texts)}), nights.file
        )
    answer(nights.job)
    groups = pa.table({"document_id": NAMES, "response": [text_of(name) for name in NAMES]})
    rollouts = OutputTable(output=output, name="rollouts")
    run = RunNumber(number=OutputTable(output=output, name="runs").run_number("memagent"), run_id="r")
    files = write_table_files(rollouts.place, groups, stem="part-00000-r", row_group_rows=1)
    rollouts.commit(run=run, schema=groups.schema, add=files)
    assert find_documents(output, where="source = 'one.parquet'") == ["Ann", GONE]
    for name, num_sources in {GONE: 0, "Carla": 1}.items():
        found = strings_of(output, name) | {f"day 1 of {name}"}
        report = forget(output, [name])
        rows = {table: report["rows"].get(table, 0) for table in ("documents", "sources", "rollouts")}
        assert rows == {"documents": 1, "sources": num_sources, "rollouts": 1}
        assert files_with(output, found) == set()
    sources = OutputTable(output=output, name="sources").dataset().to_table()
    assert sorted(sources["source"].to_pylist()) == ["one.parquet", "three.parquet"]
    assert sorted({row["document_id"] for row in nights.rows("documents", without="")}) == ["Ann", "Dora"]
    assert verify(output).problems == []
    assert answer(nights.job)["counts"]["ok"] == len(ASK) * len(NAMES)  # they are still in their sources
    assert verify(output).problems == []


def test_readers_of_a_run_that_was_alive_a_moment_ago_may_leave_before_the_log_is_rewritten(
    disk_nights: Nights, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(forget_flow, "LEAVE_SECONDS", 0.01)
    texts = {name: text_of(name) for name in NAMES} | {GONE: text_of(GONE, days=6)}
    with caplog.at_level("INFO"):
        forget(disk_nights.output, ["Ann"])
        assert "for the readers of run" not in caplog.text
        disk_nights.killed_run(texts, monkeypatch)
        forget_gone(disk_nights)
    assert "for the readers of run" in caplog.text
    assert files_with(disk_nights.output / "log", {text_hash(text) for text in (texts[GONE], text_of(GONE))}) == set()

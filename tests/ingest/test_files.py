"""Document files as sources: each with its documents and losses, and nothing is read twice."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.cli.main import main
from memagent_batch.config.sources import Trust
from memagent_batch.data.ingest.file_tasks import choose_converters
from memagent_batch.data.ingest.readers import converter
from memagent_batch.data.ingest.sources import compare_sources
from memagent_batch.errors import InputError, NotReadError, TooManyFailedError
from memagent_batch.run import sources
from memagent_batch.run.flows.ingest import IngestReport
from tests.convert import files
from tests.convert.corpus import CONVERTERS, write_corpus
from tests.ingest.nights import by_id, changes, night, rows, texts, version
from tests.jobs import put_texts

ROOT = Path(__file__).parents[2]


def read(folder: Path, *, converters: Mapping[str, str] = CONVERTERS, **settings: Any) -> IngestReport:
    own = {"seconds": 5, "memory_mib": 512, "output_mib": 4, "file_mib": 8, "converter": pairs(converters)}
    own |= settings.pop("ingest", {})
    return night(folder / "in", folder / "out", ingest=own, format="files", **settings)


def pairs(converters: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"{kind}={name}" for kind, name in converters.items())


def num_read(report: IngestReport) -> int:
    return report["counts"]["sources_read"]


def worst(output: Path) -> dict[str, str]:
    """The kind of the first loss of each source; `ok` without any."""
    return {row["source"]: row["losses"][0]["kind"] if row["losses"] else "ok" for row in rows(output, "sources")}


def test_mixed_files_have_documents_and_losses_whatever_they_hold(tmp_path: Path) -> None:
    expected = write_corpus(tmp_path / "in", healthy=12, hostile=7)
    read(tmp_path)
    assert worst(tmp_path / "out") == expected
    documents = rows(tmp_path / "out")
    assert {row["source"] for row in documents} == expected.keys()
    for row in documents:
        assert (row["text"] is None) == bool(row["error"])
        assert all(loss["detail"] for loss in row["losses"])
        spans = [(part["char_start"], part["char_end"]) for part in row["parts"]]
        assert spans == sorted(spans)


def test_pages_are_parts_and_attachments_are_documents(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.pdf").write_bytes(files.pdf(files.written("Page one"), files.SCAN, files.written("Page three")))
    mail = files.mail("Terms", "see below", files=[("b.txt", b"attached"), ("c.dat", b"?")])
    (tmp_path / "in/m.eml").write_bytes(mail.as_bytes())
    read(tmp_path)
    found = by_id(tmp_path / "out")
    pdf = found["a.pdf"]
    assert pdf["text"] == "Page one\n\n\n\nPage three"
    assert [(part["locator"], part["char_end"] - part["char_start"]) for part in pdf["parts"]] == [
        ("page 1", 8),
        ("page 2", 0),
        ("page 3", 10),
    ]
    assert pdf["source_read"] == pytest.approx(2 / 3)
    assert [(loss["kind"], loss["place"]) for loss in pdf["losses"]] == [("needs_ocr", "page 2")]
    assert found["m.eml/1-b.txt"]["text"] == "attached"
    assert found["m.eml/1-b.txt"]["source"] == "m.eml"
    assert [(loss["kind"], loss["place"]) for loss in found["m.eml"]["losses"]] == [("skipped", "attachment 2-c.dat")]
    assert found["m.eml/2-c.dat"]["error_type"] == "SourceUnreadError"


def test_files_that_are_not_read_are_named_with_the_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    put_texts(tmp_path / "in", {"a.txt": "some text", "blank.txt": " ", "none.txt": "", "torn.pdf": "%PDF-1.4 torn"})
    read(tmp_path)
    lines = "\n".join(record.message for record in caplog.records if record.levelname == "WARNING")
    assert "failed: torn.pdf: it can't be opened as a PDF" in lines
    assert "empty: blank.txt: nothing is in it" in lines
    assert "empty: none.txt: the file has 0 bytes" in lines
    assert "a.txt" not in lines


def test_second_night_reads_what_is_new_or_changed_and_nothing_else(tmp_path: Path) -> None:
    expected = write_corpus(tmp_path / "in", healthy=6, hostile=2)
    read(tmp_path)
    before = version(tmp_path / "out")
    assert num_read(read(tmp_path)) == 0
    assert version(tmp_path / "out") == before
    changed, removed = list(expected)[:2]
    (tmp_path / "in" / changed).write_bytes(files.pdf(files.written("Quite another text")))
    (tmp_path / "in" / removed).unlink()
    (tmp_path / "in" / "new.txt").write_text("a new note")
    report = read(tmp_path)
    assert num_read(report) == 2
    assert changes(report) == (1, 1, 1)
    assert texts(tmp_path / "out")[changed] == "Quite another text"


def test_failed_files_stay_until_they_are_asked_for_again(tmp_path: Path) -> None:
    put_texts(tmp_path / "in", {"a.loop": "x", "b.txt": "fine"})
    read(tmp_path, ingest={"seconds": 3})
    assert worst(tmp_path / "out") == {"a.loop": "failed", "b.txt": "ok"}
    assert num_read(read(tmp_path, ingest={"seconds": 3})) == 0
    with pytest.raises(TooManyFailedError, match="1 of 2 sources failed"):
        read(tmp_path, ingest={"seconds": 3}, max_failed_share=0.1)
    assert num_read(read(tmp_path, ingest={"seconds": 3}, retry_failed=True)) == 1


def test_new_version_of_a_reader_reads_its_files_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_corpus(tmp_path / "in", healthy=6, hostile=0)
    read(tmp_path)

    def upgraded(*settings: Any) -> Any:
        chosen = choose_converters(*settings)
        return {**chosen, "pdf": replace(chosen["pdf"], version="99; library 3")}

    monkeypatch.setattr(sources, "choose_converters", upgraded)
    report = read(tmp_path)
    assert num_read(report) == 1
    assert changes(report) == (0, 0, 0)  # the text is the same
    readers = {row["source"]: row["reader"] for row in rows(tmp_path / "out", "sources")}
    assert readers["0/000.pdf"] == "pdf 99, library 3"
    assert num_read(read(tmp_path)) == 0


def test_reader_named_for_an_ending_reads_the_files_that_it_now_concerns_and_no_other(tmp_path: Path) -> None:
    mail = files.mail("s", "see below", files=[("b.dat", b"attached")])
    contents = {"a.dat": b"none", "a.log": b"text", "a.png": b"BM picture", "a.eml": mail.as_bytes(), "a.txt": b"note"}
    (tmp_path / "in").mkdir()
    for name, data in contents.items():
        (tmp_path / "in" / name).write_bytes(data)
    read(tmp_path, converters={})
    quiet = dict.fromkeys((".dat", ".log", ".png"), "tests.convert.hostile:Quiet")
    assert num_read(read(tmp_path, converters=quiet)) == 4
    found = texts(tmp_path / "out")
    assert (found["a.dat"], found["a.log"], found["a.png"]) == ("NONE", "TEXT", "BM PICTURE")
    assert (found["a.eml/1-b.dat"], found["a.txt"]) == ("ATTACHED", "note")
    assert num_read(read(tmp_path, converters=quiet)) == 0
    assert num_read(read(tmp_path, converters={})) == 4


def test_another_least_confidence_reads_again_what_ocr_has_read(tmp_path: Path) -> None:
    put_texts(tmp_path / "in", {"a.scan": "It begins.", "b.txt": "It ends."})
    unsure = {".scan": "tests.convert.hostile:Unsure"}
    read(tmp_path, converters=unsure)
    assert worst(tmp_path / "out") == {"a.scan": "needs_review", "b.txt": "ok"}
    assert num_read(read(tmp_path, converters=unsure, ingest={"ocr_min_confidence": 0.4})) == 1
    assert worst(tmp_path / "out")["a.scan"] == "ok"


KILLED = """
import sys
from memagent_batch.cli.main import main
from memagent_batch.data.documents import listing
from memagent_batch.run import ingest

listing.UNSURE_SECONDS = 0
ingest.CHECKPOINT_SECONDS, ingest.CHECKPOINT_SHARE = 0, 0
sys.exit(main(sys.argv[1:]))
"""


def test_ingest_killed_midway_goes_on_where_it_stopped(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(24):
        name = f"{number:02d}.sleep" if number % 8 == 7 else f"{number:02d}.txt"
        (tmp_path / "in" / name).write_text("0.1" if number < 16 else "600")
    arguments = ["ingest", "--documents", str(tmp_path / "in"), "--output", str(tmp_path / "out")]
    arguments += ["--ingest.seconds", "600", "--ingest.converter", ".sleep=tests.convert.hostile:Sleeping"]
    arguments += ["--allow-code", "--executor", "local", "--ingest.file-mib", "8", "--ingest.output-mib", "4"]
    run = subprocess.Popen([sys.executable, "-c", KILLED, *arguments], cwd=ROOT)
    deadline = time.monotonic() + 120
    while (version(tmp_path / "out", "sources") or 0) < 2 and time.monotonic() < deadline:
        assert run.poll() is None
        time.sleep(0.1)
    run.send_signal(signal.SIGKILL)
    run.wait()
    assert len(texts(tmp_path / "out")) == 16
    (tmp_path / "in" / "23.sleep").write_text("0.1")
    report = read(tmp_path, converters={".sleep": "tests.convert.hostile:Sleeping"})
    assert num_read(report) == 8
    assert len(texts(tmp_path / "out")) == 24


def test_hidden_files_are_named_and_a_link_out_of_the_folder_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "in" / ".git").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("not asked for")
    for name in ("a.txt", "_final.txt", ".git/x"):
        (tmp_path / "in" / name).write_text("fine")
    (tmp_path / "in" / "link.txt").symlink_to(tmp_path / "secret.txt")
    assert read(tmp_path)["left_out"] == [".git", "_final.txt"]
    assert worst(tmp_path / "out") == {"a.txt": "ok", "link.txt": "skipped"}
    assert "not asked for" not in str(rows(tmp_path / "out"))
    (tmp_path / "in" / "a.txt").unlink()
    (tmp_path / "in" / "link.txt").unlink()
    with pytest.raises(InputError, match="2 names left out, which start with"):
        read(tmp_path)


def test_file_with_new_times_and_the_same_content_is_opened_once_and_keeps_its_documents(tmp_path: Path) -> None:
    put_texts(tmp_path / "in", {"a.txt": "fine", "b.txt": "fine"})
    read(tmp_path)
    before = version(tmp_path / "out")
    (tmp_path / "in/a.txt").touch()
    assert num_read(read(tmp_path)) == 1
    assert num_read(read(tmp_path)) == 0
    assert version(tmp_path / "out") == before
    sources = version(tmp_path / "out", "sources")
    assert num_read(read(tmp_path, trust=Trust.CONTENT)) == 2
    assert version(tmp_path / "out") == before
    assert version(tmp_path / "out", "sources") == (sources or 0) + 1  # without versions, which is what it says


def test_file_that_can_not_be_fetched_is_read_by_the_next_night(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = put_texts(tmp_path / "in", {"a.txt": "fine", "b.txt": "fine"})
    with vanishing(folder / "b.txt", monkeypatch), pytest.raises(NotReadError, match="1 of 2 sources not read"):
        read(tmp_path)
    assert by_id(tmp_path / "out")["b.txt"]["losses"][0]["kind"] == "not_read"
    (folder / "b.txt").write_text("fine")
    assert num_read(read(tmp_path)) == 1
    assert texts(tmp_path / "out") == {"a.txt": "fine", "b.txt": "fine"}


def test_file_that_has_changed_and_can_not_be_fetched_keeps_its_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = put_texts(tmp_path / "in", {"a.txt": "fine", "b.txt": "fine"})
    read(tmp_path)
    before = rows(tmp_path / "out"), rows(tmp_path / "out", "sources")
    for _ in range(2):
        (folder / "b.txt").write_text("new")
        with (
            vanishing(folder / "b.txt", monkeypatch, is_outage=True),
            pytest.raises(NotReadError, match=r"1 of 2 sources not read, such as b\.txt: .*can't be read"),
        ):
            read(tmp_path)
        assert rows(tmp_path / "out") == before[0]
        source = rows(tmp_path / "out", "sources")[1]
        assert [loss["kind"] for loss in source["losses"]] == ["not_read"]
        assert (source["version"], source["content_hash"]) == (None, before[1][1]["content_hash"])
        (folder / "b.txt").unlink()
    (folder / "b.txt").write_text("fine")
    assert num_read(read(tmp_path)) == 1
    assert rows(tmp_path / "out") == before[0]
    assert rows(tmp_path / "out", "sources")[1]["losses"] == []
    (folder / "b.txt").write_text("new")
    with vanishing(folder / "b.txt", monkeypatch, is_outage=True), pytest.raises(NotReadError):
        read(tmp_path)
    (folder / "b.txt").unlink()
    (folder / "b.txt").write_text("newer")
    read(tmp_path)
    assert texts(tmp_path / "out") == {"a.txt": "fine", "b.txt": "newer"}


@contextmanager
def vanishing(file: Path, monkeypatch: pytest.MonkeyPatch, *, is_outage: bool = False) -> Iterator[None]:
    """The file goes when it has been listed; in an outage its store has an error for it that passes."""

    def compared(*found: Any, **settings: Any) -> Any:
        file.unlink(missing_ok=True)
        if is_outage:
            file.symlink_to(file)
        return compare_sources(*found, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(sources, "compare_sources", compared)
        yield


def test_missing_extra_is_named_with_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(package: str) -> Any:
        raise PackageNotFoundError(package)

    put_texts(tmp_path / "in", {"a.txt": "fine"})
    monkeypatch.setattr(converter, "version", missing)
    assert main(["ingest", "--documents", str(tmp_path / "in"), "--output", str(tmp_path / "out")]) == 2
    assert "pip install 'memagent-batch[convert]'" in capsys.readouterr().err.splitlines()[-1]


def test_format_of_a_place_follows_from_what_it_holds(tmp_path: Path) -> None:
    put_texts(tmp_path / "texts", {"a.txt": "plain", "b.md": "# plain"})
    put_texts(tmp_path / "mixed", {"a.html": "<html><body>Hi</body></html>", "b.md": "# Hi"})
    put_texts(tmp_path / "data", {"a.jsonl": '{"document_id": "a", "text": "x"}', "note.txt": "left out"})
    put_texts(tmp_path / "rows", {"a.jsonl": '{"document_id": "a", "text": "x"}', "b.csv": "document_id,text\nb,y\n"})
    put_texts(tmp_path / "tables", {"a.jsonl": '{"document_id": "a", "text": "x"}'})
    kinds = {}
    for name in ("texts", "mixed", "data", "rows", "tables"):
        night(tmp_path / name, tmp_path / f"out-{name}", format="files" if name in ("rows", "tables") else "auto")
        kinds[name] = {row["source"]: row["reader"].split()[0] for row in rows(tmp_path / f"out-{name}", "sources")}
    assert kinds == {
        "texts": {"a.txt": "text", "b.md": "text"},
        "mixed": {"a.html": "html", "b.md": "markdown"},
        "data": {"a.jsonl": "jsonl"},
        "rows": {"a.jsonl": "endings;", "b.csv": "text"},
        "tables": {"a.jsonl": "jsonl"},
    }

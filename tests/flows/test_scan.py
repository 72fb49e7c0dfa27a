"""One command a night over a folder of files: what the summary says of what changed, of what was not read, of what is
gone, and the exit code."""

import json
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.apps.api.run import Run
from memagent_batch.cli.main import main
from memagent_batch.data.documents import listing
from memagent_batch.data.ingest import fetch
from memagent_batch.data.ingest.files import FileConverter, unopened
from memagent_batch.data.ingest.losses import FileDocument
from memagent_batch.data.ingest.readers.converter import Part, PartStatus
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputUnreachableError
from tests import unstating_engine
from tests.convert.files import pdf, written, zipped
from tests.flows.test_unread_sources import FEE, SCAN
from tests.jobs import put_texts, small_arguments
from tests.tables import table_rows

NOTHING = "There is nothing of a fee here."


def night(folder: Path, model: str, **settings: Any) -> int:
    asked = {"ask": [FEE], "follow_ups": {"evidence": True}, "output": f"{folder}/scan"}
    engine = {"engine": unstating_engine.KIND, "allow_code": True}
    return main(["scan", *small_arguments(folder, model, **asked, **engine, **settings)])


def converted_by_a_dead_server(_: object, file: Path, *, name: str) -> list[FileDocument]:
    """What `FileConverter.convert` gives of each file if its server has died."""
    return unopened(name, Part(status=PartStatus.FAILED, reason="its server died"))


def summary(folder: Path) -> dict[str, Any]:
    said: dict[str, Any] = json.loads((folder / "scan/pages/summary.json").read_text())
    return said


def test_scan_says_each_night_what_needs_a_look_what_was_not_read_and_what_is_gone(
    text_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = put_texts(tmp_path / "in", {"old.txt": "Nor here."})
    (files / "whole.pdf").write_bytes(pdf(written(NOTHING)))
    assert night(tmp_path, text_model) == 0
    said = summary(tmp_path)
    assert (said["num_needs"], said["num_unread"], said["documents"]["added"]) == (0, 0, 2)
    assert len(table_rows(f"{tmp_path}/scan", "answers")) == Run.at(f"{tmp_path}/scan").answers().num_rows == 2

    monkeypatch.setattr(listing, "UNSURE_SECONDS", 0.0)
    for _ in range(2):  # the second knows the table by the first one's list
        assert night(tmp_path, text_model) == 0
        assert (summary(tmp_path)["read"], summary(tmp_path)["documents"]["unchanged"]) == (0, 2)

    (files / "scan.pdf").write_bytes(pdf(SCAN))
    (files / "old.txt").unlink()
    capsys.readouterr()
    assert night(tmp_path, text_model) == 7
    said, shown = summary(tmp_path), capsys.readouterr().out
    assert (said["num_needs"], said["num_unread"], said["removed"]) == (1, 1, ["old.txt"])
    assert said["unread"]["scan.pdf"].startswith("needs_ocr: ")
    (item,) = said["items"]
    assert (item["document_id"], item["why"], item["before"]) == ("scan.pdf", "not all of its source was read", None)
    assert (tmp_path / "scan/pages" / item["page"].partition("#")[0]).exists()
    text, _, rest = shown.partition("\nnext: ")
    assert text == (tmp_path / "scan/pages/summary.txt").read_text()
    assert rest.startswith(f"open {tmp_path}/scan/pages/index.html in a browser\n")
    assert f"memagent export {tmp_path}/scan --to xlsx" in rest
    for line in (
        "1 of 2 answers needs a look",
        "NOT READ TO THE END\n  scan.pdf: needs_ocr: ",
        "GONE SINCE",
        "old.txt",
    ):
        assert line in shown
    page = (tmp_path / "scan/pages/summary.html").read_text()
    assert "<h1>1 of 2 answers needs a look</h1>" in page
    assert "scan.pdf" in page


def test_scan_of_files_of_which_some_can_not_be_read_now_answers_the_others_and_ends_with_1(
    text_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = fetch.copy_file

    def copied(place: Location, copy: Path) -> str:
        if place.uri.endswith("away.txt"):
            raise InputUnreachableError("away.txt: the store does not answer")
        return whole(place, copy)

    put_texts(tmp_path / "in", dict.fromkeys(("away.txt", "whole.txt"), NOTHING))
    with monkeypatch.context() as outage:
        outage.setattr(fetch, "copy_file", copied)
        assert night(tmp_path, text_model) == 1
    assert "1 of 2 sources not read" in capsys.readouterr().err.splitlines()[-1]
    assert summary(tmp_path)["num_unread"] == 1
    assert night(tmp_path, text_model) == 0
    assert summary(tmp_path)["documents"]["changed"] == 1


def test_scan_that_is_to_retry_what_failed_reads_failed_files_again(
    text_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_texts(tmp_path / "in", {"a.txt": NOTHING})
    with monkeypatch.context() as broken:
        broken.setattr(FileConverter, "convert", converted_by_a_dead_server)
        assert night(tmp_path, text_model) == 4
    assert night(tmp_path, text_model) == 4
    assert night(tmp_path, text_model, retry_failed=True) == 0


def test_scan_without_its_model_reads_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put_texts(tmp_path / "in", {"a.txt": NOTHING})
    assert night(tmp_path, f"{tmp_path}/gone") == 2
    assert f"there is no folder {tmp_path}/gone" in capsys.readouterr().err
    assert not (tmp_path / "scan" / "documents").exists()


def test_scan_of_a_known_unread_source_counts_it_by_its_reason_and_ends_well(
    text_model: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = put_texts(tmp_path / "in", {"whole.txt": NOTHING})
    for name in ("letter-1.pdf", "letter-2.pdf"):
        (files / name).write_bytes(pdf(SCAN))
    assert night(tmp_path, text_model) == 7
    unread = summary(tmp_path)["unread"]["letter-1.pdf"]
    rule = {"source": "letter-*.pdf", "unread": unread, "reason": "maps, nothing is written on them"}

    other = {**rule, "unread": "needs_ocr: something else"}
    assert night(tmp_path, text_model, accepted_unread=[other]) == 7
    assert f"accepted_unread 1 matches no loss: 'letter-*.pdf: {other['unread']}'" in caplog.text
    assert (summary(tmp_path)["num_unread"], summary(tmp_path)["accepted"]) == (2, {})

    caplog.clear()
    assert night(tmp_path, text_model, accepted_unread=[rule]) == 0
    assert "matches no loss" not in caplog.text
    said = summary(tmp_path)
    assert (said["num_needs"], said["num_unread"], said["accepted"]) == (0, 0, {rule["reason"]: 2})
    assert f"ACCEPTED\n      2  {rule['reason']}" in (tmp_path / "scan/pages/summary.txt").read_text()
    pages = [path.read_text() for path in (tmp_path / "scan/pages").rglob("documents/*/*.html")]
    assert sum(f">{rule['reason']}</dd>" in page for page in pages) == 2

    (digest,) = {sha256((files / name).read_bytes()).hexdigest() for name in ("letter-1.pdf", "letter-2.pdf")}
    (files / "letter-2.pdf").write_bytes(pdf(SCAN, written("And one page of text.")))
    assert night(tmp_path, text_model, accepted_unread=[{"source": digest, "reason": "a map"}]) == 7
    assert (summary(tmp_path)["num_unread"], summary(tmp_path)["accepted"]) == (1, {"a map": 1})


def test_scan_accepts_an_unread_file_in_an_archive_by_the_name_that_the_summary_has(
    text_model: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = put_texts(tmp_path / "in", {"whole.txt": NOTHING})
    (files / "all.zip").write_bytes(zipped({"note.txt": NOTHING.encode(), "map.pdf": pdf(SCAN)}))
    assert night(tmp_path, text_model) == 7
    ((name, unread),) = summary(tmp_path)["unread"].items()
    assert name.startswith("all.zip/")
    rules = [{"source": name, "unread": unread, "reason": "a map"}, {"source": "f" * 64, "reason": "gone"}]
    assert night(tmp_path, text_model, accepted_unread=rules) == 0
    assert (summary(tmp_path)["num_unread"], summary(tmp_path)["accepted"]) == (0, {"a map": 1})
    assert [line for line in caplog.messages if "matches no loss" in line] == [
        f"accepted_unread 2 matches no loss: '{'f' * 64}'; copy it from the summary, or leave it out"
    ]


@pytest.mark.slow
@pytest.mark.ray
def test_scan_on_ray_reads_and_answers_in_one_ray(text_model: str, tmp_path: Path) -> None:
    put_texts(tmp_path / "in", {"a.txt": NOTHING})
    settings = small_arguments(tmp_path, text_model, executor="ray", ask=["Who?"], output=f"{tmp_path}/scan")
    command = [sys.executable, "-m", "memagent_batch", "scan", *settings]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("starting Ray") == 1
    assert summary(tmp_path)["read"] == 1


def test_plan_of_a_scan_counts_what_is_left_to_read(
    text_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = put_texts(tmp_path / "in", {"old.txt": "Nor here."})
    (files / "whole.pdf").write_bytes(pdf(written(NOTHING)))
    asked = {"ask": [FEE], "follow_ups": {"evidence": True}, "engine": unstating_engine.KIND, "allow_code": True}
    arguments = small_arguments(tmp_path, text_model, **asked, output=f"{tmp_path}/scan")
    assert main(["scan", *arguments]) == 0
    capsys.readouterr()
    assert main(["plan", *arguments]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["documents"], plan["readings_done"], plan["readings_to_do"]) == (2, 2, 0)

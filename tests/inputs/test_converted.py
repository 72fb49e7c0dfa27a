"""The table of `memagent convert` as documents: what its manifest lists, once its run has ended."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from memagent_batch.errors import InputError
from memagent_batch.files.location import Location
from memagent_batch.inputs.formats.formats import UNKNOWN_REMEDY, format_of
from memagent_batch.inputs.listing import HIDDEN_NAME, list_files


def write_table(folder: Path, *, parts: Sequence[str], finished: str | None, run: str) -> None:
    """An output of `memagent convert`: the run that has begun last, and the one that has finished last."""
    (folder / "documents").mkdir()
    for name in parts:
        (folder / "documents" / name).write_text("rows")
    (folder / "run.json").write_text(json.dumps({"format": "memagent-convert/1", "run_id": run}))
    if finished is not None:
        listed = [f"documents/{name}" for name in parts if finished in name]
        (folder / "manifest.json").write_text(json.dumps({"run_id": finished, "files": {"documents": listed}}))


@pytest.mark.parametrize("place", ["", "documents/", "documents/*.parquet"])
def test_converted_table_is_what_its_manifest_lists(tmp_path: Path, place: str) -> None:
    write_table(tmp_path, parts=["0-one.parquet", "0-two.parquet"], finished="two", run="two")
    files = list_files(Location(uri=f"{tmp_path}/{place}"))
    assert [Path(file.path).name for file in files] == ["0-two.parquet"]


@pytest.mark.parametrize("finished", [None, "one"])
@pytest.mark.parametrize("place", ["", "documents/", "documents/*.parquet"])
def test_converted_table_of_a_run_that_has_not_ended_is_refused(
    tmp_path: Path, place: str, finished: str | None
) -> None:
    write_table(tmp_path, parts=["0-one.parquet", "0-two.parquet"], finished=finished, run="two")
    with pytest.raises(InputError, match=r"has not ended here.* run the same `memagent convert` again"):
        list_files(Location(uri=f"{tmp_path}/{place}"))


@pytest.mark.parametrize("record", ['{"format": "mine"}', "[1]", '{"a": 1}\n{"a": 2}'])
def test_folder_with_another_file_of_that_name_is_read_as_it_is(tmp_path: Path, record: str) -> None:
    (tmp_path / "run.json").write_text(record)
    (tmp_path / "a.jsonl").write_text("{}")
    assert [file.name for file in list_files(Location(uri=str(tmp_path)))] == ["a.jsonl", "run.json"]


def test_listing_that_keeps_what_it_leaves_out_says_why(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    (docs / ".git" / "objects").mkdir(parents=True)
    (tmp_path / "elsewhere.txt").write_text("x")
    for name in ("a.txt", "_final.pdf", ".git/x", ".git/objects/y"):
        (docs / name).write_text("x")
    (docs / "link.txt").symlink_to(tmp_path / "elsewhere.txt")
    (docs / "gone.txt").symlink_to(tmp_path / "gone.txt")
    reasons = {file.name: file.left_out for file in list_files(Location(uri=str(docs)), keep_left_out=True)}
    assert (reasons["a.txt"], reasons[".git"], reasons["_final.pdf"]) == (None, HIDDEN_NAME, HIDDEN_NAME)
    assert "copy the file here" in (reasons["link.txt"] or "")
    assert "not there" in (reasons["gone.txt"] or "")
    assert len(reasons) == 5
    with pytest.raises(InputError, match="is a link to"):
        list_files(Location(uri=str(docs)))


def test_file_of_a_converted_kind_is_refused_with_the_command_that_reads_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no known file ending .*with `memagent convert` first"):
        format_of("a.pdf", where="a.pdf", remedy=UNKNOWN_REMEDY)

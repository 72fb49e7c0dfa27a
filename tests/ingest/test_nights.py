"""Nights of one output: only what is new or changed is opened and written."""

import os
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memagent_batch.config.sources import SourceConfig
from memagent_batch.data.documents import data_files, listing
from memagent_batch.data.ingest import changes as changes_module
from memagent_batch.data.ingest import document_files, row_tasks
from memagent_batch.data.ingest.changes import FEW_DOCUMENTS, SMALL_FILES
from memagent_batch.data.ingest.sources import compare_sources
from memagent_batch.data.store.delta import OutputTable
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError, NotReadError, OutputError, SupersededError
from memagent_batch.run import ingest as module
from memagent_batch.run import sources
from memagent_batch.run.executors.local import LocalExecutor
from memagent_batch.run.flows.ingest import next_run
from memagent_batch.run.ingest import ingest
from memagent_batch.run.sources import find_sources
from tests.ingest.nights import by_id, changes, content, night, put_jsonl, put_parquet, rows, texts, version


def items(*ids: str, mark: str = "") -> list[dict[str, Any]]:
    return [{"document_id": name, "text": f"text of {name}{mark}", "pages": len(name)} for name in ids]


def test_text_files_jsonl_and_parquet_become_rows(tmp_path: Path) -> None:
    put_jsonl(tmp_path / "in/a.jsonl", items("a1", "a2"))
    put_parquet(tmp_path / "in/b/b.parquet", document_id=["b1"], text=["text of b1"])
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/n.txt").write_text("a note")
    report = night(tmp_path / "in", tmp_path / "out", format="auto", carry_columns=())
    assert changes(report) == (3, 0, 0)
    assert texts(tmp_path / "out") == {"a1": "text of a1", "a2": "text of a2", "b1": "text of b1"}
    row = by_id(tmp_path / "out")["b1"]
    assert (row["source"], row["error"], row["losses"], row["source_read"]) == ("b/b.parquet", None, [], 1.0)
    assert [(part["source"], part["char_start"], part["char_end"]) for part in row["parts"]] == [("b/b.parquet", 0, 10)]
    assert {row["source"]: row["num_documents"] for row in rows(tmp_path / "out", "sources")} == {
        "a.jsonl": 2,
        "b/b.parquet": 1,
    }


def test_unchanged_night_opens_and_commits_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_jsonl(tmp_path / "in/a.jsonl", items("a1", "a2"))
    night(tmp_path / "in/*.jsonl", tmp_path / "out")
    before = version(tmp_path / "out"), version(tmp_path / "out", "sources")
    monkeypatch.setattr(data_files, "read_jsonl", None)  # it must not be used
    assert changes(night(tmp_path / "in/*.jsonl", tmp_path / "out")) == (0, 0, 0)
    assert (version(tmp_path / "out"), version(tmp_path / "out", "sources")) == before


def test_changed_night_writes_what_changed_and_keeps_the_runs_of_other_rows(tmp_path: Path) -> None:
    put_jsonl(tmp_path / "in/a.jsonl", items("a1", "a2", "a3"))
    put_jsonl(tmp_path / "in/b.jsonl", items("b1"))
    first = night(tmp_path / "in/*.jsonl", tmp_path / "out")
    files = set(OutputTable(output=Location(uri=str(tmp_path / "out")), name="documents").files())
    put_jsonl(tmp_path / "in/a.jsonl", [*items("a1"), *items("a2", mark="!"), *items("a4")])
    (tmp_path / "in/b.jsonl").unlink()
    second = night(tmp_path / "in/*.jsonl", tmp_path / "out")
    assert changes(second) == (1, 1, 2)
    assert texts(tmp_path / "out") == {"a1": "text of a1", "a2": "text of a2!", "a4": "text of a4"}
    assert by_id(tmp_path / "out")["a1"]["run_id"] == first["run_id"]
    assert {by_id(tmp_path / "out")[name]["run_id"] for name in ("a2", "a4")} == {second["run_id"]}
    assert not files & set(OutputTable(output=Location(uri=str(tmp_path / "out")), name="documents").files())


def test_file_of_the_table_without_a_changed_row_stays(tmp_path: Path) -> None:
    table = OutputTable(output=Location(uri=str(tmp_path / "out")), name="documents")
    for name in ("a", "b"):
        put_jsonl(tmp_path / f"in/{name}.jsonl", items(name))
        night(tmp_path / "in/*.jsonl", tmp_path / "out")
    first = set(table.files())
    put_jsonl(tmp_path / "in/b.jsonl", items("b", mark="!"))
    night(tmp_path / "in/*.jsonl", tmp_path / "out")
    assert len(first) == 2
    assert len(first & set(table.files())) == 1


def test_two_documents_of_one_id_are_refused_with_both_places_and_nothing_is_committed(tmp_path: Path) -> None:
    put_jsonl(tmp_path / "in/a.jsonl", items("a", "same"))
    put_jsonl(tmp_path / "in/b.jsonl", items("b", "c", "same"))
    with pytest.raises(
        InputError, match=r"'same' is there twice: in .*a\.jsonl, line 2 and in .*b\.jsonl, line 3; give"
    ):
        night(tmp_path / "in/*.jsonl", tmp_path / "out")
    assert version(tmp_path / "out") is None


def test_new_document_with_the_id_of_a_stored_one_is_refused(tmp_path: Path) -> None:
    put_jsonl(tmp_path / "in/a.jsonl", items("a"))
    night(tmp_path / "in/*.jsonl", tmp_path / "out")
    put_jsonl(tmp_path / "in/b.jsonl", items("a"))
    with pytest.raises(InputError, match=r"'a' is there twice: in .*a\.jsonl and in .*b\.jsonl, line 1"):
        night(tmp_path / "in/*.jsonl", tmp_path / "out")
    (tmp_path / "in/a.jsonl").unlink()  # it has moved
    assert changes(night(tmp_path / "in/*.jsonl", tmp_path / "out")) == (0, 0, 0)
    assert by_id(tmp_path / "out")["a"]["source"] == "b.jsonl"


def test_documents_move_to_a_file_of_a_new_name_in_an_ingest_of_several_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECKPOINT_SECONDS", 0)
    monkeypatch.setattr(module, "CHECKPOINT_SHARE", 0)
    monkeypatch.setattr(row_tasks, "MIN_TASK_FILES", 1)
    put_jsonl(tmp_path / "in/a.jsonl", items("a", "old"))
    put_jsonl(tmp_path / "in/c.jsonl", items("c", "d"))
    night(tmp_path / "in/*.jsonl", tmp_path / "out")
    (tmp_path / "in/a.jsonl").rename(tmp_path / "in/b.jsonl")
    put_jsonl(tmp_path / "in/b.jsonl", items("a", "c"))
    put_jsonl(tmp_path / "in/c.jsonl", items("d", "e"))  # its document c is in the file that is read before it
    assert changes(night(tmp_path / "in/*.jsonl", tmp_path / "out")) == (1, 0, 1)
    found = {name: row["source"] for name, row in by_id(tmp_path / "out").items()}
    assert found == {"a": "b.jsonl", "c": "b.jsonl", "d": "c.jsonl", "e": "c.jsonl"}
    put_jsonl(tmp_path / "in/b.jsonl", items("a", "c", "d"))
    put_jsonl(tmp_path / "in/c.jsonl", items("e", "d", "f"))
    with pytest.raises(InputError, match=r"'d' is there twice: in .*b\.jsonl and in .*c\.jsonl, line 2"):
        night(tmp_path / "in/*.jsonl", tmp_path / "out")


def test_source_that_has_lost_a_document_to_another_is_read_again_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody would see that both have the document, once it is as it was before."""
    monkeypatch.setattr(module, "CHECKPOINT_SECONDS", 0)
    monkeypatch.setattr(module, "CHECKPOINT_SHARE", 0)
    monkeypatch.setattr(row_tasks, "MIN_TASK_FILES", 1)
    monkeypatch.setattr(listing, "_disk_version", lambda status: f"{status.st_size} {status.st_mtime_ns}")  # as an ETag
    old = tmp_path / "in/c.jsonl"
    put_jsonl(tmp_path / "in/b.jsonl", items("b"))
    put_jsonl(old, items("c", "d"))
    night(tmp_path / "in/*.jsonl", tmp_path / "out")
    before, times = old.read_bytes(), old.stat()
    put_jsonl(tmp_path / "in/b.jsonl", items("b", "c"))
    put_jsonl(old, items("d"))
    commit = module._Ingest._commit_sources

    def commit_and_die(*args: Any, **named: Any) -> None:
        commit(*args, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module._Ingest, "_commit_sources", commit_and_die)
        with pytest.raises(KeyboardInterrupt):
            night(tmp_path / "in/*.jsonl", tmp_path / "out")
    old.write_bytes(before)
    os.utime(old, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(InputError, match="'c' is there twice"):
        night(tmp_path / "in/*.jsonl", tmp_path / "out")
    put_jsonl(tmp_path / "in/b.jsonl", items("b"))
    night(tmp_path / "in/*.jsonl", tmp_path / "out")
    assert {name: row["source"] for name, row in by_id(tmp_path / "out").items()} == {
        "b": "b.jsonl",
        "c": "c.jsonl",
        "d": "c.jsonl",
    }


def test_bad_lines_and_files_fail_the_run_or_become_rows(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_text('{"document_id": "a", "text": "fine"}\n{"document_id": \n')
    (tmp_path / "in/b.parquet").write_bytes(b"PAR1 torn")
    with pytest.raises(InputError, match=r"a\.jsonl, line 2: malformed JSON"):
        night(tmp_path / "in/*.*", tmp_path / "out", format="auto")
    night(tmp_path / "in/*.*", tmp_path / "out", format="auto", on_bad_file="record")
    found = {name: (row["text"], row["error_type"]) for name, row in by_id(tmp_path / "out").items()}
    assert found == {
        "a": ("fine", None),
        "a.jsonl, line 2": (None, "BadFileError"),
        "b.parquet": (None, "BadFileError"),
    }
    assert {row["source"]: row["status"] for row in rows(tmp_path / "out", "sources")} == {
        "a.jsonl": "ok",
        "b.parquet": "failed",
    }
    (loss,) = rows(tmp_path / "out", "sources")[0]["losses"]
    assert (loss["kind"], loss["severity"], loss["place"]) == ("failed", "unread", "line 2")


def test_text_that_is_null_empty_or_too_long_fails_its_document_alone(tmp_path: Path) -> None:
    put_parquet(tmp_path / "in/a.parquet", document_id=["a", "b", "c", "d"], text=["fine", None, " \n", "x" * 99])
    night(tmp_path / "in/*.parquet", tmp_path / "out", max_document_bytes=50)
    errors = {name: row["error"] for name, row in by_id(tmp_path / "out").items()}
    assert errors.pop("a") is None
    assert [str(error).partition(": ")[2].partition(",")[0] for error in errors.values()] == [
        "the text is null",
        "the text is empty",
        "it has more than 50 bytes",
    ]


def test_files_without_any_document_are_refused(tmp_path: Path) -> None:
    put_jsonl(tmp_path / "in/a.jsonl", [])
    with pytest.raises(InputError, match="hold no document"):
        night(tmp_path / "in/*.jsonl", tmp_path / "out")


def test_output_of_other_documents_is_refused(tmp_path: Path) -> None:
    for name in ("in", "other"):
        put_jsonl(tmp_path / f"{name}/a.jsonl", items("a"))
    night(tmp_path / "in/a.jsonl", tmp_path / "out")
    with pytest.raises(OutputError, match="choose another output"):
        night(tmp_path / "other/a.jsonl", tmp_path / "out")
    with pytest.raises(OutputError, match="inside the documents"):
        night(tmp_path / "in", tmp_path / "in/out")


def test_run_that_another_one_overtook_commits_nothing(tmp_path: Path) -> None:
    put_jsonl(tmp_path / "in/a.jsonl", items("a"))
    output, executor = Location(uri=str(tmp_path / "out")), LocalExecutor()
    config = SourceConfig(documents=(str(tmp_path / "in"),), ask=("-",))
    night(tmp_path / "in", output.uri)
    put_jsonl(tmp_path / "in/a.jsonl", items("a", "b"))
    slow = find_sources(config, output)
    with executor.session():
        begun = module._Ingest(slow, executor=executor, run=next_run(output), scratch=None)
        ingest(find_sources(config, output), executor=executor, run=next_run(output))
        with pytest.raises(SupersededError):
            begun.run()
    assert texts(output) == {"a": "text of a", "b": "text of b"}


def test_two_first_ingests_at_once_commit_the_documents_of_one(tmp_path: Path) -> None:
    put_jsonl(tmp_path / "in/a.jsonl", items("a", "b"))
    output, executor = Location(uri=str(tmp_path / "out")), LocalExecutor()
    config = SourceConfig(documents=(str(tmp_path / "in"),), ask=("-",))
    both = [
        module._Ingest(find_sources(config, output), executor=executor, run=next_run(output), scratch=None)
        for _ in range(2)
    ]
    with executor.session():
        both[0].run()
        with pytest.raises(SupersededError):
            both[1].run()
    assert [row["document_id"] for row in rows(output)] == ["a", "b"]


def test_small_files_of_many_nights_become_one_in_the_commit_of_a_night(tmp_path: Path) -> None:
    table = OutputTable(output=Location(uri=str(tmp_path / "out")), name="documents")
    for number in range(SMALL_FILES + 1):
        put_jsonl(tmp_path / f"in/{number}.jsonl", items(f"d{number}"))
        night(tmp_path / "in/*.jsonl", tmp_path / "out")
    before, runs = version(tmp_path / "out"), {row["document_id"]: row["run_id"] for row in rows(tmp_path / "out")}
    assert len(table.files()) == SMALL_FILES + 1
    night(tmp_path / "in/*.jsonl", tmp_path / "out")
    assert version(tmp_path / "out") == before
    put_jsonl(tmp_path / "in/0.jsonl", items("d0", mark="!"))
    (tmp_path / "in/1.jsonl").unlink()
    assert changes(night(tmp_path / "in/*.jsonl", tmp_path / "out")) == (0, 1, 1)
    assert len(table.files()) == 2
    assert version(tmp_path / "out") == (before or 0) + 1
    found = by_id(tmp_path / "out")
    assert found["d0"]["text"] == "text of d0!"
    assert {name: row["run_id"] for name, row in found.items() if name != "d0"} == {
        name: run_id for name, run_id in runs.items() if name not in ("d0", "d1")
    }


@pytest.mark.parametrize("settings", [{}, {"order_columns": ("pages",)}])
def test_source_that_vanishes_once_it_was_listed_keeps_its_documents_and_stops_no_night(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    for name in ("a", "b", "c"):
        put_jsonl(tmp_path / f"in/{name}.jsonl", items(name))
    (tmp_path / "in/c.jsonl").unlink()
    night(tmp_path / "in/*.jsonl", tmp_path / "out", **settings)
    for name in ("a", "b", "c"):
        put_jsonl(tmp_path / f"in/{name}.jsonl", items(name, mark="!"))

    def vanishing(*listed: Any, **others: Any) -> Any:
        (tmp_path / "in/b.jsonl").unlink()
        (tmp_path / "in/c.jsonl").unlink()
        return compare_sources(*listed, **others)

    monkeypatch.setattr(sources, "compare_sources", vanishing)
    with pytest.raises(NotReadError, match=r"2 of 3 .*such as b\.jsonl: .*no such file"):
        night(tmp_path / "in/*.jsonl", tmp_path / "out", **settings)
    monkeypatch.setattr(sources, "compare_sources", compare_sources)
    assert texts(tmp_path / "out") == {"a": "text of a!", "b": "text of b"}
    put_jsonl(tmp_path / "in/b.jsonl", items("b", mark="?"))
    assert changes(night(tmp_path / "in/*.jsonl", tmp_path / "out", **settings)) == (0, 1, 0)
    assert texts(tmp_path / "out") == {"a": "text of a!", "b": "text of b?"}
    assert [row["losses"] for row in rows(tmp_path / "out", "sources")] == [[], []]


def test_plan_commits_nothing_and_gives_the_files_that_a_run_would_commit(tmp_path: Path) -> None:
    put_jsonl(tmp_path / "in/a.jsonl", items("a"))
    put_jsonl(tmp_path / "in/b.jsonl", items("b"))
    output, executor = Location(uri=str(tmp_path / "out")), LocalExecutor()
    night(tmp_path / "in", output.uri)
    put_jsonl(tmp_path / "in/a.jsonl", items("a2"))
    config = SourceConfig(documents=(str(tmp_path / "in"),), ask=("-",))
    before = version(output.uri), version(output.uri, "sources")
    found = find_sources(config, output)
    with executor.session():
        scratch = Location(uri=str(tmp_path / "scratch"))
        plan = ingest(found, executor=executor, run=next_run(output), scratch=scratch)
    import pyarrow.dataset as ds

    table = ds.dataset([place.path for place in plan.files]).to_table(["document_id"])
    assert sorted(table["document_id"].to_pylist()) == ["a2", "b"]
    assert (version(output.uri), version(output.uri, "sources")) == before
    assert texts(output).keys() == {"a", "b"}


def test_column_that_a_file_turns_out_not_to_have_leaves_the_table_as_it_was(tmp_path: Path) -> None:
    """Added before the files are read, it would stay in the table as text, whatever its type is later."""
    put_parquet(tmp_path / "in/a.parquet", document_id=["a"], text=["A text."])
    night(tmp_path / "in", tmp_path / "out")
    put_parquet(tmp_path / "in/a.parquet", document_id=["a"], text=["Another text."])
    with pytest.raises(InputError, match="no column 'amount'"):
        night(tmp_path / "in", tmp_path / "out", carry_columns=("amount",))
    assert "amount" not in rows(tmp_path / "out")[0]
    put_parquet(tmp_path / "in/a.parquet", document_id=["a"], text=["A text."], amount=[Decimal("12.50")])
    assert changes(night(tmp_path / "in", tmp_path / "out", carry_columns=("amount",))) == (0, 1, 0)
    assert by_id(tmp_path / "out")["a"]["amount"] == Decimal("12.50")


def test_large_file_of_the_table_has_few_rows_so_that_a_changed_document_has_little_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_files, "FILE_ROWS", 4)
    monkeypatch.setattr(document_files, "GROUP_ROWS", 2)
    table = OutputTable(output=Location(uri=str(tmp_path / "out")), name="documents")
    names = [f"d{number}" for number in range(10)]
    put_jsonl(tmp_path / "in/a.jsonl", items(*names))
    night(tmp_path / "in/*.jsonl", tmp_path / "out")
    before = table.files()
    assert sorted(file.num_rows for file in before.values()) == [2, 4, 4]
    put_jsonl(tmp_path / "in/a.jsonl", [*items(*names[:-1]), *items(names[-1], mark="!")])
    assert changes(night(tmp_path / "in/*.jsonl", tmp_path / "out")) == (0, 1, 0)
    assert sorted(table.files()[path].num_rows for path in before.keys() & table.files().keys()) == [4, 4]


def _columns_of(output: Path) -> dict[str, tuple[str | None, int]]:
    return {name: (row["text"], row["pages"]) for name, row in by_id(output).items()}


@pytest.mark.parametrize("few", [0, FEW_DOCUMENTS])
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6))
def test_any_nights_leave_what_one_ingest_of_the_last_would_and_count_what_they_changed(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, few: int, seed: int
) -> None:
    monkeypatch.setattr(changes_module, "FEW_DOCUMENTS", few)
    monkeypatch.setattr(document_files, "FILE_ROWS", 3)
    monkeypatch.setattr(document_files, "GROUP_ROWS", 2)
    random_of = random.Random(seed)
    folder = tmp_path_factory.mktemp("nights")
    place = folder / "in"
    for _ in range(4):
        for name in ("a.jsonl", "b.parquet", "c.csv"):
            ids = [f"{name[0]}{number}" for number in range(6) if random_of.random() < 0.7]
            marks = [random_of.choice(["", "!", "?"]) for _ in ids]
            found = [each for one, mark in zip(ids, marks, strict=True) for each in items(one, mark=mark)]
            (place / name).unlink(missing_ok=True)
            if name == "a.jsonl":
                put_jsonl(place / name, [*items("always"), *found])
            elif random_of.random() < 0.2:
                pass  # it is gone
            elif name == "b.parquet":
                put_parquet(
                    place / name, **{key: [each[key] for each in found] for key in ("document_id", "text", "pages")}
                )
            else:
                lines = [f"{each['document_id']},{each['text']},{each['pages']}\n" for each in found]
                (place / name).write_text("".join(["document_id,text,pages\n", *lines]))
        before = _columns_of(folder / "out") if (folder / "out").exists() else {}
        report = night(f"{place}/*.*", folder / "out", carry_columns=("pages",))
        after = _columns_of(folder / "out")
        num_changed = sum(after[name] != before[name] for name in after.keys() & before.keys())
        assert changes(report) == (len(after.keys() - before.keys()), num_changed, len(before.keys() - after.keys()))
    night(f"{place}/*.*", folder / "fresh", carry_columns=("pages",))
    assert content(folder / "out") == content(folder / "fresh")

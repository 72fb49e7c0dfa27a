"""What the comparison of two recordings finds, and what it leaves out."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tools.golden.comparison import compare_recordings, compare_tables, compare_values
from tools.golden.recording import load, read_output, save

RUN_ID = "20260131T235959.123Z.07af"
LATER_RUN_ID = "20260201T000000.000Z.0001"
META = {"description": "what was said"}


def table(**columns: Any) -> pa.Table:
    values = {"run_id": ["RUN-1"] * 3, "answer": ["a", None, "c"], "num_turns": [1, 2, 3], "engine_seconds": [0.1] * 3}
    arrays = {name: pa.array(value) for name, value in (values | columns).items()}
    fields = [pa.field(name, array.type, metadata=META) for name, array in arrays.items()]
    return pa.table(list(arrays.values()), schema=pa.schema(fields, metadata={"made": "by hand"}))


def write_run(output: Path, run_id: str, *, seconds: float, files: int, answers: list[str]) -> None:
    """An output as a job leaves it: a table, its log in some files, a manifest."""
    for folder in ("answers", "log/turns"):
        (output / folder).mkdir(parents=True)
    columns = {"run_id": [run_id] * len(answers), "answer": answers, "engine_seconds": [seconds] * len(answers)}
    rows = pa.table(columns)
    pq.write_table(rows, output / "answers" / f"part-00000-{run_id}.parquet")
    order = list(range(len(answers)))[:: 1 if files == 1 else -1]
    for number in range(files):
        part = rows.take(order[number::files])
        pq.write_table(part, output / "log" / "turns" / f"{run_id}-{files}-{number}.parquet")
    file = f"answers/part-00000-{run_id}.parquet"
    manifest = {"run_id": run_id, "seconds": seconds, "files": [file], "settings": {"output": str(output)}}
    (output / "manifest.json").write_text(json.dumps(manifest))


def test_recordings_of_two_runs_are_equal_whatever_their_clocks_ids_places_and_log_files(tmp_path: Path) -> None:
    for name, run_id, seconds, files in (("old", RUN_ID, 1.0, 1), ("new", LATER_RUN_ID, 2.5, 3)):
        work = tmp_path / name
        write_run(work / "out", run_id, seconds=seconds, files=files, answers=["a", "b", "c"])
        save(read_output(work / "out", work=work), tmp_path / "kept" / name / "job")
    assert compare_recordings(tmp_path / "kept" / "old", tmp_path / "kept" / "new") == []
    recording = load(tmp_path / "kept" / "new" / "job")
    assert recording.values["manifest.json"]["settings"] == {"output": "WORK/out"}
    assert recording.tables["answers/part-00000-RUN-1.parquet"]["run_id"].to_pylist() == ["RUN-1"] * 3


def test_recordings_that_differ_in_table_log_and_manifest_are_told_apart(tmp_path: Path) -> None:
    for name, answers in (("old", ["a", "b"]), ("new", ["a", "x"])):
        work = tmp_path / name
        write_run(work / "out", RUN_ID, seconds=1.0, files=1, answers=answers)
        save(read_output(work / "out", work=work), tmp_path / "kept" / name / "job")
    manifest = tmp_path / "kept" / "new" / "job" / "values" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"seconds"', '"minutes"'))
    assert compare_recordings(tmp_path / "kept" / "old", tmp_path / "kept" / "new") == [
        "job: answers/part-00000-RUN-1.parquet: row 1, column 'answer': 'b', now 'x'",
        "job: log/turns: row 1, column 'answer': 'b', now 'x'",
        "job: manifest.json: key of the object 'seconds' is gone",
        "job: manifest.json: key of the object 'minutes' is new",
    ]
    assert compare_recordings(tmp_path / "kept" / "old", tmp_path / "kept" / "new", jobs=["other"]) == []


def test_recording_that_is_missing_is_found(tmp_path: Path) -> None:
    write_run(tmp_path / "out", RUN_ID, seconds=1.0, files=1, answers=["a"])
    save(read_output(tmp_path / "out", work=tmp_path), tmp_path / "old" / "nights" / "1")
    (tmp_path / "new").mkdir()
    assert compare_recordings(tmp_path / "old", tmp_path / "new") == ["recording 'nights/1' is gone"]


def test_file_that_is_neither_table_nor_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("?")
    with pytest.raises(ValueError, match=r"note\.txt"):
        read_output(tmp_path, work=tmp_path)


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        (table(answer=["a", "b", "c"]), "row 1, column 'answer': None, now 'b'"),
        (table().slice(0, 2), "3 rows, now 2"),
        (table().take([2, 1, 0]), "row 0, column 'answer': 'a', now 'c'"),
        (table(num_turns=[1.0, 2.0, 3.0]), "row 0, column 'num_turns': 1, now 1.0"),
        (table().replace_schema_metadata({"made": "otherwise"}), "schema metadata"),
        (table().drop_columns(["answer"]), "column 'answer' is gone"),
        (table().select(["answer", "run_id", "num_turns", "engine_seconds"]), "column: the order was"),
    ],
)
def test_table_that_differs_is_told_by_cell_row_type_or_column(changed: pa.Table, line: str) -> None:
    assert any(found.startswith(line) for found in compare_tables(table(), changed))


def test_clock_and_order_of_the_log_make_no_difference() -> None:
    assert compare_tables(table(), table(engine_seconds=[9.9] * 3)) == []
    assert compare_tables(table(reward=[float("nan")] * 3), table(reward=[float("nan")] * 3)) == []
    assert compare_tables(table(), table().take([2, 1, 0]), is_ordered=False) == []


def test_json_values_are_compared_however_deep_they_lie() -> None:
    old = {"seconds": 1, "counts": {"ok": 1}, "files": ["a", "b"]}
    assert compare_values(old, {"counts": {"ok": 1}, "files": ["a", "b"], "seconds": 2}) == []
    assert compare_values(old, old | {"counts": {"ok": 1.0}}) == [".counts.ok: 1, now 1.0"]
    assert compare_values(old, old | {"files": ["a", "c"]}) == [".files[1]: 'b', now 'c'"]

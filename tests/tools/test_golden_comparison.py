"""What the comparison of two recordings finds, and what it leaves out."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tools.golden.comparison import CHANGING_WITH_ORDER, compare_recordings, compare_tables, compare_values
from tools.golden.recording import load, read_output, save

RUN_ID = "20260131T235959.123Z.07af"
LATER_RUN_ID = "20260201T000000.000Z.0001"
META = {"description": "what was said"}


def table(**columns: Any) -> pa.Table:
    values = {"run_id": ["RUN-1"] * 3, "answer": ["a", None, "c"], "num_turns": [1, 2, 3], "engine_seconds": [0.1] * 3}
    arrays = {name: pa.array(value) for name, value in (values | columns).items()}
    fields = [pa.field(name, array.type, metadata=META) for name, array in arrays.items()]
    return pa.table(list(arrays.values()), schema=pa.schema(fields, metadata={"made": "by hand"}))


def write_run(output: Path, run_id: str, *, seconds: float, files: int, answers: list[str], cached: int = 0) -> None:
    """An output as a job leaves it: a table, its log in some files, a manifest."""
    for folder in ("answers", "log/turns"):
        (output / folder).mkdir(parents=True)
    columns = {"run_id": [run_id] * len(answers), "answer": answers, "engine_seconds": [seconds] * len(answers)}
    rows = pa.table({**columns, "num_cached_prompt_tokens": [cached] * len(answers)})
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


def test_prefix_cache_counts_are_left_out_only_where_ray_orders_documents(tmp_path: Path) -> None:
    for name, cached in (("old", 16), ("new", 32)):
        work = tmp_path / name
        write_run(work / "out", RUN_ID, seconds=1.0, files=1, answers=["a"], cached=cached)
        for job in ("demo", "gated"):
            save(read_output(work / "out", work=work), tmp_path / "kept" / name / job)
    lines = compare_recordings(tmp_path / "kept" / "old", tmp_path / "kept" / "new")
    (column,) = CHANGING_WITH_ORDER
    assert lines == [
        f"gated: {name}: row 0, column '{column}': 16, now 32"
        for name in ("answers/part-00000-RUN-1.parquet", "log/turns")
    ]


def test_recording_that_is_missing_is_found(tmp_path: Path) -> None:
    write_run(tmp_path / "out", RUN_ID, seconds=1.0, files=1, answers=["a"])
    save(read_output(tmp_path / "out", work=tmp_path), tmp_path / "old" / "nights" / "1")
    (tmp_path / "new").mkdir()
    assert compare_recordings(tmp_path / "old", tmp_path / "new") == ["recording 'nights/1' is gone"]


def test_file_that_is_neither_table_nor_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("?")
    with pytest.raises(ValueError, match=r"note\.txt"):
        read_output(tmp_path, work=tmp_path)


def test_recording_keeps_types_nullability_and_metadata(tmp_path: Path) -> None:
    nested = pa.array([[{"run_id": RUN_ID, "n": 1}]], pa.list_(pa.struct([("run_id", pa.string()), ("n", pa.int32())])))
    fields = [
        pa.field("nested", nested.type, metadata={"unit": "none"}),
        pa.field("n", pa.int8(), nullable=False, metadata=META),
    ]
    original = pa.table([nested, pa.array([1], pa.int8())], schema=pa.schema(fields))
    pq.write_table(original, tmp_path / f"{RUN_ID}.parquet")
    save(read_output(tmp_path, work=tmp_path), tmp_path / "kept")
    kept = load(tmp_path / "kept").tables["RUN-1.parquet"]
    written = pq.read_schema(tmp_path / f"{RUN_ID}.parquet")  # Parquet has its own name for the items of a list
    assert kept.schema.equals(written, check_metadata=True)
    assert kept["nested"].to_pylist() == [[{"run_id": "RUN-1", "n": 1}]]


def test_changed_cell_is_found_but_not_in_a_column_of_the_clock() -> None:
    assert compare_tables(table(), table()) == []
    assert compare_tables(table(), table(engine_seconds=[9.9] * 3)) == []
    assert compare_tables(table(), table(answer=["a", "b", "c"])) == ["row 1, column 'answer': None, now 'b'"]
    assert compare_tables(table(reward=[1.0] * 3), table(reward=[1.0, 1.0, 1.0000000000000002])) != []
    assert compare_tables(table(reward=[float("nan")] * 3), table(reward=[float("nan")] * 3)) == []


def test_many_changed_cells_are_counted() -> None:
    lines = compare_tables(pa.table({"n": range(100)}), pa.table({"n": range(1, 101)}))
    assert (len(lines), lines[-1]) == (6, "column 'n': 100 rows differ")


def test_missing_and_new_rows_are_found() -> None:
    lines = compare_tables(table(), table().slice(0, 2))
    assert lines[0] == "3 rows, now 2"
    assert lines[1].startswith("a row is gone: {'run_id': \"'RUN-1'\", 'answer': \"'c'\"")
    assert compare_tables(table().slice(0, 2), table())[1].startswith("a row is new")
    doubled = pa.concat_tables([table(), table().slice(0, 1)])
    assert compare_tables(table(), doubled)[1].startswith("a row is new")


def test_order_of_rows_counts_in_tables_and_not_in_the_log() -> None:
    turned = table().take([2, 1, 0])
    assert compare_tables(table(), turned, is_ordered=False) == []
    assert len(compare_tables(table(), turned)) == 4


def test_changed_type_is_found_even_where_values_are_equal_or_left_out() -> None:
    for name, kind in (("num_turns", pa.int32()), ("engine_seconds", pa.float32()), ("num_turns", pa.float64())):
        position = table().schema.get_field_index(name)
        field = table().schema.field(name).with_type(kind)
        changed = table().set_column(position, field, table()[name].cast(kind))
        assert any(str(kind) in line for line in compare_tables(table(), changed))


def test_changed_nullability_field_metadata_and_schema_metadata_are_found() -> None:
    position = table().schema.get_field_index("num_turns")
    field = table().schema.field("num_turns")
    for other in (
        field.with_nullable(False),
        field.with_metadata({"description": "anything"}),
        field.remove_metadata(),
    ):
        changed = table().set_column(position, other, table()["num_turns"])
        assert len(compare_tables(table(), changed)) == 1
    (line,) = compare_tables(table(), table().replace_schema_metadata({"made": "otherwise"}))
    assert line.startswith("schema metadata")


def test_columns_that_come_go_or_change_places_are_found() -> None:
    assert compare_tables(table(), table().drop_columns(["answer"])) == ["column 'answer' is gone"]
    assert compare_tables(table().drop_columns(["answer"]), table()) == ["column 'answer' is new"]
    (line,) = compare_tables(table(), table().select(["answer", "run_id", "num_turns", "engine_seconds"]))
    assert line.startswith("column: the order was")


def test_json_values_are_compared_however_deep_they_lie() -> None:
    old = {"seconds": 1, "counts": {"ok": 1}, "files": ["a", "b"]}
    assert compare_values(old, {"counts": {"ok": 1}, "files": ["a", "b"], "seconds": 2}) == []
    assert compare_values(old, old | {"counts": {"ok": 1.0}}) == [".counts.ok: 1, now 1.0"]
    assert compare_values(old, old | {"files": ["a", "c"]}) == [".files[1]: 'b', now 'c'"]
    assert compare_values(old, old | {"files": ["a"]}) == [".files: ['a', 'b'], now ['a']"]
    assert compare_values(old, old | {"counts": {}}) == ["key of .counts 'ok' is gone"]

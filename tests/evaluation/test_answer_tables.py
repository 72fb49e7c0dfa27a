from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from memagent_batch.errors import InputError
from memagent_batch.evaluation.answer_tables import read_answers
from memagent_batch.evaluation.suites.schemas import ANSWER_COLUMNS
from memagent_batch.files.location import Location

PLAIN = {"document_id": ["a", "b"], "question_id": ["q", "q"], "answer": ["fox", None]}


def read(path: Path) -> pa.Table:
    return read_answers(Location(uri=str(path)))


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_read_answers_three_columns_are_enough(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{ending}"
    table = pa.table(PLAIN)
    if ending == "parquet":
        pq.write_table(table, path)
    else:
        pyarrow.feather.write_feather(table, str(path))
    answers = read(path)
    assert answers.schema.equals(ANSWER_COLUMNS)
    rows = [(row["document_id"], row["sample"], row["status"], row["answer"]) for row in answers.to_pylist()]
    assert rows == [("a", 0, "ok", "fox"), ("b", 0, "ok", None)]
    assert answers["num_document_tokens"].to_pylist() == [None, None]


def test_read_answers_other_types_become_ours(tmp_path: Path) -> None:
    columns = {
        "document_id": [1],
        "question_id": pa.array(["q"]).dictionary_encode(),
        "sample": pa.array([0], pa.int64()),
    }
    pq.write_table(pa.table({**columns, "answer": pa.array(["x"], pa.large_string())}), tmp_path / "a.parquet")
    assert read(tmp_path).to_pylist()[0]["document_id"] == "1"


def test_read_answers_run_that_has_finished_is_read_by_its_output(tmp_path: Path) -> None:
    (tmp_path / "answers").mkdir()
    pq.write_table(pa.table(PLAIN), tmp_path / "answers" / "part-0.parquet")
    (tmp_path / "log").mkdir()
    pq.write_table(pa.table({"x": [1]}), tmp_path / "log" / "a.parquet")
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(InputError, match=r"a run that has not finished \(no manifest\.json\)"):
        read(tmp_path)
    (tmp_path / "manifest.json").write_text('{"files": {"answers": ["answers/part-0.parquet"]}}')
    pq.write_table(pa.table(PLAIN), tmp_path / "answers" / "part-0-of-tomorrow.parquet")
    assert read(tmp_path).num_rows == 2


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"answer": ["x"]}, r"a\.parquet has no column 'document_id'; its columns: answer"),
        ({**PLAIN, "status": ["ok", "done"]}, "'status' says 'done'; write ok or failed"),
        ({**PLAIN, "document_id": ["a", None]}, "'document_id' has 1 nulls"),
        ({**PLAIN, "sample": ["first", "second"]}, "'sample' can't be read as int32"),
        ({name: pa.array([], pa.string()) for name in PLAIN}, "holds no answers"),
    ],
)
def test_read_answers_bad_table_is_refused_with_column_and_remedy(
    columns: dict[str, Any], message: str, tmp_path: Path
) -> None:
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=message):
        read(tmp_path)


@pytest.mark.s3
def test_read_answers_in_a_bucket_are_read(s3_bucket: Location, tmp_path: Path) -> None:
    pq.write_table(pa.table(PLAIN), tmp_path / "a.parquet")
    (s3_bucket / "answers/a.parquet").write_bytes((tmp_path / "a.parquet").read_bytes())
    assert read_answers(s3_bucket / "answers").num_rows == 2


def test_read_answers_leaves_out_what_was_not_read(tmp_path: Path) -> None:
    pq.write_table(pa.table({**PLAIN, "status": ["ok", "not_read"]}), tmp_path / "a.parquet")
    assert read(tmp_path)["document_id"].to_pylist() == ["a"]

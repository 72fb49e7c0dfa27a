"""What the demo shows of its run."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.cli.demo import scored_answers


def test_demo_shows_each_answer_once_while_files_of_another_run_lie_beside(tmp_path: Path) -> None:
    key = {"document_id": "d", "question_id": "q"}
    reading = {"num_document_tokens": 9, "num_turns": 2, "num_prompt_tokens": 8, "value_status": "ok", "value": '"7"'}
    sentence = {"document_id": "d", "rank": 0, "how": "chosen", "text": "It is 7."}
    pq.write_table(pa.Table.from_pylist([key | {"references": ["7"]}]), tmp_path / "questions.parquet")
    for table, row in (("answers", key | reading), ("evidence", sentence)):
        (tmp_path / "run" / table).mkdir(parents=True)
        rows = pa.Table.from_pylist([row | {"started_at": None}])
        for name in ("part-0.parquet", "part-0-of-another-run.parquet"):
            pq.write_table(rows, tmp_path / "run" / table / name)
    files = {table: [f"{table}/part-0.parquet"] for table in ("answers", "evidence")}
    (tmp_path / "run" / "manifest.json").write_text(json.dumps({"files": files}))

    [shown] = scored_answers(tmp_path)
    assert (shown.is_right, len(shown.evidence)) == (True, 1)

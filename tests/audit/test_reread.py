"""Turns that are asked again: the same ones at every draw, with the tokens of the log or others."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.audit.reread import Replay, job_of_run
from memagent_batch.audit.tables import texts_of
from memagent_batch.errors import SettingsError
from memagent_batch.runs.history import open_run
from memagent_batch.store.json_files import json_bytes
from memagent_batch.store.location import Location
from tests.audit.scan import Copy, verify_here
from tests.flows.grown import Stream, text_of
from tests.flows.test_grown_documents import Pages

ALL = 1_000
"""More turns than the scan has."""


def test_turns_that_are_asked_again_have_the_tokens_of_the_log(copy: Copy) -> None:
    again = copy.verify(reread=ALL).reread
    assert again is not None
    asked = {
        row["path"].split("/")[0]
        for row in pq.read_table(copy.folder / "log/turns").to_pylist()
        if row["reused_from"] is None
    }
    assert asked >= {"update", "answer", "value", "evidence", "support"}
    assert (again.different, again.num_asked) == ([], again.num_drawn - len(again.not_asked))
    assert again.num_asked > 20
    assert not again.not_asked


def test_turn_with_other_tokens_is_named_with_its_place(copy: Copy) -> None:
    for place in (copy.folder / "log/turns").iterdir():
        table = pq.read_table(place)
        rows = [
            row | {"token_ids": [*row["token_ids"][:2], 1, *row["token_ids"][3:]]} if row["path"] == "answer" else row
            for row in table.to_pylist()
        ]
        pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), place)
    copy.seal_log()
    again = copy.verify(reread=ALL).reread
    assert again is not None
    assert {turn.path for turn in again.different} == {"answer"}
    assert {turn.first_difference for turn in again.different} == {2}
    assert {turn.document_id for turn in again.different} == {"a", "c", "d"}


async def test_draw_is_the_same_and_a_larger_one_holds_the_smaller_and_takes_each_reading_first(copy: Copy) -> None:
    past = open_run(Location(uri=str(copy.folder)), copy.runs[-1])
    assert copy.job is not None
    texts = texts_of(past, [])
    assert texts is not None
    replay = Replay(
        past, job_of_run(past, copy.job), texts=texts, log=[name for name in copy.files() if name.startswith("log/")]
    )

    async def drawn(num: int, *, seed: int = 0) -> list[tuple[str, int, str]]:
        turns = await replay.draw_turns(num, seed=seed, not_asked=[])
        return [(turn.reading.document_id, turn.reading.question, turn.prompt.path) for turn in turns]

    five, twenty = await drawn(5), await drawn(20)
    assert (len(five), len({turn[:2] for turn in five})) == (5, 5)
    assert await drawn(5) == five
    assert set(twenty) > set(five)
    assert len({turn[:2] for turn in twenty[:9]}) == 9, "three documents with three questions"
    assert set(await drawn(5, seed=1)) != set(five)


def test_another_reader_is_refused_before_an_engine_starts(copy: Copy) -> None:
    assert copy.job is not None
    copy.job = copy.job.with_agent(copy.job.agent.model_copy(update={"weights_version": "new"}))
    result = copy.verify(reread=3)
    assert isinstance(result.failure, SettingsError)
    assert "weights_version differ" in str(result.failure)
    assert result.not_asked.startswith("3 turns were to be asked again, and none was: --reread: this is not the reader")


def test_engine_is_not_asked_where_something_is_wrong(copy: Copy) -> None:
    (copy.folder / copy.manifest["files"]["memories"][0]).unlink()
    result = copy.verify(reread=3)
    assert (result.reread, result.failure) == (None, None)
    assert result.not_asked.startswith("3 turns were to be asked again, and none was: something is wrong")


def test_documents_that_are_gone_are_the_reason_that_no_turn_is_asked(copy: Copy) -> None:
    record = json.loads((copy.folder / "run.json").read_text())
    (copy.folder / "run.json").write_bytes(json_bytes({**record, "documents": "/nowhere/documents.parquet"}))
    result = copy.verify(reread=3)
    assert (result.findings, result.reread) == ([], None)
    assert result.not_asked == "3 turns were to be asked again, and none was: the documents can't be read"


def test_turns_of_documents_with_the_same_text_are_asked_whichever_has_the_question(
    text_model: str, tmp_path: Path
) -> None:
    texts = {name: text_of("Ann", days=2) for name in ("a", "b")}
    asked = tmp_path / "questions.jsonl"
    rows = [{"question_id": f"of-{name}", "question": f"Who is {name}?", "document_id": name} for name in texts]
    asked.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    stream = Stream(tmp_path, text_model, ask=(), questions=str(asked))
    stream.night(texts)
    again = verify_here(Location(uri=str(stream.output)), job=stream.job, reread=ALL).reread
    assert again is not None
    assert (again.not_asked, again.different) == ([], [])
    assert again.num_asked == again.num_drawn > 2


def test_turns_of_chunks_that_close_at_rows_are_asked_again(text_model: str, tmp_path: Path) -> None:
    rows = {"order_columns": "page"}
    policy = {"kind": "parallel", "rounds": 1, "chunk_tokens": 170, "break_at": "rows"}
    stream = Pages(tmp_path, text_model, ask=["Who?"], input=rows, policy=policy)
    stream.night({"a": text_of("a", days=12)})
    again = verify_here(Location(uri=str(stream.output)), job=stream.job, reread=ALL).reread
    assert again is not None
    assert (again.not_asked, again.different) == ([], [])
    assert again.num_asked == again.num_drawn > 4

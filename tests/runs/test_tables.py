from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa

from memagent_batch.config.agent import Extraction
from memagent_batch.config.job import LogConfig
from memagent_batch.config.sources import InputConfig
from memagent_batch.data.documents.document_index import SOURCE_COLUMNS
from memagent_batch.data.documents.questions import QUESTION_SCHEMA
from memagent_batch.data.documents.stored import StoredDocuments
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.index import scan_log
from memagent_batch.data.store.turn_log.rows import hash_turn
from memagent_batch.data.store.turn_log.writer import TurnLogWriter
from memagent_batch.document import ChunkSpan
from memagent_batch.loop.addresses import ReadingAddress, text_hash
from memagent_batch.run.plan import Plan
from memagent_batch.run.projection import PartTables, project
from memagent_batch.run.tables import ANSWERS, MEMORIES
from memagent_batch.types import Completion, FinishReason, Prompt, Status, Writes
from tests.documents.stored_documents import store_documents, stored_row
from tests.runs.projections import parts_of, projection_at
from tests.store.turn_log.logs import outcome_row

FIRST_MEMORY = "nothing yet"
STOP, CUT = FinishReason.STOP, FinishReason.LENGTH


class RecordedRun:
    """Documents, questions and a log written by hand, and the tables that they make."""

    def __init__(self, folder: Path, *, documents: Sequence[str], questions: Sequence[str] = ("why?",)) -> None:
        self.output = Location(uri=str(folder))
        self.documents = [stored_row(name, name) for name in documents]
        self.questions = [{"question_id": text, "question": text} for text in questions]
        self.samples = 1
        self.carried: Sequence[pa.Field] = ()
        self.writer = TurnLogWriter(self.output, run_id="first", writer_id="w", settings=LogConfig(flush_seconds=0.01))

    async def read(
        self,
        document: str,
        question: str = "why?",
        *,
        sample: int = 0,
        memories: Sequence[tuple[str, FinishReason]] = (("noted", STOP),),
        response: str = "\\boxed{42}",
        error: str | None = None,
        finish_reason: FinishReason = STOP,
        notes: int = 0,
        is_backwards: bool = False,
    ) -> None:
        """Writes the turns and the outcome of a reading; the last update first, as side-by-side turns may end.

        The first `notes` of the memories are notes on chunks. Backwards, the last chunk was read first.
        """
        hashes = {"document_hash": text_hash(document), "question_hash": text_hash(question)}
        address = ReadingAddress(**hashes, sample=sample, fingerprint="f")
        turns = []
        for number, (text, reason) in reversed(list(enumerate(memories))):
            index = len(memories) - 1 - number if is_backwards else number
            span = ChunkSpan(index=index, token_start=2 * index, token_end=2 * index + 2, char_start=index, char_end=9)
            kind, writes = ("read", Writes.NOTE) if index < notes else ("update", Writes.MEMORY)
            prompt = Prompt(path=f"update/{index}", kind=kind, token_ids=(1,), max_tokens=4, span=span, writes=writes)
            prompt = replace(prompt, number=number)
            turns.append((prompt, Completion(token_ids=(7, 8, 9), text=text, finish_reason=reason)))
        found: dict[str, Any] = {"error_type": "E", "error_message": error}
        if not error:
            prompt = Prompt(path="answer", kind="answer", token_ids=(1,), max_tokens=4)
            prompt = replace(prompt, number=len(memories))
            turns.append((prompt, Completion(token_ids=(5,), text=response, finish_reason=STOP)))
            memory = memories[-1][0] if memories else FIRST_MEMORY
            found = {"response": response, "memory": memory, "finish_reason": finish_reason}
        for turn in turns:
            self.writer.record_turn(address, *turn)
        found["turn_hashes"] = [hash_turn(*turn) for turn in turns]
        cuts = sum(reason is CUT for _, reason in memories)
        status = Status.FAILED if error else Status.OK
        result = outcome_row(status, memory_truncations=cuts, num_turns=len(memories) + 1, **found)
        await self.writer.record_outcome(address, result)

    def tables(self, *, keep_word: str = "") -> PartTables:
        questions = pa.Table.from_pylist(self.questions, schema=QUESTION_SCHEMA)
        store_documents(self.output, self.documents, carried=self.carried)
        stored = StoredDocuments(output=self.output)
        settings = InputConfig(carry_columns=tuple(field.name for field in self.carried))
        plan = Plan(stored.read_index(settings).taken, questions, samples=self.samples, stored=stored)
        (part,) = parts_of(plan, scan_log(self.output, fingerprint="f"))
        fields: dict[str, Any] = {"keep_word": keep_word, "extraction": Extraction.AUTO, "opens_thought": False}
        projection = projection_at(self.output, run_id="second", first_memory=FIRST_MEMORY, **fields)
        return project(part, projection=projection)


async def mixed_tables(folder: Path) -> PartTables:
    """One answered reading, two without an answer, one failed, and a document that can't be read."""
    run = RecordedRun(folder, documents=["good", "mumbling", "cut", "failing", "broken"])
    run.documents[4] = stored_row("broken", None, error="p: the text is null")
    await run.read("good", memories=[("a", STOP), ("b", CUT)])
    await run.read("mumbling", response="well, who knows")
    await run.read("cut", response="", finish_reason=CUT)
    await run.read("failing", error="the window is too small")
    return run.tables()


async def test_answers_hold_one_row_for_each_reading_asked(tmp_path: Path) -> None:
    run = RecordedRun(tmp_path, documents=["a", "b", "c"], questions=["q", "r"])
    run.samples = 2
    asked = [(name, question, sample) for name in "abc" for question in "qr" for sample in range(2)]
    for name, question, sample in asked:
        await run.read(name, question, sample=sample)
        await run.read(name, question, sample=sample, error="a second outcome")
    tables = run.tables()
    rows = tables.answers.select(["document_id", "question_id", "sample"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == asked
    assert not tables.missing


async def test_answers_say_how_each_reading_ended(tmp_path: Path) -> None:
    tables = await mixed_tables(tmp_path)
    rows = {row["document_id"]: row for row in tables.answers.to_pylist()}
    good, mumbling, cut, failing, broken = rows.values()
    assert (good["status"], good["answer"], good["response"], good["memory"]) == ("ok", "42", "\\boxed{42}", "b")
    assert (good["memory_truncations"], good["error_type"], good["read_run_id"]) == (1, None, "first")
    assert (good["document_hash"], good["question_hash"]) == (text_hash("good"), text_hash("why?"))
    assert (mumbling["status"], mumbling["answer"], mumbling["response"]) == ("ok", None, "well, who knows")
    assert mumbling["error_type"] == cut["error_type"] == "AnswerNotFound"
    assert "'auto'" in mumbling["error_message"]
    assert cut["answer"] is None
    assert "cut at policy.answer_tokens" in cut["error_message"]
    assert (failing["status"], failing["answer"], failing["response"]) == ("failed", None, None)
    assert (failing["error_type"], failing["error_message"]) == ("E", "the window is too small")
    assert (broken["status"], broken["error_type"]) == ("failed", "DocumentError")
    assert broken["error_message"] == "p: the text is null"
    assert (broken["num_turns"], broken["document_hash"], broken["run_id"]) == (0, None, "second")
    memories = [(row["document_id"], row["memory"]) for row in tables.memories.to_pylist()]
    assert [memory for name, memory in memories if name == "failing"] == ["noted"], "a failed one keeps its trace"
    assert {name for name, _ in memories} == {"good", "mumbling", "cut", "failing"}


async def test_answers_carried_columns_follow_the_constants(tmp_path: Path) -> None:
    run = RecordedRun(tmp_path, documents=["a", "b"])
    run.carried = [pa.field("signed", pa.date32())]
    run.documents[0]["signed"] = date(2026, 11, 29)
    await run.read("a")
    await run.read("b")
    answers = run.tables().answers
    assert answers["signed"].to_pylist() == [date(2026, 11, 29), None]
    assert answers.schema.names == [*ANSWERS.names, *SOURCE_COLUMNS.names, "signed"]
    assert answers["source"].to_pylist() == [None] * 2  # rows of a data file


async def test_answers_documents_of_one_text_share_the_reading(tmp_path: Path) -> None:
    run = RecordedRun(tmp_path, documents=["a"])
    run.documents.append(stored_row("twin", "a"))
    await run.read("a")
    tables = run.tables()
    assert tables.answers["document_id"].to_pylist() == ["a", "twin"]
    assert tables.answers["answer"].to_pylist() == ["42", "42"]
    assert tables.memories["document_id"].to_pylist() == ["a", "a", "twin", "twin"]


async def test_memories_tell_which_span_put_what_into_the_memory(tmp_path: Path) -> None:
    run = RecordedRun(tmp_path, documents=["a"])
    await run.read("a", memories=[("one", STOP), (" \n", STOP), ("one", STOP), ("two", CUT)])
    rows = run.tables().memories.to_pylist()
    assert [row["memory"] for row in rows] == ["one", "one", "one", "two", "two"]
    assert [row["changed"] for row in rows] == [True, False, False, True, False]
    assert [row["kind"] for row in rows] == ["update"] * 4 + ["answer"]
    places = [(row["turn"], row["chunk_index"], row["token_start"]) for row in rows]
    assert places == [(0, 0, 0), (1, 1, 2), (2, 2, 4), (3, 3, 6), (4, None, None)]
    assert [row["finish_reason"] for row in rows] == ["stop", "stop", "stop", "length", "stop"]
    assert [row["num_tokens"] for row in rows] == [3, 3, 3, 3, 1]


async def test_memories_are_in_the_order_of_reading_whatever_the_policy(tmp_path: Path) -> None:
    run = RecordedRun(tmp_path, documents=["a"])
    await run.read("a", memories=[("end", STOP), ("middle", STOP), ("begin", STOP)], is_backwards=True)
    rows = run.tables().memories.to_pylist()
    shown = [(row["turn"], row["chunk_index"], row["memory"]) for row in rows]
    assert shown == [(0, 2, "end"), (1, 1, "middle"), (2, 0, "begin"), (3, None, "begin")]


async def test_memories_show_notes_in_their_own_rows_and_what_was_merged_of_them(tmp_path: Path) -> None:
    run = RecordedRun(tmp_path, documents=["a"])
    memories = [("one", STOP), ("none", STOP), ("three", STOP), ("one and three", STOP)]
    await run.read("a", memories=memories, notes=3)
    rows = run.tables(keep_word="none").memories.to_pylist()
    assert [(row["kind"], row["memory"], row["changed"]) for row in rows] == [
        ("read", "one", True),
        ("read", "", False),
        ("read", "three", True),
        ("update", "one and three", True),
        ("answer", "one and three", False),
    ]


async def test_tables_have_their_schemas_and_no_null_where_none_may_be(tmp_path: Path) -> None:
    tables = await mixed_tables(tmp_path)
    for table, schema in ((tables.answers, ANSWERS), (tables.memories, MEMORIES)):
        assert table.select(schema.names).schema.equals(schema, check_metadata=True)
        assert all(table[field.name].null_count == 0 for field in schema if not field.nullable)
    assert tables.answers.num_rows == 5


async def test_memories_keep_word_keeps_the_memory_and_is_marked_as_no_change(tmp_path: Path) -> None:
    run = RecordedRun(tmp_path, documents=["a"])
    await run.read("a", memories=[("keep", STOP), ("news", STOP), ("keep\n\nNothing new.", STOP)])
    gated = [(row["memory"], row["changed"]) for row in run.tables(keep_word="keep").memories.to_pylist()]
    assert gated == [(FIRST_MEMORY, False), ("news", True), ("news", False), ("news", False)]
    assert run.tables().memories["memory"].to_pylist() == ["keep", "news", *["keep\n\nNothing new."] * 2]

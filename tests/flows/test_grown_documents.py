"""Documents that grew or changed in part cost what is new in them; their tables are those of reading from scratch."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.rows import TURN_LOG
from memagent_batch.data.store.turn_log.writer import new_run_id
from memagent_batch.run.flows import answer as pipeline
from memagent_batch.run.flows.verify import verify
from memagent_batch.run.manifest import Manifest
from tests.flows.grown import LINE, QUESTIONS, Stream, text_of

FOLLOW_UPS: dict[str, Any] = {"follow_ups": {"evidence": True}}
PARALLEL: dict[str, Any] = {"policy": {"kind": "parallel", "rounds": 2}}
NUM_QUESTIONS = len(QUESTIONS)
OF_VERSION = ("run_id", "document_hash", "finished_at", "is_copy")
"""Columns in which the copy of a turn differs from what was asked."""


def require_anew(stream: Stream, manifest: Manifest, texts: dict[str, str], **settings: Any) -> None:
    """The tables are those of an output without a history."""
    other = Stream(stream.documents.parent, stream.job.agent.model, output=f"again-{manifest['run_id']}", **settings)
    assert stream.tables(manifest) == other.tables(other.night(texts))


def test_grown_document_asks_its_last_chunk_its_new_one_and_the_answers(text_model: str, tmp_path: Path) -> None:
    stream, times = Stream(tmp_path, text_model), NUM_QUESTIONS
    stream.night({"a": text_of("a", days=2)})
    for days in (3, 4):  # the second of these takes turns that the first one took
        texts = {"a": text_of("a", days=days)}
        manifest = stream.night(texts)
        new = {f"update/{days - 1}": times, f"update/{days}": times, "answer": NUM_QUESTIONS}
        assert stream.asked(manifest) == new
        held = (days - 1) * times
        assert manifest["changes"]["turns"] == {"asked": sum(new.values()), "reused": held}
    rows = stream.logged()
    copies = [row for row in rows if row["is_copy"]]
    assert len(copies) == 5 * times
    (first,) = {row["document_hash"] for row in rows if not row["is_copy"] and row["path"] == "update/0"}
    written = {(row["question_hash"], row["path"]): row for row in rows if row["document_hash"] == first}
    for row in (row for row in copies if row["path"] == "update/0"):
        asked = written[row["question_hash"], row["path"]]
        assert {name for name in row if row[name] != asked[name]} <= {*OF_VERSION}, "each version is whole in the log"
    require_anew(stream, manifest, texts)


@pytest.mark.parametrize("begins_whole", [True, False])
def test_nights_that_meet_a_bound_leave_their_turns_to_the_next_though_documents_grow_every_night(
    text_model: str, tmp_path: Path, *, begins_whole: bool
) -> None:
    stream = Stream(tmp_path, text_model)
    nights = [{name: text_of(name, days=days) for name in "abc"} for days in (2, 3, 4, 5)]
    if begins_whole:
        stream.night(nights[0])
    else:
        stream.stopped_night(nights[0], num_documents=2)
    for texts in nights[1:3]:
        stream.stopped_night(texts, num_documents=1)
    before = {row["prompt_hash"] for row in stream.logged()}
    manifest = stream.night(nights[3])
    asked = [row for row in stream.logged(run_id=manifest["run_id"]) if not row["is_copy"]]
    assert asked
    assert [row["path"] for row in asked if row["prompt_hash"] in before] == []
    require_anew(stream, manifest, nights[3])


def test_edit_in_the_middle_costs_its_chunk_where_chunks_are_read_side_by_side(text_model: str, tmp_path: Path) -> None:
    stream, text = Stream(tmp_path, text_model, **PARALLEL), text_of("a", days=6)
    stream.night({"a": text})
    edited = {"a": text.replace("day 3 of", "day 7 of")}
    manifest = stream.night(edited)
    first_round = {path for path in stream.asked(manifest) if path.startswith("read/1/")}
    assert len(first_round) == 1
    require_anew(stream, manifest, edited, **PARALLEL)


class Pages(Stream):
    """The same with a row for each line of a text."""

    def put(self, texts: Mapping[str, str]) -> None:
        """Makes these the documents, one row after another in a file."""
        rows = [
            {"document_id": name, "file": "diary.pdf", "page": number, "text": line}
            for name, text in texts.items()
            for number, line in enumerate(text.splitlines(), start=1)
        ]
        pq.write_table(pa.Table.from_pylist(rows), self.documents)


def _paged(**policy: Any) -> dict[str, Any]:
    """Three pages fit a chunk, with a little room left."""
    rows = {"order_columns": "page", "locator": "{file}, page {page}"}
    return {"input": rows, "policy": {"kind": "parallel", "rounds": 1, "chunk_tokens": 144, **policy}}


@pytest.mark.parametrize("break_at", ["rows", "lines", None, "length"])
def test_longer_page_in_the_middle_costs_its_chunk_where_chunks_close_at_its_end(
    text_model: str, tmp_path: Path, break_at: str | None
) -> None:
    settings = _paged(break_at=break_at) | FOLLOW_UPS
    stream, text = Pages(tmp_path, text_model, **settings), text_of("a", days=12)
    first = stream.night({"a": text})
    assert first["counts"]["ok"] == NUM_QUESTIONS
    edited = {"a": text.replace("day 4 of", "day 4, a Tuesday, of")}
    manifest = stream.night(edited)
    chunks = {path for path in stream.asked(manifest) if path.startswith("read/1/")}
    if break_at == "length":
        assert len(chunks) == 3  # all that follow begin elsewhere
    else:
        assert chunks == {"read/1/1"}
    if break_at in ("rows", "lines"):
        (row,) = {row["num_chunks"] for row in stream.table(manifest, "answers")}
        located = {row["chunk_index"]: row["locator"] for row in stream.table(manifest, "memories")}
        assert located == {
            0: "diary.pdf, page 1 to diary.pdf, page 3",
            1: "diary.pdf, page 4 to diary.pdf, page 6",
            2: "diary.pdf, page 7 to diary.pdf, page 9",
            3: "diary.pdf, page 10 to diary.pdf, page 12",
            None: None,
        }
        assert row == 4
    lines = edited["a"].splitlines()
    chosen = [row for row in stream.table(manifest, "evidence") if row["how"] == "chosen"]
    assert chosen
    for row in chosen:
        page = int(row["locator"].removeprefix("diary.pdf, page "))
        assert row["text"] in lines[page - 1]
    other = Pages(tmp_path, text_model, output="anew", **settings)
    assert stream.tables(manifest) == other.tables(other.night(edited))


@pytest.mark.parametrize("page", ["put in", "taken out"])
def test_page_more_or_less_in_the_middle_costs_its_chunks_though_all_later_ones_have_another_number(
    text_model: str, tmp_path: Path, page: str
) -> None:
    settings = _paged(break_at="rows", chunk_tokens=50) | FOLLOW_UPS
    lines = text_of("a", days=6).splitlines(keepends=True)
    texts = {"a": "".join(lines)}, {"a": "".join(lines[:2] + lines[3:])}
    before, after = reversed(texts) if page == "put in" else texts
    stream = Pages(tmp_path, text_model, **settings)
    stream.night(before)
    manifest = stream.night(after)
    asked = {path for path in stream.asked(manifest) if path.startswith("read/")}
    assert asked == ({"read/1/2"} if page == "put in" else set())
    third = {"a": LINE.format(day=9, name="a") + after["a"]}  # takes turns that were taken before
    manifest = stream.night(third)
    assert {path for path in stream.asked(manifest) if path.startswith("read/")} == {"read/1/0"}
    assert verify(Location(uri=str(stream.output))).problems == []
    other = Pages(tmp_path, text_model, output="anew", **settings)
    assert stream.tables(manifest) == other.tables(other.night(third))


def test_document_that_shrank_asks_its_new_end_and_shows_no_turn_of_its_old_one(
    text_model: str, tmp_path: Path
) -> None:
    stream, shorter = Stream(tmp_path, text_model), {"a": text_of("a", days=2)}
    stream.night({"a": text_of("a", days=4)})
    manifest = stream.night(shorter)
    assert stream.asked(manifest) == {"update/2": NUM_QUESTIONS, "answer": NUM_QUESTIONS}
    require_anew(stream, manifest, shorter)


def test_documents_that_swap_their_ids_cost_nothing_and_go_on_from_what_was_read_under_their_id(
    text_model: str, tmp_path: Path
) -> None:
    stream, texts = Stream(tmp_path, text_model), {name: text_of(name, days=2) for name in "ab"}
    stream.night(texts)
    swapped = stream.night({"a": texts["b"], "b": texts["a"]})
    assert swapped["changes"]["turns"] == {"asked": 0, "reused": 0}
    grown_texts = {"a": text_of("a", days=3), "b": text_of("b", days=3)}
    manifest = stream.night(grown_texts)
    assert manifest["changes"]["turns"]["reused"] == 2 * 2 * NUM_QUESTIONS
    require_anew(stream, manifest, grown_texts)


def test_moved_and_edited_lines_of_documents_with_equal_texts_cost_what_is_new_though_the_night_is_killed(
    text_model: str, tmp_path: Path
) -> None:
    policy = {"kind": "parallel", "rounds": 1, "chunk_tokens": 50, "break_at": "lines"}
    settings = {"policy": policy} | FOLLOW_UPS
    lines = text_of("a", days=6).splitlines(keepends=True)
    text, other = "".join(lines), text_of("d", days=3)
    stream = Stream(tmp_path, text_model, **settings)
    stream.night({"a": text, "b": text, "d": other})
    moved = [lines[4], *lines[:2], LINE.format(day=9, name="a"), lines[3], lines[5]]
    texts = {"a": "".join(moved), "b": text, "c": "".join(moved), "d": other + LINE.format(day=9, name="d")}
    before = {row["run_id"] for row in stream.logged()}
    stream.stopped_night(texts, num_documents=1)
    manifest = stream.night(texts)
    asked = Counter(row["path"] for row in stream.logged() if row["run_id"] not in before and not row["is_copy"])
    read = {path: times for path, times in asked.items() if path.startswith("read/")}
    assert read == {"read/1/3": 2 * NUM_QUESTIONS}, "the line of `a` that was edited and the new one of `d`"
    assert {row["document_id"] for row in stream.logged(run_id=manifest["run_id"])} <= {"a", "d"}
    assert verify(Location(uri=str(stream.output))).problems == []
    other_stream = Stream(tmp_path, text_model, output="anew", **settings)
    assert stream.tables(manifest) == other_stream.tables(other_stream.night(texts))


def test_sampled_readings_are_read_anew_with_the_seeds_of_their_text(text_model: str, tmp_path: Path) -> None:
    stream = Stream(tmp_path, text_model, sampling={"temperature": 0.7})
    stream.night({"a": text_of("a", days=2)})
    assert (stream.night({"a": text_of("a", days=3)}))["changes"]["turns"]["reused"] == 0


def test_night_that_was_cut_off_asks_nothing_twice(
    text_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, texts = Stream(tmp_path, text_model), {"a": text_of("a", days=3)}
    stream.night({"a": text_of("a", days=2)})
    outcomes = set(stream.output.glob("log/outcomes/*"))
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "close_run", _killed)
        with pytest.raises(KeyError):
            stream.night(texts)
    for file in set(stream.output.glob("log/outcomes/*")) - outcomes:
        file.unlink()  # the kill came before these
    manifest = stream.night(texts)
    assert stream.asked(manifest) == {}
    assert manifest["changes"]["turns"] == {"asked": 3 * NUM_QUESTIONS, "reused": 2 * NUM_QUESTIONS}
    require_anew(stream, manifest, texts)


def test_document_that_grew_beside_a_sample_is_read_from_where_its_last_reading_ended(
    text_model: str, tmp_path: Path
) -> None:
    stream = Stream(tmp_path, text_model)
    stream.night({name: text_of(name, days=2) for name in "abc"})
    texts = {name: text_of(name, days=3) for name in "abc"}
    sample = Stream(tmp_path, text_model, limit=1)
    assert (sample.night(texts))["counts"]["asked"] == NUM_QUESTIONS
    manifest = stream.night(texts)
    new = 2 * NUM_QUESTIONS
    assert stream.asked(manifest) == {"update/2": new, "update/3": new, "answer": new}
    require_anew(stream, manifest, texts)


def test_follow_up_turns_are_asked_of_the_reading_that_stands_whatever_a_later_run_began(
    text_model: str, tmp_path: Path
) -> None:
    stream, texts = Stream(tmp_path, text_model), {"a": text_of("a", days=2)}
    first = stream.night(texts)
    later = new_run_id(after=first["run_id"])  # it read beside the first one, wrote something else, and was killed
    began = [row for row in stream.logged() if row["path"] == "update/0"]
    began = [{**row, "run_id": later, "text": "7", "token_ids": row["token_ids"][:1]} for row in began]
    file = stream.output / f"log/turns/{later}-w-000001.parquet"
    pq.write_table(pa.Table.from_pylist(began, schema=TURN_LOG), file)
    follow_ups = Stream(tmp_path, text_model, **FOLLOW_UPS)
    manifest = follow_ups.night(texts)
    assert {row["follow_up_error"] for row in follow_ups.table(manifest, "answers")} == {None}
    require_anew(follow_ups, manifest, texts, **FOLLOW_UPS)


def test_follow_up_turns_are_asked_of_readings_whose_turns_were_held(text_model: str, tmp_path: Path) -> None:
    stream, texts = Stream(tmp_path, text_model), {"a": text_of("a", days=3)}
    stream.night({"a": text_of("a", days=2)})
    stream.night(texts)
    follow_ups = Stream(tmp_path, text_model, **FOLLOW_UPS)
    manifest = follow_ups.night(texts)
    assert not {path for path in stream.asked(manifest) if path.startswith(("update", "answer"))}
    require_anew(follow_ups, manifest, texts, **FOLLOW_UPS)


def _killed(*_: object, **__: object) -> Manifest:
    """Stands for a kill before the manifest."""
    raise KeyError


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.usefixtures("ray_here")
def test_stream_through_the_real_job_costs_a_night_what_it_brought(text_model: str, tmp_path: Path) -> None:
    stream = Stream(tmp_path, text_model, executor="ray")
    for days in (2, 3):
        texts = {name: text_of(name, days=days) for name in "abc"}
        stream.put(texts)
        manifest = pipeline.answer(stream.job)
        times = len(texts) * NUM_QUESTIONS
        asked = Counter({f"update/{days - 1}": times, f"update/{days}": times, "answer": times})
        assert stream.asked(manifest) == (asked if days > 2 else asked | Counter({"update/0": times}))
    require_anew(stream, manifest, texts)

import asyncio
import shutil
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.config.job import LogConfig
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log import files
from memagent_batch.data.store.turn_log import turns as turns_of_log
from memagent_batch.data.store.turn_log.files import KEYS_FOLDER, OUTCOMES_FOLDER, TURNS_FOLDER
from memagent_batch.data.store.turn_log.index import read_outcomes, reading_key, scan_log, scan_turn_files
from memagent_batch.data.store.turn_log.rows import completion_of, hash_turn
from memagent_batch.data.store.turn_log.turns import DocumentTurns, LoggedTurns, read_turns
from memagent_batch.data.store.turn_log.writer import FLUSH_BYTES, TurnLogWriter, new_run_id
from memagent_batch.document import ChunkSpan
from memagent_batch.errors import LogRowError, OutputError, StorageError
from memagent_batch.loop.addresses import ReadingAddress, text_hash, token_hash
from memagent_batch.types import Completion, FinishReason, Prompt, Status
from tests.store.turn_log.indexes import readings_of
from tests.store.turn_log.logs import outcome_row

AT_ONCE = LogConfig(flush_seconds=0.01)
IN_AN_HOUR = LogConfig(flush_seconds=3600)
TOKENS = st.lists(st.integers(0, 2**31 - 1), max_size=8)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def address_of(document: str = "text", *, sample: int = 0, fingerprint: str = "f") -> ReadingAddress:
    hashes = {"document_hash": text_hash(document), "question_hash": text_hash("why?")}
    return ReadingAddress(**hashes, sample=sample, fingerprint=fingerprint)


def turn_of(path: str = "update/0", *, text: str = "memory") -> tuple[Prompt, Completion]:
    span = ChunkSpan(index=0, token_start=0, token_end=5, char_start=0, char_end=9)
    prompt = Prompt(path=path, kind="update", token_ids=(1, 2), max_tokens=4, span=span)
    return prompt, Completion(token_ids=(7, 8), text=text, finish_reason=FinishReason.STOP)


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECONDS = count()
"""Each outcome ends a second after the one before."""


def outcome_of(status: Status = Status.OK, *, response: str = "r", finished_at: datetime | None = None) -> Any:
    moment = finished_at or NOON + timedelta(seconds=next(SECONDS))
    return outcome_row(status, response=response, finished_at=moment)


def writer_at(
    output: Location, *, log: LogConfig = AT_ONCE, run_id: str = "run", writer_id: str = "w"
) -> TurnLogWriter:
    return TurnLogWriter(output, run_id=run_id, writer_id=writer_id, settings=log)


def output_at(folder: Path) -> Location:
    return Location(uri=str(folder))


def turns_in(output: Location, address: ReadingAddress) -> Mapping[str, Any]:
    return logged_in(output, address).by_path()


def logged_in(output: Location, address: ReadingAddress) -> LoggedTurns:
    fingerprint = address.fingerprint
    files = scan_turn_files(output, fingerprints=[fingerprint]).get(address.document_hash, [])
    turns = read_turns(output, files, fingerprints=[fingerprint], document_hashes=[address.document_hash])
    return turns[fingerprint].get(reading_key(address), LoggedTurns())


def turns_of_text(output: Location, **settings: Any) -> LoggedTurns:
    """Turns of the one reading of the text."""
    files, hashes = (output / TURNS_FOLDER).files(), [address_of().document_hash]
    (turns,) = read_turns(output, files, fingerprints=["f"], document_hashes=hashes, **settings)["f"].values()
    return turns


def current_outcome(output: Location, address: ReadingAddress) -> Any:
    index = scan_log(output, fingerprint=address.fingerprint)
    key = (address.document_hash, address.question_hash, address.sample)
    entry = readings_of(index.outcomes)[key]
    row = read_outcomes(output, [entry["file"]], fingerprint=address.fingerprint)[key]
    assert row["status"] == entry["status"]
    return row


async def write_turns(
    writer: TurnLogWriter, address: ReadingAddress, *turns: tuple[Prompt, Completion], document_id: str = ""
) -> None:
    for prompt, completion in turns:
        writer.record_turn(address, prompt, completion, document_id=document_id)
    await writer.flush()


def contents(folder: Path) -> dict[Path, tuple[bytes, int]]:
    """Bytes and time of change of every file, hidden ones included."""
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


async def wait_for_files(output: Location, *, count: int) -> float:
    began = time.monotonic()
    while len(output.files()) < count:
        assert time.monotonic() - began < 20
        await asyncio.sleep(0.01)
    return time.monotonic() - began


@st.composite
def completions(draw: st.DrawFn) -> Completion:
    token_ids = draw(TOKENS)
    return Completion(
        token_ids=token_ids,
        text=draw(TEXTS),
        finish_reason=draw(st.sampled_from(FinishReason)),
        logprobs=draw(st.none() | st.just([-0.5] * len(token_ids))),
        num_prompt_tokens=draw(st.integers(0, 2**40)),
        num_cached_prompt_tokens=draw(st.integers(0, 2**40)),
        engine_seconds=draw(st.floats(0, 1e6)),
        menu_logprobs=draw(st.none() | st.lists(st.floats(-9, 0, width=32), min_size=1, max_size=3)),
        num_billed_tokens=draw(st.none() | st.integers(0, 2**40)),
    )


@st.composite
def prompts(draw: st.DrawFn) -> Prompt:
    places = dict.fromkeys(("token_start", "token_end", "char_start", "char_end"), st.integers(0, 2**40))
    span = st.builds(ChunkSpan, index=st.integers(0, 2**31 - 1), **places)
    path, kind, token_ids, shown = draw(TEXTS), draw(TEXTS), draw(TOKENS), draw(st.none() | span)
    return Prompt(path=path, kind=kind, token_ids=token_ids, max_tokens=1, span=shown)


@given(turns=st.lists(st.tuples(prompts(), completions()), max_size=4, unique_by=lambda turn: turn[0].path))
def test_turn_log_any_turns_come_back_as_they_were(
    turns: list[tuple[Prompt, Completion]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    output, address = output_at(tmp_path_factory.mktemp("log")), address_of()
    asyncio.run(write_turns(writer_at(output), address, *turns))
    rows = turns_in(output, address)
    assert set(rows) == {prompt.path for prompt, _ in turns}
    for prompt, completion in turns:
        assert completion_of(rows[prompt.path]) == replace(completion, replayed=True)
        assert rows[prompt.path]["prompt_hash"] == token_hash(prompt.token_ids)
        assert rows[prompt.path]["char_end"] == (prompt.span.char_end if prompt.span else None)
        assert rows[prompt.path]["chunk_index"] == (prompt.span.index if prompt.span else None)


async def test_turn_log_few_turns_appear_within_the_interval(tmp_path: Path) -> None:
    writer = writer_at(output_at(tmp_path), log=LogConfig(flush_seconds=0.2))
    writer.record_turn(address_of(), *turn_of())
    assert not output_at(tmp_path).files()
    assert await wait_for_files(output_at(tmp_path), count=1) < 10


@pytest.mark.parametrize(("replicas", "seconds"), [(1, 5), (100, 5), (1000, 50)])
def test_turn_log_of_many_replicas_flushes_less_often_unless_an_interval_is_set(replicas: int, seconds: float) -> None:
    assert LogConfig().paced(replicas) == seconds
    assert LogConfig(flush_seconds=2).paced(replicas) == 2


@pytest.mark.parametrize("cause", ["size", "told to"])
async def test_turn_log_makes_an_outcome_durable_before_the_interval(tmp_path: Path, cause: str) -> None:
    writer, address = writer_at(output_at(tmp_path), log=IN_AN_HOUR), address_of()
    durable = asyncio.ensure_future(writer.record_outcome(address, outcome_of()))
    if cause == "size":
        for number in range(10):
            writer.record_turn(address, *turn_of(f"update/{number}", text="x" * (FLUSH_BYTES // 10)))
    else:
        writer.flush_soon()
    await asyncio.wait_for(durable, timeout=20)
    assert current_outcome(output_at(tmp_path), address)["status"] == "ok"


async def test_turn_log_flushes_while_other_work_holds_every_thread_of_the_event_loop(tmp_path: Path) -> None:
    loop, ranked = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    ranking = asyncio.ensure_future(asyncio.to_thread(ranked.wait))
    writer = writer_at(output_at(tmp_path), log=IN_AN_HOUR)
    writer.record_turn(address_of(), *turn_of())
    try:
        await asyncio.wait_for(writer.flush(), timeout=20)
        assert not ranking.done()
    finally:
        ranked.set()
        await ranking
    assert set(turns_in(output_at(tmp_path), address_of())) == {"update/0"}


async def test_turn_log_later_flushes_leave_earlier_files_untouched_and_no_temporary_ones(tmp_path: Path) -> None:
    writer, address = writer_at(output_at(tmp_path)), address_of()
    await writer.record_outcome(address, outcome_of())
    before = contents(tmp_path)
    for number in range(3):
        writer.record_turn(address, *turn_of(f"update/{number}"))
        await writer.record_outcome(address, outcome_of())
    after = contents(tmp_path)
    assert before.items() <= after.items()
    assert len(after) == 11
    assert all(path.suffix == ".parquet" for path in after)


@pytest.mark.parametrize("store", ["disk", pytest.param("s3", marks=pytest.mark.s3)])
async def test_scan_of_one_writer_finds_its_files_alone(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    output = output_at(tmp_path) if store == "disk" else request.getfixturevalue("s3_bucket") / "run"
    for run_id, writer_id in (("run", "a-1"), ("run", "a-2"), ("run", "b-1"), ("other", "a-1")):
        writer = writer_at(output, run_id=run_id, writer_id=writer_id)
        await write_turns(writer, address_of(f"{run_id} {writer_id}"), turn_of(), document_id="d")
    found = scan_turn_files(output, fingerprints=["f"], begins="run-a-")
    assert set(found) == {text_hash("run a-1"), text_hash("run a-2"), "d"}


def break_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "log").write_text("a file where the folder should be")


def break_writing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> bytes:
        raise MemoryError("no room")

    monkeypatch.setattr(files, "parquet_bytes", broken)


@pytest.mark.parametrize(
    ("break_it", "said"), [(break_disk, "can't be written"), (break_writing, "MemoryError: no room")]
)
async def test_turn_log_that_can_not_be_written_fails_every_waiter_and_all_that_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, break_it: Any, said: str
) -> None:
    break_it(tmp_path, monkeypatch)
    writer = writer_at(output_at(tmp_path))
    waiting = [writer.record_outcome(address_of(sample=sample), outcome_of()) for sample in range(3)]
    results = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), timeout=20)
    assert [type(result) for result in results] == [StorageError] * 3
    with pytest.raises(StorageError, match=said):
        writer.record_turn(address_of(), *turn_of())
    with pytest.raises(StorageError):
        await writer.flush()


async def test_turn_log_that_lost_turns_keeps_no_outcome_though_the_disk_recovers(tmp_path: Path) -> None:
    blocker = tmp_path / "log"
    blocker.write_text("a file where the folder should be")
    writer, address = writer_at(output_at(tmp_path), log=LogConfig(flush_seconds=0.05)), address_of()
    writer.record_turn(address, *turn_of())
    writer.flush_soon()
    waiting: list[asyncio.Future[None]] = []
    while not (waiting and waiting[-1].done()):
        waiting.append(asyncio.ensure_future(writer.record_outcome(address, outcome_of())))
        await asyncio.sleep(0.001)
    blocker.unlink()
    results = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), timeout=20)
    assert {type(result) for result in results} == {StorageError}
    assert not output_at(tmp_path).files()


@pytest.mark.parametrize(
    ("change", "column"),
    [
        ({"token_ids": (2**33,)}, "token_ids"),
        ({"finish_reason": None}, "finish_reason"),
        ({"text": "\ud800"}, "text"),
        ({"num_prompt_tokens": 2**70}, "num_prompt_tokens"),
        ({"engine_seconds": "long"}, "engine_seconds"),
    ],
    ids=["big-token", "no-reason", "surrogate", "big-count", "no-number"],
)
async def test_turn_log_given_a_row_that_does_not_fit_refuses_that_one_and_keeps_the_others(
    change: dict[str, Any], column: str, tmp_path: Path
) -> None:
    writer = writer_at(output_at(tmp_path))
    prompt, completion = turn_of()
    writer.record_turn(address_of("fine"), prompt, completion)
    with pytest.raises(LogRowError, match=f"`{column}`"):
        writer.record_turn(address_of("cursed"), prompt, replace(completion, **change))
    with pytest.raises(LogRowError, match="`num_turns`"):
        await asyncio.wait_for(writer.record_outcome(address_of(), outcome_of() | {"num_turns": "many"}), timeout=20)
    with pytest.raises(LogRowError, match="`model` is missing"):
        await asyncio.wait_for(writer.record_outcome(address_of(), outcome_of() | {"model": None}), timeout=20)
    await writer.record_outcome(address_of("fine"), outcome_of())
    assert set(turns_in(output_at(tmp_path), address_of("fine"))) == {"update/0"}
    assert current_outcome(output_at(tmp_path), address_of("fine"))["status"] == "ok"


async def test_reading_the_log_gives_the_rows_of_the_reader_and_the_documents_that_were_asked_for(
    tmp_path: Path,
) -> None:
    output, other = output_at(tmp_path), address_of(fingerprint="other")
    writer = writer_at(output)
    for address in (address_of(), address_of("two"), other):
        writer.record_turn(address, *turn_of())
    await writer.record_outcome(other, outcome_of())
    index = scan_log(output, fingerprint="f")
    assert (index.turns.num_rows, index.outcomes.num_rows) == (2, 0)
    row = turns_of_text(output, with_tokens=False).by_path()["update/0"]
    assert (row["num_tokens"], row["text"]) == (2, "memory")


async def test_log_file_without_a_column_is_refused_by_name(tmp_path: Path) -> None:
    output = output_at(tmp_path)
    await writer_at(output).record_outcome(address_of(), outcome_of())
    (file,) = (tmp_path / "log" / "outcomes").iterdir()
    pq.write_table(pq.read_table(file).drop_columns(["status"]), file)
    shutil.rmtree(tmp_path / KEYS_FOLDER)
    with pytest.raises(OutputError, match=r"outcomes/.* no column 'status': .* choose an empty output"):
        scan_log(output, fingerprint="f")


@pytest.mark.parametrize("folder", [KEYS_FOLDER, TURNS_FOLDER])
def test_scan_log_truncated_file_is_named_with_a_remedy(tmp_path: Path, folder: str) -> None:
    asyncio.run(write_turns(writer_at(output_at(tmp_path)), address_of(), turn_of()))
    (file,) = (tmp_path / folder).glob("*.parquet")
    file.write_bytes(file.read_bytes()[:-10])
    if folder != KEYS_FOLDER:
        shutil.rmtree(tmp_path / KEYS_FOLDER)
    with pytest.raises(OutputError, match=f"{file.name}.*restore it, or delete it"):
        scan_log(output_at(tmp_path), fingerprint="f")


@pytest.mark.parametrize("hours", [-1, 0, 1])
def test_run_id_sorts_behind_the_run_before_whatever_the_clock_has_done(hours: int) -> None:
    before = datetime.now(UTC) - timedelta(hours=hours)
    after = before.strftime("%Y%m%dT%H%M%S.999Z") + ".ffff"
    ids = [after]
    for _ in range(1000):
        ids.append(new_run_id(after=ids[-1]))
    assert ids == sorted(set(ids))
    assert all(datetime.strptime(run_id[:20], "%Y%m%dT%H%M%S.%fZ") for run_id in ids)
    assert new_run_id(after="no time").startswith("2")


RUNS = ("20260101T120000.000Z.aaaa", "20260101T120000.001Z.0000")
"""An attempt, and the one after it, for which the clock went back an hour."""
ELEVEN = datetime(2026, 1, 1, 11, tzinfo=UTC)
FAILED, OK = Status.FAILED, Status.OK


@pytest.mark.parametrize(
    ("outcomes", "stands"),
    [
        ([(FAILED, RUNS[0], NOON), (OK, RUNS[0], NOON), (OK, RUNS[0], NOON)], 1),
        ([(FAILED, RUNS[0], NOON), (FAILED, RUNS[0], NOON)], 1),
        ([(FAILED, RUNS[0], NOON), (FAILED, RUNS[1], ELEVEN)], 1),
        ([(OK, RUNS[1], NOON), (OK, RUNS[0], ELEVEN)], 0),
    ],
    ids=["first ok", "last failure", "later run by an earlier clock", "superseded attempt that writes late"],
)
@pytest.mark.parametrize("writers", ["abc", "cba"])
async def test_outcome_that_stands_is_the_first_that_is_ok_of_the_latest_run(
    tmp_path: Path, outcomes: list[tuple[Status, str, datetime]], stands: int, writers: str
) -> None:
    output, address = output_at(tmp_path), address_of()
    for number, ((status, run_id, moment), writer_id) in enumerate(zip(outcomes, writers, strict=False)):
        row = outcome_of(status, response=str(number), finished_at=moment + timedelta(seconds=number))
        await writer_at(output, run_id=run_id, writer_id=writer_id).record_outcome(address, row)
    assert current_outcome(output, address)["response"] == str(stands)


def find_texts(turns: LoggedTurns, *, is_sampled: bool = False) -> list[str]:
    """Texts of the turns that are found for the first update of the text, in the order in which they are taken."""
    prompt, _ = turn_of()
    rows = turns.find(
        kind=prompt.kind,
        prompt_hash=token_hash(prompt.token_ids),
        document_hash=address_of().document_hash,
        path=prompt.path,
        is_sampled=is_sampled,
    )
    return [row["text"] for row in rows]


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (4, 2, 0, 3, 1)])
async def test_turn_is_found_by_its_prompt_and_none_but_its_own_place_if_it_is_sampled(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    output, mine, grown = output_at(tmp_path), address_of(), address_of("text and more")
    prompt = Prompt(path="update/0", kind="answer", token_ids=(1, 2), max_tokens=4)
    turns = [
        (mine, *turn_of(text="here")),
        (mine, *turn_of("update/7", text="repeated")),
        (grown, *turn_of(text="grown")),
        (grown, *turn_of("update/9", text="moved")),
        (mine, prompt, turn_of()[1]),
    ]
    for number in order:
        address, asked, completion = turns[number]
        await write_turns(writer_at(output, writer_id=str(number)), address, (asked, completion), document_id="d")
    files, hashes = (output / TURNS_FOLDER).files(), {"document_hash": mine.document_hash, "document_id": "d"}
    logged = DocumentTurns(output, files, fingerprints=["f"], **hashes).of_reading(mine.question_hash, 0)["f"]
    assert find_texts(logged) == ["here", "repeated", "grown", "moved"], "an answer with the prompt is another turn"
    assert find_texts(logged, is_sampled=True) == ["here"]
    other = DocumentTurns(output, files, fingerprints=["f"], **hashes | {"document_id": "e"})
    assert find_texts(other.of_reading(mine.question_hash, 0)["f"]) == ["here", "repeated"]


@pytest.mark.parametrize("writers", ["ab", "ba"])
async def test_turn_that_several_attempts_logged_is_that_of_the_last_run_whoever_wrote_first(
    tmp_path: Path, writers: str
) -> None:
    output, texts = output_at(tmp_path), []
    for run_id, writer_id, text in ((RUNS[1], writers[0], "x"), (RUNS[1], writers[1], "y"), (RUNS[0], "a", "z")):
        await write_turns(writer_at(output, run_id=run_id, writer_id=writer_id), address_of(), turn_of(text=text))
        texts.append((hash_turn(*turn_of(text=text)), text))
    found = find_texts(turns_of_text(output))
    assert found == [text for _, text in [*sorted(texts[:2]), texts[2]]]


@pytest.mark.parametrize("ended_by", ["a", "b"])
async def test_turns_of_a_reader_that_was_cut_off_and_of_its_replacement_are_not_mixed(
    tmp_path: Path, ended_by: str
) -> None:
    output, address = output_at(tmp_path), address_of()
    writers = {name: writer_at(output, writer_id=name) for name in "ab"}
    turns = {
        name: [turn_of(text=f"first of {name}"), turn_of("update/1", text=f"second of {name}")] for name in writers
    }
    await write_turns(writers["a"], address, turns["a"][0])
    await write_turns(writers["b"], address, *turns["b"])
    await write_turns(writers["a"], address, turns["a"][1], turn_of("update/2", text="only a"))
    hashes = [hash_turn(*turn) for turn in turns[ended_by]]
    await writers[ended_by].record_outcome(address, outcome_of() | {"turn_hashes": hashes})
    later = writer_at(output, run_id="run-later")
    await write_turns(later, address, *turns[ended_by], turn_of("update/3", text="later"))
    outcome = read_outcomes(output, (output / OUTCOMES_FOLDER).files(), fingerprint="f")[reading_key(address)]
    rows = turns_of_text(output).of_outcome(outcome).by_path()
    texts = {path: row["text"] for path, row in rows.items()}
    assert texts == {"update/0": f"first of {ended_by}", "update/1": f"second of {ended_by}"}
    assert {row["run_id"] for row in rows.values()} == {"run"}


async def test_turns_of_a_document_are_loaded_for_one_reading_at_a_time_and_not_held_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns_of_log, "SORTED_ROWS", 3)
    output, text = output_at(tmp_path), "x" * 100_000
    addresses = [
        replace(address_of(version), question_hash=text_hash(question), sample=sample)
        for version in ("text", "before", "long before")
        for question in ("first", "second")
        for sample in range(2)
    ]
    for number in range(4):
        writer = writer_at(output, writer_id=f"w{number}")
        for address in addresses:
            for path in (f"update/{number}", f"update/{number + 10}"):
                writer.record_turn(address, *turn_of(path, text=f"{path} {text}"), document_id="d")
        await writer.flush()
    files, document_hash = (output / TURNS_FOLDER).files(), addresses[0].document_hash
    whole = read_turns(output, files, fingerprints=["f"], document_hashes=[document_hash])["f"]
    before = pa.total_allocated_bytes()
    turns = DocumentTurns(output, files, fingerprints=["f"], document_hash=document_hash, document_id="d")
    assert pa.total_allocated_bytes() - before < 100_000
    for address in addresses[:4]:
        loaded = turns.of_reading(address.question_hash, address.sample)["f"]
        assert loaded.by_path().keys() == whole[reading_key(address)].by_path().keys()
        assert len(loaded) == 2 * 8, "of the turns that two other versions have, one each"
    assert pa.total_allocated_bytes() - before < 100_000
    assert len(turns.of_reading(text_hash("third"), 0)["f"]) == 0

"""What stands between a policy and the engine: replay, the log, counts."""

import asyncio
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.config.job import LogConfig
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.index import reading_key
from memagent_batch.data.store.turn_log.turns import DocumentTurns, LoggedTurn, LoggedTurns, read_turns
from memagent_batch.data.store.turn_log.writer import TurnLogWriter
from memagent_batch.errors import NotLoggedError, TurnUnansweredError
from memagent_batch.loop.addresses import ReadingAddress, token_hash
from memagent_batch.run.reading.places import ALONE_DEATHS, Suspects, TurnPlaces
from memagent_batch.run.reading.read import ReadingTurns, ReplayOnly, TurnCounts
from memagent_batch.types import Completion, FinishReason, Prompt, Writes

ADDRESS = ReadingAddress(document_hash="d", question_hash="q", sample=0, fingerprint="f")
FRESH = Completion(
    token_ids=(2, 3),
    text="fresh",
    finish_reason=FinishReason.LENGTH,
    num_prompt_tokens=5,
    num_cached_prompt_tokens=4,
    engine_seconds=0.5,
)


class FreshEngine(ReplayOnly):
    """Answers every prompt with the same completion, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Prompt] = []
        self.seeds: list[int] = []

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        self.asked.append(prompt)
        self.seeds.append(seed)
        await asyncio.sleep(0)
        return FRESH


class FailingEngine(ReplayOnly):
    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        raise TimeoutError(prompt.path)


def prompt_of(path: str = "update/0", *, token_ids: tuple[int, ...] = (10, 11)) -> Prompt:
    writes = None if path == "answer" else Writes.MEMORY
    return Prompt(path=path, kind="k", token_ids=token_ids, max_tokens=4, writes=writes)


def row_of(prompt: Prompt, *, address: ReadingAddress = ADDRESS) -> Any:
    """What a replay needs of the prompt's turn as the log holds it."""
    return {
        "run_id": "run",
        "document_hash": address.document_hash,
        "path": prompt.path,
        "turn_hash": prompt.path,
        "kind": prompt.kind,
        "prompt_hash": token_hash(prompt.token_ids),
        "token_ids": [1],
        "text": "held",
        "finish_reason": "stop",
        "logprobs": None,
        "num_prompt_tokens": 3,
        "num_cached_prompt_tokens": 0,
        "engine_seconds": 2.0,
        "num_billed_tokens": None,
        "menu_logprobs": None,
    }


def logged_rows(*rows: Any) -> LoggedTurns:
    """Rows of one reading as they are read from the log."""
    names = ("run_id", "document_hash", "path", "kind", "prompt_hash", "turn_hash")
    return LoggedTurns(
        LoggedTurn(row_at=[row].__getitem__, number=0, **{name: row[name] for name in names}) for row in rows
    )


def turns_of(
    engine: ReplayOnly,
    *from_log: Prompt,
    observe: Callable[[Prompt, Completion], None] | None = None,
    is_sampled: bool = False,
) -> ReadingTurns:
    logged = {"f": logged_rows(*map(row_of, from_log))}
    return ReadingTurns(engine=engine, address=ADDRESS, seed=7, from_log=logged, observe=observe, is_sampled=is_sampled)


async def test_turn_that_the_log_holds_is_replayed_and_marked_so() -> None:
    completion = await turns_of(FailingEngine(), prompt_of())(prompt_of())
    assert (completion.text, completion.replayed) == ("held", True)


@pytest.mark.parametrize(
    ("prompt", "is_sampled", "text"),
    [
        (prompt_of(token_ids=(10, 12)), False, "fresh"),
        (replace(prompt_of(), kind="other"), False, "fresh"),
        (prompt_of("update/1"), False, "held"),
        (prompt_of("update/1"), True, "fresh"),
        (prompt_of(), True, "held"),
    ],
    ids=["another prompt", "another kind", "another path", "another path that is sampled", "the same that is sampled"],
)
async def test_turn_without_a_logged_one_of_its_prompt_asks_the_engine_with_its_own_seed(
    prompt: Prompt, text: str, *, is_sampled: bool
) -> None:
    engine = FreshEngine()
    completion = await turns_of(engine, prompt_of(), is_sampled=is_sampled)(prompt)
    assert (completion.text, completion.replayed) == (text, text == "held")
    assert engine.seeds == [ADDRESS.turn_seed(prompt.path, seed=7)] * (text == "fresh")


async def test_turn_that_is_not_held_where_readings_are_replayed_is_an_error() -> None:
    with pytest.raises(NotLoggedError, match="update/1"):
        await turns_of(ReplayOnly(), prompt_of())(prompt_of("update/1", token_ids=(10, 12)))


async def test_turns_are_observed_in_the_order_of_asking_replayed_ones_included() -> None:
    seen: list[tuple[str, int | None, str]] = []
    turns = turns_of(
        FreshEngine(), prompt_of(), observe=lambda prompt, done: seen.append((prompt.path, prompt.number, done.text))
    )
    for number, path in enumerate(("update/0", "update/1", "answer")):
        await turns(prompt_of(path, token_ids=(10, 11 + number)))
    assert seen == [("update/0", 0, "held"), ("update/1", 1, "fresh"), ("answer", 2, "fresh")]


async def test_turns_asked_side_by_side_are_numbered_in_the_order_of_asking() -> None:
    engine = FreshEngine()
    turns = turns_of(engine)
    asked = ["update/2", "update/0", "update/1"]
    await asyncio.gather(*[turns(prompt_of(path, token_ids=(number,))) for number, path in enumerate(asked)])
    assert [(prompt.number, prompt.path) for prompt in engine.asked] == [*enumerate(asked)]


async def test_suspects_that_wait_leave_the_places_of_the_engine_to_others(tmp_path: Path) -> None:
    suspected = [replace(ADDRESS, document_hash=f"suspect {number}") for number in range(4)]
    suspects = Suspects([(reading_key(address), "f", "update/0") for address in suspected] * ALONE_DEATHS)
    places = TurnPlaces(2)
    log = TurnLogWriter(Location(uri=str(tmp_path)), run_id="r", writer_id="w", settings=LogConfig())
    may_end, ended = asyncio.Event(), list[str]()

    class Engine(ReplayOnly):
        async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
            if prompt.path == "update/0":
                await may_end.wait()
            return FRESH

    async def ask(address: ReadingAddress, path: str) -> None:
        turns = ReadingTurns(engine=Engine(), address=address, seed=7, log=log, suspects=suspects, places=places)
        await turns(prompt_of(path))
        ended.append(path)

    asked = [asyncio.create_task(ask(address, "update/0")) for address in suspected]
    await asyncio.wait_for(asyncio.gather(*(ask(ADDRESS, f"update/{number}") for number in range(1, 9))), 10)
    assert ended == [f"update/{number}" for number in range(1, 9)]
    may_end.set()
    await asyncio.gather(*asked)
    await log.flush()


async def test_turn_that_failed_is_neither_counted_nor_observed() -> None:
    seen: list[Prompt] = []
    turns = turns_of(FailingEngine(), observe=lambda prompt, _: seen.append(prompt))
    with pytest.raises(TimeoutError):
        await turns(prompt_of())
    assert not seen
    assert turns.counts == TurnCounts()


@given(num_reused=st.integers(0, 4), num_fresh=st.integers(0, 4), answered=st.booleans())
def test_counts_of_any_reading_sum_what_its_turns_cost(num_reused: int, num_fresh: int, answered: bool) -> None:
    paths = [f"update/{number}" for number in range(num_reused + num_fresh)] + ["answer"] * answered
    prompts = [prompt_of(path, token_ids=(10, number)) for number, path in enumerate(paths)]
    turns = turns_of(FreshEngine(), *prompts[:num_reused])

    async def read() -> None:
        for prompt in prompts:
            await turns(prompt)

    asyncio.run(read())
    new = num_fresh + answered
    assert asdict(turns.counts) == {
        "num_turns": num_reused + new,
        "num_replayed_turns": num_reused,
        "num_prompt_tokens": 3 * num_reused + 5 * new,
        "num_cached_prompt_tokens": 4 * new,
        "num_completion_tokens": num_reused + 2 * new,
        "engine_seconds": 2.0 * num_reused + 0.5 * new,
        "memory_truncations": num_fresh,
    }


async def test_turn_that_is_replayed_counts_the_hidden_thoughts_that_were_billed() -> None:
    logged = {"f": logged_rows({**row_of(prompt_of()), "num_billed_tokens": 900})}
    turns = replace(turns_of(FreshEngine()), from_log=logged)
    completion = await turns(prompt_of())
    assert (completion.token_ids, turns.counts.num_completion_tokens) == ([1], 900)


def log_at(folder: Path) -> TurnLogWriter:
    output = Location(uri=str(folder))
    return TurnLogWriter(output, run_id="run", writer_id="w", settings=LogConfig(flush_seconds=600))


async def test_new_turns_are_recorded_and_replayed_ones_are_not(tmp_path: Path) -> None:
    log, held = log_at(tmp_path), prompt_of("update/9", token_ids=(10, 9))
    turns = replace(turns_of(FreshEngine(), held), log=log, document_id="name")
    for prompt in (prompt_of(), held, prompt_of("answer")):
        await turns(prompt)
    await log.flush()
    rows = rows_at(tmp_path)
    assert {path: row["turn"] for path, row in rows.items()} == {"update/0": 0, "answer": 2}
    assert {row["document_id"] for row in rows.values()} == {"name"}
    assert turns.turn_hashes[::2] == [rows[path]["turn_hash"] for path in ("update/0", "answer")]


@pytest.mark.parametrize(
    ("run_id", "text", "asked"),
    [
        ("earlier", " ", 1),
        ("earlier", "<think>a</think>", 1),
        ("earlier", "I'm sorry, I can't assist with that.", 1),
        ("earlier", "M1", 0),
        ("run", "M1", 0),
    ],
)
@pytest.mark.parametrize("path", ["update/0", "merge/1/0/0"])
async def test_turn_that_said_nothing_in_an_earlier_run_is_asked_again(
    run_id: str, text: str, asked: int, path: str, tmp_path: Path
) -> None:
    prompt, engine, log = prompt_of(path), FreshEngine(), log_at(tmp_path)
    logged = {"f": logged_rows({**row_of(prompt), "run_id": run_id, "text": text})}
    await replace(turns_of(engine), from_log=logged, log=log)(prompt)
    await log.flush()
    assert len(engine.asked) == asked


@pytest.mark.parametrize("path", ["update/0", "merge/1/0/1", "answer"])
@pytest.mark.parametrize(
    ("text", "reason", "why"),
    [
        ("", FinishReason.STOP, "nothing, and ended by itself"),
        (" \n\u200b", FinishReason.STOP, "nothing, and ended by itself"),
        ("", FinishReason.LENGTH, "nothing, and had used up its budget of 4 tokens.*openai.thinking_tokens"),
        ("<think>Maybe 9", FinishReason.LENGTH, "a thought that is not closed, and had used up"),
        ("<think>Maybe 9</think>\n", FinishReason.STOP, "nothing but a thought"),
        ("I\u2019m sorry, but I can\u2019t assist with that.", FinishReason.STOP, "the model refused"),
    ],
)
async def test_turn_that_says_nothing_is_recorded_counted_and_not_read(
    text: str, reason: FinishReason, why: str, path: str, tmp_path: Path
) -> None:
    class Engine(FreshEngine):
        async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
            return replace(FRESH, text=text, finish_reason=reason)

    log = log_at(tmp_path)
    turns = replace(turns_of(Engine()), log=log)
    with pytest.raises(TurnUnansweredError, match=f"turn {path} was not read: .*{why}"):
        await turns(prompt_of(path))
    await log.flush()
    assert (rows_at(tmp_path)[path]["text"], turns.counts.num_turns) == (text, 1)


async def test_turns_of_another_version_are_copied_and_the_new_version_is_whole_in_the_log(tmp_path: Path) -> None:
    engine, log = FreshEngine(), log_at(tmp_path)
    last = replace(ADDRESS, document_hash="last")
    for path, token_ids, text in (("read/4", (10, 12), "moved"), ("read/5", (10, 13), "stays")):
        prompt = replace(prompt_of(path, token_ids=token_ids), kind="read")
        log.record_turn(last, prompt, replace(FRESH, text=text), document_id="name")
    log.record_turn(last, prompt_of("answer", token_ids=(10, 14)), FRESH, document_id="name")
    await log.flush()
    turns = replace(turns_of(engine), log=log, from_log=from_log_at(tmp_path), document_id="name")
    asked = [("read/4", (10, 11)), ("read/5", (10, 12)), ("read/6", (10, 13)), ("read/7", (10, 14))]
    prompts = [replace(prompt_of(path, token_ids=token_ids), kind="read") for path, token_ids in asked]
    texts = [(await turns(prompt)).text for prompt in prompts]
    assert texts == ["fresh", "moved", "stays", "fresh"], "a prompt of another kind is another turn"
    assert [prompt.path for prompt in engine.asked] == ["read/4", "read/7"]
    await log.flush()
    rows = rows_at(tmp_path)
    assert {path: (row["text"], row["turn"], row["is_copy"]) for path, row in rows.items()} == {
        path: (text, number, text != "fresh") for number, ((path, _), text) in enumerate(zip(asked, texts, strict=True))
    }
    assert {tuple(row["token_ids"]) for row in rows.values()} == {FRESH.token_ids}
    again = replace(turns_of(ReplayOnly()), log=log_at(tmp_path), from_log=from_log_at(tmp_path))
    assert [(await again(prompt)).text for prompt in prompts] == texts
    await log.flush()
    assert len(list((tmp_path / "log" / "turns").iterdir())) == 2, "what is there is not written again"
    assert again.turn_hashes == turns.turn_hashes


async def test_turn_is_taken_from_the_version_that_a_later_run_read(tmp_path: Path) -> None:
    engine = FreshEngine()
    prompts = [prompt_of(f"update/{number}", token_ids=(10, number)) for number in range(3)]
    for version, read in (("early", prompts[:2]), ("late", prompts[:1])):
        log = TurnLogWriter(Location(uri=str(tmp_path)), run_id=f"run {version}", writer_id="w", settings=LogConfig())
        for prompt in read:
            completion = replace(FRESH, text=f"{prompt.path} of {version}")
            log.record_turn(replace(ADDRESS, document_hash=version), prompt, completion, document_id="name")
        await log.flush()
    turns = replace(turns_of(engine), from_log=from_log_at(tmp_path))
    texts = [(await turns(prompt)).text for prompt in prompts]
    assert texts == ["update/0 of late", "update/1 of early", "fresh"]


def turn_files(folder: Path) -> list[str]:
    return [str(path) for path in (folder / "log" / "turns").iterdir()]


def from_log_at(folder: Path) -> dict[str, LoggedTurns]:
    """What the log of a folder holds for the reading, of all versions of the document `name`."""
    of_document = {"document_hash": ADDRESS.document_hash, "document_id": "name"}
    turns = DocumentTurns(Location(uri=str(folder)), turn_files(folder), fingerprints=["f"], **of_document)
    return turns.of_reading(ADDRESS.question_hash, ADDRESS.sample)


def rows_at(folder: Path) -> Any:
    """The rows of the reading in the log of a folder, by path."""
    output, hashes = Location(uri=str(folder)), [ADDRESS.document_hash]
    turns = read_turns(output, turn_files(folder), fingerprints=["f"], document_hashes=hashes)["f"]
    return turns[reading_key(ADDRESS)].by_path()


async def test_turns_wait_for_room_in_the_log_before_they_ask_the_engine(tmp_path: Path) -> None:
    engine, room = FreshEngine(), asyncio.Event()

    class FullLog(TurnLogWriter):
        async def room(self) -> None:
            await room.wait()

    log = FullLog(Location(uri=str(tmp_path)), run_id="run", writer_id="w", settings=LogConfig())
    turns = replace(turns_of(engine), log=log)
    turn = asyncio.create_task(turns(prompt_of()))
    await asyncio.sleep(0.02)
    assert not engine.asked
    room.set()
    assert (await turn).text == "fresh"
    await log.flush()


async def test_turn_with_a_fingerprint_of_its_own_is_held_recorded_and_seeded_apart_from_its_reading() -> None:
    follow_up, other = (replace(prompt_of("value"), fingerprint=name) for name in "cd")
    engine = FreshEngine()
    turns = turns_of(engine, prompt_of("value"))
    turns.from_log = {**turns.from_log, "d": logged_rows(row_of(other))}
    assert not (await turns(follow_up)).replayed  # the reader's own turn with that prompt is another one
    assert engine.seeds == [replace(ADDRESS, fingerprint="c").turn_seed("value", seed=7)]
    assert (await turns(other)).text == "held"
    assert (await turns(follow_up)).replayed, "of two types of one question it is asked once"
    assert turns.turn_hashes == []

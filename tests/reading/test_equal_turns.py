"""Turns of other documents with the same prompt: asked once, and whole in the log of each."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.cli.settings import job_of
from memagent_batch.config.job import LogConfig
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.turns import read_turns
from memagent_batch.data.store.turn_log.writer import TurnLogWriter
from memagent_batch.errors import EngineDeadError, EngineRequestError, TurnUnansweredError
from memagent_batch.loop.addresses import ReadingAddress
from memagent_batch.run.flows.answer import answer
from memagent_batch.run.reading import places
from memagent_batch.run.reading.places import EqualTurns, Suspects
from memagent_batch.run.reading.read import ReadingTurns, ReplayOnly
from memagent_batch.types import Completion, FinishReason, Prompt
from tests import prompt_dependent_engine
from tests.jobs import put_texts, small_settings
from tests.tables import table_rows


def prompt_of(*token_ids: int, path: str = "read/1/0", kind: str = "read", max_tokens: int = 4) -> Prompt:
    return Prompt(path=path, kind=kind, token_ids=token_ids, max_tokens=max_tokens)


def address_of(document: str, *, question: str = "q", fingerprint: str = "f") -> ReadingAddress:
    return ReadingAddress(document_hash=document, question_hash=question, sample=0, fingerprint=fingerprint)


class Engine(ReplayOnly):
    """Writes the number of the request; the first requests do what they are told instead."""

    def __init__(self, *first: str | Exception) -> None:
        self.asked = self.most_at_once = self._at_once = 0
        self._first = [*first]

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        self.asked += 1
        text: str | Exception = f"written {self.asked}"
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        await asyncio.sleep(0.01)
        self._at_once -= 1
        if self._first:
            text = self._first.pop(0)
        if isinstance(text, Exception):
            raise text
        return Completion(
            token_ids=tuple(range(len(text.split()))),
            text=text,
            finish_reason=FinishReason.STOP,
            num_prompt_tokens=len(prompt.token_ids),
            num_cached_prompt_tokens=0,
            engine_seconds=0.5,
        )


def turns_of(engine: Engine, equal: EqualTurns, document: str = "a", **settings: Any) -> ReadingTurns:
    address = settings.pop("address", address_of(document))
    return ReadingTurns(engine=engine, address=address, seed=7, equal=equal, **settings)


async def test_turn_of_another_document_with_the_same_prompt_is_taken_and_logged_as_its_own(tmp_path: Path) -> None:
    engine, equal, output = Engine(), EqualTurns(), Location(uri=str(tmp_path))
    log = TurnLogWriter(output, run_id="run", writer_id="w", settings=LogConfig())
    found = [await turns_of(engine, equal, name, log=log, document_id=name)(prompt_of(1, 2)) for name in "abc"]
    await log.flush()
    assert engine.asked == 1
    assert [(each.text, each.replayed) for each in found] == [("written 1", number > 0) for number in range(3)]
    files = [path for path in output.files() if "/turns/" in path]
    logged = read_turns(output, files, fingerprints=["f"], document_hashes=["a", "b", "c"])["f"]
    rows = {key[0]: turns.by_path()["read/1/0"] for key, turns in logged.items()}
    assert {name: (row["text"], row["is_copy"]) for name, row in rows.items()} == {
        "a": ("written 1", False),
        "b": ("written 1", True),
        "c": ("written 1", True),
    }


async def test_turns_at_the_same_time_wait_for_the_first_one() -> None:
    engine, equal = Engine(), EqualTurns()
    found = await asyncio.gather(*[turns_of(engine, equal, f"d{number}")(prompt_of(1)) for number in range(50)])
    assert engine.asked == 1
    assert {each.text for each in found} == {"written 1"}


async def test_turns_that_waited_for_one_that_fails_are_asked_side_by_side() -> None:
    refused = EngineRequestError("refused")
    engine, equal = Engine(refused, refused), EqualTurns()
    asked = [turns_of(engine, equal, f"d{number}")(prompt_of(1)) for number in range(5)]
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert found[:2] == [refused, refused]
    assert {each.text for each in found[2:] if isinstance(each, Completion)} == {"written 3", "written 4", "written 5"}
    assert engine.most_at_once == 4


async def test_reading_makes_no_further_prompts_while_it_waits_for_an_equal_turn() -> None:
    engine, equal = Engine(), EqualTurns()
    first = asyncio.ensure_future(turns_of(engine, equal, "a")(prompt_of(1)))
    await asyncio.sleep(0)
    turns = turns_of(engine, equal, "b")
    second = asyncio.ensure_future(turns(prompt_of(1)))
    await turns.room()
    assert first.done()
    await asyncio.sleep(0)
    assert (await second).text == "written 1"
    await turns.room()


async def test_turn_that_waits_counts_as_in_flight_when_the_engine_dies() -> None:
    engine, equal, suspects = Engine(EngineDeadError("killed")), EqualTurns(), Suspects()
    asked = [turns_of(engine, equal, name, suspects=suspects)(prompt_of(1)) for name in "abc"]
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(found[0], EngineDeadError)
    assert [key[0][0] for key in suspects.at_death] == ["a", "b", "c"]


async def test_turn_that_is_given_up_while_others_wait_for_it_leaves_its_place_to_one_of_them() -> None:
    engine, equal = Engine(), EqualTurns()
    first = asyncio.ensure_future(turns_of(engine, equal, "a")(prompt_of(1)))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(turns_of(engine, equal, "b")(prompt_of(1)))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).text == "written 2"


async def test_completion_that_says_nothing_is_asked_again_by_each() -> None:
    engine, equal = Engine("", ""), EqualTurns()
    for name in "ab":
        with pytest.raises(TurnUnansweredError):
            await turns_of(engine, equal, name)(prompt_of(1))
    assert (await turns_of(engine, equal, "c")(prompt_of(1))).text == "written 3"


@pytest.mark.parametrize(
    ("prompt", "settings"),
    [
        (prompt_of(1, 3), {}),
        (prompt_of(1, 2, kind="merge"), {}),
        (prompt_of(1, 2, max_tokens=5), {}),
        (prompt_of(1, 2), {"address": address_of("b", fingerprint="g")}),
        (prompt_of(1, 2), {"is_sampled": True}),
    ],
    ids=["prompt", "kind", "budget", "fingerprint", "sampled"],
)
async def test_turn_that_differs_is_asked(prompt: Prompt, settings: Mapping[str, Any]) -> None:
    engine, equal = Engine(), EqualTurns()
    await turns_of(engine, equal)(prompt_of(1, 2))
    assert (await turns_of(engine, equal, "b", **settings)(prompt)).text == "written 2"


async def test_completions_that_were_not_used_for_longest_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "KEPT_TOKENS", 3 * places.LEAST_TOKENS)
    engine, equal = Engine(), EqualTurns()

    async def text_of(number: int) -> str:
        return (await turns_of(engine, equal)(prompt_of(number))).text

    assert [await text_of(number) for number in (1, 2, 3)] == ["written 1", "written 2", "written 3"]
    assert await text_of(1) == "written 1"
    assert await text_of(4) == "written 4"
    assert [await text_of(number) for number in (1, 3, 4)] == ["written 1", "written 3", "written 4"]
    assert await text_of(2) == "written 5"


def test_contracts_of_one_template_are_read_as_if_each_were_alone(text_model: str, tmp_path: Path) -> None:
    """The chunks behind the first page are the same; the tables are those of runs of one document each."""
    clauses = " ".join(f"Clause {number} says what either party owes the other." for number in range(60))
    texts = {f"{name}.txt": f"Between {name} and us.\n\n{clauses}" for name in ("acme", "bolt", "crow")}
    put_texts(tmp_path / "in", texts)
    settings = small_settings(tmp_path, text_model, ask=("Who?",), engine=prompt_dependent_engine.KIND)
    settings["policy"] |= {"kind": "parallel"}
    job = job_of(**settings, allow_code=True)
    answer(job)
    rows = {row["document_id"]: row for row in table_rows(job.output, "answers")}
    num_alone = 0
    for name in texts:
        put_texts(tmp_path / f"in-{name}", {name: texts[name]})
        alone = job.model_copy(update={"documents": (str(tmp_path / f"in-{name}"),), "output": f"{job.output}-{name}"})
        answer(alone)
        (row,) = table_rows(alone.output, "answers")
        for column in ("answer", "response", "num_turns", "num_prompt_tokens", "num_completion_tokens"):
            assert row[column] == rows[name][column], column
        num_alone += row["num_replayed_turns"]
    assert num_alone + 10 < sum(row["num_replayed_turns"] for row in rows.values())

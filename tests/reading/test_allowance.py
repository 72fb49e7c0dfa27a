"""What an actor may still take: bounds are never passed, whatever turns take and however many actors draw."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.domain.bounds import Bounds, Meter
from memagent_batch.domain.turns import Completion, FinishReason, Prompt
from memagent_batch.errors import BoundReachedError, EngineRequestError, PromptTooLongError
from memagent_batch.ray_data.ledger import Ledger
from memagent_batch.reading.allowance import Allowance, BoundedEngine

Turn = tuple[int, int, int]
"""Tokens of the prompt, budget of the completion, tokens of the completion."""
TURNS = st.lists(
    st.integers(1, 40).flatmap(lambda most: st.tuples(st.integers(1, 60), st.just(most), st.integers(0, most)))
)


def meters(tokens: int, cost: int) -> list[Meter]:
    return [
        Meter(name="max_tokens", most=tokens, per_prompt_token=1, per_completion_token=1),
        Meter(name="max_cost", most=cost, per_prompt_token=2, per_completion_token=7),
    ]


FAILURES = {
    -1: PromptTooLongError("no"),
    -2: EngineRequestError("no"),
    -3: EngineRequestError("no", is_turned_away=True),
}
"""What a turn of so many tokens raises."""


class Scripted:
    """An engine whose completions have the lengths that their prompts' paths say; sums what it was asked."""

    def __init__(self) -> None:
        self.taken = [0, 0]
        self.num_turns = 0

    async def start(self) -> None:
        """Nothing to start."""

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        await asyncio.sleep(0)
        tokens = int(prompt.path)
        if tokens < 0:
            raise FAILURES[tokens]
        self.num_turns += 1
        size = len(prompt.token_ids)
        self.taken = [self.taken[0] + size + tokens, self.taken[1] + 2 * size + 7 * tokens]
        return Completion(
            token_ids=[0] * tokens, text="", finish_reason=FinishReason.STOP, num_prompt_tokens=size, engine_seconds=0.0
        )

    async def stop(self) -> None:
        """Nothing to stop."""


def prompt(turn: Turn) -> Prompt:
    return Prompt(path=str(turn[2]), kind="update", token_ids=[0] * turn[0], max_tokens=turn[1])


def allowance(bounds: Bounds, ledger: Ledger) -> Allowance:
    return Allowance(bounds, draw=ledger.draw, strike=ledger.strike, put=ledger.put)


async def read_all(engine: BoundedEngine, turns: Sequence[Turn]) -> int:
    """Asks all at once; returns how many were refused."""
    ends = await asyncio.gather(*(engine.complete(prompt(turn), seed=0) for turn in turns), return_exceptions=True)
    others = [end for end in ends if isinstance(end, BaseException) and not isinstance(end, BoundReachedError)]
    assert not others
    return sum(isinstance(end, BoundReachedError) for end in ends)


@given(st.lists(TURNS, min_size=1, max_size=3), st.integers(1, 2000), st.integers(1, 6000))
def test_no_bound_is_passed_and_what_is_refused_would_not_have_fitted(
    actors: list[list[Turn]], tokens: int, cost: int
) -> None:
    async def run() -> None:
        bounds, scripted = Bounds(meters=meters(tokens, cost)), Scripted()
        ledger = Ledger(bounds, actors=len(actors), seconds_taken=0.0)
        engines = [BoundedEngine(scripted, allowance(bounds, ledger)) for _ in actors]
        refused = await asyncio.gather(*map(read_all, engines, actors))
        assert scripted.taken[0] <= tokens
        assert scripted.taken[1] <= cost
        assert (await ledger.struck() is not None) == any(refused)
        if any(refused) and len(actors) == 1:
            most = [max(size + budget for size, budget, _ in actors[0]), max(2 * p + 7 * b for p, b, _ in actors[0])]
            assert scripted.taken[0] + most[0] > tokens or scripted.taken[1] + most[1] > cost

    asyncio.run(run())


def test_a_bound_that_suffices_refuses_nothing_though_turns_wait_for_each_other() -> None:
    async def run() -> None:
        bounds, scripted = Bounds(meters=meters(200 * 20 + 50, 10**9)), Scripted()
        ledger = Ledger(bounds, actors=1, seconds_taken=0.0)
        assert await read_all(BoundedEngine(scripted, allowance(bounds, ledger)), [(15, 50, 5)] * 200) == 0
        assert scripted.num_turns == 200

    asyncio.run(run())


def test_hidden_thoughts_that_an_endpoint_bills_count() -> None:
    class Thinking(Scripted):
        async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
            return replace(await super().complete(prompt, seed=seed), num_billed_tokens=prompt.max_tokens)

    async def run() -> int:
        bounds = Bounds(meters=meters(10 * (15 + 50), 10**9))
        engine = BoundedEngine(Thinking(), allowance(bounds, Ledger(bounds, actors=1, seconds_taken=0.0)))
        return await read_all(engine, [(15, 50, 5)] * 12)

    assert asyncio.run(run()) == 2


def test_a_turn_that_failed_counts_as_the_most_and_one_that_was_not_begun_as_nothing() -> None:
    async def run(failure: int) -> int:
        bounds, scripted = Bounds(meters=meters(100, 10**9)), Scripted()
        engine = BoundedEngine(scripted, allowance(bounds, Ledger(bounds, actors=1, seconds_taken=0.0)))
        with pytest.raises(type(FAILURES[failure])):
            await engine.complete(prompt((60, 30, failure)), seed=0)
        return await read_all(engine, [(60, 30, 5)])

    assert asyncio.run(run(-1)) == 0
    assert asyncio.run(run(-2)) == 1
    assert asyncio.run(run(-3)) == 0


def test_no_turn_starts_that_would_end_after_the_time_by_the_longest_of_late() -> None:
    async def run() -> None:
        now = 0.0
        bounds = Bounds(meters=[], seconds=100.0)
        ledger = Ledger(bounds, actors=1, seconds_taken=0.0)
        own = Allowance(bounds, draw=ledger.draw, strike=ledger.strike, put=ledger.put, clock=lambda: now)
        reserved = await own.reserve(prompt((1, 1, 1)))
        now = 30.0
        own.settle(reserved, prompt_tokens=1, completion_tokens=1, seconds=30.0)
        now = 69.0
        waiting = await own.reserve(prompt((1, 1, 1)))
        now = 71.0
        late = asyncio.ensure_future(own.reserve(prompt((1, 1, 1))))
        await asyncio.sleep(0)
        assert not late.done()
        own.settle(waiting, prompt_tokens=1, completion_tokens=1, seconds=2.0)
        with pytest.raises(BoundReachedError, match="max_hours"):
            await late
        assert await ledger.struck() == "max_hours"

    asyncio.run(run())


def test_what_an_actor_gives_back_is_there_for_the_next_one_to_the_last_token() -> None:
    async def run() -> None:
        bounds, scripted = Bounds(meters=meters(100, 10**9)), Scripted()
        ledger = Ledger(bounds, actors=1, seconds_taken=0.0)
        own = allowance(bounds, ledger)
        first, second = BoundedEngine(scripted, own), BoundedEngine(scripted, allowance(bounds, ledger))
        assert await read_all(first, [(20, 10, 5)] * 2) == 0
        await own.give_back()
        assert await read_all(second, [(15, 10, 10)] * 2) == 0
        assert scripted.taken[0] == 100
        assert await read_all(first, [(1, 1, 1)]) == 1

    asyncio.run(run())


def test_nothing_is_given_back_while_a_turn_is_under_way() -> None:
    async def run() -> None:
        bounds = Bounds(meters=meters(100, 10**9))
        ledger = Ledger(bounds, actors=1, seconds_taken=0.0)
        own = allowance(bounds, ledger)
        reserved = await own.reserve(prompt((40, 10, 5)))
        await own.give_back()
        own.settle(reserved, prompt_tokens=40, completion_tokens=5, seconds=0.0)
        assert await read_all(BoundedEngine(Scripted(), own), [(45, 10, 5)]) == 0

    asyncio.run(run())

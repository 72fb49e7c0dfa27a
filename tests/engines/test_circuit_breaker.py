"""When an endpoint counts as away, on a clock that only sleeping moves."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from memagent_batch.errors import EngineUnavailableError
from memagent_batch.loop.engines.openai.outage import CircuitBreaker, Failure

REFUSED = Failure(message="refused", concerns_all=True)
BROKEN = Failure(message="500: broken")
DONE = "done"


@dataclass(slots=True, kw_only=True)
class World:
    """An endpoint that is away until a moment, and a clock."""

    away_until: float = 0.0
    """Seconds at which it answers again."""
    sign: Failure = REFUSED
    """How it fails until then."""
    now: float = 0.0
    probed_at: list[float] = field(default_factory=list)
    sent_at: list[float] = field(default_factory=list)

    def breaker(self, *, longest_seconds: float = 1800.0) -> CircuitBreaker:
        return CircuitBreaker(
            self.probe, max_retries=2, longest_seconds=longest_seconds, clock=lambda: self.now, sleep=self.sleep
        )

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)

    async def probe(self) -> Failure | None:
        self.probed_at.append(self.now)
        await asyncio.sleep(0)
        return self.sign if self.now < self.away_until else None

    async def send(self) -> str | Failure:
        self.sent_at.append(self.now)
        await asyncio.sleep(0)
        return self.sign if self.now < self.away_until else DONE


def scripted(*results: str | Failure) -> Callable[[], Awaitable[str | Failure]]:
    """A request that ends so, try after try; the last result stays."""
    left = list(results)

    async def send() -> str | Failure:
        await asyncio.sleep(0)
        return left.pop(0) if len(left) > 1 else left[0]

    return send


@pytest.mark.parametrize("sign", [REFUSED, BROKEN], ids=["refused", "500"])
async def test_answer_through_an_outage_sends_nothing_but_one_probe_at_a_time(sign: Failure) -> None:
    world = World(away_until=300, sign=sign)
    breaker = world.breaker()
    answers = await asyncio.gather(*(breaker.answer(world.send) for _ in range(64)))
    assert answers == [DONE] * 64
    assert len([moment for moment in world.sent_at if moment < 300]) == 64
    pauses = [after - before for before, after in zip(world.probed_at, world.probed_at[1:], strict=False)]
    assert all(0 < pause <= 60 for pause in pauses)
    assert max(pauses) > 30
    assert breaker.away_seconds == 0


async def test_answer_outage_that_lasts_too_long_raises_for_all_then_at_once_until_the_endpoint_is_back() -> None:
    world = World(away_until=100_000)
    breaker = world.breaker(longest_seconds=600)

    async def ask(times: int) -> list[str | BaseException]:
        return await asyncio.gather(*(breaker.answer(world.send) for _ in range(times)), return_exceptions=True)

    results = await ask(8)
    assert {type(result) for result in results} == {EngineUnavailableError}
    assert "refused; waited for 600 s (openai.outage_seconds)" in str(results[0])
    assert world.now == pytest.approx(600)
    world.now += 61
    num_probes, num_sent, began = len(world.probed_at), len(world.sent_at), world.now
    assert {type(result) for result in await ask(1000)} == {EngineUnavailableError}
    assert (len(world.probed_at) - num_probes, len(world.sent_at) - num_sent, world.now) == (1, 0, began)
    world.now = 100_001
    assert await ask(1) == [DONE]
    assert breaker.away_seconds == 0


async def test_answer_request_that_is_turned_away_again_and_again_is_not_read_and_never_failed() -> None:
    world, greedy = World(), scripted(Failure(message="429: too large", concerns_all=True))
    with pytest.raises(EngineUnavailableError, match="429: too large"):
        await world.breaker(longest_seconds=600).answer(greedy)
    assert 600 <= world.now < 700


async def test_answer_request_that_takes_the_endpoint_down_each_time_is_given_up() -> None:
    world = World()

    async def lethal() -> str | Failure:
        world.away_until = world.now + 50
        return BROKEN

    with pytest.raises(EngineUnavailableError, match="500: broken"):
        await world.breaker().answer(lethal)
    assert 10 * 50 <= world.now < 1800


async def test_answer_passing_failures_are_tried_again_after_their_pauses() -> None:
    world, request = World(), scripted(BROKEN, Failure(message="503", retry_after_seconds=20), DONE)
    assert await world.breaker().answer(request) == DONE
    assert 20 <= world.now < 25


@pytest.mark.parametrize("asked", [7.0, 90.0])
async def test_answer_retry_after_is_respected_before_the_next_probe(asked: float) -> None:
    world = World(away_until=1, sign=Failure(message="429", retry_after_seconds=asked, concerns_all=True))
    assert await world.breaker().answer(world.send) == DONE
    assert asked <= world.probed_at[0] <= asked + 1


QUEUED = Failure(message="no whole answer within 10 s", timed_out=True, was_queued=True)


async def test_answer_time_outs_while_others_are_answered_are_neither_tries_nor_an_outage() -> None:
    world = World()
    assert await world.breaker().answer(scripted(*[QUEUED] * 6, DONE)) == DONE
    assert (world.now, world.probed_at) == (0, [])


async def test_answer_request_that_is_queued_for_ever_is_left_to_the_next_run() -> None:
    with pytest.raises(EngineUnavailableError, match=r"within 10 s, 9 times while other requests were answered"):
        await World().breaker().answer(scripted(QUEUED))


async def test_answer_outage_counts_from_the_last_answer_of_any_request() -> None:
    world = World()
    breaker = world.breaker(longest_seconds=600)

    async def elsewhere() -> str:
        await breaker.answer(world.send)
        return DONE

    async def turned_away() -> str | Failure:
        world.now += 100
        await elsewhere()
        return DONE if world.now > 2000 else Failure(message="429", concerns_all=True, turned_away=True)

    assert await breaker.answer(turned_away) == DONE


async def test_answer_request_that_alone_is_turned_away_is_given_up_in_the_end() -> None:
    world = World()
    breaker = world.breaker()

    async def too_large() -> str | Failure:
        await breaker.answer(world.send)
        return Failure(message="429: too large", concerns_all=True, turned_away=True, retry_after_seconds=0)

    with pytest.raises(EngineUnavailableError, match="429: too large, again and again"):
        await breaker.answer(too_large)

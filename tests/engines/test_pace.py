"""Rate limits: how many requests go at a time, and when, against an endpoint that counts."""

import asyncio
import threading
import time

import pytest

from memagent_batch.engines.openai.pace import Pace, parse_reset
from memagent_batch.tokens.tokenizer import Tokenizer
from tests.engines.scripted_server import Reply, scripted_server
from tests.engines.test_chat import chat_reply, prompt_of, started
from tests.engines.test_openai import error_reply


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("1s", 1.0), ("6m0s", 360.0), ("20ms", 0.02), ("1h2m3.5s", 3723.5), ("7", 7.0), ("0.5", 0.5)]
    + [(value, None) for value in ("", None, "soon", "1x", "-3s", "s", "1.2.3s")],
)
def test_reset_in_the_forms_of_providers_is_read(value: str | None, seconds: float | None) -> None:
    assert parse_reset(value) == seconds


class Clock:
    """Time that passes only where somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def pace_of(clock: Clock) -> Pace:
    return Pace(clock=clock, sleep=clock.sleep)


async def test_refusals_of_one_round_halve_the_requests_once_and_answers_win_them_back() -> None:
    clock = Clock()
    pace = pace_of(clock)
    async with asyncio.TaskGroup() as group:
        all_there = asyncio.Barrier(8)

        async def refused() -> None:
            async with pace.place(num_tokens=1) as began_at:
                await all_there.wait()
                clock.now += 1
                pace.turned_away(began_at=began_at)

        for _ in range(8):
            group.create_task(refused())
    assert pace.most == 4
    for _ in range(10):
        async with pace.place(num_tokens=1):
            pace.answered({})
    assert pace.most == 6


async def test_requests_never_end_although_every_one_is_refused() -> None:
    clock = Clock()
    pace = pace_of(clock)
    for _ in range(5):
        clock.now += 1
        async with pace.place(num_tokens=1) as began_at:
            pace.turned_away(began_at=began_at)
    assert pace.most == 1


@pytest.mark.parametrize(
    ("left", "num_tokens", "waits"),
    [
        ({"tokens": 500}, 400, 0.0),
        ({"tokens": 300}, 400, 30.0),
        ({"requests": 0, "tokens": 500}, 400, 30.0),
        ({"requests": 1}, 400, 0.0),
    ],
)
async def test_request_that_a_limit_can_not_hold_waits_for_its_reset(
    left: dict[str, int], num_tokens: int, waits: float
) -> None:
    clock = Clock()
    pace = pace_of(clock)
    headers = {f"x-ratelimit-remaining-{name}": str(number) for name, number in left.items()}
    pace.answered(headers | {f"x-ratelimit-reset-{name}": "30s" for name in left})
    async with pace.place(num_tokens=num_tokens):
        assert clock.now == waits


async def test_limit_is_spent_by_the_requests_that_are_under_way() -> None:
    clock = Clock()
    pace = pace_of(clock)
    pace.answered({"x-ratelimit-remaining-tokens": "1000", "x-ratelimit-reset-tokens": "1m"})
    async with pace.place(num_tokens=600):
        assert clock.now == 0
        async with pace.place(num_tokens=600):
            assert clock.now == 60


@pytest.mark.parametrize(
    ("quota", "began"),
    [
        ({}, [0, 0, 0, 0]),
        ({"requests_per_minute": 12}, [0, 5, 10, 15]),
        ({"tokens_per_minute": 600}, [0, 40, 50, 60]),
        ({"requests_per_minute": 3, "tokens_per_minute": 600}, [0, 40, 60, 80]),
    ],
)
async def test_stated_quota_spaces_requests_without_any_word_of_the_endpoint(
    quota: dict[str, int], began: list[float]
) -> None:
    clock, times = Clock(), list[float]()
    pace = Pace(clock=clock, sleep=clock.sleep, **quota)
    for num_tokens in (400, 100, 100, 100):
        async with pace.place(num_tokens=num_tokens):
            times.append(clock.now)
    assert times == began
    clock.now += 1000
    async with pace.place(num_tokens=1):
        assert clock.now == began[-1] + 1000


async def test_engine_keeps_to_its_quota_in_requests_that_are_asked_at_once(tiny_tokenizer: Tokenizer) -> None:
    with scripted_server(chat_reply()) as script:
        async with started(script, tiny_tokenizer, requests_per_minute=600) as engine:
            before = time.monotonic()
            await asyncio.gather(*(engine.complete(prompt_of(tiny_tokenizer), seed=0) for _ in range(6)))
            assert time.monotonic() - before >= 0.5


class Counter:
    """An endpoint that turns away what is beyond two requests at a time."""

    def __init__(self) -> None:
        self.at_once = [0]
        self._lock = threading.Lock()
        self._under_way = 0

    def __call__(self, _: object) -> Reply:
        self._add(1)
        is_full = self.at_once[-1] > 2
        time.sleep(0 if is_full else 0.1)
        self._add(-1)
        return error_reply(429, "too many", **{"Retry-After": "0"}) if is_full else chat_reply()

    def _add(self, number: int) -> None:
        with self._lock:
            self._under_way += number
            self.at_once.append(self._under_way)


async def test_endpoint_with_few_places_is_given_few_requests_and_answers_every_turn(tiny_tokenizer: Tokenizer) -> None:
    with scripted_server(chat_reply()) as script:
        script.answer = Counter()
        async with started(script, tiny_tokenizer, max_retries=0) as engine:
            turns = [engine.complete(prompt_of(tiny_tokenizer), seed=0) for _ in range(30)]
            completions = await asyncio.gather(*turns)
    assert [completion.text for completion in completions] == ["noted"] * 30
    assert len(script.requests) < 160  # without a bound of its own, most requests are in vain: about 270

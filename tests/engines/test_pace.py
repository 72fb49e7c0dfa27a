"""How many requests go at a time against an endpoint that counts, or has few places."""

import asyncio
import math
import threading
import time

import pytest

from memagent_batch.loop.engines.openai.pace import MINUTE_SECONDS, MinuteLimit, Pace
from memagent_batch.loop.tokens.tokenizer import Tokenizer
from tests.engines.scripted_server import Reply, scripted_server
from tests.engines.test_chat import chat_reply, prompt_of, started
from tests.engines.test_openai import error_reply


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
    assert len(script.requests) < 160  # without its own bound, most requests are in vain: about 270


async def run_against_one_place(
    pace: Pace, *, requests: int, seconds: float, longest_seconds: float
) -> tuple[int, int]:
    """Requests that were answered, and that were given up, by a server that takes one at a time; each until it is."""
    server, counts = asyncio.Lock(), [0, 0]

    async def ask() -> None:
        while True:
            async with pace.place() as place:
                began = time.monotonic()
                try:
                    async with asyncio.timeout(longest_seconds), server:
                        await asyncio.sleep(seconds)
                except TimeoutError:
                    counts[1] += 1
                    pace.reduce(place, why="no answer")
                    continue
                counts[0] += 1
                pace.answered(place, seconds=time.monotonic() - began, budget=8)
                return

    await asyncio.gather(*(ask() for _ in range(requests)))
    return counts[0], counts[1]


@pytest.mark.parametrize(("expected", "most_given_up"), [(0.02, 10), (None, 30)])
async def test_server_with_one_place_is_given_as_many_requests_as_it_answers_in_time(
    expected: float | None, most_given_up: int, caplog: pytest.LogCaptureFixture
) -> None:
    pace = Pace(longest_seconds=0.2)
    if expected is not None:
        pace.expect(expected)
    answered, given_up = await run_against_one_place(pace, requests=100, seconds=0.02, longest_seconds=0.2)
    assert answered == 100
    assert given_up <= most_given_up
    assert expected is not None or "the endpoint is slow" in caplog.text


async def test_one_short_answer_does_not_make_long_ones_count_as_late_for_ever() -> None:
    pace, most = Pace(longest_seconds=600), 0

    async def ask(seconds: float) -> None:
        nonlocal most
        async with pace.place() as place:
            await asyncio.sleep(0)
            most = pace.most
            pace.answered(place, seconds=seconds, budget=8)

    await ask(0.02)
    await asyncio.gather(*(ask(310) for _ in range(2000)))
    assert most > 8


async def test_server_that_answers_side_by_side_is_given_all_requests_however_slow_it_is() -> None:
    pace, at_once, most = Pace(longest_seconds=1.0), 0, 0

    async def ask() -> None:
        nonlocal at_once, most
        async with pace.place() as place:
            at_once += 1
            most = max(most, at_once)
            await asyncio.sleep(0.01)
            at_once -= 1
            pace.answered(place, seconds=0.7, budget=8)

    await asyncio.gather(*(ask() for _ in range(400)))
    assert most > 64


@pytest.mark.parametrize("amounts", [[1] * 200, [700, 3, 50, 1, 1200, 8, 90] * 10])
async def test_no_minute_has_more_than_its_limit(amounts: list[int]) -> None:
    limit, now, sent = 600, [1000.0], list[tuple[float, int]]()

    async def sleep(seconds: float) -> None:
        now[0] += seconds

    bucket = MinuteLimit(limit, clock=lambda: now[0], sleep=sleep)
    for amount in amounts:
        await bucket.take(amount)
        sent.append((now[0], amount))
    for began, first in sent:
        inside = sum(amount for at, amount in sent if began <= at < began + MINUTE_SECONDS)
        assert inside <= limit + max(amounts)  # one that is larger than what is left goes when its turn comes
        assert first <= inside
    assert now[0] - 1000 == pytest.approx(sum(amounts[:-1]) * MINUTE_SECONDS / limit)


async def test_without_a_limit_nothing_waits() -> None:
    async def sleep(_: float) -> None:
        raise AssertionError

    for _ in range(3):
        await MinuteLimit(math.inf, sleep=sleep).take(1_000_000)


@pytest.mark.parametrize("limits", [{"requests_per_minute": 600}, {"tokens_per_minute": 6000}])
async def test_requests_of_an_engine_keep_to_its_limits(limits: dict[str, int], tiny_tokenizer: Tokenizer) -> None:
    arrived = list[float]()

    def answer(_: object) -> Reply:
        arrived.append(time.monotonic())
        return chat_reply()

    with scripted_server(chat_reply()) as script:
        async with started(script, tiny_tokenizer, **limits) as engine:
            prompt = prompt_of(tiny_tokenizer)
            each = 0.1 if "requests_per_minute" in limits else 0.01 * (len(prompt.token_ids) + prompt.max_tokens)
            script.answer = answer
            await asyncio.gather(*(engine.complete(prompt, seed=0) for _ in range(6)))
    assert arrived[-1] - arrived[0] > 5 * each - 0.05

"""Rate limits: how many requests go at a time against an endpoint that counts."""

import asyncio
import threading
import time

from memagent_batch.engines.openai.outage import Pace
from memagent_batch.tokens.tokenizer import Tokenizer
from tests.engines.scripted_server import Reply, scripted_server
from tests.engines.test_chat import chat_reply, prompt_of, started
from tests.engines.test_openai import error_reply


class Clock:
    """Time that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def pace_of(clock: Clock) -> Pace:
    return Pace(clock=clock)


async def test_refusals_of_one_round_halve_the_requests_once_and_answers_win_them_back() -> None:
    clock = Clock()
    pace = pace_of(clock)
    async with asyncio.TaskGroup() as group:
        all_there = asyncio.Barrier(8)

        async def refused() -> None:
            async with pace.place() as began_at:
                await all_there.wait()
                clock.now += 1
                pace.turned_away(began_at=began_at)

        for _ in range(8):
            group.create_task(refused())
    assert pace.most == 4
    for _ in range(10):
        async with pace.place():
            pace.answered()
    assert pace.most == 6


async def test_requests_never_end_although_every_one_is_refused() -> None:
    clock = Clock()
    pace = pace_of(clock)
    for _ in range(5):
        clock.now += 1
        async with pace.place() as began_at:
            pace.turned_away(began_at=began_at)
    assert pace.most == 1


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

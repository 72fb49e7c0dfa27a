"""Rate limits: how many requests go at a time against an endpoint that counts."""

import asyncio
import threading
import time

from memagent_batch.tokens.tokenizer import Tokenizer
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

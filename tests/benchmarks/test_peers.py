import argparse
import asyncio

import pytest

from benchmarks.peer_datatrove import read
from benchmarks.peers import Mode, PeerResult, add_options, job_settings, summarise

WORK = {
    "update": "{question}|{memory}|{chunk}",
    "answer": "{question}|{memory}",
    "first_memory": "none",
    "memory_tokens": 7,
    "answer_tokens": 5,
}
DOCUMENT = {"question_id": "d", "question": "Who?", "chunks": ["one", "two", "three"]}


class Scribe:
    """Writes what it is told to, and keeps what it was asked."""

    def __init__(self, *texts: str) -> None:
        self.asked: list[tuple[str, int]] = []
        self._texts = list(texts)

    async def __call__(self, message: str, max_tokens: int) -> str:
        self.asked.append((message, max_tokens))
        return self._texts.pop(0)


def test_text_loop_shows_each_chunk_with_the_memory_before_it_and_answers_from_the_last() -> None:
    scribe = Scribe("first", "second", "third", "Ada")
    assert asyncio.run(read(DOCUMENT, WORK, ask=scribe)) == "Ada"
    assert scribe.asked == [
        ("Who?|none|one", 7),
        ("Who?|first|two", 7),
        ("Who?|second|three", 7),
        ("Who?|third", 5),
    ]


def test_summary_of_rounds_pairs_each_run_with_its_own_and_counts_answers() -> None:
    job = PeerResult(seconds=10, num_turns=4, responses={"a": "x", "b": "y"})
    slow = PeerResult(seconds=30, num_turns=4, responses={"b": "y", "a": "x"})
    other = PeerResult(seconds=20, num_turns=4, responses={"a": "x", "b": "z"})
    figures = summarise([(job, slow), (job, other), (job, slow)], facts={"b": ["y"]})
    assert (figures["times_as_fast_median"], figures["times_as_fast_range"]) == (3.0, [2.0, 3.0])
    assert figures["identical_answers"] == pytest.approx(5 / 6, abs=1e-4)
    assert (figures["peer_seconds_median"], figures["peer_seconds_range"]) == (30, [20, 30])
    assert (figures["facts"], figures["right_of_job"], figures["right_of_peer"]) == (1, [1, 1, 1], [1, 0, 1])


@pytest.mark.parametrize("mode", list(Mode))
def test_settings_of_the_job_are_known_to_its_command(mode: Mode) -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    assert job_settings(mode, parser.parse_args(["--policy", "gated"])).agent.policy.kind == "gated"

"""Typed answers and their sentences through vLLM's own server, beside the engine of this process: the same values?

The same held-out needle documents, with questions that ask for a number, a label, a text or yes and no, stated and not
stated, are read with the shipped policy by the engine, by vLLM's server with token ids, and by its chat API. Each line
has the share of values that fit their type, right answers and values, the sentences of right answers, and the share of
readings whose answer, value and sentences are those of the engine.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.peers.contestants import Mode, make_server
from memagent_batch.config.engines import EndpointApi, OpenAIConfig
from memagent_batch.evaluation.needles.stories import StoryKind
from memagent_batch.wiring import resolve_model
from pipelines.recipes.tiny_policy.documents import Text
from pipelines.recipes.tiny_policy.evaluation import EndedReading, Evaluator, Setting, figures
from pipelines.recipes.tiny_policy.report import NEAR_RIVALS, SEED

QUESTIONS = ((StoryKind.SINGLE, True), (StoryKind.SINGLE, False), (StoryKind.TRUE, True))
"""What is asked, and whether the documents state it. The first two ask for numbers, labels and texts."""

ENGINE = "engine"
"""The way that the others are compared with."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--documents", type=int, default=40, help="documents of each kind of question (default: 40)")
    parser.add_argument("--chunks", type=int, default=4, help="chunks of a document (default: 4)")
    parser.add_argument("--policy", default="gated", help="policy (default: gated)")
    parser.add_argument("--text", type=Text, default=Text.RUNNING, help="what the documents are made of")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    model = resolve_model("tiny")
    expected = asyncio.run(_readings(arguments, model))
    yield from _lines(ENGINE, expected, expected)
    with tempfile.TemporaryDirectory() as folder, make_server(Mode.SAME, folder=Path(folder)) as server:
        for api in EndpointApi:
            endpoint = OpenAIConfig(api=api, base_url=f"{server.url}/v1")
            yield from _lines(f"server, {api}", asyncio.run(_readings(arguments, model, endpoint)), expected)


Readings = dict[tuple[StoryKind, bool], tuple[list[EndedReading], float]]
"""Readings of each kind of question, and the seconds that they took."""


async def _readings(arguments: argparse.Namespace, model: str, endpoint: OpenAIConfig | None = None) -> Readings:
    evaluator = Evaluator(model, endpoint=endpoint)
    await evaluator.start()
    try:
        readings = {}
        for kind, is_told in QUESTIONS:
            setting = Setting(
                policy=arguments.policy,
                text=arguments.text,
                kind=kind,
                num_chunks=arguments.chunks,
                num_rivals=NEAR_RIVALS,
                is_told=is_told,
                has_type=True,
                num_documents=arguments.documents,
            )
            began = time.monotonic()
            readings[kind, is_told] = await evaluator.ended(setting, seed=SEED), time.monotonic() - began
        return readings
    finally:
        await evaluator.stop()


def _lines(way: str, readings: Readings, expected: Readings) -> Iterator[dict[str, Any]]:
    for (kind, is_told), (ended, seconds) in readings.items():
        others, _ = expected[kind, is_told]
        found = {name: value for name, value in asdict(figures(ended, seconds=seconds)).items() if value is not None}
        yield {
            "way": way,
            "kind": kind,
            "is_told": is_told,
            "documents": len(ended),
            **{name: round(value, 4) for name, value in found.items()},
            "same_as_engine": round(sum(map(_is_same, ended, others)) / len(ended), 4),
        }


def _is_same(one: EndedReading, other: EndedReading) -> bool:
    """Whether answer, value and sentences are the same; probabilities may differ in their last digits."""
    return _outcome(one) == _outcome(other)


def _outcome(ended: EndedReading) -> tuple[object, ...]:
    evidence = ended.closed.evidence
    sentences = None if evidence is None else [(each.sentence.char_start, each.sentence.char_end) for each in evidence]
    value = ended.closed.value
    return ended.answer, value and (value.status, value.value), sentences

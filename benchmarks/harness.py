"""What several measurements share: documents with known facts, and the form of repeated figures."""

import random
import statistics
from collections.abc import Sequence
from itertools import cycle

from memagent_batch.apps.evaluation.haystacks import SampleRequest, SuiteSample, TokenMeter
from memagent_batch.apps.evaluation.tasks import TASKS
from memagent_batch.loop.models.shipped import TINY_MODEL
from memagent_batch.loop.tokens.tokenizer import load_tokenizer

NEEDLE_TASKS = ("niah_multikey_1", "niah_single_1")
"""Tasks of the suites that documents are made of, in turn."""


def spread(name: str, values: Sequence[float], *, digits: int) -> dict[str, float | list[float]]:
    """`NAME_median` and `NAME_range`, rounded."""
    return {
        f"{name}_median": round(statistics.median(values), digits),
        f"{name}_range": [round(min(values), digits), round(max(values), digits)],
    }


def make_tasks(lengths: Sequence[int], *, seed: int = 0) -> list[SuiteSample]:
    """Documents of about these lengths in tokens of the tiny policy, each with one needle or four."""
    meter = TokenMeter(load_tokenizer(str(TINY_MODEL)))
    tasks = []
    for number, (name, length) in enumerate(zip(cycle(NEEDLE_TASKS), lengths, strict=False)):
        rng = random.Random(f"{seed}/{number}")
        tasks.append(TASKS[name].make(SampleRequest(task=name, rng=rng, length=length, depth=rng.random()), meter))
    return tasks

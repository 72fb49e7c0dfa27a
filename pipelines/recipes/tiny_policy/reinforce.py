"""Trains the tiny policy further by rewards, on fresh needle documents: `make train-tiny-rl`.

What goes wrong is a memory that takes a distractor for the fact. So every document has distractors, random ones or such
that are easily mixed up; chunks differ in length, up to the longest that will be read; documents grow with the steps.
"""

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.engines import VllmConfig
from memagent_batch.config.job import PoolConfig
from memagent_batch.config.policy import PolicyConfig
from memagent_batch.config.rollouts import RolloutConfig
from memagent_batch.config.training import LearnerConfig, LoopConfig, TrainLoopConfig
from memagent_batch.engines.tokenizer import Tokenizer
from memagent_batch.evaluation.needles.facts import Split
from memagent_batch.evaluation.needles.tasks import Haystack, make_task
from memagent_batch.flows.train_loop import train_loop
from memagent_batch.training.learner.tasks import Task
from memagent_batch.wiring import TINY_MODEL

QUESTIONS, SAMPLES = 192, 8
"""Of each step. In most groups all samples earn the same; from 24 questions a step mostly learns noise."""

SHORTEST_CHUNK_TOKENS, LONGEST_CHUNK_TOKENS = 128, 1024
"""Chunks of a document, their lengths spread evenly in the logarithm. With none over 384 it got worse at 1,024."""

FEWEST_CHUNKS = 4
FIRST_MOST_CHUNKS, LAST_MOST_CHUNKS, GROWING_STEPS = 10, 16, 20
"""Chunks of the longest documents at the first step, and from the last of these steps on."""

HELD_OUT_DOCUMENTS, HELD_OUT_CHUNKS, HELD_OUT_CHUNK_TOKENS = 96, 20, 512
"""Documents of the held-out split that are read every five steps."""

MARGIN_TOKENS = 300
"""Tokens by which a document may exceed its requested length; subtracted beforehand."""


class NeedleTasks:
    """Fresh documents for every step, from a seed."""

    def __init__(self, tokenizer: Tokenizer, *, seed: int) -> None:
        """Takes the tokeniser that measures lengths, and the seed of every choice."""
        self._tokenizer = tokenizer
        self._seed = seed

    def __call__(self, step: int) -> list[Task]:
        """The tasks of a step."""
        grown = min(step - 1, GROWING_STEPS) / GROWING_STEPS
        most = round(FIRST_MOST_CHUNKS + grown * (LAST_MOST_CHUNKS - FIRST_MOST_CHUNKS))
        tasks = []
        for number in range(QUESTIONS):
            rng = random.Random(f"{self._seed} {step} {number}")
            growth: float = (LONGEST_CHUNK_TOKENS / SHORTEST_CHUNK_TOKENS) ** rng.random()
            tasks.append(
                self._task(
                    rng,
                    name=f"{step}-{number}",
                    num_chunks=rng.randint(FEWEST_CHUNKS, most),
                    chunk_tokens=round(SHORTEST_CHUNK_TOKENS * growth),
                    split=Split.TRAINING,
                )
            )
        return tasks

    def held_out(self) -> list[Task]:
        """Documents of words and texts that are never learnt from."""
        return [
            self._task(
                random.Random(f"{self._seed} held out {number}"),
                name=f"held-out-{number}",
                num_chunks=HELD_OUT_CHUNKS,
                chunk_tokens=HELD_OUT_CHUNK_TOKENS,
                split=Split.HELD_OUT,
            )
            for number in range(HELD_OUT_DOCUMENTS)
        ]

    def _task(self, rng: random.Random, *, name: str, num_chunks: int, chunk_tokens: int, split: Split) -> Task:
        made = make_task(
            rng,
            length=max(num_chunks * chunk_tokens - MARGIN_TOKENS, chunk_tokens),
            length_of=lambda text: len(self._tokenizer.encode(text)),
            haystack=rng.choice(list(Haystack)),
            num_distractors=rng.randint(1, num_chunks),
            near=rng.random() < 0.85,
            split=split,
        )
        return Task(
            document_id=name,
            text=made.document,
            question_id=name,
            question=made.question,
            references=(made.answer,),
            chunk_tokens=chunk_tokens,
        )


def main(argv: Sequence[str] | None = None) -> None:
    """Command line."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--output", type=Path, required=True, help="folder of the loop; the model is its model/")
    options.add_argument("--model", default="tiny", help="model folder to begin with (default: tiny, the shipped one)")
    options.add_argument(
        "--policy", choices=["overwrite", "gated"], default="overwrite", help="how to read (default: overwrite)"
    )
    options.add_argument("--minutes", type=float, help="time after which no step begins (default: none)")
    options.add_argument("--steps", type=int, default=10, help="most steps (default: 10)")
    options.add_argument("--seed", type=int, default=0, help="source of every choice (default: 0)")
    arguments = options.parse_args(argv)
    tasks = NeedleTasks(Tokenizer(str(TINY_MODEL)), seed=arguments.seed)
    summary = train_loop(loop_config(arguments), tasks=tasks, held_out=tasks.held_out())
    print(json.dumps(summary))


def loop_config(arguments: argparse.Namespace) -> TrainLoopConfig:
    """The loop's knobs; documents and questions are made, not read."""
    return TrainLoopConfig(
        agent=AgentConfig(
            model=arguments.model,
            window_tokens=2048,
            policy=PolicyConfig(
                kind=arguments.policy,
                chunk_tokens=1024,
                overlap_tokens=48,
                question_tokens=128,
                memory_tokens=128,
                answer_tokens=64,
            ),
            vllm=VllmConfig(cpu_kv_cache_gib=1, dtype="float32"),
        ),
        output=str(arguments.output),
        pool=PoolConfig(readings_in_flight=384),
        rollouts=RolloutConfig(group_size=SAMPLES, drop_equal=True),
        learner=LearnerConfig(
            questions_per_optimiser_step=QUESTIONS,
            learning_rate=4e-4,
            warmup_steps=1,
            weight_decay=0.0,
            kl_weight=0.0,
            sure_above=0.99,
            device="cpu",
        ),
        loop=LoopConfig(max_minutes=arguments.minutes, max_steps=arguments.steps, evaluate_every=5),
    )


if __name__ == "__main__":
    main()

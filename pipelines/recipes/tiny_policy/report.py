"""Measures a tiny policy on held-out documents and appends the figures to a log. Last step of the recipe."""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

from memagent_batch.engines.tokenizer import Tokenizer
from memagent_batch.evaluation.needles.tasks import Haystack
from pipelines.recipes.tiny_policy.evaluation import Evaluator, Setting

CHUNK_TOKENS = 1024
"""Chunk length that the policy is made for."""

DISTRACTORS = 3
"""Other needles in a document that has some: four keys in all, as in RULER's first multi-key task."""

SEED = 20_000
"""Source of the held-out documents."""


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="model folder")
    parser.add_argument("--log", type=Path, required=True, help="file to which a JSON line is added for each figure")
    parser.add_argument("--chunks", type=int, nargs="+", default=[4, 20], help="lengths of the documents, in chunks")
    parser.add_argument("--documents", type=int, default=100, help="documents for each kind and length")
    parser.add_argument("--overlap", type=int, default=0, help="tokens that a chunk shares with the one before")
    options = parser.parse_args()
    append_figures(
        options.model,
        log=options.log,
        chunks=options.chunks,
        num_documents=options.documents,
        overlap_tokens=options.overlap,
    )


def append_figures(
    folder: Path, *, log: Path, chunks: Sequence[int], num_documents: int, overlap_tokens: int = 0
) -> None:
    """Reads held-out documents of each kind and length, and appends a line for each to `log`.

    The needle stands alone, among three random others, and among three that are made to be mixed up with it.
    """
    from transformers import Qwen2ForCausalLM

    evaluator = Evaluator(Qwen2ForCausalLM.from_pretrained(folder), Tokenizer(str(folder)))
    for num_chunks in chunks:
        for haystack in (Haystack.NOISE, Haystack.RUNNING):
            for distractors, near in ((0, False), (DISTRACTORS, False), (DISTRACTORS, True)):
                setting = Setting(
                    haystack=haystack,
                    num_chunks=num_chunks,
                    num_distractors=distractors,
                    near=near,
                    chunk_tokens=CHUNK_TOKENS,
                    overlap_tokens=overlap_tokens,
                    num_documents=num_documents,
                )
                _append(log, evaluator, setting)


def _append(log: Path, evaluator: Evaluator, setting: Setting) -> None:
    start = time.monotonic()
    outcome = evaluator.evaluate(setting, seed=SEED)
    line = {
        "phase": "evaluation",
        "haystack": setting.haystack,
        "num_chunks": setting.num_chunks,
        "num_distractors": setting.num_distractors,
        "near": setting.near,
        "overlap_tokens": setting.overlap_tokens,
        "num_documents": setting.num_documents,
        "right": round(outcome.right, 4),
        "noted": round(outcome.noted, 4),
        "exact_turns": round(outcome.exact_turns, 5),
        "cut": round(outcome.cut, 4),
        "seconds": round(time.monotonic() - start),
    }
    with log.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()

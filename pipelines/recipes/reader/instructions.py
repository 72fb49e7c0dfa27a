"""Plain instructions, answered by the base model itself, so that the reader stays a language model. See README.md."""

import argparse
import json
import random
from pathlib import Path

from vllm import LLM, SamplingParams

from pipelines.recipes.reader.texts import cut, source_texts

INSTRUCTIONS = (
    "Summarise this text in one sentence.",
    "What is this text about?",
    "Give this text a title.",
    "Explain this text to somebody who has never used a computer.",
    "Name three things that this text speaks of.",
    "For whom was this text written?",
    "Say the same in other words.",
    "Write one question that this text answers, and the answer.",
    "Write a short and friendly message about this text.",
    "Continue this text.",
)
TEXT_CHARS = (200, 900)
COMPLETION_TOKENS = 96
IN_GROUP = 4
"""Samples of a line, which may be trained on as one sequence."""


def main() -> None:
    """Writes a file of samples; answers that did not end are left out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, help="file of samples, JSON lines")
    parser.add_argument("--model", required=True, help="folder of the base model")
    parser.add_argument("--samples", type=int, default=1000, help="instructions to ask")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng, texts = random.Random(arguments.seed), source_texts(apart=False)
    asked = []
    for _ in range(arguments.samples):
        instruction, text = rng.choice(INSTRUCTIONS), cut(texts, rng.randint(*TEXT_CHARS), rng=rng)
        asked.append(
            [{"role": "user", "content": rng.choice([f"{instruction}\n\n{text}", f"{text}\n\n{instruction}"])}]
        )
    model = LLM(arguments.model, enforce_eager=True, max_model_len=2048)
    sampling = SamplingParams(temperature=0.7, top_p=0.9, seed=arguments.seed, max_tokens=COMPLETION_TOKENS)
    answered = [each for each in model.chat(asked, sampling) if each.outputs[0].finish_reason == "stop"]
    turns = [
        {"kind": "instruction", "prompt": each.prompt_token_ids, "completion": list(each.outputs[0].token_ids)}
        for each in answered
    ]
    lines = [json.dumps({"turns": turns[start : start + IN_GROUP]}) for start in range(0, len(turns), IN_GROUP)]
    arguments.output.write_text("\n".join(lines) + "\n")
    print(f"{arguments.output}: {len(turns)} of {arguments.samples} answers ended")


if __name__ == "__main__":
    main()

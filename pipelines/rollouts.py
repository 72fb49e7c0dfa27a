"""Rollouts for a trainer: each question is sampled several times, rewarded, and exported with its advantages.

    python pipelines/rollouts.py texts/ questions.parquet rollouts/ --model my-model/ --trainer verl

The questions need the column `references`. What the trainer does with the file: docs/how-to/other-trainers.md.
"""

import argparse
from typing import Literal

import memagent_batch as ma

ROLLOUTS = ma.RolloutConfig(group_size=16, reward="boxed", drop_equal=True)
Trainer = Literal["verl", "trl", "skyrl"]


def collect(documents: str, questions: str, output: str, agent: ma.Agent, *, trainer: Trainer = "verl") -> str:
    """Samples, rewards and exports; returns the file."""
    record = ma.collect(documents=documents, questions=questions, output=output, agent=agent, rollouts=ROLLOUTS)
    print(f"mean reward {record['mean_reward']}, of {record['counts']['samples']:,} samples")
    file = f"{output}/{trainer}.parquet"
    counts = ma.export(output, to=trainer, into=file)
    print(f"{counts['samples']:,} samples of {counts['groups']:,} groups to learn from: {file}")
    return file


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", help="files or a folder: a path or URI")
    parser.add_argument("questions", help="a question list with references")
    parser.add_argument("output", help="a folder or URI")
    parser.add_argument("--model", required=True, help="a model folder or hub name")
    parser.add_argument("--trainer", choices=("verl", "trl", "skyrl"), default="verl")
    arguments = parser.parse_args()
    agent = ma.Agent(model=arguments.model)
    collect(arguments.documents, arguments.questions, arguments.output.rstrip("/"), agent, trainer=arguments.trainer)

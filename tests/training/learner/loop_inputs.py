"""A loop over a handful of documents."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.config.agent import AgentConfig, PolicyConfig
from memagent_batch.config.engines import VllmConfig
from memagent_batch.config.job import RolloutConfig
from memagent_batch.config.sources import SourceConfig
from memagent_batch.config.training import LearnerConfig, LoopConfig, TrainLoopConfig

NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. "
NAMES = ("copper-falcon", "silver-otter", "red-tower", "quiet-harbor", "golden-needle")


def loop_config(folder: Path, *, max_steps: int, **learner: Any) -> TrainLoopConfig:
    """Five documents with a number each; four are learnt from, two a step, and the last is held out."""
    if not (folder / "documents.parquet").exists():
        write_inputs(folder)
    return TrainLoopConfig(
        agent=AgentConfig(
            window_tokens=1024,
            policy=PolicyConfig(chunk_tokens=256, question_tokens=64, memory_tokens=64, answer_tokens=32),
            vllm=VllmConfig(dtype="float32", cpu_kv_cache_gib=1),
        ),
        sources=SourceConfig(documents=str(folder / "documents.parquet"), questions=str(folder / "questions.parquet")),
        output=str(folder / "loop"),
        rollouts=RolloutConfig(group_size=4),
        learner=LearnerConfig(
            **{"learning_rate": 1e-4, "warmup_steps": 0, "device": "cpu", **learner},
        ),
        loop=LoopConfig(
            questions_per_step=2, max_steps=max_steps, held_out=str(folder / "held_out.parquet"), evaluate_every=2
        ),
    )


def write_inputs(folder: Path) -> None:
    """Documents, questions, and the held-out question."""
    texts = [
        f"{NOISE * (4 * place)}The access code of {name} is {7318265 + place}. {NOISE * 5}"
        for place, name in enumerate(NAMES)
    ]
    pq.write_table(pa.table({"document_id": list(NAMES), "text": texts}), folder / "documents.parquet")
    questions = [
        {
            "question_id": f"q-{name}",
            "document_id": name,
            "question": f"What is the access code of {name}?",
            "references": [str(7318265 + place)],
        }
        for place, name in enumerate(NAMES)
    ]
    pq.write_table(pa.Table.from_pylist(questions), folder / "questions.parquet")
    pq.write_table(pa.Table.from_pylist(questions[-1:]), folder / "held_out.parquet")

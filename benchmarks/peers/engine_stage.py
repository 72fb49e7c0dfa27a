"""Seconds of one round with the stage of `ray.data.llm` that has vLLM inside: each execution starts its engine anew.

The stage asks for a GPU, unless its placement is given in CPUs.
"""

import argparse
import json
import os
import time
from typing import Any

import ray
from ray.data import DataContext
from ray.data.llm import build_processor, vLLMEngineProcessorConfig

from benchmarks.peers.contestants import Mode, engine_of, job_settings
from memagent_batch.wiring import model_folder

NUM_ROWS = 64
"""Documents of a round."""


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m benchmarks.peers.engine_stage", description=__doc__)
    options.add_argument("--runs", type=int, default=2, help="rounds, one after the other (default: 2)")
    known = options.parse_args()
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray.init(include_dashboard=False, log_to_driver=False)
    DataContext.get_current().enable_progress_bars = False
    processor = _processor()
    for run in range(known.runs):
        rows = [{"message": f"Hello {number}."} for number in range(NUM_ROWS)]
        began = time.monotonic()
        done = processor(ray.data.from_items(rows, override_num_blocks=1)).take_all()
        seconds = round(time.monotonic() - began, 2)
        print(
            json.dumps({"benchmark": "engine-stage", "round": run, "rows": len(done), "seconds": seconds}), flush=True
        )
    ray.shutdown()


def _processor() -> Any:
    settings = job_settings(Mode.SAME)
    arguments, environment = engine_of(settings)
    small = {"enabled": True, "num_cpus": 0.1}  # by default each stage takes a CPU of its own
    config = vLLMEngineProcessorConfig(
        model_source=model_folder(settings),
        engine_kwargs={name: value for name, value in arguments.items() if value is not None},
        runtime_env={"env_vars": dict(environment)},
        placement_group_config={"bundles": [{"CPU": 0.5}]},
        concurrency=1,
        batch_size=16,
        log_engine_metrics=False,
        chat_template_stage=small,
        tokenize_stage=small,
        detokenize_stage={"enabled": False},
    )
    return build_processor(config, preprocess=_request, postprocess=_response)


def _request(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": row["message"]}],
        "sampling_params": {"temperature": 0.0, "max_tokens": 16},
    }


def _response(row: dict[str, Any]) -> dict[str, Any]:
    return {"text": row["generated_text"]}


if __name__ == "__main__":
    main()

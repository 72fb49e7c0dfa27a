"""Estimates for `memagent plan` whether compiling the model on CPU saves time for the readings that are left."""

import shutil
from pathlib import Path

from memagent_batch.config.engines import VllmConfig
from memagent_batch.loop.engines.vllm.start import cxx_compiler, lacks_bfloat16, needs_gpu, num_cores
from memagent_batch.loop.models.weights import WEIGHT_ENDINGS

CORE_FLOPS = 1.25e11
"""Operations per second of one core in bfloat16 without compiling: SmolLM2-135M computed 930 prompt tokens a second on
two cores."""
FLOAT32_SHARE = 0.6
"""Speed in float32, on cores with AVX2 alone, as a share of that."""
COMPLETION_COST = 4
"""A token that is written takes as long as so many tokens of a prompt, with some ten readings in flight."""
WRITTEN_SHARE = 0.4
"""Share of their budgets that completions have: `overwrite` with `reader-135m` wrote 42 %."""
COMPILE_SECONDS = 80
"""How much later a compiled engine starts the first time."""
SAVED_SHARE = 0.25
"""Share of the reading time that compiling saves: `reader-135m` took 16 s instead of 21."""


def compiling_advice(settings: VllmConfig, *, model: str, num_prompt_tokens: int, most_completion_tokens: int) -> str:
    """Returns a sentence that advises to change `vllm.enforce_eager`; empty if the setting suits the job, or on GPUs.

    Args:
        settings: Those of the job.
        model: Folder of the weights.
        num_prompt_tokens: Tokens of prompts to compute.
        most_completion_tokens: Tokens that may be written.
    """
    num_written = WRITTEN_SHARE * most_completion_tokens
    num_tokens = num_prompt_tokens + int(COMPLETION_COST * num_written)
    seconds = cpu_seconds(model, num_tokens=num_tokens, is_float32=settings.dtype == "float32" or lacks_bfloat16())
    if seconds is None or shutil.which(cxx_compiler()) is None:
        return ""
    pays = seconds * SAVED_SHARE > COMPILE_SECONDS
    if pays is not settings.enforce_eager:
        return ""
    value, effect = ("false", "saves a quarter of that") if pays else ("true", "starts more than a minute earlier")
    minutes = f"about {seconds / 60:,.0f} minutes" if seconds >= 90 else "a minute or two"
    return f"this CPU reads for {minutes}: with vllm.enforce_eager {value} the job {effect}; choose before it begins"


def cpu_seconds(model: str, *, num_tokens: int, is_float32: bool) -> float | None:
    """About how long this machine's CPU computes so many tokens of prompts; None for GPUs or a model not on this disk.

    A token takes two operations for each weight, which the files hold in two bytes.
    """
    folder = Path(model)
    if needs_gpu() or not folder.is_dir():
        return None
    files = [file for file in folder.iterdir() if file.suffix in WEIGHT_ENDINGS]
    files = [file for file in files if file.suffix == ".safetensors"] or files  # some folders hold both forms
    num_weights = sum(file.stat().st_size for file in files) / 2
    speed = num_cores() * CORE_FLOPS * (FLOAT32_SHARE if is_float32 else 1)
    return 2 * num_weights * num_tokens / speed

"""Measurements: `python -m benchmarks NAME [options]`; `python -m benchmarks` lists them."""

import os

os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")  # stdout is for figures

"""Measurements, each a module with a command line: `python -m benchmarks.NAME --json`."""

import os

os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")  # stdout is for figures

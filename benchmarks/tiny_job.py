"""The job over the shipped model, which several measurements run."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The checkout."""
CONFIG = ROOT / "jobs" / "tiny.yaml"
"""Its job file."""

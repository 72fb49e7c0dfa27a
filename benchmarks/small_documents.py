"""Small documents: readings a second where each goes to a reader in a call of its own, and where calls hold many.

The real job over documents of one chunk with an engine that answers at once, one beside the other in the same run.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from unittest.mock import patch

from benchmarks.simulated_job import simulated_settings, time_reading, write_corpus
from memagent_batch.ray_data.session import ray_session
from memagent_batch.runs import batching as calls

MOST_READINGS = {"alone": 1, "together": calls.CALL_READINGS}
"""Most readings of a call."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--documents", type=int, default=5000, help="documents (default: 5000)")
    options.add_argument("--runs", type=int, default=1, help="runs of each (default: 1)")
    options.add_argument("--json", action="store_true", help="JSON lines only")
    known = options.parse_args()
    rates: dict[str, list[float]] = {name: [] for name in MOST_READINGS}
    with tempfile.TemporaryDirectory() as folder, ray_session():
        settings = simulated_settings(Path(folder))
        write_corpus(settings, [1] * known.documents)
        for run in range(known.runs):
            for name, most in MOST_READINGS.items():
                place = settings.model_copy(update={"output": str(Path(folder) / f"{name}-{run}")})
                with patch.object(calls, "CALL_READINGS", most):
                    rates[name].append(known.documents / time_reading(place).seconds)
    for name, found in rates.items():
        figures = {
            "benchmark": "small_documents",
            "what": name,
            "documents": known.documents,
            "runs": known.runs,
            "readings_per_second_median": round(statistics.median(found), 1),
            "readings_per_second_range": [round(min(found), 1), round(max(found), 1)],
        }
        print(json.dumps(figures), flush=True)
    if not known.json:
        gain = statistics.median(rates["together"]) / statistics.median(rates["alone"])
        print(f"together: {gain:.1f} times the readings a second")


if __name__ == "__main__":
    main()

"""Tokenised documents that wait: peak bytes of the object store, and reading time, with and without a queue at actors.

The real job with the simulated engine over documents whose tokens are most of what is in the store. Beside the peak:
what the documents inside the actor take, and what the whole corpus would.
"""

import argparse
import json
import statistics
import tempfile
import threading
from pathlib import Path
from unittest.mock import patch

import ray
from ray._private import internal_api
from ray.data import ActorPoolStrategy

from benchmarks.simulated_job import simulated_settings, time_reading, write_corpus
from memagent_batch.ray_data.session import ray_session
from memagent_batch.settings import PoolSettings, SimulatedSettings
from pipelines import answer

CHUNK_TOKENS = 5000
READINGS_IN_FLIGHT = 4
SAMPLE_SECONDS = 0.2
ID_BYTES = 4
"""Of a token id in an Arrow column."""
QUEUED = {"none queued": 2, "as many queued as inside": 4}
"""Documents assigned to an actor for each of its readings in flight; 2 of them are inside. A run has 2, or 4 where its
pool may grow."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--documents", type=int, default=60, help="documents (default: 60)")
    options.add_argument("--chunks", type=int, default=20, help="chunks of 5,000 tokens of each (default: 20)")
    options.add_argument("--turn-seconds", type=float, default=0.05, help="time of a turn (default: 0.05)")
    options.add_argument("--runs", type=int, default=2, help="runs of each (default: 2)")
    options.add_argument("--json", action="store_true", help="JSON lines only")
    known = options.parse_args()
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in QUEUED}
    with tempfile.TemporaryDirectory() as folder, ray_session():
        settings = simulated_settings(
            Path(folder),
            chunk_tokens=CHUNK_TOKENS,
            pool=PoolSettings(readings_in_flight=READINGS_IN_FLIGHT),
            simulated=SimulatedSettings(turn_seconds=known.turn_seconds),
        )
        write_corpus(settings, [known.chunks] * known.documents)
        for run in range(known.runs):
            for name, most in QUEUED.items():
                place = settings.model_copy(update={"output": str(Path(folder) / f"{most}-{run}")})
                with patch.object(answer, "actor_pool", lambda pool, most=most: _pool(most)), _StorePeak() as peak:
                    seconds = time_reading(place).seconds
                found[name].append((peak.mib, seconds))
    document_mib = known.chunks * CHUNK_TOKENS * ID_BYTES / 2**20
    for name, pairs in found.items():
        figures = {
            "benchmark": "backlog",
            "what": name,
            "runs": known.runs,
            "inside_mib": round(2 * READINGS_IN_FLIGHT * document_mib, 1),
            "corpus_mib": round(known.documents * document_mib, 1),
            "store_peak_mib": [round(mib, 1) for mib, _ in pairs],
            "seconds_median": round(statistics.median(seconds for _, seconds in pairs), 2),
        }
        print(json.dumps(figures), flush=True)
        if not known.json:
            print(f"{name}: {max(mib for mib, _ in pairs):.0f} MiB in the object store at the peak")


def _pool(most: int) -> ActorPoolStrategy:
    return ActorPoolStrategy(
        size=1,
        max_tasks_in_flight_per_actor=most * READINGS_IN_FLIGHT,
        max_concurrent_calls_per_actor=2 * READINGS_IN_FLIGHT,
    )


class _StorePeak:
    """Samples the bytes that the object store holds while the block runs."""

    def __init__(self) -> None:
        self.mib = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "_StorePeak":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        state = internal_api.get_state_from_address(ray.get_runtime_context().gcs_address)
        while not self._over.wait(SAMPLE_SECONDS):
            stats = internal_api.get_memory_info_reply(state).store_stats
            self.mib = max(self.mib, stats.object_store_bytes_used / 2**20)


if __name__ == "__main__":
    main()

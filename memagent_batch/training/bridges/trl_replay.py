"""TRL's side of its bridge: a rollout worker that generates nothing and queues what was collected. Runs in TRL's
environment, with this project on the PYTHONPATH.
"""

import json
import queue
import threading
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

from memagent_batch.errors import InputError
from memagent_batch.files.location import Location
from memagent_batch.training.bridges.exports import EXPORT_FILE

QUEUED = 64
"""Turns that wait for the trainer: what the worker keeps in memory."""

QUEUE_SECONDS = 0.2
"""How soon a full queue is tried again, and a stop seen."""


class ReplayingRolloutWorker:
    """TRL's RolloutWorkerProtocol: the turns of an export, once, in their order."""

    def __init__(self, export: str) -> None:
        """Takes where the export lies.

        Raises:
            InputError: the export is not whole.
        """
        self._export = Location(uri=export)
        place = self._export / EXPORT_FILE
        if not place.exists():
            raise InputError(f"{export}: there is no {EXPORT_FILE}; run `memagent export --to trl` to its end")
        record = json.loads(place.read_bytes())
        self._files: list[str] = record["files"]
        self._num_turns: int = record["counts"]["turns"]
        self._num_queued = 0
        self._version = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._replay, name="replay", daemon=True)
        self.rollout_buffer: queue.Queue[RolloutSample] = queue.Queue(maxsize=QUEUED)
        self.metrics_queue: queue.Queue[dict[str, Any]] = queue.Queue()

    def start(self) -> None:
        """Begins to queue turns."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the worker."""
        self._stopped.set()

    def update_model_version(self, model_version: int) -> None:
        """Keeps the version of the trainer's first weights: they are the ones that were sampled."""
        if not self._thread.is_alive():
            self._version = model_version

    def check_health(self, stale_after_s: float) -> None:
        """Called when the trainer finds the queue empty.

        Raises:
            InputError: all turns were replayed, or a file could not be read.
        """
        if self._thread.is_alive() or not self.rollout_buffer.empty():
            return
        if self._num_queued < self._num_turns:
            raise InputError(
                f"{self._export.uri}: the replay stopped after {self._num_queued} of {self._num_turns} turns, with the "
                "error of its thread that stands above; export again"
            )
        raise InputError(
            f"{self._export.uri} was replayed whole, and training asks for more than its {self._num_turns} turns (it "
            "fetches a batch ahead): lower max_steps, collect more, or raise max_staleness if turns were dropped "
            "as stale"
        )

    def _replay(self) -> None:
        for name in self._files:
            with (self._export / name).open() as stream:
                file = pq.ParquetFile(stream)
                for row_group in range(file.num_row_groups):
                    if not self._put(file.read_row_group(row_group).to_pylist()):
                        return

    def _put(self, rows: Iterable[dict[str, Any]]) -> bool:
        """Queues the turns as there is room; whether the worker goes on."""
        for row in rows:
            turn = _rollout_sample(row, model_version=self._version)
            while not self._stopped.is_set():
                try:
                    self.rollout_buffer.put(turn, timeout=QUEUE_SECONDS)
                    self._num_queued += 1
                    break
                except queue.Full:
                    continue
        return not self._stopped.is_set()


class NoWeightTransfer:
    """TRL's WeightTransferProtocol where no server waits for weights."""

    def init_weight_transfer(self) -> None:
        """Nothing to set up."""

    def pause(self) -> None:
        """Nothing to pause."""

    def send_weights(self, iterator: Iterable[Any]) -> None:
        """Sends nothing, but goes through all weights, as every process of the trainer must."""
        for _ in iterator:
            pass

    def resume(self) -> None:
        """Nothing to resume."""

    def destroy(self) -> None:
        """Nothing to release."""


def _rollout_sample(row: dict[str, Any], *, model_version: int) -> RolloutSample:
    return RolloutSample(
        prompt=[],
        completion=[],
        input_ids=np.array(row["input_ids"], np.int64),
        completion_mask=np.array(row["completion_mask"], np.int64),
        old_log_probs=np.array(row["old_log_probs"], np.float32),
        advantage=row["advantage"],
        model_version=model_version,
        group_id=row["group_id"],
        metrics={"reward": row["reward"]},
    )

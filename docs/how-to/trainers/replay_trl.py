import queue
import threading

import numpy as np
import pyarrow.parquet as pq
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample


class Replay:
    """A rollout worker that queues the turns of a file, once, in their order."""

    def __init__(self, path):
        self.path = path
        self.version = 0
        self.rollout_buffer = queue.Queue(maxsize=64)  # turns that wait for the trainer
        self.metrics_queue = queue.Queue()
        self.thread = threading.Thread(target=self.replay, daemon=True)

    def start(self):
        self.thread.start()

    def stop(self):
        pass

    def update_model_version(self, version):
        if not self.thread.is_alive():
            self.version = version  # the weights that were sampled are the trainer's first ones

    def check_health(self, stale_after_s):  # called when the queue is empty
        if not self.thread.is_alive() and self.rollout_buffer.empty():
            raise RuntimeError(f"no turns are left in {self.path}: lower max_steps, or collect more")

    def replay(self):
        for batch in pq.ParquetFile(self.path).iter_batches(64):
            for row in batch.to_pylist():
                turn = RolloutSample(
                    prompt=[],
                    completion=[],
                    input_ids=np.array(row["input_ids"], np.int64),
                    completion_mask=np.array(row["completion_mask"], np.int64),
                    old_log_probs=np.array(row["old_log_probs"], np.float32),
                    advantage=row["advantage"],
                    model_version=self.version,
                    group_id=row["group_id"],
                    metrics={"reward": row["reward"]},
                )
                self.rollout_buffer.put(turn)


class NoWeightTransfer:
    """No server waits for weights."""

    def init_weight_transfer(self):
        pass

    def pause(self):
        pass

    def send_weights(self, iterator):
        for _ in iterator:  # every process of the trainer must go through all weights
            pass

    def resume(self):
        pass

    def destroy(self):
        pass

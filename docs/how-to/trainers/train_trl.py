from datasets import Dataset
from replay_trl import NoWeightTransfer, Replay
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer

AsyncGRPOTrainer(
    model="MODEL",
    args=AsyncGRPOConfig(
        output_dir="run", max_steps=100, per_device_train_batch_size=16, token_budget=0, max_staleness=100
    ),
    train_dataset=Dataset.from_dict({"prompt": [[{"role": "user", "content": ""}]]}),  # its prompts are not read
    rollout_worker=Replay("trl.parquet"),
    weight_transfer=NoWeightTransfer(),
).train()

from skyrl.train.entrypoints.main_base import BasePPOExp
from skyrl.train.generators.base import GeneratorInterface


class Replay(GeneratorInterface):
    """Returns the collected samples of the requested groups, step by step; the last token has the reward."""

    async def generate(self, batch):
        steps = []
        for row, trajectory in zip(batch["env_extras"], batch["trajectory_ids"], strict=True):
            if trajectory.repetition_id < len(row["samples"]):  # groups may differ in size
                sample = row["samples"][trajectory.repetition_id]
                steps += [(turn, sample, trajectory) for turn in sample["turns"]]
        is_last = [turn is sample["turns"][-1] for turn, sample, _ in steps]
        return {
            "prompt_token_ids": [turn["prompt_token_ids"] for turn, _, _ in steps],
            "response_ids": [turn["response_token_ids"] for turn, _, _ in steps],
            "rewards": [
                [0.0] * (len(turn["response_token_ids"]) - 1) + [sample["reward"] if last else 0.0]
                for (turn, sample, _), last in zip(steps, is_last, strict=True)
            ],
            "loss_masks": [turn["response_mask"] for turn, _, _ in steps],
            "stop_reasons": [turn["finish_reason"] for turn, _, _ in steps],
            "rollout_metrics": None,
            "rollout_logprobs": [turn["response_logprobs"] for turn, _, _ in steps],
            "trajectory_ids": [trajectory for _, _, trajectory in steps],
            "trajectory_generation_times": None,
            "rollout_expert_indices": None,
            "is_last_step": is_last,
            "env_metrics": None,
        }


class Experiment(BasePPOExp):
    def get_generator(self, cfg, tokenizer, inference_engine_client):
        return Replay()

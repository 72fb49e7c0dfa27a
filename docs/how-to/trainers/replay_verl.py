from verl.experimental.agent_loop import AgentLoopBase, AgentLoopOutput


class Replay(AgentLoopBase):
    """Returns the turns of one collected sample, each as a separate output; the last one has the reward."""

    async def run(self, sampling_params, **row):
        sample = row["extra_info"]["samples"][row["session_id"]]
        step = row["global_steps"]  # verl drops what seems to come from older weights
        extra = {"reward_extra_info": {}, "turn_scores": [], "tool_rewards": []}
        return [
            AgentLoopOutput(
                prompt_ids=turn["prompt_token_ids"],
                response_ids=turn["response_token_ids"],
                response_mask=turn["response_mask"],
                response_logprobs=turn["response_logprobs"],
                reward_score=sample["reward"] if turn is sample["turns"][-1] else None,
                num_turns=len(sample["turns"]),
                metrics={"generate_sequences": 0.0, "tool_calls": 0.0},
                extra_fields={**extra, "min_global_steps": step, "max_global_steps": step},
            )
            for turn in sample["turns"]
        ]

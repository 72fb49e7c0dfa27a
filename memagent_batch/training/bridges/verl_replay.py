"""verl's side of its bridge: an agent loop that generates nothing and returns what was collected. Runs in verl's
environment, with this project on the PYTHONPATH; verl makes one for each session, from `agent_loop.yaml`.
"""

import asyncio
from typing import Any

from verl.experimental.agent_loop import AgentLoopBase, AgentLoopOutput

from memagent_batch.errors import InputError
from memagent_batch.files.location import Location
from memagent_batch.training.bridges.exports import read_exported_turns


class ReplayingAgentLoop(AgentLoopBase):  # type: ignore[misc]  # verl is not installed where types are checked
    """Returns the turns of one exported sample, each as an output of its own; the last one has the reward."""

    def __init__(self, *args: Any, export: str, **kwargs: Any) -> None:
        """Keeps where the export lies, beside what verl gives every agent loop."""
        super().__init__(*args, **kwargs)
        self._export = Location(uri=export)

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> list[AgentLoopOutput]:
        """The outputs of the session `session_id` of the group that the row's `extra_info` locates.

        Raises:
            InputError: the group has fewer samples than verl asks for.
        """
        locator, session = kwargs["extra_info"], int(kwargs["session_id"])
        if session >= locator["num_samples"]:
            raise InputError(
                f"group {locator['group_id']} has {locator['num_samples']} samples, and verl asks for number {session} "
                "(from 0); keep the column __rollout_n__ of the export's data set, and validate with other data"
            )
        turns = await asyncio.to_thread(
            read_exported_turns, self._export, file=locator["file"], row_group=locator["first_row_group"] + session
        )
        rows = turns.to_pylist()
        return [
            self._output(row, is_last=row is rows[-1], num_turns=len(rows), step=int(kwargs["global_steps"]))
            for row in rows
        ]

    def _output(self, row: dict[str, Any], *, is_last: bool, num_turns: int, step: int) -> AgentLoopOutput:
        """One turn. Counted as of the step that asks: verl drops what seems to come from older weights."""
        return AgentLoopOutput(
            prompt_ids=row["prompt_ids"],
            response_ids=row["response_ids"],
            response_mask=row["response_mask"],
            response_logprobs=row["response_logprobs"],
            reward_score=row["reward_score"] if is_last else None,
            num_turns=num_turns,
            metrics={"generate_sequences": 0.0, "tool_calls": 0.0},
            extra_fields={
                "reward_extra_info": {},
                "turn_scores": [],
                "tool_rewards": [],
                "min_global_steps": step,
                "max_global_steps": step,
            },
        )

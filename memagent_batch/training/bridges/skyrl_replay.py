"""SkyRL's side of its bridge: a generator that generates nothing and returns what was collected. Runs in SkyRL's
environment, with this project on the PYTHONPATH.
"""

import asyncio

import pyarrow as pa
from skyrl.train.generators.base import GeneratorInput, GeneratorInterface, GeneratorOutput, TrajectoryID

from memagent_batch.errors import InputError
from memagent_batch.files.location import Location
from memagent_batch.training.bridges.bridge import Locator
from memagent_batch.training.bridges.exports import read_exported_turns


class ReplayingGenerator(GeneratorInterface):  # type: ignore[misc]  # SkyRL is not installed where types are checked
    """Returns the exported samples of the groups that SkyRL asks for, step by step.

    A group with fewer samples than `generator.n_samples_per_prompt` has fewer trajectories.
    """

    def __init__(self, export: str) -> None:
        """Takes where the export lies."""
        self._export = Location(uri=export)

    async def generate(self, input_batch: GeneratorInput) -> GeneratorOutput:
        """The trajectories of a batch, in its order.

        Raises:
            InputError: the batch does not come from the export's data set.
        """
        extras, trajectory_ids = input_batch["env_extras"], input_batch["trajectory_ids"]
        if extras is None or trajectory_ids is None or any("replay" not in extra for extra in extras):
            raise InputError("the prompts do not come from an export; set data.train_data to its prompts.parquet")
        asked = [
            (extra["replay"], trajectory)
            for extra, trajectory in zip(extras, trajectory_ids, strict=True)
            if trajectory.repetition_id < extra["replay"]["num_samples"]
        ]
        samples = [(await self._read(locator, trajectory), trajectory) for locator, trajectory in asked]
        return _output(samples)

    async def _read(self, locator: Locator, trajectory: TrajectoryID) -> pa.Table:
        row_group = locator["first_row_group"] + trajectory.repetition_id
        return await asyncio.to_thread(read_exported_turns, self._export, file=locator["file"], row_group=row_group)


def _output(samples: list[tuple[pa.Table, TrajectoryID]]) -> GeneratorOutput:
    rows = pa.concat_tables([turns for turns, _ in samples]).to_pydict()
    return {
        "prompt_token_ids": rows["prompt_token_ids"],
        "response_ids": rows["response_ids"],
        "rewards": rows["rewards"],
        "loss_masks": rows["loss_masks"],
        "stop_reasons": rows["stop_reasons"],
        "rollout_metrics": None,
        "rollout_logprobs": rows["rollout_logprobs"],
        "trajectory_ids": [trajectory for turns, trajectory in samples for _ in range(turns.num_rows)],
        "trajectory_generation_times": None,
        "rollout_expert_indices": None,
        "is_last_step": rows["is_last_step"],
        "env_metrics": None,
    }

"""Knobs of `memagent train` and `memagent train loop`."""

from memagent_batch.files.options import StorageKnob, StorageOptions
from memagent_batch.sections import JobSettings, LearnerSettings, LoopSettings
from memagent_batch.settings import Settings


class TrainSettings(JobSettings):
    """One epoch over a rollouts table."""

    rollouts: str
    """Output of `memagent collect`: a folder or any fsspec URL."""
    storage_options: StorageKnob = StorageOptions()
    """Arguments of the fsspec file system of the rollouts. Never recorded."""
    model: str
    """Folder of the model that the rollouts were drawn with; `tiny` is the policy that comes with the project."""
    reference: str | None = None
    """Folder of the model from which the policy must not stray; by default `model`."""
    output: str
    """Folder for the new model; must not be there."""
    weights_version: str | None = None
    """What the rollouts call the weights of `model`, where they were given a name of their own."""
    allow_other_weights: bool = False
    """Learn from rollouts of other weights than `model` has."""
    learner: LearnerSettings = LearnerSettings()
    """How weights are updated."""


class TrainLoopSettings(Settings):
    """Collect, update, collect again with the new weights."""

    learner: LearnerSettings = LearnerSettings()
    """How weights are updated."""
    loop: LoopSettings = LoopSettings()
    """How long it goes on, and what it keeps."""

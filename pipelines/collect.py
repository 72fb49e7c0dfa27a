"""Collecting rollouts: the main job with G samples of every question, then its turns as groups with advantages."""

from typing import Any

import pyarrow as pa
import ray

from memagent_batch.domain.policies.shared import SharedPolicy
from memagent_batch.errors import InputError, SettingsError
from memagent_batch.ray_data.groups import COUNTS
from memagent_batch.ray_data.rewarder import import_reward
from memagent_batch.ray_data.rollouts import RolloutTask, project_rollouts
from memagent_batch.ray_data.session import CPU_SHARE, ray_session
from memagent_batch.settings import Settings
from memagent_batch.storage.rollouts import ROLLOUTS_FILE, ROLLOUTS_FOLDER, write_record
from memagent_batch.storage.turn_index import scan_log
from memagent_batch.wiring import identify_reader, make_output
from pipelines.answer import answer
from pipelines.plan import make_plan


def collect(settings: Settings) -> dict[str, Any]:
    """Samples every reading, writes `rollouts/` beside the tables of `answer`, and returns what `rollouts.json` says.

    Raises:
        UsageError: the user's mistake, found before an engine starts.
        CountsError: the tables do not hold one row for each reading.
    """
    sampled = sampled_settings(settings)
    if sampled.rollouts.allow_reward_code and ":" in sampled.rollouts.reward:
        import_reward(sampled.rollouts.reward)
    with ray_session():
        require_references(sampled)
        manifest = answer(sampled)
        return write_rollouts_table(sampled, run_id=manifest["run_id"])


def sampled_settings(settings: Settings) -> Settings:
    """The settings with G samples drawn at temperature 1 and top_p 1, and their log-probabilities kept.

    Raises:
        SettingsError: other sampling was asked for; what is learnt from must be drawn from the policy itself. Or the
            policy shares turns between questions.
    """
    if settings.policy.kind == SharedPolicy.kind:
        raise SettingsError(
            "policy.kind: the turns of 'shared' belong to several questions, so no reward is theirs; collect with "
            "'overwrite' or 'gated'"
        )
    sampling = settings.sampling
    if sampling.temperature not in (0.0, 1.0) or sampling.top_p != 1.0 or sampling.top_k not in (-1, 0):
        raise SettingsError(
            f"sampling: temperature {sampling.temperature}, top_p {sampling.top_p}, top_k {sampling.top_k}; rollouts "
            "are drawn at temperature 1 and top_p 1, or their log-probabilities would not be those of their draws; "
            "leave these knobs out"
        )
    drawn = sampling.model_copy(update={"temperature": 1.0, "logprobs": True, "samples": settings.rollouts.group_size})
    return settings.model_copy(update={"sampling": drawn})


def require_references(settings: Settings) -> None:
    """Refuses a run of which no question could be rewarded.

    Raises:
        InputError: the question list has no references.
    """
    references = make_plan(settings).questions["references"]
    if references.null_count == len(references):
        raise InputError(
            "no question has references, so nothing can be rewarded; add a column `references` (a text or a list of "
            "texts) to the question list"
        )


def write_rollouts_table(settings: Settings, *, run_id: str) -> dict[str, Any]:
    """Projects the log into `rollouts/`, and writes `rollouts.json` when all of it is there."""
    output, reader = make_output(settings), identify_reader(settings)
    for name in (ROLLOUTS_FILE, ROLLOUTS_FOLDER):
        (output / name).delete()
    index = scan_log(output, reader_fingerprint=reader.fingerprint)
    parts = [
        part.append_column("part", pa.array([number] * part.num_rows, pa.int64()))
        for number, part in enumerate(make_plan(settings).parts(index))
    ]
    rows = ray.data.from_arrow(parts).map_batches(
        project_rollouts,
        fn_kwargs={"task": RolloutTask(settings=settings, run_id=run_id, reader=reader)},
        batch_size=None,
        batch_format="pyarrow",
        num_cpus=CPU_SHARE,
    )
    reports = [row for batch in rows.iter_batches(batch_size=None, batch_format="pyarrow") for row in batch.to_pylist()]
    counts = {name: sum(report[name] for report in reports) for name in (*COUNTS, "reward_sum")}
    files = [name for report in reports for name in report["files"]]
    return write_record(output, counts, files, settings=settings, run_id=run_id)

"""`memagent train loop`: collect, update, give the engine the new weights, and again. Every step is durable."""

import asyncio
import logging
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import torch

from memagent_batch.budgets import fit_budgets_to_window
from memagent_batch.config.training import TrainLoopConfig
from memagent_batch.engines.engine import Engine
from memagent_batch.errors import SettingsError
from memagent_batch.flows.collect import sampled_agent
from memagent_batch.flows.train import (
    TRAINING_FORMAT,
    learn_from,
    local_folder,
    model_folder,
    rounded,
    step_groups,
    step_text,
)
from memagent_batch.logs import EventKind
from memagent_batch.store.turn_log.writer import new_run_id
from memagent_batch.training.learner.batches import LEARNT_COLUMNS
from memagent_batch.training.learner.learner import (
    Learner,
    StepFigures,
    aggregate_steps,
    load_learner,
    require_memory,
    sync,
    write_model,
)
from memagent_batch.training.learner.sampling import Sampler, Task, Tasks, reward_counts, write_step_rollouts
from memagent_batch.training.learner.steps import (
    Figures,
    Step,
    claim_loop,
    done_steps,
    last_step,
    metric_lines,
    place_model,
    write_metrics,
)
from memagent_batch.training.rollouts.rewarder import require_reward
from memagent_batch.training.rollouts.table import mean_reward, read_groups, read_rollouts_record
from memagent_batch.wiring import identify_reader, make_engine

log = logging.getLogger(__name__)

MAX_LOGPROB_GAP = {True: 0.01, False: 1.0}
"""Of a drawn token's log-probability, learner against engine, that rounding explains: in float32, and otherwise."""


def train_loop(training: TrainLoopConfig, *, tasks: Tasks, held_out: Sequence[Task]) -> dict[str, str | float | None]:
    """Goes on from what is in the output until the budget is spent; returns where the model is and its last line.

    Raises:
        UsageError: the user's mistake, found before an engine starts.
        EngineDeadError: the engine died; the same command goes on with the interrupted step.
    """
    if training.loop.max_steps is None and training.loop.max_minutes is None:
        raise SettingsError("loop: no budget; give --loop.max-steps or --loop.max-minutes")
    training = training.with_agent(fit_budgets_to_window(training.agent))
    current = sampled(at_step(training, last_step(local_folder(training.output))))
    identify_reader(current.agent)
    require_reward(current.rollouts)
    require_memory(model_folder(training.agent.model), settings=training.learner)
    engine = make_engine(current.agent)
    if not engine.has_weights:
        raise SettingsError(f"engine: {engine.kind!r} can't take new weights from here; leave it at vllm")
    claim_loop(training)
    return asyncio.run(_with_engine(training, tasks, held_out, engine=engine))


async def _with_engine(
    training: TrainLoopConfig, tasks: Tasks, held_out: Sequence[Task], *, engine: Engine
) -> dict[str, str | float | None]:
    await engine.start()
    try:
        return await go_on(training, tasks, held_out, engine=engine)
    finally:
        await engine.stop()


async def go_on(
    training: TrainLoopConfig, tasks: Tasks, held_out: Sequence[Task], *, engine: Engine
) -> dict[str, str | float | None]:
    """The loop itself, with an engine that serves the weights of the last step."""
    folder, start = claim_loop(training), model_folder(training.agent.model)
    step = last_step(folder)
    drop_left_weights(training, folder)
    learner = load_learner(step.model if step.number else start, reference=start, settings=training.learner)
    if step.number:
        learner.load_state(torch.load(step.state, map_location="cpu", weights_only=True))
    await read_held_out_questions(training, step, held_out, engine=engine)
    while not is_spent(training, folder):
        before, step, began = step, Step(folder, step.number + 1), time.monotonic()
        await collect_step(training, before, step, tasks(step.number), engine=engine)
        update_step(training, learner, step, began=began)
        before.drop_weights(keep_model=is_kept(before, training))
        await engine.renew(str(step.model))
        await read_held_out_questions(training, step, held_out, engine=engine)
        report(folder)
    return {"model": str(place_model(step, folder, start=start)), **(report(folder) or {})}


def is_spent(training: TrainLoopConfig, folder: Path) -> bool:
    """Whether the budget allows no further step."""
    lines = metric_lines(folder)
    minutes = sum((line.get("step_seconds") or 0.0) + (line.get("evaluation_seconds") or 0.0) for line in lines) / 60
    num_steps = sum(bool(line["step"]) for line in lines)
    budget = training.loop
    return (budget.max_steps is not None and num_steps >= budget.max_steps) or (
        budget.max_minutes is not None and minutes >= budget.max_minutes
    )


def drop_left_weights(training: TrainLoopConfig, folder: Path) -> None:
    """Removes weights of steps before the last one that a process left which was killed right after an update."""
    for older in list(done_steps(folder))[:-1]:
        if older.state.exists():
            older.drop_weights(keep_model=is_kept(older, training))


def is_kept(step: Step, training: TrainLoopConfig) -> bool:
    """Whether the model of a step stays when a later one is there."""
    every = training.loop.keep_every
    return every is not None and step.number % every == 0


async def collect_step(
    training: TrainLoopConfig, before: Step, step: Step, tasks: Sequence[Task], *, engine: Engine
) -> None:
    """Reads a step's tasks G times with the weights of the step before, unless that is done."""
    if step.has_rollouts():
        return
    began = time.monotonic()
    drawn = sampled(at_step(training, before))
    sampler = Sampler(engine.with_sampling(drawn.agent.sampling), drawn)
    read = await sampler.read(tasks)
    write_step_rollouts(step.place, read, training=drawn, sampler=sampler, run_id=new_run_id())
    _log_step(step, f"collected in {time.monotonic() - began:.0f} s", {})


def update_step(training: TrainLoopConfig, learner: Learner, step: Step, *, began: float) -> None:
    """Learns from a step's rollouts, and keeps weights, state and figures; the step began at `began`, monotonic."""
    collected = read_rollouts_record(step.place)
    columns = (*LEARNT_COLUMNS, "sample", "reward")
    groups = list(read_groups(step.place, files=collected["files"], columns=columns))
    figures = optimiser_steps(learner, groups, size=training.learner.questions_per_optimiser_step)
    shutil.rmtree(step.model, ignore_errors=True)  # half-written by a process that was killed here
    record = {"format": TRAINING_FORMAT, "parent": {"model": training.agent.model}, "num_steps": learner.num_steps}
    write_model(learner.network, step.model, like=model_folder(training.agent.model), record=record)
    torch.save(learner.state(), step.state)
    sync(step.state)
    counts = collected["counts"]
    line: Figures = {
        **(rounded(aggregate_steps(figures)) if figures else {}),
        "num_groups": len(groups),
        "engine_difference": round(figures[0].max_logprob_change, 9) if figures else None,
        "step": step.number,
        "optimiser_steps": learner.num_steps,
        "mean_reward": collected["mean_reward"],
        **{name: counts[name] for name in ("groups", "dropped_groups", "samples", "failed_samples")},
        "step_seconds": round(time.monotonic() - began, 3),
    }
    step.write_update(line)
    if not figures:
        _log_step(step, "no group taught anything", line)
    else:
        _log_step(step, step_text(line), line)
        _warn_of_difference(training, step, figures[0].max_logprob_change)


def optimiser_steps(learner: Learner, groups: Sequence[pa.Table], *, size: int) -> list[StepFigures]:
    """A step of the optimiser for every `size` groups, in their order; those without a token to learn from make none.

    The first one's ratios compare learner and engine, since no weight has moved by then.
    """
    steps = [learn_from(learner, of_step) for of_step in step_groups(groups, size=size)]
    return [figures for figures in steps if figures is not None]


def _warn_of_difference(training: TrainLoopConfig, step: Step, difference: float) -> None:
    """Warns where learner and engine do not compute the same, as with stale weights: what is learnt is then wrong."""
    in_float32 = training.agent.vllm.dtype == "float32" and not training.learner.bf16
    if difference > MAX_LOGPROB_GAP[in_float32]:
        message = (
            f"step {step.number}: learner and engine differ by up to {difference:.3g} in a token's log-probability "
            f"(expected: at most {MAX_LOGPROB_GAP[in_float32]:g}); check that both have the same model, dtype and "
            "sampling before you use what is learnt"
        )
        fields = {"step": step.number, "engine_difference": difference}
        log.warning(message, extra={"event": EventKind.PROBABILITIES_DIFFER, **fields})


async def read_held_out_questions(
    training: TrainLoopConfig, step: Step, held_out: Sequence[Task], *, engine: Engine
) -> None:
    """Reads the held-out questions greedily, where they are due and not read yet."""
    if not held_out or step.number % training.loop.evaluate_every or step.evaluation() is not None:
        return
    began = time.monotonic()
    current = at_step(training, step)
    greedy = current.agent.sampling.model_copy(update={"temperature": 0.0, "samples": 1, "logprobs": False})
    greedily = current.with_agent(current.agent.model_copy(update={"sampling": greedy}))
    sampler = Sampler(engine.with_sampling(greedy), greedily)
    counts = reward_counts(await sampler.read(held_out), training=greedily, sampler=sampler)
    reward = mean_reward(counts)
    seconds = round(time.monotonic() - began, 3)
    step.write_evaluation(
        {
            "held_out_reward": reward,
            "held_out": len(held_out),
            "held_out_failed": int(counts["failed_samples"]),
            "evaluation_seconds": seconds,
        }
    )
    _log_step(step, f"held-out reward {'none' if reward is None else f'{reward:.3f}'}", {"held_out_reward": reward})


def report(folder: Path) -> Figures | None:
    """Writes `metrics.jsonl` from the steps, and returns the last line."""
    lines = metric_lines(folder)
    write_metrics(folder, lines)
    return lines[-1] if lines else None


def at_step(training: TrainLoopConfig, step: Step) -> TrainLoopConfig:
    """The loop with an agent of a step's weights; what is drawn next has its own seeds."""
    agent = training.agent
    start = str(model_folder(agent.model))
    changed = {
        "model": str(step.model) if step.number else start,
        "tokenizer": agent.tokenizer or start,
        "sampling": agent.sampling.model_copy(update={"seed": agent.sampling.seed + step.number}),
    }
    return training.with_agent(agent.model_copy(update=changed))


def sampled(training: TrainLoopConfig) -> TrainLoopConfig:
    """The loop with an agent that draws groups of samples; see `sampled_agent`."""
    return training.with_agent(sampled_agent(training.agent, training.rollouts))


def _log_step(step: Step, message: str, fields: Mapping[str, object]) -> None:
    log.info(f"step {step.number}: {message}", extra={"event": EventKind.PROGRESS, "step": step.number, **fields})

"""`evaluate run`: a suite, read by each variant with the main job, and scored. The same command goes on."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from memagent_batch.apps.evaluation.measures import report_text
from memagent_batch.apps.evaluation.record import (
    EVALUATION_FILE,
    REPORT_FILE,
    SCORES_FOLDER,
    VARIANT_RUNS_FOLDER,
    VariantRecord,
    claim_evaluation,
    read_scores,
)
from memagent_batch.apps.evaluation.scoring import read_answers, read_evidence, score_answers
from memagent_batch.apps.evaluation.suite import Suite
from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import JobConfig, RunConfig
from memagent_batch.data.store.json_files import write_json
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.parquet import parquet_bytes
from memagent_batch.errors import MemagentError
from memagent_batch.logs import EventKind
from memagent_batch.run.budgets import fit_budgets_to_window
from memagent_batch.run.flows.answer import answer
from memagent_batch.run.history import require_manifest
from memagent_batch.run.manifest import require_read, require_success
from memagent_batch.run.wiring import identify_reader, make_output

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What is evaluated: a policy, a model, or any other settings."""

    name: str
    agent: AgentConfig
    run: RunConfig
    """How it runs; the output is the evaluation's to set."""


def evaluate_suite(variants: Sequence[Variant], *, suite: Suite, sources: Mapping[str, Any], output: Location) -> str:
    """Reads and scores the suite with each variant; returns the report, which `report.md` has after each of them.

    `sources` are the settings of its documents and questions. Finished readings of an earlier call are not read again.

    Raises:
        UsageError: the user's mistake, found before an engine starts.
        CountsError: the tables of a run do not hold one row for each reading.
    """
    evaluation, report = claim_evaluation(output, suite=suite.name), ""
    jobs = {variant.name: variant_job(variant, sources=sources, output=output) for variant in variants}
    for job in jobs.values():
        identify_reader(fit_budgets_to_window(job.agent))  # one that can't work is refused before another one reads
    for number, variant in enumerate(variants, start=1):
        message = f"variant {number} of {len(jobs)}: {variant.name}"
        log.info(message, extra={"event": EventKind.PROGRESS, "variant": variant.name})
        record = read_variant(variant, jobs[variant.name], before=evaluation["variants"].get(variant.name))
        place = output / f"{SCORES_FOLDER}/{variant.name}.parquet"
        score_variant(variant.name, jobs[variant.name], suite=suite, place=place)
        evaluation = claim_evaluation(output, suite=suite.name)  # others may read variants beside
        evaluation["variants"][variant.name] = record
        write_json(output / EVALUATION_FILE, evaluation)
        report = report_text(evaluation, read_scores(output, evaluation))
        (output / REPORT_FILE).write_bytes(report.encode())
    return report


def require_variants(variants: Sequence[Variant], *, output: Location) -> None:
    """Returns where no variant of a finished evaluation failed in too many readings.

    Raises:
        TooManyFailedError: one did; names it.
    """
    for variant in variants:
        manifest = require_manifest(output / VARIANT_RUNS_FOLDER / variant.name)
        with naming(variant):
            require_success(manifest, max_failed_share=variant.run.max_failed_share)


@contextmanager
def naming(variant: Variant) -> Iterator[None]:
    """Puts the variant's name before what the block raises."""
    try:
        yield
    except MemagentError as error:
        raise type(error)(f"variant {variant.name!r}: {error}") from error


def variant_job(variant: Variant, *, sources: Mapping[str, Any], output: Location) -> JobConfig:
    """The variant's job over the suite, with an output in the evaluation."""
    agent = variant.agent
    if agent.prompt_set is None and agent.policy.kind == "overwrite":  # whatever the number of questions
        agent = agent.model_copy(update={"prompt_set": "default"})
    run = {name: getattr(variant.run, name) for name in RunConfig.model_fields}
    return JobConfig(
        **{**run, **sources, "output": (output / VARIANT_RUNS_FOLDER / variant.name).uri},
        agent=agent,
    )


def read_variant(variant: Variant, job: JobConfig, *, before: VariantRecord | None) -> VariantRecord:
    """Runs the main job for a variant.

    Raises:
        MemagentError: as the main job does, with the variant's name.
        NotReadError: some readings could not be read now; nothing is scored.
    """
    with naming(variant):
        manifest = answer(job)
        require_read(manifest)
    spent = before["seconds"] if before and before["fingerprint"] == manifest["fingerprint"] else 0.0
    return VariantRecord(
        model=job.agent.model,
        policy=job.agent.policy.kind,
        seconds=round(spent + manifest["seconds"], 3),
        fingerprint=manifest["fingerprint"],
    )


def score_variant(name: str, job: JobConfig, *, suite: Suite, place: Location) -> None:
    """Scores a variant's answers and writes them: a table of `SCORES`."""
    answers = read_answers(make_output(job))
    scores = score_answers(
        suite.questions_of(answers),
        answers,
        variant=name,
        samples=job.agent.sampling.samples,
        evidence=read_evidence(make_output(job)),
    )
    place.write_bytes(parquet_bytes(scores))

"""`evaluate run`: a suite, read by each variant with the main job, and scored. The same command goes on.

`evaluation.json` says which suite was read by which variants; their scores lie beside it.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pydantic import BaseModel, ValidationError

from memagent_batch.apps.evaluation.report import report_text
from memagent_batch.apps.evaluation.scores import SCORES, read_answers, read_evidence, score_answers
from memagent_batch.apps.evaluation.suite import Suite
from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import JobConfig, RunConfig
from memagent_batch.data.store.errors import table_errors
from memagent_batch.data.store.json_files import read_owner_record, write_json
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.parquet import parquet_bytes, read_parquet
from memagent_batch.errors import MemagentError, OutputError
from memagent_batch.logs import EventKind
from memagent_batch.run.budgets import fit_budgets_to_window
from memagent_batch.run.flows.answer import answer
from memagent_batch.run.history import require_manifest
from memagent_batch.run.manifest import require_read, require_success
from memagent_batch.run.wiring import identify_reader, make_output

log = logging.getLogger(__name__)

EVALUATION_FILE = "evaluation.json"
EVALUATION_FORMAT = "memagent-evaluation/3"
"""Changes with every change of layout that an older version can't read."""
VARIANT_RUNS_FOLDER = "runs"
SCORES_FOLDER = "scores"
REPORT_FILE = "report.md"


class VariantRecord(BaseModel):
    """A variant that has been read and scored."""

    model: str
    policy: str
    seconds: float
    """Wall clock of its run, seconds; of all attempts that came to an end."""
    fingerprint: str


class Evaluation(BaseModel):
    """What `evaluation.json` says."""

    format: str = EVALUATION_FORMAT
    suite: str
    """Name of the suite, or of the question list and its documents, without credentials."""
    variants: dict[str, VariantRecord]
    """Variants that have been read, by name, in the order in which they were first read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What is evaluated: a policy, a model, or any other settings."""

    name: str
    agent: AgentConfig
    run: RunConfig
    """How it runs; the output is the evaluation's to set."""

    def job(self, sources: Mapping[str, Any], output: Location) -> JobConfig:
        """The job over the suite, with an output in the evaluation."""
        agent = self.agent
        if agent.prompt_set is None and agent.policy.kind == "overwrite":  # whatever the number of questions
            agent = agent.model_copy(update={"prompt_set": "default"})
        run = {name: getattr(self.run, name) for name in RunConfig.model_fields}
        place = output / VARIANT_RUNS_FOLDER / self.name
        return JobConfig(**{**run, **sources, "output": place.uri}, agent=agent)


def evaluate_suite(variants: Sequence[Variant], *, suite: Suite, sources: Mapping[str, Any], output: Location) -> str:
    """Reads and scores the suite with each variant; returns the report, which `report.md` has after each of them.

    `sources` are the settings of its documents and questions. Finished readings of an earlier call are not read again.

    Raises:
        UsageError: the user's mistake, found before an engine starts.
        CountsError: the tables of a run do not hold one row for each reading.
        NotReadError: some readings could not be read now; nothing is scored.
    """
    evaluation, report = claim_evaluation(output, suite=suite.name), ""
    jobs = [variant.job(sources, output) for variant in variants]
    for job in jobs:
        identify_reader(fit_budgets_to_window(job.agent))  # one that can't work is refused before another one reads
    for number, (variant, job) in enumerate(zip(variants, jobs, strict=True), start=1):
        message = f"variant {number} of {len(jobs)}: {variant.name}"
        log.info(message, extra={"event": EventKind.PROGRESS, "variant": variant.name})
        with _naming(variant):
            manifest = answer(job)
            require_read(manifest)
        before = evaluation.variants.get(variant.name)
        spent = before.seconds if before and before.fingerprint == manifest["fingerprint"] else 0.0
        score_variant(variant.name, job, suite=suite, output=output)
        evaluation = claim_evaluation(output, suite=suite.name)  # others may read variants beside
        evaluation.variants[variant.name] = VariantRecord(
            model=job.agent.model,
            policy=job.agent.policy.kind,
            seconds=round(spent + manifest["seconds"], 3),
            fingerprint=manifest["fingerprint"],
        )
        write_json(output / EVALUATION_FILE, evaluation.model_dump())
        report = report_text(evaluation.model_dump(), read_scores(output, evaluation))
        (output / REPORT_FILE).write_bytes(report.encode())
    return report


def require_variants(variants: Sequence[Variant], *, output: Location) -> None:
    """Returns where no variant of a finished evaluation failed in too many readings.

    Raises:
        TooManyFailedError: one did; names it.
    """
    for variant in variants:
        manifest = require_manifest(output / VARIANT_RUNS_FOLDER / variant.name)
        with _naming(variant):
            require_success(manifest, max_failed_share=variant.run.max_failed_share)


@contextmanager
def _naming(variant: Variant) -> Iterator[None]:
    """Puts the variant's name before what the block raises."""
    try:
        yield
    except MemagentError as error:
        raise type(error)(f"variant {variant.name!r}: {error}") from error


def score_variant(name: str, job: JobConfig, *, suite: Suite, output: Location) -> None:
    """Scores a variant's answers and writes them: a table of `SCORES`."""
    answers, evidence = read_answers(make_output(job)), read_evidence(make_output(job))
    samples = job.agent.sampling.samples
    scores = score_answers(suite.questions_of(answers), answers, variant=name, samples=samples, evidence=evidence)
    (output / f"{SCORES_FOLDER}/{name}.parquet").write_bytes(parquet_bytes(scores))


def read_scores(output: Location, evaluation: Evaluation) -> pa.Table:
    """The scores of all variants, a table of `SCORES`.

    Raises:
        OutputError: a variant's scores can't be read; names the file.
    """
    tables = []
    for place in (output / f"{SCORES_FOLDER}/{name}.parquet" for name in evaluation.variants):
        remedy = "run `evaluate run` again with this variant; finished readings are not read again"
        with table_errors(place.uri, remedy=remedy):
            tables.append(read_parquet(place).select(SCORES.names).cast(SCORES))
    return pa.concat_tables(tables)


def claim_evaluation(output: Location, *, suite: str) -> Evaluation:
    """The evaluation of the suite of this name at the location: the one that is there, or a new one without variants.

    Raises:
        OutputError: the place holds something else, or the evaluation of another suite or version.
    """
    record = read_owner_record(output, EVALUATION_FILE, layout=EVALUATION_FORMAT)
    try:
        old = None if record is None else Evaluation.model_validate(record)
    except ValidationError as error:
        remedy = "restore it, or run the evaluation into another folder"
        raise OutputError(f"output: {output.uri}/{EVALUATION_FILE} is not whole; {remedy}") from error
    if old is not None and old.suite == suite:
        return old
    if old is not None and (output / VARIANT_RUNS_FOLDER).files():
        raise OutputError(
            f"output: {output.uri} belongs to an evaluation over the suite {old.suite}, not {suite}; choose another "
            "output"
        )
    evaluation = Evaluation(suite=suite, variants={})
    write_json(output / EVALUATION_FILE, evaluation.model_dump())
    return evaluation

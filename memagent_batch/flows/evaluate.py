"""`evaluate run`: a suite, read by each variant with the main job, and scored. The same command goes on."""

import hashlib
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from memagent_batch.budgets import fit_budgets_to_window
from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import JobConfig, RunConfig
from memagent_batch.errors import MemagentError
from memagent_batch.evaluation.record import (
    SCORES_FOLDER,
    VARIANT_RUNS_FOLDER,
    VariantRecord,
    claim_evaluation,
    write_evaluation,
)
from memagent_batch.evaluation.scoring import read_answers, read_evidence, score_answers
from memagent_batch.evaluation.suite import (
    DOCUMENTS_FOLDER,
    QUESTIONS_FILE,
    SUITE_FILE,
    read_description,
    read_suite_questions,
)
from memagent_batch.flows.answer import answer
from memagent_batch.logs import EventKind
from memagent_batch.runs.manifest import public_settings, read_manifest, require_manifest, require_read, require_success
from memagent_batch.store.location import Location
from memagent_batch.store.parquet import parquet_bytes
from memagent_batch.wiring import ReaderIdentity, identify_reader, make_output

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What is evaluated: a policy, a model, or any other settings."""

    name: str
    """Its name, and that of its folder."""
    agent: AgentConfig
    run: RunConfig
    """How it runs; the output is the evaluation's to set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A suite."""

    place: Location
    questions: pa.Table
    """`SUITE_QUESTIONS`."""
    sha256: str
    """Hash of its description and its questions, hex."""
    tokenizer: dict[str, str] | None
    """Name and hash of the tokeniser in whose tokens its lengths are counted; None where the suite does not say."""


def evaluate_suite(variants: Sequence[Variant], *, suite: Location, output: Location) -> pa.Table:
    """Reads and scores the suite with each variant, and returns the scores of all, a table of `SCORES`.

    A variant that has been read already, with the same settings and weights, costs nothing.

    Raises:
        UsageError: the user's mistake, found before an engine starts.
        CountsError: the tables of a run do not hold one row for each reading.
    """
    ready = load_suite(suite)
    evaluation = claim_evaluation(output, suite=suite)
    jobs = {variant.name: variant_job(variant, suite=ready, output=output) for variant in variants}
    readers = {name: identify_reader(job.agent) for name, job in jobs.items()}
    for name, job in jobs.items():
        warn_of_tokenizer(name, job, suite=ready, reader=readers[name])
    scores = []
    for number, variant in enumerate(variants, start=1):
        job, known = jobs[variant.name], evaluation.of(variant.name)
        message = f"variant {number} of {len(jobs)}: {variant.name}"
        log.info(message, extra={"event": EventKind.PROGRESS, "variant": variant.name})
        if known is None or not is_finished(known, job, fingerprint=readers[variant.name].fingerprint, suite=ready):
            known = read_variant(variant, job, suite=ready, before=known)
        scores.append(score_variant(variant.name, job, suite=ready, place=output / known.scores))
        evaluation = evaluation.with_variant(known)
        write_evaluation(output, evaluation)
    return pa.concat_tables(scores)


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


def load_suite(place: Location) -> Suite:
    """The suite at a place, without its documents.

    Raises:
        InputError: it is not whole, or its questions can't be scored.
    """
    questions = read_suite_questions(place)
    parts = [(place / name).read_bytes() for name in (SUITE_FILE, QUESTIONS_FILE)]
    return Suite(
        place=place,
        questions=questions,
        sha256=hashlib.sha256(b"".join(parts)).hexdigest(),
        tokenizer=read_description(place).get("inputs", {}).get("tokenizer"),
    )


def warn_of_tokenizer(name: str, job: JobConfig, *, suite: Suite, reader: ReaderIdentity) -> None:
    """Warns where a variant counts other tokens than the suite: its lengths are labels, so scores stay right."""
    if suite.tokenizer is None or suite.tokenizer["sha256"] == reader.parts["tokenizer_sha256"]:
        return
    model = job.agent.tokenizer or job.agent.model
    message = (
        f"variant {name!r}: the lengths of this suite are tokens of {suite.tokenizer['name']!r}, and {model!r} "
        f"has another tokeniser; scores are right, lengths are not in its tokens. To count in them, make the suite "
        f"with --model {model}"
    )
    fields = {"variant": name, "suite_tokenizer": suite.tokenizer["name"], "tokenizer": model}
    log.warning(message, extra={"event": EventKind.TOKENIZERS_DIFFER, **fields})


def _with_prompt_set(agent: AgentConfig) -> AgentConfig:
    """The agent with the prompt set that its policy names, whatever the number of questions, if none was named."""
    if agent.prompt_set is not None or agent.policy.kind != "overwrite":
        return agent
    return agent.model_copy(update={"prompt_set": "default"})


def variant_job(variant: Variant, *, suite: Suite, output: Location) -> JobConfig:
    """The variant's job over the suite, with budgets that fit its model, and an output in the evaluation."""
    run = {name: getattr(variant.run, name) for name in RunConfig.model_fields}
    return JobConfig(
        **run | {"output": (output / VARIANT_RUNS_FOLDER / variant.name).uri},
        agent=fit_budgets_to_window(_with_prompt_set(variant.agent)),
        documents=(suite.place / DOCUMENTS_FOLDER).uri,
        questions=(suite.place / QUESTIONS_FILE).uri,
    )


def is_finished(record: VariantRecord, job: JobConfig, *, fingerprint: str, suite: Suite) -> bool:
    """Whether a variant has been read just so: same suite, readers and settings, and nothing to be tried again."""
    manifest = read_manifest(make_output(job))
    return (
        manifest is not None
        and manifest["run_id"] == record.run_id
        and manifest["fingerprint"] == fingerprint
        and manifest["settings"] == public_settings(job)
        and record.suite_sha256 == suite.sha256
        and not manifest["counts"]["not_read"]
        and not (job.retry_failed and manifest["counts"]["failed"])
    )


def read_variant(variant: Variant, job: JobConfig, *, suite: Suite, before: VariantRecord | None) -> VariantRecord:
    """Runs the main job for a variant.

    Raises:
        MemagentError: as the main job does, with the variant's name.
        NotReadError: some readings could not be read now; nothing is scored.
    """
    with naming(variant):
        manifest = answer(job.with_agent(_with_prompt_set(variant.agent)))
        require_read(manifest)
    spent = before.seconds if before and before.fingerprint == manifest["fingerprint"] else 0.0
    return VariantRecord(
        name=variant.name,
        run=f"{VARIANT_RUNS_FOLDER}/{variant.name}",
        scores=f"{SCORES_FOLDER}/{variant.name}.parquet",
        model=job.agent.model,
        policy=job.agent.policy.kind,
        seconds=round(spent + manifest["seconds"], 3),
        fingerprint=manifest["fingerprint"],
        run_id=manifest["run_id"],
        suite_sha256=suite.sha256,
        finished_at=manifest["finished_at"],
    )


def score_variant(name: str, job: JobConfig, *, suite: Suite, place: Location) -> pa.Table:
    """Scores a variant's answers and writes them; a table of `SCORES`."""
    scores = score_answers(
        suite.questions,
        read_answers(make_output(job)),
        variant=name,
        samples=job.agent.sampling.samples,
        evidence=read_evidence(make_output(job)),
    )
    place.write_bytes(parquet_bytes(scores))
    return scores

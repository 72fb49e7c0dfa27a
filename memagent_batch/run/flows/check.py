"""What is refused before any work starts: an output, an input, a model or a prompt set that can't be used."""

import logging
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import JobConfig
from memagent_batch.data.documents.document_index import SOURCE_COLUMNS, require_carry_columns
from memagent_batch.data.documents.questions import are_in_slice, asked_types, most_questions, read_questions
from memagent_batch.data.documents.source_listing import list_sources
from memagent_batch.data.documents.where import parse_where
from memagent_batch.data.ingest.tables import DOCUMENTS_TABLE
from memagent_batch.data.store.database import limit_memory
from memagent_batch.data.store.delta import OutputTable, RunNumber, shared_tables
from memagent_batch.data.store.location import Location
from memagent_batch.logs import EventKind
from memagent_batch.loop.prompt_sets.built_in import BUILT_IN_PROMPTS
from memagent_batch.run.budgets import fit_budgets_to_window
from memagent_batch.run.claim import claim_output
from memagent_batch.run.executors.executor import Executor, choose_executor, why_ray
from memagent_batch.run.history import latest_number, read_run_record
from memagent_batch.run.manifest import public_settings
from memagent_batch.run.reading.documents import require_rows
from memagent_batch.run.reading.follow_ups import FollowUps, checked_follow_ups, require_compiled
from memagent_batch.run.run import writer_of
from memagent_batch.run.sources import FoundSources, find_sources
from memagent_batch.run.tables import ANSWERS
from memagent_batch.run.wiring import (
    ReaderIdentity,
    identify_reader,
    make_documents,
    make_engine,
    make_output,
    make_prompt_tokens,
    with_prompt_order,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What a run reads, before ingest opens it."""

    sources: FoundSources
    questions: pa.Table
    """The questions to ask, except those bound to documents of other slices."""
    other_documents: pa.ChunkedArray
    """The ids of the documents of other slices that questions are bound to."""
    file_names: frozenset[str]
    """Names of the document files of all slices. Empty unless the job is a slice with questions bound to documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedJob:
    """A run that may start."""

    job: JobConfig
    """All settings, with window and budgets that fit the model."""
    inputs: Inputs
    executor: Executor
    reader: ReaderIdentity
    follow_ups: FollowUps | None
    """What is asked after each answer; None for nothing."""
    latest: RunNumber | None = None
    """The latest run when the sources were listed: no run may begin between that one and this one."""


@shared_tables()
def check(job: JobConfig) -> CheckedJob:
    """Checks output, inputs and model, in this order: what answers fastest is asked first.

    Raises:
        UsageError: one of them can't be used; names it.
    """
    limit_memory(job.driver.memory_gib)
    output = make_output(job)
    claim_output(output, job)
    if output.is_local and "://" not in job.output:  # a Ray worker may have another working directory
        job = job.model_copy(update={"output": output.path})
    if job.again_where is not None:
        parse_where(job.again_where, option="again_where")
    latest = latest_number(output, writer=writer_of(job))
    inputs = read_inputs(job)
    num_files, num_bytes = _size_of(inputs.sources)
    pool = make_engine(job.agent).pool_defaults
    unset = {name: number for name, number in pool.items() if name not in job.pool.model_fields_set}
    job = job.model_copy(update={"pool": job.pool.model_copy(update=unset)})
    agent = fit_budgets_to_window(_with_prompt_order(job, inputs.questions))
    is_one_row = not job.input.order_columns and not inputs.sources.reads_files and not inputs.sources.is_in_place
    require_rows(agent, has_rows=not is_one_row)
    reader = identify_reader(agent)
    _warn_of_thoughts(agent)
    _warn_of_another_agent(output, job.with_agent(agent), fingerprint=reader.fingerprint)
    types = asked_types(inputs.questions)
    follow_ups = checked_follow_ups(job.follow_ups, agent, types=types, fingerprint=reader.fingerprint)
    require_compiled(types, agent)
    return CheckedJob(
        job=job.with_agent(agent),
        inputs=inputs,
        executor=choose_executor(
            job.executor,
            num_files=num_files,
            num_bytes=num_bytes,
            why_ray=why_ray(job),
        ),
        reader=reader,
        follow_ups=follow_ups,
        latest=latest,
    )


def _with_prompt_order(job: JobConfig, questions: pa.Table) -> AgentConfig:
    """The agent with the prompt set that suits the number of questions, if none was named.

    The first run of an output decides, and its record keeps it: with a question more or less on the next night, what
    the log has stays valid.
    """
    record = read_run_record(make_output(job))
    begun_with = record["settings"] if record else {}
    is_same_policy = begun_with.get("policy", {}).get("kind") == job.agent.policy.kind
    if job.agent.prompt_set is None and is_same_policy and begun_with["prompt_set"] in (None, *BUILT_IN_PROMPTS):
        return job.agent.model_copy(update={"prompt_set": begun_with["prompt_set"]})
    return with_prompt_order(job.agent, num_questions=most_questions(questions))


def read_inputs(job: JobConfig) -> Inputs:
    """Lists the sources of the documents, and reads the questions.

    Raises:
        InputError: a file or column can't be used; names it.
    """
    listed = Location(uri=job.questions, storage_options=job.storage_options) if job.questions else None
    require_carry_columns(job.input, reserved=(*ANSWERS.names, *SOURCE_COLUMNS.names))
    questions = read_questions(listed, ask=job.ask)
    sources = find_sources(job, make_output(job), retry_failed=job.retry_failed)
    names_documents = questions["document_id"].null_count < questions.num_rows or job.again_where is not None
    file_names = _file_names(job) if job.input.slice and sources.reads_files and names_documents else frozenset()
    is_taken = are_in_slice(questions["document_id"], job.input, files=file_names)
    return Inputs(
        sources=sources,
        questions=questions.filter(is_taken),
        other_documents=questions["document_id"].filter(pc.invert(is_taken)),
        file_names=file_names,
    )


def _file_names(job: JobConfig) -> frozenset[str]:
    """Names of the document files of all slices."""
    settings = job.input.model_copy(update={"slice": None})
    listing = list_sources(make_documents(job), settings=settings, named_endings=job.ingest.converters)
    return frozenset(listing.sources["source"].to_pylist())


def _size_of(sources: FoundSources) -> tuple[int, int]:
    """Number of all sources and their size in bytes; of documents of another output, of its files."""
    if sources.listing is not None:
        return sources.num_sources, int(pc.sum(sources.listing.sources["num_bytes"], min_count=0).as_py())
    files = OutputTable(output=sources.output, name=DOCUMENTS_TABLE).files()
    return len(files), sum(file.num_bytes for file in files.values())


def _warn_of_another_agent(output: Location, job: JobConfig, *, fingerprint: str) -> None:
    """Says that what the last run has read does not count for this one, and which settings of the agent differ."""
    record = read_run_record(output)
    if record is None or record["fingerprint"] == fingerprint:
        return
    now, before = public_settings(job), record["settings"]
    names = [name for name in AgentConfig.model_fields if now.get(name) != before.get(name)]
    why = ", ".join(names) or "files of the model, prompts, or code of yours"
    log.warning(
        f"the agent is not that of the last run in this output (different: {why}): what that one has read does not "
        "count, and all that this one has not read before is read",
        extra={"event": EventKind.AGENT_CHANGED, "names": names},
    )


def _warn_of_thoughts(agent: AgentConfig) -> None:
    if make_prompt_tokens(agent).opens_thought:
        message = (
            f"{agent.model} begins each completion inside a thought, which may use up the whole budget of a turn: the "
            "reading then fails. Raise policy.memory_tokens and policy.answer_tokens"
        )
        log.warning(message, extra={"event": EventKind.THOUGHTS_UNBOUNDED, "model": agent.model})

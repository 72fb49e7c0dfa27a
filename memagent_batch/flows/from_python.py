"""The whole job as a call of Python: inputs that are no files are written first, then the chain runs as the command's.

`memagent_batch.answer` is this function.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress
from os import PathLike
from typing import Any

from memagent_batch.api.input_files import Documents, document_places, write_documents, write_table
from memagent_batch.api.knobs import checked_section
from memagent_batch.api.question import GivenQuestions, question_table
from memagent_batch.api.run import Run
from memagent_batch.budgets import fitted
from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.bounds import BoundsConfig
from memagent_batch.config.closing import ClosingConfig
from memagent_batch.config.job import ExecutorKind, JobConfig, LogConfig, PoolConfig, TableFormat
from memagent_batch.config.sources import InputConfig
from memagent_batch.errors import SupersededError
from memagent_batch.files.location import Location, absolute
from memagent_batch.files.options import Options, StorageOptions
from memagent_batch.flows import answer as chain
from memagent_batch.inputs.documents import index_columns, parsed_where
from memagent_batch.inputs.where import columns_of
from memagent_batch.logs import log_of_program
from memagent_batch.runs.claim import require_claim
from memagent_batch.runs.output_place import INPUT_FOLDER, claim_output
from memagent_batch.runs.verdict import require_success
from memagent_batch.wiring import identify_reader, make_engine, make_output


def answer(
    *,
    documents: Documents,
    questions: GivenQuestions = (),
    output: str | PathLike[str],
    agent: AgentConfig,
    input: InputConfig = InputConfig(),  # noqa: A002, B008 - the section's name; a frozen value
    executor: ExecutorKind | str = ExecutorKind.AUTO,
    pool: PoolConfig = PoolConfig(),  # noqa: B008
    log: LogConfig = LogConfig(),  # noqa: B008
    closing: ClosingConfig = ClosingConfig(),  # noqa: B008
    table_format: TableFormat = TableFormat.PARQUET,
    limit: int | None = None,
    again_from: str | PathLike[str] | None = None,
    where: str | None = None,
    bounds: BoundsConfig = BoundsConfig(),  # noqa: B008
    retry_failed: bool = False,
    max_failed_share: float = 1.0,
    adopt_output: bool = False,
    storage_options: Options | None = None,
) -> Run:
    """Answers the questions over the documents, as `memagent answer` does; goes on where a run of the output stopped.

    A small job runs in this process; a larger one in the Ray session that is there, or in one of its own. No setting is
    read from the environment. Progress lines go to stderr unless the program has set up `logging`.

    Args:
        documents: Paths or URIs; or an Arrow table, a data frame, or a Ray Dataset, which is written once to the
            output's `input/documents/`. The same output then takes another table the next night.
        questions: Texts; `Question`s or mappings, which are written to `input/questions/`; or the path of a list.
        output: Where log, tables and manifest go: a folder or URI.
        agent: What reads.
        input: Columns and format of the documents.
        executor: Where the work is done: `local` (this process), `ray`, or `auto`: local for a small job.
        pool: The actor pool.
        log: The turn log.
        closing: What is asked after each answer; a value of a type is asked for where a question has one.
        table_format: File format of `answers` and `memories`.
        limit: Documents to take, as a fair sample that grows with it; by default all.
        again_from: An output whose readings are read again, those alone that `where` takes: a second pass.
        where: Condition on the rows of the `answers` of `again_from`, as in SQL: `confidence < 0.8`.
        bounds: What the run may take at most: tokens, cost, hours.
        retry_failed: Read failed readings again, and nothing else that is done.
        max_failed_share: Largest share of failed readings.
        adopt_output: Take over an output that was written for other documents or questions.
        storage_options: Arguments of the file system of inputs and output.

    Raises:
        UsageError: a mistake in the call, found before an engine starts.
        TooManyFailedError: more readings failed than `max_failed_share`, or all. The tables are written: `Run.at`.
        NotReadError: some readings could not be read now; the same call reads them. The tables are written.
        BoundReachedError: the run has met one of its bounds; the same call goes on. The tables are as they were.
        CountsError: the tables do not hold one row for each reading.
        SupersededError: a newer attempt has claimed the output.
        RunFailedError: the run stopped; the same call goes on from the log.
    """
    place = absolute(output)
    questions = questions if isinstance(questions, str | PathLike) else list(questions)
    job = checked_section(
        JobConfig,
        documents=document_places(documents) or (_kept(place, "documents"),),
        **_question_knobs(questions, kept=_kept(place, "questions")),
        output=place,
        agent=agent,
        input=input,
        executor=executor,
        pool=pool,
        log=log,
        closing=closing,
        table_format=table_format,
        limit=limit,
        again_from=None if again_from is None else absolute(again_from),
        again_where=where,
        **bounds.model_dump(exclude_unset=True),
        retry_failed=retry_failed,
        max_failed_share=max_failed_share,
        adopt_output=adopt_output,
        storage_options=StorageOptions(storage_options),
    )
    with log_of_program():
        claim_output(make_output(job), job)
        _require_agent(agent)
        return _run_job(job, documents, questions)


def _run_job(job: JobConfig, documents: Documents, questions: GivenQuestions) -> Run:
    """Runs the chain over the inputs; those that are not files are written first."""
    output = make_output(job)
    before = (output / INPUT_FOLDER).files()
    written = _write_inputs(job, documents, questions)
    manifest = chain.answer(job.model_copy(update=_places(written, output=job.output)))
    _remove_stale(output, before, written=written, run_id=manifest["run_id"])
    require_success(manifest, max_failed_share=job.max_failed_share)
    return Run(output=job.output, run_id=manifest["run_id"], manifest=manifest, storage_options=job.storage_options)


def _write_inputs(job: JobConfig, documents: Documents, questions: GivenQuestions) -> dict[str, Collection[str]]:
    """Writes the inputs that are no files; returns the names of the files by input."""
    written: dict[str, Collection[str]] = {}
    folder = make_output(job) / INPUT_FOLDER
    if job.questions == _kept(job.output, "questions"):
        listed = question_table(questions, storage_options=job.storage_options)
        written["questions"] = [write_table(listed, folder=folder / "questions")]
    if not document_places(documents):
        written["documents"] = write_documents(documents, folder=folder / "documents", columns=_columns(job.input))
    return written


def _kept(output: str, name: str) -> str:
    """Where inputs that are no files are kept: the folder of documents or questions."""
    return f"{output.rstrip('/')}/{INPUT_FOLDER}/{name}"


def _places(written: Mapping[str, Collection[str]], *, output: str) -> dict[str, Any]:
    """The files of the input, as a job names them."""
    places: dict[str, Any] = {
        name: tuple(f"{_kept(output, name)}/{file}" for file in files) for name, files in written.items()
    }
    return {**places, **({"questions": places["questions"][0]} if "questions" in places else {})}


def _remove_stale(
    output: Location, before: Collection[str], *, written: Mapping[str, Collection[str]], run_id: str
) -> None:
    """Removes files that were there before this run's input was written and that it does not name.

    A newer attempt may read them again: where there is one, they stay.
    """
    stale = []
    for name, files in written.items():
        folder = (output / f"{INPUT_FOLDER}/{name}").path
        stale += [path for path in before if path.startswith(f"{folder}/") and path.rsplit("/", 1)[-1] not in files]
    with suppress(SupersededError):
        require_claim(output, run_id=run_id)
        output.delete_files(stale)


def _require_agent(agent: AgentConfig) -> None:
    """Refuses an agent that can't work, before an input is written for it."""
    make_engine(agent)
    identify_reader(fitted(agent))


def _question_knobs(questions: GivenQuestions, *, kept: str) -> dict[str, object]:
    """The questions as a job has them: texts as `--ask` gives them, others in a file."""
    if isinstance(questions, str | PathLike):
        return {"questions": absolute(questions)}
    return {"ask": questions} if all(isinstance(each, str) for each in questions) else {"questions": kept}


def _columns(input_: InputConfig) -> list[str]:
    """The columns that a run reads, each once."""
    where = parsed_where(input_)
    filtered = sorted(columns_of(where)) if where is not None else []
    return list(dict.fromkeys([*(column.name for column in index_columns(input_)), *filtered]))

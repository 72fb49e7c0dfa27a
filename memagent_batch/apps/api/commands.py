"""The commands as calls of Python, under the names that `memagent_batch` has.

Inputs of `answer` and `collect` that are not files are written first; then the chain runs as the command's.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from typing import Any, Literal, TypeVar

from memagent_batch.apps.api.inputs import (
    Documents,
    GivenQuestions,
    document_places,
    question_place,
    question_table,
    write_documents,
    write_table,
)
from memagent_batch.apps.api.run import Run
from memagent_batch.apps.pages.site import CONTEXT_CHARS, PAGES_FOLDER, WrittenSite, write_site
from memagent_batch.apps.review import review
from memagent_batch.apps.scan import scan as scan_files
from memagent_batch.apps.training import collect as collection
from memagent_batch.apps.training.export import export_rollouts
from memagent_batch.apps.training.rollouts_table import RolloutsRecord
from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import IngestJob, JobConfig, LogFormat
from memagent_batch.config.problems import checked_section
from memagent_batch.config.storage import Options, StorageOptions
from memagent_batch.data.store.location import Location, absolute
from memagent_batch.errors import SettingsError, SupersededError
from memagent_batch.logs import log_of_program
from memagent_batch.run.budgets import fit_budgets_to_window
from memagent_batch.run.claim import INPUT_FOLDER, claim_output
from memagent_batch.run.flows import answer as chain
from memagent_batch.run.flows.ingest import IngestReport, ingest_documents, require_sources
from memagent_batch.run.history import require_newest, run_number_of
from memagent_batch.run.manifest import Manifest, require_documents, require_success
from memagent_batch.run.wiring import identify_reader, make_engine, make_output

PlaceOrPath = str | PathLike[str]
CallResult = TypeVar("CallResult", bound=Mapping[str, Any])


def ingest_files(
    documents: PlaceOrPath | Sequence[PlaceOrPath], *, output: PlaceOrPath, **settings: Any
) -> IngestReport:
    """Reads files, data files or a table into the documents of an output, as `memagent ingest` does.

    Args:
        documents: Files, folders or globs: paths or URIs; or a table.
        output: Where the tables go; `answer` takes this place as its `documents`.
        settings: Other settings of the command, such as `ingest=IngestConfig(ocr=True)`, `retry_failed`, `executor` or
            `storage_options`. Code that `ingest.converter` names is run.

    Raises:
        UsageError: a mistake in the call.
        TooManyFailedError: more sources failed than `max_failed_share`, or all. The documents are written.
        NotReadError: some sources could not be read now; the same call reads them.
    """
    job = checked_section(IngestJob, documents=_absolute_places(documents), output=absolute(output), **settings)
    with log_of_program():
        return ingest_documents(job)


def scan(
    files: PlaceOrPath | Sequence[PlaceOrPath],
    *,
    questions: GivenQuestions,
    output: PlaceOrPath,
    agent: AgentConfig,
    **settings: Any,
) -> Run:
    """Reads files, answers questions over them, and writes pages and a summary, as `memagent scan` does.

    Args:
        files: PDF, HTML, Office, e-mail and other files, folders or globs: paths or URIs.
        questions: As for `answer`.
        output: A folder or URI; gets the tables of the run and `pages/` (`summary.txt`).
        agent: What reads.
        settings: Other settings, as for `answer`, such as `ingest=IngestConfig(ocr=True)`.

    Raises:
        UsageError: a mistake in the call, found before an engine starts.
        TooManyFailedError: more readings failed than `max_failed_share`, or all. The pages are written.
        TooManyRemovedError: more documents are gone than the `max_removed_share` of the call. The pages are written.
        NotReadError: some files or readings could not be read now; the same call reads them. The pages are written.
    """
    places = _absolute_places(files)
    job, night = _run_chain(scan_files, places, questions, output=output, agent=agent, settings=settings)
    require_sources(make_output(job))
    return _successful_run(night["manifest"], job)


def answer(
    *,
    documents: Documents,
    questions: GivenQuestions = (),
    output: PlaceOrPath,
    agent: AgentConfig,
    again_from: PlaceOrPath | None = None,
    where: str | None = None,
    **settings: Any,
) -> Run:
    """Answers the questions over the documents, as `memagent answer` does; goes on where a run of the output stopped.

    A small job runs in this process; a larger one in the Ray session that is there, or in one of its own. No setting is
    read from the environment. Progress lines go to stderr unless the program has set up `logging`.

    Args:
        documents: Paths or URIs; or rows as dicts, an Arrow table, a data frame, or a Ray Dataset, which are written
            once to the output's `input/documents/`. The same output then takes another table the next night.
        questions: Texts; `Question`s or mappings, which are written to `input/questions/`; or the path of a list.
        output: Where log, tables and manifest go: a folder or URI.
        agent: What reads.
        again_from: An output whose readings are read again, those alone that `where` takes: a second pass.
        where: Condition on the rows of the `answers` of `again_from`, in SQL: `confidence < 0.8`.
        settings: Other settings of a job file (docs/reference/settings.md), such as `follow_ups`, `pool`, `executor`,
            `limit` or `max_tokens`; a group of settings is a value such as `PoolConfig(replicas=4)`, or a mapping.

    Raises:
        UsageError: a mistake in the call, found before an engine starts.
        TooManyFailedError: more readings failed than `max_failed_share`, or all. The tables are written: `Run.at`.
        TooManyRemovedError: more documents are gone than the `max_removed_share` of the call. The tables are written.
        NotReadError: some readings could not be read now; the same call reads them. The tables are written.
        BoundReachedError: the run has met one of its bounds; the same call goes on. The tables are as they were.
        MemagentError: the run stopped, or has lost the output to a newer attempt; see `memagent_batch.errors`.
    """
    again = {"again_from": None if again_from is None else absolute(again_from), "again_where": where}
    settings |= {name: value for name, value in again.items() if value is not None}
    job, manifest = _run_chain(chain.answer, documents, questions, output=output, agent=agent, settings=settings)
    return _successful_run(manifest, job)


def _successful_run(manifest: Manifest, job: JobConfig) -> Run:
    """The run, unless too many readings failed, or too many documents are gone and the call bounds them."""
    require_success(manifest, max_failed_share=job.max_failed_share)
    if "max_removed_share" in job.model_fields_set:
        require_documents(manifest, job)
    return Run(output=job.output, run_id=manifest["run_id"], manifest=manifest, storage_options=job.storage_options)


def collect(
    *,
    documents: Documents,
    questions: GivenQuestions,
    output: PlaceOrPath,
    agent: AgentConfig,
    **settings: Any,
) -> RolloutsRecord:
    """Samples every question several times and writes rewards and advantages, as `memagent collect` does.

    The questions need `references`; the setting `rollouts` has the number of samples and their reward. All else is as
    for `answer`.

    Returns:
        What `rollouts.json` says: counts, mean reward, files.

    Raises:
        UsageError: a mistake in the call, found before an engine starts.
        NotReadError: some samples could not be read now, and no rollouts are written; the same call reads them.
        TooManyFailedError: more samples failed than `max_failed_share`, or all. The rollouts are written.
    """
    _, record = _run_chain(collection.collect, documents, questions, output=output, agent=agent, settings=settings)
    return record


def export(
    output: PlaceOrPath,
    *,
    to: Literal["verl", "trl", "skyrl"],
    into: PlaceOrPath,
    storage_options: Options | None = None,
) -> Mapping[str, int]:
    """Writes the rollouts of `collect` as a Parquet file for a trainer, as `memagent export` does; returns its counts.

    Raises:
        InputError: the rollouts are not whole, or have nothing to learn from.
        StorageError: the file can't be written.
    """
    return export_rollouts(_location(output, storage_options), _location(into, storage_options), to=to)


def page(
    output: PlaceOrPath | Sequence[PlaceOrPath],
    *,
    to: PlaceOrPath | None = None,
    context: int = CONTEXT_CHARS,
    page_images: bool = False,
    storage_options: Options | None = None,
) -> WrittenSite:
    """Writes the answers of the last finished run as pages, as `memagent page` does, however large they become.

    Args:
        output: The output of `answer`; several, such as those of slices, are shown as one run.
        to: Folder of the pages; `pages/` in the first output by default.
        context: Characters of the document that are shown before and behind evidence.
        page_images: Whether to show the pages of PDFs on which evidence stands, too, drawn from the source files.
        storage_options: Arguments of the file system.

    Raises:
        OutputError: no run has finished, or the folder holds other files.
    """
    places = _locations(output, storage_options)
    target = places[0] / PAGES_FOLDER if to is None else _location(to, storage_options)
    return write_site(places, target, context_chars=context, is_large_allowed=True, has_page_images=page_images)


def make_review(
    output: PlaceOrPath | Sequence[PlaceOrPath],
    *,
    question_id: str,
    labels: int | str = 750,
    flagged: str = "value_bool = true",
    storage_options: Options | None = None,
) -> dict[str, Any]:
    """Draws a sample of a question's answers for people to label, as `memagent review make` does; says where it is.

    Args:
        output: The output of `answer`; several, such as those of slices, are one scan, with the review in the first.
        question_id: The question.
        labels: Labels in all, or of each stratum as in `flagged=150,not_flagged=600`.
        flagged: What the scan found, as a condition.
        storage_options: Arguments of the file system.

    Raises:
        OutputError: no run has finished, or its tables can't be read.
        SettingsError: there is no such question, column or stratum.
    """
    asked = review.ReviewRequest(question_id=question_id, labels=str(labels), flagged=flagged)
    return review.make_review(_locations(output, storage_options), asked)


def _absolute_places(places: PlaceOrPath | Sequence[PlaceOrPath]) -> tuple[str, ...]:
    return tuple(map(absolute, [places] if isinstance(places, str | PathLike) else places))


def _locations(places: PlaceOrPath | Sequence[PlaceOrPath], options: Options | None) -> list[Location]:
    return [_location(place, options) for place in _absolute_places(places)]


def _location(place: PlaceOrPath, options: Options | None) -> Location:
    return Location(uri=absolute(place), storage_options=StorageOptions(options))


def _run_chain(
    flow: Callable[[JobConfig], CallResult],
    documents: Documents,
    questions: GivenQuestions,
    *,
    output: PlaceOrPath,
    agent: AgentConfig,
    settings: Mapping[str, Any],
) -> tuple[JobConfig, CallResult]:
    """Runs a chain over the inputs; those that are not files are written first, to a place in the output.

    Returns the job, which names this place, and the result of the chain.
    """
    for name, remedy in (("ask", "give the questions as questions=[...]"), ("documents", "give them as files")):
        if name in settings:
            raise SettingsError(f"{name}: {remedy}")
    folder, places = Location(uri=absolute(output)) / INPUT_FOLDER, document_places(documents)
    listed = questions if isinstance(questions, str | PathLike) else list(questions)
    asked: dict[str, Any] = {"questions": (folder / "questions").uri}  # written there, unless they are texts or a place
    if isinstance(listed, str | PathLike):
        asked = {"questions": question_place(listed)}
    elif all(isinstance(each, str) for each in listed):
        asked = {"ask": listed}
    job = checked_section(
        JobConfig,
        documents=places or ((folder / "documents").uri,),
        output=absolute(output),
        agent=agent,
        **asked,
        **settings,
    )
    place = make_output(job)
    folder = place / INPUT_FOLDER
    with log_of_program(as_json=job.log_format == LogFormat.JSON):
        claim_output(place, job)
        make_engine(agent)  # an agent that can't work is refused before an input is written for it
        identify_reader(fit_budgets_to_window(agent))
        before, written = folder.files(), dict[str, Any]()
        if job.questions == (folder / "questions").uri:
            table = question_table(listed, storage_options=job.storage_options)
            written["questions"] = (folder / "questions" / write_table(table, folder=folder / "questions")).uri
        if not places:
            names = write_documents(documents, folder=folder / "documents", settings=job.input)
            written["documents"] = tuple((folder / "documents" / name).uri for name in names)
        result = flow(job.model_copy(update=written))
        _remove_stale(place, before, written=written, run_id=result["run_id"])
    return job, result


def _remove_stale(output: Location, before: Collection[str], *, written: Mapping[str, Any], run_id: str) -> None:
    """Removes files that were there before this run's input was written and that it does not name.

    A newer attempt may read them again: if there is one, they stay.
    """
    kept = {uri.rsplit("/", 1)[-1] for uri in (*written.get("documents", ()), written.get("questions", ""))}
    stale = [path for path in before if path.split("/")[-2] in written and path.rsplit("/", 1)[-1] not in kept]
    with suppress(SupersededError):
        require_newest(output, run_number_of(output, run_id))
        output.delete_files(stale)

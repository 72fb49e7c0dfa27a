"""One command a night: files are converted, questions answered, and pages and a summary written."""

from contextlib import ExitStack
from typing import TypedDict

from memagent_batch.budgets import fit_budgets_to_window
from memagent_batch.config.convert import ConvertJob
from memagent_batch.config.job import JobConfig
from memagent_batch.documents.listing import RUN_FILE
from memagent_batch.errors import NotReadError
from memagent_batch.flows.answer import answer
from memagent_batch.flows.convert import convert
from memagent_batch.pages.site import CONTEXT_CHARS, TEXT_FILE, write_site
from memagent_batch.runs.claim import claim_output
from memagent_batch.runs.history import run_output
from memagent_batch.runs.manifest import Manifest
from memagent_batch.store.errors import output_errors
from memagent_batch.store.location import Location
from memagent_batch.wiring import make_output

DOCUMENTS, ANSWERS, PAGES = "documents", "answers", "pages"


class Scan(TypedDict):
    """What a night has written."""

    run_id: str
    manifest: Manifest
    text: str
    page: str
    files_not_read: NotReadError | None
    """Set if some files could not be read now; the same command reads them, the answers are those of the others."""


def is_scan(output: Location) -> bool:
    """Whether this is the folder of a scan, which has documents and answers below it."""
    with output_errors(output.uri):
        return run_output(output) != output or (output / DOCUMENTS / RUN_FILE).exists()


def answers_of_scan(job: JobConfig) -> JobConfig:
    """A scan's job over the documents that it converts: these and the answers lie below its output."""
    folder = job.output.rstrip("/")
    return job.model_copy(update={"documents": (f"{folder}/{DOCUMENTS}",), "output": f"{folder}/{ANSWERS}"})


def scan(job: JobConfig, conversion: ConvertJob) -> Scan:
    """Converts what is new, answers, and writes the pages with their summary. One Ray serves both, if one is needed.

    The job's documents are what the conversion writes; `pages/` goes beside its `output`.

    Raises:
        UsageError: the user's mistake, found before an engine starts.
        TooManyFailedError: all files failed.
        CountsError: a file or a reading has no row.
        SupersededError: a newer attempt has claimed the output.
    """
    claim_output(make_output(job), job)  # here too: an hour of converting comes before the other checks
    fit_budgets_to_window(job.agent)
    files_not_read = None
    with ExitStack() as sessions:
        try:
            convert(conversion, sessions=sessions)
        except NotReadError as error:
            files_not_read = error
        manifest = answer(job)
    pages = make_output(job.model_copy(update={"output": f"{job.output.rpartition('/')[0]}/{PAGES}"}))
    written = write_site([make_output(job)], pages, context_chars=CONTEXT_CHARS, is_large_allowed=True)
    text = (pages / TEXT_FILE).read_bytes().decode("utf-8")
    return Scan(
        run_id=manifest["run_id"], manifest=manifest, text=text, page=written["page"], files_not_read=files_not_read
    )

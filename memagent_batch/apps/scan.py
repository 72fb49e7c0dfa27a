"""One command a night: files are read, questions answered, and pages and a summary written, all into one output."""

from typing import TypedDict

from memagent_batch.apps.pages.site import CONTEXT_CHARS, PAGES_FOLDER, TEXT_FILE, write_site
from memagent_batch.config.job import JobConfig
from memagent_batch.data.store.delta import shared_tables
from memagent_batch.run.flows.answer import answer
from memagent_batch.run.flows.ingest import with_files_format
from memagent_batch.run.manifest import Manifest
from memagent_batch.run.wiring import make_output


class Scan(TypedDict):
    """What a night has written."""

    run_id: str
    manifest: Manifest
    text: str
    page: str


@shared_tables()
def scan(job: JobConfig, *, has_page_images: bool = False) -> Scan:
    """Answers, and writes the pages with their summary to `pages/` of the output, with images of PDF pages on request.

    Every file is a document by its kind, unless the documents are a table or named data files.

    Raises:
        UsageError: the user's mistake, found before an engine starts.
        CountsError: a reading has no row.
        SupersededError: a newer run has taken over the output.
    """
    settings = with_files_format(job.input, documents=job.documents)
    job = job.model_copy(update={"input": settings})
    manifest = answer(job)
    output = make_output(job)
    pages = output / PAGES_FOLDER
    written = write_site(
        [output], pages, context_chars=CONTEXT_CHARS, is_large_allowed=True, has_page_images=has_page_images
    )
    text = (pages / TEXT_FILE).read_bytes().decode("utf-8")
    return Scan(run_id=manifest["run_id"], manifest=manifest, text=text, page=written["page"])

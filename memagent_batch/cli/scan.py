"""`memagent scan`: ingest, answers, pages and summary, in one command a night."""

import shlex
import sys

from memagent_batch.cli.options import INPUT, MODEL
from memagent_batch.cli.settings import Command, JobSettings
from memagent_batch.masking import mask_url, printable

_NEXT = """\
next: open {page} in a browser
  memagent export {place} --to xlsx   # for a spreadsheet; or csv
  memagent review sign {place} signed.csv   # takes in what the page saved; then memagent page {place}
"""


class Scan(JobSettings, Command):
    """Reads files, answers questions over them, and writes pages and a summary into OUTPUT/pages/: one command a night,
    which reads only what is new or changed.
    """

    command = "memagent scan"
    common = (*INPUT, "output", *MODEL, "follow_ups.evidence", "follow_ups.support", "pool.replicas", "ingest.ocr")
    unused = ("rollouts",)
    examples = (
        "memagent scan --documents contracts/ --questions questions.csv --output scan/ --model my-model/",
        "memagent scan --documents contracts/ --questions questions.csv --output scan/ --ingest.ocr",
    )
    pages = ("docs/how-to/nightly-scans.md",)

    page_images: bool = False
    """Show pages of PDFs with evidence, marked, as `memagent page` does."""

    def run(self) -> None:
        from memagent_batch.apps.scan import scan
        from memagent_batch.run.accepted_unread import open_unread
        from memagent_batch.run.flows.ingest import require_sources  # here, so that --help loads no reader
        from memagent_batch.run.manifest import require_documents, require_sources_read, require_success
        from memagent_batch.run.wiring import make_output

        job = self.job()
        night = scan(job, has_page_images=self.page_images)
        place = shlex.quote(mask_url(self.output.rstrip("/")))
        sys.stdout.write(f"{night['text']}\n{_NEXT.format(page=printable(night['page']), place=place)}")
        require_sources(make_output(job))
        require_success(night["manifest"], max_failed_share=job.max_failed_share)
        require_documents(night["manifest"], job)
        require_sources_read(open_unread(make_output(job), night["manifest"]))

"""One command a night: files are converted, questions answered, and pages and a summary written."""

from dataclasses import dataclass

from memagent_batch.config.convert import ConvertConfig, ConvertJob
from memagent_batch.config.job import JobConfig
from memagent_batch.errors import NotReadError
from memagent_batch.flows.answer import answer
from memagent_batch.flows.convert import convert
from memagent_batch.pages.site import TEXT_FILE, write_site
from memagent_batch.runs.manifest import Manifest
from memagent_batch.wiring import make_output

CONTEXT_CHARS = 2_000
"""Characters of the document that pages show before and behind evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What a night has written."""

    manifest: Manifest
    """Of the answers."""
    text: str
    """The summary."""
    files_not_read: NotReadError | None
    """Set if some files could not be read now; the same command reads them, the answers are those of the others."""


def scan(job: JobConfig, conversion: ConvertConfig, *, allow_code: bool = False) -> Scan:
    """Converts what is new, answers, and writes the pages with their summary.

    Args:
        job: Its `documents` are the files to convert, its `output` the folder of all that is written: `documents/`,
            `answers/`, `pages/`.
        conversion: How files are converted.
        allow_code: Whether `conversion` may name code of the user's.

    Raises:
        UsageError: the user's mistake, found before an engine starts.
        TooManyFailedError: all files failed.
        CountsError: a file or a reading has no row.
        SupersededError: a newer attempt has claimed the output.
    """
    output = job.output.rstrip("/")
    documents, answers = f"{output}/documents", f"{output}/answers"
    files_not_read = None
    try:
        convert(
            ConvertJob(
                **dict(conversion),
                documents=job.documents,
                output=documents,
                allow_code=allow_code,
                executor=job.executor,
                storage_options=job.storage_options,
            )
        )
    except NotReadError as error:
        files_not_read = error
    read = job.model_copy(update={"documents": (documents,), "output": answers})
    manifest = answer(read)
    pages = make_output(read.model_copy(update={"output": f"{output}/pages"}))
    write_site(make_output(read), pages, context_chars=CONTEXT_CHARS, is_large_allowed=True)
    text = (pages / TEXT_FILE).read_bytes().decode("utf-8")
    return Scan(manifest=manifest, text=text, files_not_read=files_not_read)

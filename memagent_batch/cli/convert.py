"""`memagent convert`: PDF, HTML, Office, e-mail, text and ZIP files to a table of documents with locators."""

import json
from typing import Annotated

from pydantic import Field

from memagent_batch.cli.settings import StorageCommand
from memagent_batch.config.job import ExecutorKind
from memagent_batch.config.section import Text
from memagent_batch.convert.process.sandbox import Limits
from memagent_batch.errors import SettingsError
from memagent_batch.masking import mask_url

LIMITS = Limits()


class Convert(StorageCommand):
    """Converts PDF, HTML, DOCX, PPTX, XLSX, OpenDocument, e-mail, text and ZIP files to Parquet rows with locators: a
    page, a message, a section. Each file is converted in its own process, with limits. A file that can't be
    converted is a row that says why. The second run converts only new and changed files.
    """

    command = "memagent convert"
    examples = (
        "memagent convert --documents contracts/ --output texts/",
        "memagent convert --documents s3://bucket/mail/ 's3://bucket/pdf/**/*.pdf' --output s3://bucket/texts/ "
        "--seconds 120",
    )
    page = "docs/how-to/convert.md"

    documents: tuple[Text, ...]
    """Files, folders or globs; paths or fsspec URLs."""
    output: Text
    """Where to write: a folder or fsspec URL."""
    converter: tuple[str, ...] = ()
    """Another converter for a kind (pdf, html, docx, slides, sheets, opendocument, image, email, markdown, text, zip)
    or an ending (.rtf), as KIND=NAME: the name that an installed package gives it, or package.module:Class; can be
    repeated."""
    allow_code: bool = False
    """Allow --converter to name code of yours, which is then run."""
    seconds: Annotated[float, Field(gt=0, lt=1e9)] = LIMITS.seconds
    """Time of one file's process."""
    memory_mib: Annotated[int, Field(gt=0, lt=1e9)] = LIMITS.memory_bytes >> 20
    """Memory of one file's process, MiB."""
    file_mib: Annotated[int, Field(gt=0, lt=1e9)] = 256
    """Size from which a file is skipped, MiB."""
    retry_failed: bool = False
    """Convert files again that failed before."""
    max_failed_share: Annotated[float, Field(ge=0, le=1)] = 1.0
    """End with exit code 4 if a larger share of the files failed, from 0 to 1."""
    executor: ExecutorKind = ExecutorKind.AUTO
    """Where files are converted: in this process (local), or by Ray; auto takes local for at most 100 files and 64
    MiB."""

    def run(self) -> None:
        from memagent_batch.flows.convert import ConvertJob, convert  # here, so that --help loads no reader

        job = ConvertJob(
            documents=self.documents,
            output=self.output,
            converters=chosen_converters(self.converter),
            allow_code=self.allow_code,
            limits=Limits(seconds=self.seconds, memory_bytes=self.memory_mib << 20),
            file_bytes=self.file_mib << 20,
            retry_failed=self.retry_failed,
            max_failed_share=self.max_failed_share,
            executor=self.executor,
            storage_options=self.storage_options,
        )
        print(json.dumps({"output": mask_url(job.output), **convert(job)["counts"]}))


def chosen_converters(texts: tuple[str, ...]) -> dict[str, str]:
    """The converters of `--converter`, by kind or ending.

    Raises:
        SettingsError: a text is not KIND=NAME.
    """
    return dict(map(_pair, texts))


def _pair(text: str) -> tuple[str, str]:
    kind, equals, name = text.partition("=")
    if not (kind and equals and name):
        raise SettingsError(f"--converter: {text!r} is not KIND=NAME, such as pdf=my_package.pdf:Mine")
    return kind.lower(), name

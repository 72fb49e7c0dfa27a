"""`memagent convert`: PDF, HTML, Office, e-mail, text and ZIP files to a table of documents with locators."""

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from memagent_batch.cli.settings import JsonCommand, StorageCommand
from memagent_batch.config.convert import ConvertJob
from memagent_batch.convert.converter import PartStatus
from memagent_batch.domain.texts.shares import quantity
from memagent_batch.masking import mask_url

if TYPE_CHECKING:
    from memagent_batch.convert.record import ConvertManifest


class Convert(StorageCommand, JsonCommand, ConvertJob):
    """Converts PDF, HTML, DOCX, PPTX, XLSX, OpenDocument, e-mail, MSG, RTF, text and ZIP files to Parquet rows: a
    page, a message, a section. Each file is converted in its own process, with limits. A file that can't be
    converted is a row that says why. The second run converts only new and changed files.
    """

    command = "memagent convert"
    examples = (
        "memagent convert --documents contracts/ --output texts/ --ocr",
        "memagent convert --documents s3://bucket/mail/ 's3://bucket/pdf/**/*.pdf' --output s3://bucket/texts/ "
        "--seconds 120",
    )
    page = "docs/how-to/convert.md"

    def run(self) -> None:
        from memagent_batch.flows.convert import convert  # here, so that --help loads no reader

        manifest, output = convert(self), mask_url(self.output)
        lines = convert_lines(manifest, output=shlex.quote(output))
        self.report({"output": output, **manifest["counts"]}, lines, indent=None)


def convert_lines(manifest: "ConvertManifest", *, output: str) -> Iterator[str]:
    """What a person reads of a conversion."""
    counts = manifest["counts"]
    files = f"{quantity(counts['files'], 'file')}, {counts['files_reused']:,} of them converted before"
    yield f"{files}: {quantity(counts['documents'], 'document')} in {output}, {manifest['seconds']:,.0f} s"
    endings = {ending: counts[f"files_{ending}"] for ending in PartStatus}
    yield ", ".join(f"{num:,} {ending.replace('_', ' ')}" for ending, num in endings.items() if num)
    yield ""
    yield f'next: memagent answer --config reader --documents {output} --output out/ --ask "What is it about?"'
    yield "      (needs once: memagent models install reader-135m; for larger models: memagent doctor)"

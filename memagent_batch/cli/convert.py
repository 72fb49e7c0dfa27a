"""`memagent convert`: PDF, HTML, Office, e-mail, text and ZIP files to a table of documents with locators."""

import json

from memagent_batch.cli.settings import StorageCommand
from memagent_batch.config.convert import ConvertJob
from memagent_batch.masking import mask_url


class Convert(StorageCommand, ConvertJob):
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

        print(json.dumps({"output": mask_url(self.output), **convert(self)["counts"]}))

"""How files are converted to text, and the job of `memagent convert`."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, field_validator

from memagent_batch.config.job import ExecutorKind
from memagent_batch.config.section import Section, Text, TextOrTexts
from memagent_batch.config.sources import Storage, Trust

_Number = Annotated[int, Field(gt=0, lt=1e9)]
SECONDS, OCR_SECONDS = 60.0, 600.0
"""Default time of one file's process, seconds: OCR takes some 5 to 10 for a page."""
MEMORY_MIB, OCR_MEMORY_MIB = 1024, 2048
"""Default memory of one file's process, MiB: the models of OCR and a page take 0.7 GiB."""
MIN_CONFIDENCE = 0.7
"""Default confidence of a line, from 0 to 1, below which it is doubtful."""
OCR_CONVERTERS = {"image": "rapidocr"}


class ConvertConfig(Section):
    """How files are converted to text, each in its own process."""

    ocr: bool = False
    """Read images, and pages and pictures without a text layer, by OCR (pip install 'memagent-batch[ocr]')."""
    ocr_min_confidence: Annotated[float, Field(ge=0, le=1)] = MIN_CONFIDENCE
    """A line that OCR reads with less confidence is read again, larger and turned. If it stays below, its page is
    `needs_review`."""
    converter: tuple[str, ...] = ()
    """Another converter for a kind (pdf, html, docx, slides, sheets, opendocument, image, email, outlook, markdown,
    rtf, text, zip) or an ending (.dat), as KIND=NAME, with an installed name or package.module:Class; can be
    repeated."""
    seconds: Annotated[float, Field(gt=0, lt=1e9)] | None = None
    """Time of one file's process; 60 by default, 600 with OCR."""
    memory_mib: _Number | None = None
    """Memory of one file's process, MiB; 1,024 by default, 2,048 with OCR."""
    output_mib: _Number = 256
    """Text and attachments of one file, MiB; of a file with all its attachments twice as much."""
    file_mib: _Number = 256
    """Size from which a file is skipped, MiB."""
    trust: Trust = Trust.ETAG
    """How a run knows that a file has not changed: `etag` goes by size and ETag, on a disk by size and times, and does
    not open what is unchanged; `content` reads every file."""

    @field_validator("converter")
    @classmethod
    def _require_pairs(cls, converter: tuple[str, ...]) -> tuple[str, ...]:
        for text in converter:
            kind, _, name = text.partition("=")
            if not (kind and name):
                raise ValueError(f"{text!r} is not KIND=NAME, such as pdf=my_package.pdf:Mine")
        return converter

    @property
    def converters(self) -> Mapping[str, str]:
        """Other converters than the default ones, by kind or ending."""
        pairs = (text.partition("=") for text in self.converter)
        return {**(OCR_CONVERTERS if self.ocr else {}), **{kind.lower(): name for kind, _, name in pairs}}


class ConvertPlaces(Storage):
    """What is converted, and where to."""

    documents: Annotated[TextOrTexts, Field(min_length=1)]
    """Files, folders or globs, all on one file system; paths or fsspec URLs."""
    output: Text
    """Where to write: a folder or fsspec URL."""


class ConvertJob(ConvertConfig, ConvertPlaces):
    """All settings of `memagent convert`."""

    allow_code: bool = False
    """Allow --converter to name code of yours, which is then run."""
    retry_failed: bool = False
    """Convert files again that failed before."""
    max_failed_share: Annotated[float, Field(ge=0, le=1)] = 1.0
    """End with exit code 4 if a larger share of the files failed, from 0 to 1."""
    executor: ExecutorKind = ExecutorKind.AUTO
    """Where files are converted: in this process (local), or by Ray; auto takes local for at most 100 files and 64
    MiB."""

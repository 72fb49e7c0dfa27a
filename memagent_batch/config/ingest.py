"""How document files (PDF, Office, mail, images) become text."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, field_validator

from memagent_batch.config.section import Section

_Number = Annotated[int, Field(gt=0, lt=1e9)]
SECONDS, OCR_SECONDS = 60.0, 600.0
"""Default time of one file's process, seconds: OCR takes some 5 to 10 for a page."""
MEMORY_MIB = 2048
"""Default memory of one file's process, MiB."""
MIN_CONFIDENCE = 0.7
"""Default confidence of a line, from 0 to 1, below which it is doubtful."""
OCR_CONVERTERS = {"image": "rapidocr"}


class IngestConfig(Section):
    """How document files become text, each in its own process."""

    ocr: bool = False
    """Read images, and pages and pictures without a text layer, by OCR (pip install 'memagent-batch[ocr]')."""
    ocr_min_confidence: Annotated[float, Field(ge=0, le=1)] = MIN_CONFIDENCE
    """OCR reads a line below this confidence again, larger and turned. If it stays below, its page is
    `needs_review`."""
    converter: tuple[str, ...] = ()
    """Another converter, as KIND=NAME, for a kind (pdf, html, docx, email, markdown, text, zip, image, slides, sheets,
    opendocument, outlook, rtf, archive, epub, tnef, pst, old_office) or an ending (.dat). NAME is installed, or
    package.module:Class. Can be repeated."""
    seconds: Annotated[float, Field(gt=0, lt=1e9)] | None = None
    """Time limit of one file, seconds: 60 by default, 600 with OCR."""
    memory_mib: _Number = MEMORY_MIB
    """Memory limit of one file, MiB. OCR takes some 700, LibreOffice up to 1,000."""
    output_mib: _Number = 256
    """Limit of text and attachments of one file, MiB; twice as much with all nested attachments."""
    file_mib: _Number = 256
    """Larger files are skipped, MiB."""

    @field_validator("memory_mib", mode="before")
    @classmethod
    def _default_memory(cls, memory_mib: Any) -> Any:
        """The default for null, which job files may have."""
        return MEMORY_MIB if memory_mib is None else memory_mib

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

"""What lists all that a file of each kind contains."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from memagent_batch.data.ingest.counts.mail import mail_contents
from memagent_batch.data.ingest.counts.old_office import old_office_contents
from memagent_batch.data.ingest.counts.outlook import outlook_contents, pst_contents, tnef_contents
from memagent_batch.data.ingest.counts.packages import office_contents, zip_contents
from memagent_batch.data.ingest.counts.pages import epub_contents, html_contents
from memagent_batch.data.ingest.counts.pdf import pdf_contents
from memagent_batch.data.ingest.counts.rtf import rtf_contents
from memagent_batch.data.ingest.counts.text import text_contents
from memagent_batch.data.ingest.counts.words import Content
from memagent_batch.data.ingest.readers.kinds import FileKind

CONTENTS: Mapping[str, Callable[[Path], Iterator[Content]]] = {
    FileKind.DOCX: office_contents,
    FileKind.EMAIL: mail_contents,
    FileKind.EPUB: epub_contents,
    FileKind.HTML: html_contents,
    FileKind.MARKDOWN: text_contents,
    FileKind.OLD_OFFICE: old_office_contents,
    FileKind.OPENDOCUMENT: office_contents,
    FileKind.OUTLOOK: outlook_contents,
    FileKind.PDF: pdf_contents,
    FileKind.PST: pst_contents,
    FileKind.RTF: rtf_contents,
    FileKind.SHEETS: office_contents,
    FileKind.SLIDES: office_contents,
    FileKind.TEXT: text_contents,
    FileKind.TNEF: tnef_contents,
    FileKind.ZIP: zip_contents,
}
"""A kind without an entry is not counted: pictures, which have no words, archives other than ZIP, and kinds that only a
plug-in reads. `tests/convert/test_counts.py` has the reasons."""

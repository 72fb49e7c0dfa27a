"""`memagent page`: the answers of a finished run as a site without a server."""

import json
import sys
from typing import Annotated

from pydantic import Field

from memagent_batch.apps.pages.site import CONTEXT_CHARS, PAGES_FOLDER, write_site
from memagent_batch.cli.settings import OutputsCommand
from memagent_batch.loop.texts.shares import quantity
from memagent_batch.masking import printable


class Page(OutputsCommand):
    """Writes the answers of the last finished run as web pages: a table of documents and questions, and a page for each
    document. Open index.html in a browser.
    """

    command = "memagent page"
    examples = ("memagent page out/", "memagent page s3://bucket/scan/ --to s3://bucket/site/ --context 0")
    pages = ("docs/how-to/page.md",)

    to: str | None = None
    """Folder of the site (default: OUTPUT/pages, in the first output)."""
    context: Annotated[int, Field(ge=0)] = CONTEXT_CHARS
    """Characters of the document before and after evidence."""
    page_images: bool = False
    """Show an image of each PDF page that holds evidence, with the words marked. Reads the source files again; an image
    takes up to 150 kB."""
    yes: bool = False
    """Write the site even for more than 100,000 answers (about 1 GB)."""

    def run(self) -> None:
        outputs = self.locations
        written = write_site(
            outputs,
            self.locate(self.to) if self.to else outputs[0] / PAGES_FOLDER,
            context_chars=self.context,
            is_large_allowed=self.yes,
            has_page_images=self.page_images,
        )
        if sys.stdout.isatty():
            answers, documents = quantity(written["readings"], "answer"), quantity(written["documents"], "document")
            print(f"{answers} of {documents}")
            if self.page_images:
                print(f"{quantity(written['page_images'], 'page')} of PDFs as images")
            if without := written["documents_without_images"]:
                print(f"{quantity(without, 'document')} without some of them: its page says why")
            print(f"\nnext: open {printable(written['page'])} in a browser")
        else:
            print(json.dumps(written, indent=2, ensure_ascii=False))

"""`memagent forget` and `memagent vacuum`: erasure of documents, and retention by hand."""

import shlex
import sys
from typing import Annotated

from pydantic import Field

from memagent_batch.cli.settings import JsonCommand, OutputCommand
from memagent_batch.config.section import TextOrTexts
from memagent_batch.errors import SettingsError
from memagent_batch.loop.texts.shares import quantity
from memagent_batch.masking import mask_url, printable

SHOWN_DOCUMENTS = 10


class Forget(OutputCommand, JsonCommand):
    """Deletes documents from all tables, the turn log, reviews and pages of an output, and with them all earlier
    versions of the tables. Stops a run in progress.
    """

    command = "memagent forget"
    examples = (
        "memagent forget out/ --document contract-17 --document contract-18",
        "memagent forget s3://bucket/scan/ --where \"team = 'x' and year < 2020\" --yes",
    )
    pages = ("docs/how-to/retention.md",)

    document: TextOrTexts = ()
    """Ids of the documents."""
    where: str | None = None
    """Condition that selects the documents instead: SQL over the columns of `documents` or `answers`."""
    yes: bool = False
    """Do not ask."""

    def run(self) -> None:
        from memagent_batch.apps.forget import find_documents, forget

        if bool(self.document) == (self.where is not None):
            raise SettingsError("name the documents with --document, or by a condition with --where")
        output = self.location
        found = find_documents(output, document_ids=self.document, where=self.where)
        missing = sorted({*self.document} - {*found})
        if missing:
            print(f"not there: {printable(', '.join(missing[:SHOWN_DOCUMENTS]))}", file=sys.stderr)
        if not self.yes:
            _confirm(found)
        report = forget(output, found)
        num_rows = sum(report["rows"].values())
        self.report(
            report,
            [
                f"{quantity(report['documents'], 'document')} forgotten: {quantity(num_rows, 'row')} of the tables, "
                f"{report['log_rows']:,} of the log, {quantity(report['files'], 'file')} of earlier versions, "
                "pages and inputs",
                "earlier runs can't be read any more",
                "a document that is still in its source comes back with the next run: delete it there too",
                f"next: memagent page {shlex.quote(mask_url(self.output))}    # writes the pages again",
            ],
        )


def _confirm(document_ids: list[str]) -> None:
    """Asks a person whether the documents are to be deleted.

    Raises:
        SettingsError: there is no terminal, or the answer is no.
    """
    named = ", ".join(document_ids[:SHOWN_DOCUMENTS]) + (", ..." if len(document_ids) > SHOWN_DOCUMENTS else "")
    if not sys.stdin.isatty():
        raise SettingsError(
            f"{quantity(len(document_ids), 'document')} would be deleted for good ({printable(named)}); pass --yes"
        )
    print(printable(f"{quantity(len(document_ids), 'document')}: {named}"), file=sys.stderr)
    print("delete them, and all earlier versions of the tables, for good? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise SettingsError("nothing was deleted; answer y to delete")


class Vacuum(OutputCommand, JsonCommand):
    """Deletes what is older than the retention: earlier versions of the tables, rows of the turn log of documents and
    agents that are no longer in `answers`, and pages that the site does not show. Refuses while a run has not finished.
    """

    command = "memagent vacuum"
    examples = ("memagent vacuum out/", "memagent vacuum s3://bucket/scan/ --keep-days 7 --log-keep-days 30")
    pages = ("docs/how-to/retention.md",)

    keep_days: Annotated[float, Field(ge=0)] | None = None
    """Days for which earlier versions stay (default: `record.keep_days` of the last run)."""
    log_keep_days: Annotated[float, Field(ge=0)] | None = None
    """Days for which unused rows of the log stay (default: `log.keep_days` of the last run)."""

    def run(self) -> None:
        from memagent_batch.apps.pages.site import PAGES_FOLDER, vacuum_site
        from memagent_batch.run.retention import vacuum

        report = vacuum(self.location, keep_days=self.keep_days, log_keep_days=self.log_keep_days)
        report["files"] += vacuum_site(self.location / PAGES_FOLDER)
        self.report(
            report,
            [f"{quantity(report['files'], 'file')} and {quantity(report['log_rows'], 'row')} of the log removed"],
        )

"""`memagent review import`: takes labels in."""

import json

from memagent_batch.cli.command import OutputCommand


class Import(OutputCommand):
    """Takes labels in, from labels.csv files that the page or a spreadsheet saved: all rows or, if one is
    wrong, none. A label is never changed or lost; the same file twice changes nothing.
    """

    command = "memagent review import"
    examples = (
        "memagent review import out/ labels-clause-1a2b3c4d5e-first.csv",
        "memagent review import s3://bucket/scan/ labels.csv --reviewer ada",
    )
    page = "docs/how-to/review.md"
    words = ("output", "sheets")

    sheets: tuple[str, ...]
    """The sheets, such as labels.csv: files or any fsspec URLs."""
    reviewer: str | None = None
    """Who labelled, for rows that don't say."""

    def run(self) -> None:
        """Imports."""
        from memagent_batch.flows.review import import_labels

        sheets = [self.locate(uri) for uri in self.sheets]
        print(json.dumps(import_labels(self.location, sheets, reviewer=self.reviewer)))

"""`memagent bundle`: the record of an output and its reviews as one archive for someone outside."""

import json

from memagent_batch.cli.settings import OutputCommand
from memagent_batch.errors import SettingsError


class Bundle(OutputCommand):
    """Verifies the last run of an output and packs it into a zip archive: its record, the tables answers and evidence,
    reviews, and a README of how to check them without memagent. Exit code 5 if something is wrong.
    """

    command = "memagent bundle"
    examples = (
        "memagent bundle out/ --to scan.zip",
        "memagent bundle s3://bucket/scan/ --to scan.zip --without-tables",
    )
    page = "docs/how-to/record.md"

    to: str
    """The archive, which ends in .zip: a path or any fsspec URL."""
    without_tables: bool = False
    """Leave out answers and evidence, which quote documents."""
    without_text: bool = False
    """Read no documents; the table `evidence` is then not verified."""

    def run(self) -> None:
        if not self.to.endswith(".zip"):
            raise SettingsError(f"--to: {self.to} does not end in .zip, the one format that is written; rename it")
        from memagent_batch.flows.audit import bundle

        packed = bundle(
            self.location,
            self.locate(self.to),
            with_tables=not self.without_tables,
            with_text=not self.without_text,
        )
        print(json.dumps(packed, indent=2, ensure_ascii=False))

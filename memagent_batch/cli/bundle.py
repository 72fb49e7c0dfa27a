"""`memagent bundle`: the record of an output, its reviews and its card as one archive for someone outside."""

import json

from memagent_batch.cli.command import OutputCommand
from memagent_batch.errors import SettingsError


class Bundle(OutputCommand):
    """Packs the record of an output into a zip archive: manifests, cards and plans of its runs, question lists,
    labels, samples and estimates of reviews. `memagent verify` checks the unpacked archive as far as it goes.
    """

    command = "memagent bundle"
    examples = ("memagent bundle out/ --to scan.zip", "memagent bundle s3://bucket/scan/ --to scan.zip --with-tables")
    page = "docs/how-to/record.md"

    to: str
    """The archive, which ends in .zip: a path or any fsspec URL."""
    with_tables: bool = False
    """Pack the tables too: answers, memories and evidence quote documents."""

    def run(self) -> None:
        """Writes the archive."""
        if not self.to.endswith(".zip"):
            raise SettingsError(f"--to: {self.to} does not end in .zip, the one format that is written; rename it")
        from memagent_batch.verification.bundle import write_bundle

        packed = write_bundle(self.location, self.locate(self.to), with_tables=self.with_tables)
        print(json.dumps(packed, indent=2, ensure_ascii=False))

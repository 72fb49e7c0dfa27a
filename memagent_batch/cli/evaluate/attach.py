"""`memagent evaluate attach`: puts what an evaluation found of a reader onto the cards of its scan."""

import json

from memagent_batch.cli.command import StorageCommand
from memagent_batch.config.section import Text


class Attach(StorageCommand):
    """Puts what an evaluation found onto the cards of a scan by the same reader."""

    command = "memagent evaluate attach"
    examples = (
        "memagent evaluate attach eval/ --to out/",
        "memagent evaluate attach s3://bucket/eval/ --to s3://bucket/scan/",
    )
    page = "docs/how-to/record.md"
    words = ("output",)

    output: Text
    """The output of `evaluate run`: a folder or any fsspec URL."""
    to: Text
    """The output of `memagent answer`."""

    def run(self) -> None:
        """Writes what was found of each variant."""
        from memagent_batch.evaluation.attach import attach

        attached = attach(self.locate(self.output), output=self.locate(self.to))
        print(json.dumps({"attached": attached}, indent=2, ensure_ascii=False))

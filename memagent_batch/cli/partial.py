"""`memagent partial`: the answers that a running or stopped run has so far, beside its tables."""

import json

from memagent_batch.cli.settings import OutputCommand


class Partial(OutputCommand):
    """Writes the answers that a running or stopped run has so far to `partial/`, marked as incomplete.
    The tables and the run stay as they are.
    """

    command = "memagent partial"
    examples = ("memagent partial out/", "memagent partial s3://bucket/scan/")
    page = "docs/how-to/nightly-scans.md"

    def run(self) -> None:
        from memagent_batch.runs.partial import write_partial

        print(json.dumps(write_partial(self.location), indent=2))

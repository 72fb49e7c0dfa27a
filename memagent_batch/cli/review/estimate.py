"""`memagent review estimate`: how good the scan is, with intervals."""

import json

from pydantic import Field

from memagent_batch.cli.command import OutputCommand
from memagent_batch.domain.texts.escapes import unescaped


class Estimate(OutputCommand):
    """Says how good the scan is by the labels of a review: precision, recall, F1, elusion, richness, error rate,
    each with its 95 % interval, and how far reviewers agree. Writes estimate.json and estimate.md into the review.
    """

    command = "memagent review estimate"
    examples = (
        "memagent review estimate out/",
        "memagent review estimate out/ --review clause-1a2b3c4d5e --json",
    )
    page = "docs/how-to/review.md"

    review: str | None = None
    """ID of the review (default: the only one)."""
    so_far: bool = False
    """Estimate before all is labelled: the intervals are wider, and hold however often you look."""
    with_seen: bool = False
    """Count labels that were given with the answer in view."""
    as_json: bool = Field(default=False, alias="json")
    """Print JSON."""

    def run(self) -> None:
        """Prints the estimates."""
        from memagent_batch.flows.review import estimate

        values, page = estimate(self.location, self.review, so_far=self.so_far, with_seen=self.with_seen)
        print(json.dumps(values, indent=2, ensure_ascii=False) if self.as_json else unescaped(page).rstrip("\n"))

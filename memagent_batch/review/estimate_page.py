"""What a review says, as a Markdown page for people: `estimate.md.j2`."""

from memagent_batch.evaluation.report.templates import markdown_template
from memagent_batch.review.estimates import CountedLabels, ReviewEstimate
from memagent_batch.review.measures import Measure
from memagent_batch.review.record import Review

MEANINGS = {
    Measure.PRECISION: "of what was found is right",
    Measure.RECALL: "of all that is right was found",
    Measure.F1: "F1, the harmonic mean of the two",
    Measure.ELUSION: "of what was not found should have been",
    Measure.RICHNESS: "of all readings are what is looked for",
}
"""What follows the share, in words."""


def estimate_page(review: Review, counted: CountedLabels, estimate: ReviewEstimate) -> str:
    """The page."""
    return markdown_template("memagent_batch.review", "estimate.md.j2").render(
        record=review.record, about=review.decision, counted=counted, estimate=estimate, meanings=MEANINGS
    )

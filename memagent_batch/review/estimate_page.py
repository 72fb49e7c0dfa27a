"""What a review says, as a Markdown page for people: `estimate.md.j2`."""

import jinja2

from memagent_batch.domain.texts.escapes import escaped
from memagent_batch.domain.texts.shares import percent, quantity
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
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("memagent_batch.review", "."),
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "escaped": escaped,
        "number": lambda value: f"{value:,}",
        "percent": percent,
        "quantity": quantity,
    }
    return environment.get_template("estimate.md.j2").render(
        record=review.record,
        about=review.decision,
        counted=counted,
        estimate=estimate,
        meanings=MEANINGS,
    )

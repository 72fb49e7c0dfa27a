"""`memagent review plan`: what so many labels will say, before anyone reads."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from memagent_batch.cli.review.asked import AskedCommand

if TYPE_CHECKING:
    from memagent_batch.flows.review import ReviewPlan

Share = Annotated[float, Field(gt=0, le=1)]


class Plan(AskedCommand):
    """Says how wide the 95 % intervals of recall and precision will be for so many labels, for several truths
    that may hold. If what is looked for is rare, it says that no sample of a size people can read helps.
    """

    command = "memagent review plan"
    examples = (
        "memagent review plan out/ --question clause --labels 750",
        "memagent review plan out/ --question risk --by value_label --labels 2000",
    )

    precision: Share = 0.8
    """Share of what is flagged that is assumed to be right."""
    width: Share = 0.2
    """Wanted width of the interval of recall."""
    as_json: bool = Field(default=False, alias="json")
    """Print JSON."""

    def run(self) -> None:
        """Prints the plan."""
        from memagent_batch.flows.review import plan_review

        plan = plan_review(self.location, self.asked(), precision=self.precision, width=self.width)
        lines = _plan_lines(plan, width=self.width)
        print(json.dumps(asdict(plan), indent=2) if self.as_json else "\n".join(lines))


def _plan_lines(plan: "ReviewPlan", *, width: float) -> Iterator[str]:
    from memagent_batch.domain.texts.shares import percent
    from memagent_batch.review.sample.plan import POOR_RICHNESS, TRIED_LABELS

    yield f"{'stratum':<24}{'readings':>12}{'labels':>10}"
    for name, size in plan.readings.items():
        yield f"{name[:23]:<24}{size:>12,}{plan.drawn[name]:>10,}"
    if plan.num_unreadable:
        yield f"{'without a text':<24}{plan.num_unreadable:>12,}{0:>10}"
    yield ""
    yield "If this share of what was not flagged is in truth sought (elusion), the intervals will be:"
    head = ("elusion", "richness", "recall", "interval", "its low end", "precision", f"labels for {width:g}")
    yield "".join(f"{cell:>15}" for cell in head)
    for row in plan.rows:
        if row.value is not None and row.elusion == plan.rows[0].elusion:
            yield f"{row.value}:"
        cells = (
            *(percent(row.elusion), percent(row.richness), percent(row.recall.value)),
            *(f"{row.recall.width:.2f} wide", percent(row.recall.low), f"{row.precision.width:.2f} wide"),
            f"{row.num_labels_needed:,}" if row.num_labels_needed else f"over {TRIED_LABELS[-1]:,}",
        )
        yield "".join(f"{cell:>15}" for cell in cells)
    if any(row.richness < POOR_RICHNESS or not row.helps for row in plan.rows):
        yield ""
        yield (
            f"Where richness is below {percent(POOR_RICHNESS)}, or no number of labels is named, no sample that "
            "people can read says much of recall: measure precision, and look for what was missed in other ways."
        )

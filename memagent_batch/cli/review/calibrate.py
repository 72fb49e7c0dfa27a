"""`memagent review calibrate`: which answers need a second pass, so that the wanted share is found."""

import json
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from memagent_batch.cli.command import OutputCommand
from memagent_batch.config.section import Text

if TYPE_CHECKING:
    from memagent_batch.flows.calibrate import Calibration

Share = Annotated[float, Field(gt=0, lt=1)]


class Calibrate(OutputCommand):
    """Says by the labels of a review (--purpose develop) how sure a no must be to stand: what is answered by yes
    or read again then holds the wanted share of what is looked for. Prints the condition for a second pass.
    """

    command = "memagent review calibrate"
    examples = (
        "memagent review calibrate out/ --question clause",
        "memagent review calibrate out/ --question clause --recall 0.9 --json",
    )
    page = "docs/how-to/second-pass.md"

    question: Text
    """Question_id of the question."""
    review: str | None = None
    """ID of the review (default: the only one that fits)."""
    recall: Share = 0.95
    """Share to be found, at least."""
    delta: Share = 0.05
    """How often it may be missed."""
    as_json: bool = Field(default=False, alias="json")
    """Print JSON."""

    def run(self) -> None:
        """Prints the condition."""
        from memagent_batch.flows.calibrate import calibrate
        from memagent_batch.review.calibration.threshold import Target

        target = Target(recall=self.recall, delta=self.delta)
        learnt = calibrate(self.location, self.question, review_id=self.review, target=target)
        print(json.dumps(learnt, indent=2, ensure_ascii=False) if self.as_json else _sentences(learnt))


def _sentences(learnt: "Calibration") -> str:
    """What the labels say, and the condition."""
    labels = f"by {learnt['num_labels']:,} labels, {learnt['num_positives']:,} of them positive"
    if learnt["num_positives"] < learnt["fewest_positives"]:
        labels += f" (fewer than {learnt['fewest_positives']:,} can't show less than reading every no again)"
    return (
        f"a no with confidence <= {learnt['up_to']:.4g} is read again: this holds recall {learnt['recall']:g} "
        f"with delta {learnt['delta']:g}, {labels}\n"
        f"{learnt['read_again']:,} of {learnt['readings']:,} readings fulfil the condition:\n"
        f'--where "{learnt["where"]}"'
    )
